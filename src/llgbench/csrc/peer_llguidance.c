/* llguidance behind the adapter. Its library's own functions stand in the table where their types
 * are the table's, so that nothing is called in between. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "peers.h"

typedef struct {
    const lb_engine *engine;
    LlgTokenizer *handle;
} tokenizer;

/* The matcher that was compiled, and is never moved: matchers are its clones. */
typedef struct {
    const lb_engine *engine;
    LlgMatcher *handle;
} compiled;

static void *make_vocabulary(void *library, const lb_peer_vocab *vocab, char *error,
                             size_t error_len) {
    const lb_peer_llguidance *l = library;
    lb_tokenizer_init init = {
        .vocab_size = vocab->n_tokens,
        .tok_eos = vocab->eos,
        .token_lens = vocab->lens,
        .token_bytes = vocab->bytes,
        .tokenize_assumes_string = true,
        .tokenize_fn = l->tokenize,
        .tokenize_user_data = l->user_data,
        .use_approximate_greedy_tokenize_fn = l->tokenize == NULL,
    };
    tokenizer *t = malloc(sizeof *t);
    if (t == NULL) return NULL;
    *t = (tokenizer){l->engine, l->engine->new_tokenizer(&init, error, error_len)};
    if (t->handle != NULL) return t;
    free(t);
    return NULL;
}

static void free_vocabulary(void *vocabulary) {
    tokenizer *t = vocabulary;
    t->engine->free_tokenizer(t->handle);
    free(t);
}

static void *compile(void *vocabulary, uint32_t kind, const char *source, char *error,
                     size_t error_len) {
    const tokenizer *t = vocabulary;
    lb_constraint_init init;
    (void)kind; /* a schema comes as Lark, as llama.cpp hands it over */
    t->engine->constraint_init_set_defaults(&init, t->handle);
    init.log_buffer_level = init.log_stderr_level = 0;
    compiled *c = malloc(sizeof *c);
    if (c == NULL) return NULL;
    *c = (compiled){t->engine, t->engine->new_matcher(&init, "lark", source)};
    const char *why = c->handle ? t->engine->matcher_get_error(c->handle) : "no matcher";
    if (why == NULL) return c;
    snprintf(error, error_len, "%s", why);
    if (c->handle) t->engine->free_matcher(c->handle);
    free(c);
    return NULL;
}

static void free_compiled(void *grammar) {
    compiled *c = grammar;
    c->engine->free_matcher(c->handle);
    free(c);
}

static void *start(void *grammar, char *error, size_t error_len) {
    const compiled *c = grammar;
    void *found = c->engine->clone_matcher(c->handle);
    if (found == NULL) snprintf(error, error_len, "llg_clone_matcher returns NULL");
    return found;
}

/* Both sides are function pointers of one signature, but for the handle's type. */
#define TAKE(field, function) memcpy(&peer->field, &e->function, sizeof peer->field)

void lb_peer_llguidance_table(lb_peer_llguidance *library, lb_peer *peer) {
    const lb_engine *e = library->engine;
    *peer = (lb_peer){
        .library = library,
        .vocabulary = make_vocabulary,
        .free_vocabulary = free_vocabulary,
        .compile = compile,
        .free_compiled = free_compiled,
        .start = start,
    };
    TAKE(free_matcher, free_matcher);
    TAKE(mask, matcher_compute_mask);
    TAKE(finish, matcher_get_mask);
    TAKE(accept, matcher_consume_token);
    TAKE(complete, matcher_is_accepting);
    TAKE(stopped, matcher_is_stopped);
    TAKE(validate, matcher_validate_tokens);
    TAKE(reset, matcher_reset);
    TAKE(rollback, matcher_rollback);
    TAKE(fork, clone_matcher);
}
