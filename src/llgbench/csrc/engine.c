/* Engines and llama.cpp as sets of function pointers, so that several load side by side. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

typedef struct {
    const char *name;
    size_t offset;
    bool optional; /* NULL where the library lacks it */
} symbol;

/* dlsym gives a void *; a function pointer is copied byte by byte, as ISO C asks. */
static int resolve(void *library, const symbol *symbols, size_t n, void *target, const char *what,
                   char *error, size_t error_len) {
    for (size_t i = 0; i < n; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (address == NULL && !symbols[i].optional) {
            snprintf(error, error_len, "it has no %s, so it is not a %s", symbols[i].name, what);
            return -1;
        }
        memcpy((char *)target + symbols[i].offset, &address, sizeof address);
    }
    return 0;
}

static void *open_library(const char *path, char *error, size_t error_len) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL) {
        const char *why = dlerror();
        snprintf(error, error_len, "%s", why ? why : "dlopen failed");
    }
    return library;
}

#define LLG(name) {"llg_" #name, offsetof(lb_engine, name), false}
static const symbol ENGINE_SYMBOLS[] = {
    /* Releases before 1.7.2 do not say what they are. */
    {"llg_get_version", offsetof(lb_engine, get_version), true},
    LLG(new_tokenizer),
    LLG(free_tokenizer),
    LLG(constraint_init_set_defaults),
    LLG(new_matcher),
    LLG(clone_matcher),
    LLG(free_matcher),
    LLG(matcher_get_error),
    LLG(matcher_compute_mask),
    LLG(matcher_get_mask),
    LLG(matcher_get_mask_byte_size),
    LLG(matcher_consume_token),
    LLG(matcher_validate_tokens),
    LLG(matcher_compute_ff_tokens),
    LLG(matcher_rollback),
    LLG(matcher_reset),
    LLG(matcher_is_accepting),
    LLG(matcher_is_stopped),
};

int lb_engine_open(const char *path, lb_engine *engine, char *error, size_t error_len) {
    void *library = open_library(path, error, error_len);
    if (library == NULL) return -1;
    return resolve(library, ENGINE_SYMBOLS, sizeof ENGINE_SYMBOLS / sizeof *ENGINE_SYMBOLS, engine,
                   "llguidance library", error, error_len);
}

void *lb_symbol(const char *path, const char *name) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return library ? dlsym(library, name) : NULL;
}

/* The empty engine. Its mask allows all of its 32 tokens. */
static const uint32_t EMPTY_MASK[1] = {UINT32_MAX};
static int32_t empty_compute_mask(LlgMatcher *m) { (void)m; return 0; }
static const uint32_t *empty_get_mask(LlgMatcher *m) { (void)m; return EMPTY_MASK; }
static size_t empty_mask_size(const LlgMatcher *m) { (void)m; return sizeof EMPTY_MASK; }
static int32_t empty_consume(LlgMatcher *m, uint32_t token) { (void)m; (void)token; return 0; }
static bool empty_is_stopped(const LlgMatcher *m) { (void)m; return false; }

void lb_engine_empty(lb_engine *engine) {
    memset(engine, 0, sizeof *engine);
    engine->matcher_compute_mask = empty_compute_mask;
    engine->matcher_get_mask = empty_get_mask;
    engine->matcher_get_mask_byte_size = empty_mask_size;
    engine->matcher_consume_token = empty_consume;
    engine->matcher_is_stopped = empty_is_stopped;
}

#define LLAMA(name, field) {"llama_" name, offsetof(lb_llama, field), false}
static const symbol LLAMA_SYMBOLS[] = {
    LLAMA("vocab_n_tokens", n_tokens),
    LLAMA("vocab_eot", eot),
    LLAMA("vocab_eos", eos),
    LLAMA("tokenize", tokenize),
    LLAMA("token_to_piece", token_to_piece),
    LLAMA("detokenize", detokenize),
};

enum { GGML_LOG_LEVEL_ERROR = 4 };
static char first_error[512];

static void keep_first_error(int level, const char *text, void *user_data) {
    (void)user_data;
    if (level != GGML_LOG_LEVEL_ERROR || text == NULL || first_error[0] != '\0') return;
    snprintf(first_error, sizeof first_error, "%s", text);
    first_error[strcspn(first_error, "\n")] = '\0';
}

const char *lb_llama_first_error(void) { return first_error; }

void lb_llama_forget_errors(void) { first_error[0] = '\0'; }

int lb_llama_open(const char *path, lb_llama *llama, char *error, size_t error_len) {
    void *library = open_library(path, error, error_len);
    if (library == NULL) return -1;
    if (resolve(library, LLAMA_SYMBOLS, sizeof LLAMA_SYMBOLS / sizeof *LLAMA_SYMBOLS, llama,
                "llama.cpp library", error, error_len) != 0)
        return -1;
    void (*log_set)(void (*)(int, const char *, void *), void *);
    void *address = dlsym(library, "llama_log_set");
    if (address != NULL) {
        memcpy(&log_set, &address, sizeof address);
        log_set(keep_first_error, NULL);
    }
    return 0;
}

#define DECODER(name, field) {"llama_" name, offsetof(lb_decoder, field), false}
static const symbol DECODER_SYMBOLS[] = {
    DECODER("decode", decode),
    DECODER("synchronize", synchronize),
    DECODER("get_logits_ith", get_logits_ith),
    DECODER("get_memory", get_memory),
    DECODER("memory_clear", memory_clear),
    DECODER("vocab_is_eog", is_eog),
    DECODER("sampler_init", sampler_init),
    DECODER("sampler_accept", sampler_accept),
    DECODER("sampler_apply", sampler_apply),
    DECODER("sampler_free", sampler_free),
};

int lb_decoder_open(const char *path, lb_decoder *decoder, char *error, size_t error_len) {
    void *library = open_library(path, error, error_len);
    if (library == NULL) return -1;
    return resolve(library, DECODER_SYMBOLS, sizeof DECODER_SYMBOLS / sizeof *DECODER_SYMBOLS,
                   decoder, "llama.cpp library", error, error_len);
}

#define PARALLEL(name) {"llg_" #name, offsetof(lb_parallel, name), false}
static const symbol PARALLEL_SYMBOLS[] = {
    {"llg_new_constraint_any", offsetof(lb_parallel, new_constraint), false},
    PARALLEL(clone_constraint),
    PARALLEL(free_constraint),
    PARALLEL(get_error),
    PARALLEL(compute_mask),
    PARALLEL(commit_token),
    PARALLEL(par_compute_mask),
};

int lb_parallel_open(const char *path, lb_parallel *parallel, char *error, size_t error_len) {
    void *library = open_library(path, error, error_len);
    if (library == NULL) return -1;
    return resolve(library, PARALLEL_SYMBOLS, sizeof PARALLEL_SYMBOLS / sizeof *PARALLEL_SYMBOLS,
                   parallel, "llguidance library with parallel masks", error, error_len);
}
