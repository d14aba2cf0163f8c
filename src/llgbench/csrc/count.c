/* Counting jobs: what a process under callgrind does, as data.
 *
 * The same code does a job twice. In llgbench's own process the requests to callgrind are left out,
 * llama.cpp tokenizes, and what it was asked is recorded (record.c). In the program of counter.c
 * the recording answers, and callgrind counts.
 *
 * Callgrind hands out its count in a dump alone, which sets it back to zero; a dump costs some
 * milliseconds and is not itself counted. What a tokenize_fn does is llama.cpp's, so collection
 * pauses in it. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#ifdef LB_UNDER_CALLGRIND
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_START_INSTRUMENTATION (void)0
#define CALLGRIND_TOGGLE_COLLECT (void)0
#define CALLGRIND_DUMP_STATS_AT(name) (void)(name)
#endif

enum { ENGINES = 8, TOKENIZERS = 8, MATCHERS = 16 };

typedef struct {
    const char *path;
    lb_engine api;
} engine;

typedef struct {
    const lb_engine *api;
    LlgTokenizer *handle;
    lb_tokenize_source source;
    struct job *job;
} tokenizer;

typedef struct {
    const lb_engine *api;
    const char *path;
    LlgMatcher *handle;
} matcher;

typedef struct job {
    const uint8_t *at, *end;
    engine engines[ENGINES];
    tokenizer tokenizers[TOKENIZERS];
    matcher matchers[MATCHERS];
    uint32_t n_engines, n_tokenizers;
    const lb_tokenize_source *sources;
    uint32_t n_sources;
    lb_count_result *result; /* of the step being done */
    bool instrumented, collecting, failed;
    char *error;
    size_t error_len;
} job;

static void fail(job *j, const char *format, ...) {
    va_list arguments;
    if (j->failed) return;
    j->failed = true;
    va_start(arguments, format);
    vsnprintf(j->error, j->error_len, format, arguments);
    va_end(arguments);
}

/* ---- reading: after a failure everything reads as nothing ---- */

static const void *block(job *j, size_t size) {
    static const uint32_t nothing[1] = {0};
    const size_t padded = (size + 3) & ~(size_t)3;
    if (j->failed || (size_t)(j->end - j->at) < padded) {
        fail(j, "the job ends in the middle of a step");
        return nothing;
    }
    const void *found = j->at;
    j->at += padded;
    return found;
}

static uint32_t word(job *j) {
    uint32_t found;
    memcpy(&found, block(j, sizeof found), sizeof found);
    return found;
}

static const void *counted_block(job *j, size_t item, uint32_t *n) {
    *n = word(j);
    const void *found = block(j, *n * item);
    if (j->failed) *n = 0;
    return found;
}

/* Ends with a NUL, which is counted. */
static const char *string(job *j) {
    uint32_t n;
    const char *found = counted_block(j, 1, &n);
    if (!j->failed && (n == 0 || found[n - 1] != '\0')) fail(j, "a string of the job has no end");
    return j->failed ? "" : found;
}

/* NULL where there is none: the step is not counted. */
static const char *label(job *j) {
    const char *found = string(j);
    return *found ? found : NULL;
}

static engine *engine_of(job *j) {
    const uint32_t at = word(j);
    if (at >= j->n_engines) fail(j, "the job names engine %u of %u", at, j->n_engines);
    return j->failed ? NULL : &j->engines[at];
}

static matcher *matcher_of(job *j, bool made) {
    const uint32_t at = word(j);
    if (at >= MATCHERS)
        fail(j, "the job names matcher %u of %d", at, MATCHERS);
    else if (made != (j->matchers[at].handle != NULL))
        fail(j, made ? "matcher %u is not there yet" : "matcher %u is there already", at);
    return j->failed ? NULL : &j->matchers[at];
}

/* ---- counting ---- */

/* Needs --instr-atstart=no and --collect-atstart=no. Switching instrumentation throws away all
 * translated code, so it stays on. */
static void instrument(job *j) {
    if (!j->instrumented) CALLGRIND_START_INSTRUMENTATION;
    j->instrumented = true;
}

static void dump(const char *name, const char *what) {
    char whole[256];
    snprintf(whole, sizeof whole, "%s %s", name, what);
    CALLGRIND_DUMP_STATS_AT(whole);
}

/* No function: its own instructions would be collected. */
#define COLLECTED(j, when, call) \
    do { \
        if (when) { \
            (j)->collecting = true; \
            CALLGRIND_TOGGLE_COLLECT; \
            call; \
            CALLGRIND_TOGGLE_COLLECT; \
            (j)->collecting = false; \
        } else { \
            call; \
        } \
    } while (0)

