/* Other engines of constrained decoding, each behind one table of functions.
 *
 * As llgbench.h, this file is read by the C compiler and by cffi.
 */

/* The vocabulary, as every engine gets it: the real bytes of each token. */
typedef struct {
    uint32_t n_tokens;
    const uint32_t *lens;    /* [n_tokens] */
    const uint8_t *bytes;    /* token after token */
    const uint8_t *marked;   /* [n_tokens], 1: a special token, which no text spells */
    uint32_t eos;            /* UINT32_MAX: none */
} lb_peer_vocab;

enum { LB_PEER_SCHEMA = 0, LB_PEER_LARK = 1, LB_PEER_GBNF = 2 };

/* One engine. Statuses: 0, or another number where the engine refuses. What makes something returns
 * NULL where it fails, with one line in `error`. Of a matcher `mask` and `accept` alone are timed;
 * `prepare` comes before a mask, `finish` after it and gives its bits, which hold until the next
 * call. What stands below `optional` may be NULL. */
typedef struct {
    void *library;           /* handed to `vocabulary` */
    void *(*vocabulary)(void *library, const lb_peer_vocab *vocab, char *error, size_t error_len);
    void (*free_vocabulary)(void *vocabulary);
    void *(*compile)(void *vocabulary, uint32_t kind, const char *source, char *error,
                     size_t error_len);
    void (*free_compiled)(void *compiled);
    void *(*start)(void *compiled, char *error, size_t error_len);
    void (*free_matcher)(void *matcher);
    int32_t (*mask)(void *matcher);
    const uint32_t *(*finish)(void *matcher);
    int32_t (*accept)(void *matcher, uint32_t token);
    bool (*complete)(void *matcher);  /* the text may end here, or has ended */
    bool (*stopped)(void *matcher);   /* it has ended, by its end token */
    /* optional */
    void (*prepare)(void *matcher);
    int32_t (*validate)(void *matcher, const uint32_t *tokens, size_t n); /* how many it takes */
    int32_t (*reset)(void *matcher);
    int32_t (*rollback)(void *matcher, size_t n);
    void *(*fork)(const void *matcher);
    uint64_t (*memory)(void *compiled);
    bool refuses;            /* `accept` of a token that the mask forbids does no harm */
} lb_peer;

/* ---- the engines ---- */

/* llguidance, by the functions of its own library where their types are the table's. `library` must
 * outlive the table. */
typedef struct {
    const lb_engine *engine;
    lb_tokenize_fn tokenize;   /* NULL: it tokenizes greedily and forces nothing */
    const void *user_data;
} lb_peer_llguidance;
void lb_peer_llguidance_table(lb_peer_llguidance *library, lb_peer *peer);

/* xgrammar: libxgrammar_bindings.so on libtvm_ffi.so. One in a process: the second aborts on TVM
 * FFI's table of types, unless each is opened `apart`, with a C library of its own (dlmopen). */
typedef struct lb_xgrammar lb_xgrammar;
typedef struct {
    bool lazy;               /* enable_dynamic_compilation */
    bool apart;
    bool any_whitespace;
    const char *comma;       /* separators where white space is fixed */
    const char *colon;
} lb_xgrammar_options;
lb_xgrammar *lb_xgrammar_open(const char *tvm_ffi, const char *bindings,
                              const lb_xgrammar_options *options, char *error, size_t error_len);
void lb_xgrammar_table(lb_xgrammar *library, lb_peer *peer);

/* llama.cpp's own grammars, in GBNF, by the library at `path`. */
typedef struct lb_gbnf lb_gbnf;
lb_gbnf *lb_gbnf_open(const char *path, const llama_vocab *vocab, char *error, size_t error_len);
void lb_gbnf_table(lb_gbnf *library, lb_peer *peer);

/* A library that exports the table's functions as lbp_NAME: our shims around crates. 0 or -1. */
int lb_peer_open(const char *path, lb_peer *peer, char *error, size_t error_len);

/* ---- what one step costs before any engine works ---- */

/* The same adapters on engines that do nothing; `handle` gets a matcher of theirs over 32 tokens.
 * 0, or -1 where the adapter's library fails. They are not freed. */
void lb_peer_empty(lb_peer *peer, void **handle);
int lb_xgrammar_empty(lb_xgrammar *library, lb_peer *peer, void **handle);
int lb_gbnf_empty(lb_gbnf *library, lb_peer *peer, void **handle);

/* The instructions of a replay of `n` such steps, with those of a process's begin and end; -1 where a
 * process may not trace another. */
int64_t lb_peer_empty_instructions(const lb_peer *peer, void *handle, uint32_t n);

/* ---- timed ---- */

uint64_t lb_peer_timed_vocabulary(const lb_peer *peer, const lb_peer_vocab *vocab, char *error,
                                  size_t error_len, void **result);
uint64_t lb_peer_timed_compile(const lb_peer *peer, void *vocabulary, uint32_t kind,
                               const char *source, char *error, size_t error_len, void **result);
uint64_t lb_peer_timed_start(const lb_peer *peer, void *compiled, char *error, size_t error_len,
                             void **result);

/* As lb_replay, with LB_OP_MASK, by the table. LB_CONSUME_ERROR: a token that the mask allows is
 * refused. */
void lb_peer_replay(const lb_peer *peer, void *matcher, size_t words, const uint32_t *tokens,
                    uint32_t n, int options, lb_step *steps, lb_replay_result *result);

/* ---- the judgement ---- */

enum { LB_PEER_CLASSES = 5 };

/* How the two masks of a step differ. */
typedef struct {
    uint32_t extra;     /* tokens that the engine allows and the reference does not */
    uint32_t missing;   /* that the reference allows alone */
    uint32_t token;     /* the first that no class explains; UINT32_MAX: none */
    uint16_t classes;   /* bit c: class c explains some */
    uint8_t forced;     /* the engine allows one token, which is the reference's */
    uint8_t token_extra; /* `token` is one of the engine's */
} lb_peer_difference;

typedef struct {
    uint32_t n_steps;            /* masks compared */
    int32_t outcome;             /* of the engine, as in lb_replay_result */
    int32_t reference_outcome;
    uint32_t taken;              /* tokens the engine accepted */
    uint32_t reference_taken;
    bool complete;               /* both asked after the last token */
    bool reference_complete;
    uint32_t refused_step;       /* a token that the engine's mask allows and its accept refuses */
    uint32_t refused_token;      /* UINT32_MAX: none was found */
    uint32_t asked;              /* how many allowed tokens were tried beside the text's own */
    double inside_share;         /* of the call's time, in both engines */
} lb_peer_judgement;

/* Drive an engine and the reference along `tokens`, comparing their masks over `asked` at every
 * step and after the last, while both go on; where one ends the other goes on alone. At each state
 * the engine is asked to accept a few tokens of its mask, spread over the vocabulary.
 *
 * `state` [n + 1] says in which lexical state each step begins; `classes` has, for each of the
 * `n_states`, LB_PEER_CLASSES sets of tokens whose difference is explained there. `differences` has
 * room for n + 1. */
void lb_peer_judge(const lb_peer *peer, void *matcher, const lb_peer *reference, void *truth,
                   size_t words, const uint32_t *asked, uint32_t eos, const uint8_t *state,
                   const uint32_t *classes, const uint32_t *tokens, uint32_t n,
                   lb_peer_difference *differences, lb_peer_judgement *judgement);
