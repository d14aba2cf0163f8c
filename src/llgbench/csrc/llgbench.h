/* The native part of llgbench: what is timed is called from here, never from Python.
 *
 * This file is read twice: by the C compiler, and by cffi as the declarations Python sees (up to
 * the line that says so). It therefore keeps to plain declarations.
 */

/* ---- llguidance: the part of its C API that is used (parser/llguidance.h) ---- */

typedef struct LlgTokenizer LlgTokenizer;
typedef struct LlgMatcher LlgMatcher;
typedef size_t (*lb_tokenize_fn)(const void *user_data, const uint8_t *bytes, size_t bytes_len,
                                 uint32_t *output_tokens, size_t output_tokens_len);

/* LlgTokenizerInit, version 1, as llama.cpp fills it. */
typedef struct {
    uint32_t vocab_size;
    uint32_t tok_eos;
    const uint32_t *token_lens;
    const uint8_t *token_bytes;
    const char *tokenizer_json;
    bool tokenize_assumes_string;
    lb_tokenize_fn tokenize_fn;
    bool use_approximate_greedy_tokenize_fn;
    const void *tokenize_user_data;
    const char *const *slices;
} lb_tokenizer_init;

/* The head of LlgConstraintInit. What follows it (the limits) differs between releases and is
 * filled by the engine's own llg_constraint_init_set_defaults; `rest` is ample room for it. */
typedef struct {
    const LlgTokenizer *tokenizer;
    uint32_t log_buffer_level;
    uint32_t log_stderr_level;
    bool ff_tokens_ok;
    bool backtrack_ok;
    uint64_t rest[64];
} lb_constraint_init;

/* One engine: the functions of one shared library. */
typedef struct {
    const char *(*get_version)(void);
    LlgTokenizer *(*new_tokenizer)(const lb_tokenizer_init *init, char *error, size_t error_len);
    void (*free_tokenizer)(LlgTokenizer *tokenizer);
    void (*constraint_init_set_defaults)(lb_constraint_init *init, const LlgTokenizer *tokenizer);
    LlgMatcher *(*new_matcher)(const lb_constraint_init *init, const char *kind, const char *data);
    LlgMatcher *(*clone_matcher)(const LlgMatcher *matcher);
    void (*free_matcher)(LlgMatcher *matcher);
    const char *(*matcher_get_error)(LlgMatcher *matcher);
    int32_t (*matcher_compute_mask)(LlgMatcher *matcher);
    const uint32_t *(*matcher_get_mask)(LlgMatcher *matcher);
    size_t (*matcher_get_mask_byte_size)(const LlgMatcher *matcher);
    int32_t (*matcher_consume_token)(LlgMatcher *matcher, uint32_t token);
    int32_t (*matcher_validate_tokens)(LlgMatcher *matcher, const uint32_t *tokens, size_t n);
    int32_t (*matcher_compute_ff_tokens)(LlgMatcher *matcher, uint32_t *output, size_t n);
    int32_t (*matcher_rollback)(LlgMatcher *matcher, size_t n);
    int32_t (*matcher_reset)(LlgMatcher *matcher);
    bool (*matcher_is_accepting)(LlgMatcher *matcher);
    bool (*matcher_is_stopped)(const LlgMatcher *matcher);
} lb_engine;

/* Open the library at `path` and resolve every function; 0, or -1 with one line in `error`.
 * The library stays loaded for the life of the process: Rust's thread pools outlive a dlclose. */
int lb_engine_open(const char *path, lb_engine *engine, char *error, size_t error_len);

/* An engine whose every call does nothing: what a step costs before llguidance does any work. */
void lb_engine_empty(lb_engine *engine);

/* The address of an optional export of the library at `path`, NULL where it has none. */
void *lb_symbol(const char *path, const char *name);

/* ---- llama.cpp: the vocabulary functions (include/llama.h) ---- */

typedef struct llama_vocab llama_vocab;