static size_t ask(const void *user_data, const uint8_t *bytes, size_t bytes_len, uint32_t *tokens,
                  size_t n_tokens) {
    const tokenizer *t = user_data;
    const bool collecting = t->job->collecting;
    if (collecting) CALLGRIND_TOGGLE_COLLECT;
    if (t->job->result) t->job->result->asked++;
    const size_t n = t->source.ask(t->source.user_data, bytes, bytes_len, tokens, n_tokens);
    if (collecting) CALLGRIND_TOGGLE_COLLECT;
    return n;
}

/* ---- the steps ---- */

static void open_engine(job *j) {
    char why[512];
    const char *path = string(j);
    if (j->n_engines == ENGINES) fail(j, "the job has more than %d engines", ENGINES);
    if (j->failed) return;
    engine *e = &j->engines[j->n_engines];
    if (lb_engine_open(path, &e->api, why, sizeof why) != 0) fail(j, "%s: %s", path, why);
    e->path = path;
    j->n_engines++;
}

static void make_tokenizer(job *j) {
    char why[512] = "";
    uint32_t n_tokens, n_bytes;
    engine *e = engine_of(j);
    lb_tokenizer_init init = {.tok_eos = word(j), .tokenize_assumes_string = true};
    const uint32_t source = word(j);
    init.token_lens = counted_block(j, 4, &n_tokens);
    init.token_bytes = counted_block(j, 1, &n_bytes);
    init.vocab_size = n_tokens;
    uint64_t all = 0;
    for (uint32_t i = 0; i < n_tokens; i++) all += init.token_lens[i];
    if (all != n_bytes) fail(j, "the job's tokens do not have its bytes");
    if (source != LB_NONE && source >= j->n_sources) fail(j, "the job names an unknown source");
    if (j->n_tokenizers == TOKENIZERS) fail(j, "the job has more than %d tokenizers", TOKENIZERS);
    if (j->failed) return;
    tokenizer *t = &j->tokenizers[j->n_tokenizers++];
    t->api = &e->api;
    t->job = j;
    if (source == LB_NONE) {
        init.use_approximate_greedy_tokenize_fn = true;
    } else {
        t->source = j->sources[source];
        init.tokenize_fn = ask;
        init.tokenize_user_data = t;
    }
    t->handle = e->api.new_tokenizer(&init, why, sizeof why);
    if (t->handle == NULL) fail(j, "%s: no tokenizer: %s", e->path, why);
}

static void set_threshold(job *j) {
    const char *symbol = "llgx_matcher_set_fallback_threshold";
    matcher *m = matcher_of(j, true);
    const uint32_t low = word(j), high = word(j);
    if (j->failed) return;
    void *address = lb_symbol(m->path, symbol);
    if (address == NULL) {
        fail(j, "%s does not export %s", m->path, symbol);
        return;
    }
    void (*set)(LlgMatcher *, size_t);
    memcpy(&set, &address, sizeof address);
    set(m->handle, (size_t)high << 32 | low);
}

static void compile(job *j) {
    matcher *m = matcher_of(j, false);
    const uint32_t at = word(j);
    const char *grammar = string(j), *name = label(j);
    if (at >= j->n_tokenizers) fail(j, "the job names tokenizer %u of %u", at, j->n_tokenizers);
    if (j->failed) return;
    const tokenizer *t = &j->tokenizers[at];
    lb_constraint_init init;
    t->api->constraint_init_set_defaults(&init, t->handle);
    init.log_buffer_level = init.log_stderr_level = 0;
    if (name) instrument(j);
    COLLECTED(j, name, m->handle = t->api->new_matcher(&init, "lark", grammar));
    if (name) dump(name, "compile");
    m->api = t->api;
    for (uint32_t i = 0; i < j->n_engines; i++)
        if (&j->engines[i].api == t->api) m->path = j->engines[i].path;
    const char *why = m->handle ? t->api->matcher_get_error(m->handle) : "no matcher";
    if (why != NULL) fail(j, "%s: the grammar does not compile: %s", m->path, why);
}