typedef struct {
    int32_t (*n_tokens)(const llama_vocab *vocab);
    int32_t (*eot)(const llama_vocab *vocab);
    int32_t (*eos)(const llama_vocab *vocab);
    int32_t (*tokenize)(const llama_vocab *vocab, const char *text, int32_t text_len,
                        int32_t *tokens, int32_t n_max, bool add_special, bool parse_special);
    int32_t (*token_to_piece)(const llama_vocab *vocab, int32_t token, char *buf, int32_t length,
                              int32_t lstrip, bool special);
    int32_t (*detokenize)(const llama_vocab *vocab, const int32_t *tokens, int32_t n_tokens,
                          char *text, int32_t text_len, bool remove_special, bool unparse_special);
} lb_llama;

/* Resolve the functions in the libllama at `path`; 0, or -1 with one line in `error`. Also takes
 * llama.cpp's log: nothing is printed, the first error since lb_llama_forget_errors() is kept for
 * lb_llama_first_error(); those after it only say that the caller gave up. */
int lb_llama_open(const char *path, lb_llama *llama, char *error, size_t error_len);
const char *lb_llama_first_error(void);
void lb_llama_forget_errors(void);

/* ---- the bridge ---- */

/* The bytes of every token of a vocab, in one block. */
typedef struct {
    uint32_t n_tokens;
    uint32_t *lens;   /* [n_tokens] */
    uint8_t *bytes;   /* [size], token after token */
    size_t size;
    uint8_t *marked;  /* [n_tokens], 1 where the bytes are 0xff and the special form */
    uint64_t build_ns;
} lb_token_table;

/* Which llama.cpp function gives a token's bytes. */
enum { LB_DETOKENIZE = 0, LB_TOKEN_TO_PIECE = 1 };

/* Build the table; 0, or -1 where memory ends or llama.cpp refuses a token. */
int lb_token_table_build(const lb_llama *llama, const llama_vocab *vocab, int source,
                         lb_token_table *table);
void lb_token_table_free(lb_token_table *table);

/* What lb_tokenize gets as user data. It must outlive every tokenizer that holds it. */
typedef struct {
    const lb_llama *llama;
    const llama_vocab *vocab;
    const char *sentinel;            /* NULL: none */
    int32_t sentinel_len;
    const int32_t *sentinel_tokens;  /* what llama_tokenize makes of the sentinel alone */
    int32_t n_sentinel_tokens;
    bool parse_special;
} lb_tokenize_context;

/* llguidance's tokenize_fn on llama_tokenize(add_special = false), as in llama.cpp's
 * common/llguidance.cpp; with a sentinel it tokenizes sentinel + bytes and drops the sentinel's
 * tokens, so that a prefix the tokenizer adds falls before them. Thread-safe: it keeps no state. */
size_t lb_tokenize(const void *user_data, const uint8_t *bytes, size_t bytes_len,
                   uint32_t *output_tokens, size_t output_tokens_len);
lb_tokenize_fn lb_tokenize_pointer(void);

/* ---- clocks ---- */

uint64_t lb_now_ns(void);         /* CLOCK_MONOTONIC */
extern bool lb_clock_is_tsc;      /* which clock the replay reads: see csrc/clock.c */
double lb_ns_per_tick(void);

/* Calls with a clock around each; what they return goes to `result`. */
uint64_t lb_timed_new_tokenizer(const lb_engine *engine, const lb_tokenizer_init *init,
                                char *error, size_t error_len, LlgTokenizer **result);
uint64_t lb_timed_new_matcher(const lb_engine *engine, const lb_constraint_init *init,
                              const char *kind, const char *data, LlgMatcher **result);

/* ---- the replay ---- */

/* One step: `op_ns` is the timed operation (the mask unless asked otherwise). */
typedef struct {
    uint64_t op_ns;
    uint64_t consume_ns;
    uint64_t mask_hash;   /* of the mask's words; 0 without LB_FACTS */
    uint32_t allowed;     /* tokens the mask allows; 0 without LB_FACTS */
    uint32_t flags;
} lb_step;

enum {
    LB_STEP_ALLOWED = 1,   /* the mask allows the trace's token */
    LB_STEP_CONSUMED = 2,  /* consume_token took it */
    LB_STEP_TIMED = 4      /* op_ns holds a time */
};

/* What is timed as `op_ns`; consume_token follows in each. */
enum {
    LB_OP_MASK = 0,      /* compute_mask */
    LB_OP_CACHED = 1,    /* compute_mask once more at the same state */
    LB_OP_VALIDATE = 2,  /* validate_tokens of the next 16 tokens */
    LB_OP_FORCED = 3,    /* compute_ff_tokens */
    LB_OP_ROLLBACK = 4   /* rollback of one token just consumed, which is then consumed again */
};

/* Options. */
enum {
    LB_FACTS = 1,  /* fill mask_hash and allowed */
    LB_RESET = 2   /* reset the matcher first */
};

enum {
    LB_END = 0,            /* the whole trace was consumed */
    LB_REJECTED = 1,       /* the token of the last step cannot be consumed there */
    LB_MASK_ERROR = 2,     /* compute_mask failed: llama.cpp drops the grammar here */
    LB_CONSUME_ERROR = 3,  /* consume_token failed on a valid token, or validate_tokens failed */
    LB_STOPPED = 4,        /* the matcher had finished before the trace did */
    LB_RESET_ERROR = 5     /* a matcher in its error state cannot be reset */
};

typedef struct {
    uint32_t n_steps;   /* steps begun; the last one may be incomplete */
    int32_t outcome;
    uint64_t inside_ns; /* in llguidance: what is timed, and what is only needed to go on */
    uint64_t wall_ns;   /* of the whole loop, bookkeeping included */
} lb_replay_result;

/* Time the mask of the present state, after `drop` has made the matcher forget the one it keeps;
 * UINT64_MAX where it fails. */
uint64_t lb_timed_mask(const lb_engine *engine, LlgMatcher *matcher, void (*drop)(LlgMatcher *));

/* Drive `matcher` along `tokens` from its present state, or from the start. The matcher is never
 * asked to consume a token that the mask and validate_tokens refuse, so that it can be reset
 * afterwards. `words` is the size of a mask by the vocabulary: what the engine says of it is
 * checked before, and never decides what is read. */
void lb_replay(const lb_engine *engine, LlgMatcher *matcher, size_t words, const uint32_t *tokens,
               uint32_t n, int op, int options, lb_step *steps, lb_replay_result *result);

/* ---- the judgement ---- */

/* What the reference says that no grammar makes true: the engine's fault, not the bridge's. */
enum {
    LB_NO_FAULT = 0,
    LB_FAULT_STATUS = 1,    /* compute_mask returned a positive status */
    LB_FAULT_NO_MASK = 2,   /* compute_mask succeeded, and get_mask returned NULL */
    LB_FAULT_LEFT_OUT = 3,  /* the mask forbids a token that validate_tokens takes */
    LB_FAULT_LET_IN = 4,    /* the mask allows a token that validate_tokens refuses */
    LB_FAULT_VALIDATE = 5,  /* validate_tokens of one token returned neither 0 nor 1 */
    LB_FAULT_CONSUME = 6    /* consume_token fails on a token that is allowed */
};

typedef struct {
    int32_t kind;
    int32_t status;   /* what the call returned */
    uint32_t step;
    uint32_t token;   /* UINT32_MAX: of no token */
} lb_fault;

typedef struct {
    uint32_t n_steps;            /* masks compared */
    int32_t outcome;             /* of the matcher, as in lb_replay_result */
    int32_t reference_outcome;   /* of the reference */
    uint32_t taken;              /* tokens the matcher consumed */
    uint32_t reference_taken;    /* tokens the reference consumed */
    bool accepting;              /* both read after the last step */
    bool reference_accepting;
    uint64_t forbidden;          /* (step, token) pairs the matcher allows and the reference not */
    uint64_t missing;            /* pairs only the reference allows, but for narrowed steps */
    uint32_t forbidden_steps;
    uint32_t missing_steps;
    uint32_t narrowed_steps;     /* the matcher allows one token, the reference it and others */
    uint32_t first_step;         /* of the first forbidden or missing token; UINT32_MAX: none */
    uint32_t first_token;
    lb_fault fault;              /* the first of the reference */
    uint64_t inside_ns;          /* inside llguidance, both matchers */
    uint64_t wall_ns;
} lb_judgement;