static void replay(job *j) {
    uint32_t n, i;
    matcher *m = matcher_of(j, true);
    const uint32_t parts = word(j), after = word(j);
    const char *name = label(j);
    const uint32_t *tokens = counted_block(j, sizeof *tokens, &n);
    if (j->failed) return;
    const lb_engine *e = m->api;
    const size_t words = e->matcher_get_mask_byte_size(m->handle) / 4;
    const bool masks = name && parts & LB_PART_MASK, consumes = name && parts & LB_PART_CONSUME;
    int32_t status = 0;
    if (name) instrument(j);
    for (i = 0; i < n && !e->matcher_is_stopped(m->handle); i++) {
        COLLECTED(j, masks, status = e->matcher_compute_mask(m->handle));
        if (masks && after == LB_DUMP_CALL) dump(name, "mask");
        if (status != 0) break;
        if (!has_token(e->matcher_get_mask(m->handle), words, tokens[i]) &&
            e->matcher_validate_tokens(m->handle, tokens + i, 1) != 1)
            break;
        COLLECTED(j, consumes, status = e->matcher_consume_token(m->handle, tokens[i]));
        if (consumes && after == LB_DUMP_CALL) dump(name, "consume");
        if (status != 0) break;
        if (name && after == LB_DUMP_STEP) dump(name, "step");
    }
    if (name && after == LB_DUMP_REPLAY) dump(name, "sum");
    j->result->taken = i;
}

static void reset(job *j) {
    matcher *m = matcher_of(j, true);
    if (!j->failed && m->api->matcher_reset(m->handle) != 0)
        fail(j, "%s: a matcher cannot be reset: %s", m->path, m->api->matcher_get_error(m->handle));
}

static void drop_and_mask(job *j) {
    const char *symbol = "llgx_matcher_drop_mask_cache";
    matcher *m = matcher_of(j, true);
    const char *name = label(j);
    if (j->failed) return;
    void *address = lb_symbol(m->path, symbol);
    if (address == NULL) {
        fail(j, "%s does not export %s", m->path, symbol);
        return;
    }
    void (*drop)(LlgMatcher *);
    memcpy(&drop, &address, sizeof address);
    drop(m->handle);
    int32_t status;
    if (name) instrument(j);
    COLLECTED(j, name, status = m->api->matcher_compute_mask(m->handle));
    if (name) dump(name, "mask");
    if (status != 0)
        fail(j, "%s: a mask fails: %s", m->path, m->api->matcher_get_error(m->handle));
}

static void free_matcher(matcher *m) {
    m->api->free_matcher(m->handle);
    *m = (matcher){0};
}

static void step(job *j) {
    matcher *m;
    const uint32_t what = word(j);
    switch (what) {
        case LB_JOB_ENGINE: open_engine(j); break;
        case LB_JOB_TOKENIZER: make_tokenizer(j); break;
        case LB_JOB_THRESHOLD: set_threshold(j); break;
        case LB_JOB_COMPILE: compile(j); break;
        case LB_JOB_REPLAY: replay(j); break;
        case LB_JOB_RESET: reset(j); break;
        case LB_JOB_MASK: drop_and_mask(j); break;
        case LB_JOB_FREE:
            m = matcher_of(j, true);
            if (m) free_matcher(m);
            break;
        default: fail(j, "the job has a step of an unknown kind, %u", what);
    }
}

int lb_count_run(const uint8_t *data, size_t size, const lb_tokenize_source *sources,
                 uint32_t n_sources, lb_count_result *results, uint32_t n_results, char *error,
                 size_t error_len) {
    job *j = calloc(1, sizeof *j); /* tokenizers keep pointers into it */
    if (j == NULL) {
        snprintf(error, error_len, "no memory");
        return -1;
    }
    *j = (job){.at = data, .end = data + size, .sources = sources, .n_sources = n_sources,
               .error = error, .error_len = error_len};
    const uint32_t version = word(j), n = word(j);
    if ((uintptr_t)data % 4 != 0 || (!j->failed && version != LB_JOB_VERSION))
        fail(j, "this is not a job of version %d", LB_JOB_VERSION);
    if (n > n_results) fail(j, "the job has %u steps, there is room for %u", n, n_results);
    for (uint32_t i = 0; i < n && !j->failed; i++) {
        j->result = &results[i];
        *j->result = (lb_count_result){0};
        step(j);
    }
    if (!j->failed && j->at != j->end) fail(j, "the job goes on after its last step");
    j->result = NULL;
    for (uint32_t i = 0; i < MATCHERS; i++)
        if (j->matchers[i].handle) free_matcher(&j->matchers[i]);
    for (uint32_t i = 0; i < j->n_tokenizers; i++)
        if (j->tokenizers[i].handle) j->tokenizers[i].api->free_tokenizer(j->tokenizers[i].handle);
    const bool failed = j->failed;
    free(j);
    return failed ? -1 : 0;
}