/* Drive both matchers along `tokens` and compare their masks at every step and after the last,
 * for as long as both go on; where one rejects a token, fails or stops, the other goes on alone.
 *
 * The two are one engine, so equal masks prove nothing of it. The reference therefore answers for
 * its masks: each of its states is asked by validate_tokens for the trace's token and for a few
 * tokens in and out of its mask, spread over the vocabulary, the same in every run. `asked` is the
 * set of tokens that may be asked for, `copy` room for a mask; both have `words` words. */
void lb_judge(const lb_engine *engine, LlgMatcher *matcher, LlgMatcher *reference, size_t words,
              const uint32_t *asked, uint32_t *copy, const uint32_t *tokens, uint32_t n,
              lb_judgement *judgement);

/* ---- counting jobs: csrc/count.c ---- */

/* What answers the tokenize_fn of a job's tokenizers. */
typedef struct {
    lb_tokenize_fn ask;
    const void *user_data;
} lb_tokenize_source;

/* What came of one step of a job. */
typedef struct {
    uint32_t taken;  /* tokens that a replay consumed */
    uint32_t asked;  /* calls of tokenize_fn */
} lb_count_result;

enum { LB_PART_MASK = 1, LB_PART_CONSUME = 2 };

/* When a replay is dumped, and the word that follows its label in the dump's name: after each call,
 * "mask" or "consume"; after each step, "step"; or once, "sum". */
typedef enum { LB_DUMP_CALL, LB_DUMP_STEP, LB_DUMP_REPLAY } lb_dump_after;

/* The steps of a job, as measure/counter.py writes them; no label: the step is not counted.
 * Matchers, engines and tokenizers have numbers; the latter two in the order they were made. */
enum {
    LB_JOB_ENGINE = 1,  /* path */
    LB_JOB_TOKENIZER,   /* engine, eos, source or LB_NONE, token_lens, token_bytes */
    LB_JOB_THRESHOLD,   /* matcher, two words: its fallback's threshold from now on */
    LB_JOB_COMPILE,     /* matcher, tokenizer, grammar, label */
    LB_JOB_REPLAY,      /* matcher, parts, after, label, tokens */
    LB_JOB_RESET,       /* matcher */
    LB_JOB_MASK,        /* matcher, label: the mask kept by the matcher is dropped first */
    LB_JOB_FREE         /* matcher */
};
enum { LB_NONE = 0xffffffff, LB_JOB_VERSION = 1 };

/* Do a job; `results` has room for one a step. 0, or -1 with one line in `error`. */
int lb_count_run(const uint8_t *job, size_t size, const lb_tokenize_source *sources,
                 uint32_t n_sources, lb_count_result *results, uint32_t n_results, char *error,
                 size_t error_len);

/* The questions that were put to a tokenize_fn, each with its whole answer: length and bytes, how
 * many tokens and the tokens, as 32-bit words, bytes filled up to whole ones. */
typedef struct {
    const lb_tokenize_context *context; /* asked */
    uint8_t *data;
    size_t size;
    size_t room;
    bool failed;                        /* there was no memory */
} lb_recording;

/* A tokenize_fn whose user data is an lb_recording. */
lb_tokenize_fn lb_record_pointer(void);
void lb_recording_free(lb_recording *recording);

/* ==== the decode loop: csrc/sampler.c and csrc/decode.c ==== */

/* ---- llama.cpp: sampling and decoding, as in include/llama.h of the pinned version ---- */

typedef struct llama_context llama_context;
typedef struct llama_memory_i llama_memory_i;
typedef struct llama_sampler llama_sampler;

typedef struct {
    int32_t id;
    float logit;
    float p;
} llama_token_data;

typedef struct {
    llama_token_data *data;
    size_t size;
    int64_t selected; /* an index, not an id */
    bool sorted;
} llama_token_data_array;

typedef struct {
    int32_t n_tokens;
    int32_t *token;
    float *embd;
    int32_t *pos;
    int32_t *n_seq_id;
    int32_t **seq_id;
    int8_t *logits;
} llama_batch;

/* The last six are llama.cpp's sampling on a backend, which this sampler leaves alone. */
typedef struct {
    const char *(*name)(const llama_sampler *sampler);
    void (*accept)(llama_sampler *sampler, int32_t token);
    void (*apply)(llama_sampler *sampler, llama_token_data_array *candidates);
    void (*reset)(llama_sampler *sampler);
    llama_sampler *(*clone)(const llama_sampler *sampler);
    void (*free)(llama_sampler *sampler);
    void *backend_init;
    void *backend_accept;
    void *backend_apply;
    void *backend_set_input;
    void *backend_reset;
    void *copy_state;
} llama_sampler_i;

struct llama_sampler {
    llama_sampler_i *iface;
    void *ctx;
};

typedef struct {
    int32_t (*decode)(llama_context *context, llama_batch batch);
    void (*synchronize)(llama_context *context);
    float *(*get_logits_ith)(llama_context *context, int32_t i);
    llama_memory_i *(*get_memory)(const llama_context *context);
    void (*memory_clear)(llama_memory_i *memory, bool data);
    bool (*is_eog)(const llama_vocab *vocab, int32_t token);
    llama_sampler *(*sampler_init)(llama_sampler_i *iface, void *ctx);
    void (*sampler_accept)(llama_sampler *sampler, int32_t token);
    void (*sampler_apply)(llama_sampler *sampler, llama_token_data_array *candidates);
    void (*sampler_free)(llama_sampler *sampler);
} lb_decoder;

/* Resolve the functions in the libllama at `path`; 0, or -1 with one line in `error`. */
int lb_decoder_open(const char *path, lb_decoder *decoder, char *error, size_t error_len);

/* ---- the sampler ---- */

/* What a sampler and its clones share. It must outlive the last of them (`live` is 0 then). */
typedef struct {
    const lb_engine *engine;
    const lb_decoder *llama;
    uint32_t live;    /* samplers not freed yet */
    uint32_t drops;   /* masks that failed: the grammar was dropped, generation went on without */
    uint32_t errors;  /* tokens that the matcher could not consume */
    char error[512];  /* llguidance's first message */
} lb_grammar;

/* A llama_sampler that does what llama.cpp's common/llguidance.cpp does; it owns `matcher`. */
llama_sampler *lb_sampler_new(lb_grammar *grammar, LlgMatcher *matcher);

/* Its mask of the present state, computed unless it is there; NULL where the grammar is dropped,
 * now or before. A later apply finds the mask and only passes over the candidates. */
const uint32_t *lb_sampler_mask(llama_sampler *sampler);
LlgMatcher *lb_sampler_matcher(const llama_sampler *sampler); /* NULL: dropped */

/* -infinity for every candidate that the mask of `words` words does not allow, in any order. */
void lb_apply(const uint32_t *mask, size_t words, llama_token_data_array *candidates);
/* The same by llama.cpp's loop, to compare with. */
void lb_apply_plain(const uint32_t *mask, size_t words, llama_token_data_array *candidates);
/* Both over `n` candidates in order, turn by turn; `fill_ns` writes the candidates anew before. */
int lb_compare_apply(const uint32_t *mask, size_t words, uint32_t n, uint32_t rounds,
                     uint64_t *ours_ns, uint64_t *plain_ns, uint64_t *fill_ns);

/* ---- the loop ---- */

/* One sequence: what it samples with, what it commits, and where it stands. */
typedef struct {
    llama_sampler *grammar;   /* NULL: unconstrained */
    llama_sampler *chain;     /* chooses the token */
    const int32_t *trace;     /* what is committed, whatever is sampled; NULL: what was sampled */
    uint32_t n;               /* tokens to commit, at most where sampled ones are committed */
    int32_t *committed;       /* [n] */
    uint32_t n_committed;
    int32_t *pending;         /* [n + 1], committed and not decoded; [0] is the prompt's token */
    uint32_t n_pending;
    int32_t position;         /* tokens in the context */
    bool done;
} lb_sequence;

/* One step. Times of the sequences are added up. `mask_ns` lies within `decode_ns` with
 * LB_OVERLAP and `wait_ns` is what of it remained visible. */
typedef struct {
    uint64_t wall_ns;
    uint64_t decode_ns;      /* llama_decode and llama_synchronize */
    uint64_t candidates_ns;  /* llama_get_logits_ith and the array, as common/sampling.cpp's set_logits */
    uint64_t mask_ns;        /* llg_matcher_compute_mask */
    uint64_t wait_ns;        /* to ask another thread for a mask, and for the mask */
    uint64_t apply_ns;       /* the grammar's llama_sampler_apply, its mask computed before */
    uint64_t sample_ns;      /* the chain's llama_sampler_apply */
    uint64_t check_ns;       /* llg_matcher_validate_tokens of a token sampled first */
    uint64_t accept_ns;      /* llama_sampler_accept, grammar and chain */
    uint64_t forced_ns;      /* llg_matcher_compute_ff_tokens */
    uint32_t n_batch;        /* tokens decoded */
    uint32_t n_committed;    /* tokens committed, forced ones included */
    uint32_t n_forced;       /* of these, without a mask or a sample */
    uint32_t n_constrained;  /* sequences whose grammar stood and had not ended */
    uint32_t n_missed;       /* first samples that the grammar refused */
    uint32_t n_refused;      /* masks that did not allow the trace's token */
} lb_decode_step;

enum {
    LB_MASK_FIRST = 0,     /* mask, then sample */
    LB_SAMPLE_FIRST = 1,   /* sample, check by the mask, on a miss apply it and sample again:
                              common_sampler_sample with grammar_first = false */
    LB_VALIDATE_FIRST = 2  /* sample, check by validate_tokens, compute a mask only on a miss */
};

enum {
    LB_FORCED = 1,   /* commit forced tokens without sampling and decode them in one batch */
    LB_OVERLAP = 2,  /* another thread computes the masks while the model decodes */
    LB_AGREE = 4     /* the model's choice is the trace's token: a model that knows the format */
};

typedef struct {
    const lb_decoder *llama;
    const lb_engine *engine; /* NULL where all sequences are unconstrained */
    llama_context *context;
    const llama_vocab *vocab;
    uint32_t n_vocab;
    lb_sequence *sequences;
    uint32_t n_sequences;
    uint32_t batch_room;     /* tokens of one llama_decode */
    int mode;
    int options;
} lb_decoding;

enum {
    LB_DECODED = 0,
    LB_DECODE_FAILED = 1,   /* llama_decode: `detail` is what it returned */
    LB_DECODE_MEMORY = 2    /* no memory, or no thread */
};

typedef struct {
    int32_t outcome;
    int32_t detail;
    uint32_t n_steps;
    uint64_t wall_ns;
} lb_decode_result;

/* Clear the context's memory and run until every sequence is done. `steps` has room for n + 1. */
void lb_decode(const lb_decoding *decoding, lb_decode_step *steps, lb_decode_result *result);

/* ==== batches: csrc/batch.c ==== */

typedef struct LlgConstraint LlgConstraint;

typedef struct {
    LlgConstraint *constraint;
    uint32_t *mask_dest;
    size_t mask_byte_len;
} lb_constraint_step;

typedef struct {
    const uint32_t *sample_mask;
    float temperature;
    bool is_stop;
} lb_mask_result;

typedef struct {
    const uint32_t *tokens;
    uint32_t n_tokens;
    bool is_stop;
} lb_commit_result;

typedef void (*lb_callback)(const void *user_data);

/* llguidance's own way to compute many masks at once, which has constraints in place of matchers
 * and rayon's threads (RAYON_NUM_THREADS, read at the first call in a process). */
typedef struct {
    LlgConstraint *(*new_constraint)(const lb_constraint_init *init, const char *kind,
                                     const char *data);
    LlgConstraint *(*clone_constraint)(const LlgConstraint *constraint);
    void (*free_constraint)(LlgConstraint *constraint);
    const char *(*get_error)(const LlgConstraint *constraint);
    int32_t (*compute_mask)(LlgConstraint *constraint, lb_mask_result *result);
    int32_t (*commit_token)(LlgConstraint *constraint, uint32_t token, lb_commit_result *result);
    void (*par_compute_mask)(const lb_constraint_step *steps, size_t n_steps,
                             const void *user_data, lb_callback done);
} lb_parallel;

/* Resolve the functions in the library at `path`; 0, or -1 with one line in `error`. */
int lb_parallel_open(const char *path, lb_parallel *parallel, char *error, size_t error_len);

/* A text of a batch, as one matcher goes along it by itself on one thread: the truth that every
 * mask of the batch is held against, word by word. */
typedef struct {
    uint32_t *tokens;
    uint32_t *masks;    /* [n][words] */
    uint32_t *refused;  /* [n], a token that the grammar refuses there; UINT32_MAX: none found */
    uint32_t n;         /* steps that have a mask */
} lb_batch_text;

/* Drive `matcher` along `text->tokens` and fill in its masks and refused tokens; returns LB_END
 * and its fellows. A text that the matcher ends early is shortened to the steps that it has. */
int lb_batch_alone(const lb_engine *engine, LlgMatcher *matcher, size_t words,
                   lb_batch_text *text);

typedef struct {
    const lb_engine *engine;
    const lb_parallel *parallel; /* NULL: the masks are computed by a pool of threads here */
    LlgMatcher *elder;           /* every sequence is a clone of it; in its first state */
    LlgConstraint *constraint;   /* the same for `parallel` */
    size_t words;
    const lb_batch_text *texts;
    uint32_t n_texts;
    uint32_t n_sequences;
    uint32_t n_threads;          /* of the pool; the calling thread computes no mask */
    uint32_t n_steps;
    uint32_t draft;              /* tokens of a draft; 0: none */
    uint32_t seed;               /* of what is refused in a draft */
    bool check_ahead;            /* hold the masks of drafted tokens against the truth, too; the
                                    times then hold the comparison */
} lb_batch;

/* One step of all sequences. Only `step_ns` is an interval; the others are added up. */
typedef struct {
    uint64_t step_ns;     /* from the start until the slowest sequence's masks are there */
    uint64_t slowest_ns;  /* the longest work of one sequence; 0 with `parallel`, as the next */
    uint64_t work_ns;     /* the work of all, whichever thread did it */
    uint64_t validate_ns; /* validate_tokens of the drafts */
    uint64_t ahead_ns;    /* masks and consume_token of the drafted tokens */
    uint64_t rollback_ns; /* taking back what the model refused */
    uint64_t consume_ns;  /* consume_token of the next tokens, one sequence after another */
    uint64_t clone_ns;    /* clones for texts that begin */
    uint32_t n_clones;
    uint32_t n_drafted;   /* tokens of the drafts */
    uint32_t n_valid;     /* of these, before the one that the grammar refuses */
    uint32_t n_back;      /* of the valid ones, taken back */
    uint32_t n_rollbacks;
    uint32_t n_masks;     /* compared with the truth */
} lb_batch_step;

enum {
    LB_BATCH_DONE = 0,
    LB_BATCH_DIFFERENT = 1, /* a mask, or the length of a valid draft, is not as it was alone */
    LB_BATCH_FAILED = 2,    /* llguidance reports an error where alone there was none */
    LB_BATCH_MEMORY = 3     /* no memory, or no thread */
};

typedef struct {
    int32_t outcome;
    uint32_t n_steps;   /* done */
    uint32_t sequence;  /* where it was different, or failed */
    uint32_t text;
    uint32_t position;
    uint64_t wall_ns;
} lb_batch_result;

/* Run `n_steps` steps; `steps` has room for them. */
void lb_batch_run(const lb_batch *batch, lb_batch_step *steps, lb_batch_result *result);
