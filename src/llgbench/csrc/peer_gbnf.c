/* llama.cpp's grammars behind the adapter. llama.cpp has no mask: it sets the logits of what the
 * grammar forbids to minus infinity. That is timed; writing the logits anew before, and reading
 * bits of them after, is not. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "peers.h"

struct lb_gbnf {
    llama_sampler *(*init_grammar)(const llama_vocab *vocab, const char *grammar, const char *root);
    llama_sampler *(*init)(llama_sampler_i *iface, void *ctx);
    void (*apply)(llama_sampler *sampler, llama_token_data_array *candidates);
    void (*accept)(llama_sampler *sampler, int32_t token);
    void (*reset)(llama_sampler *sampler);
    llama_sampler *(*clone)(const llama_sampler *sampler);
    void (*free)(llama_sampler *sampler);
    bool (*is_eog)(const llama_vocab *vocab, int32_t token);
    const llama_vocab *vocab;
};

typedef struct {
    const lb_gbnf *library;
    uint32_t n_tokens, eos;
} vocabulary;

/* llama.cpp keeps no compiled grammar apart from a sampler; matchers are its clones. */
typedef struct {
    const vocabulary *vocabulary;
    llama_sampler *sampler;
} compiled;

typedef struct {
    void (*apply)(llama_sampler *sampler, llama_token_data_array *candidates);
    void (*accept)(llama_sampler *sampler, int32_t token);
    llama_sampler *sampler;
    llama_token_data_array candidates;
    bool ended;
    const lb_gbnf *library;
    uint32_t n_tokens, eos;
    uint32_t *bits;
} matcher;

lb_gbnf *lb_gbnf_open(const char *path, const llama_vocab *vocab, char *error, size_t error_len) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    lb_gbnf *g = calloc(1, sizeof *g);
    if (library == NULL || g == NULL) {
        const char *why = library ? "no memory" : dlerror();
        snprintf(error, error_len, "%s", why ? why : "dlopen failed");
        free(g);
        return NULL;
    }
    const struct {
        const char *name;
        void *field;
    } symbols[] = {
        {"llama_sampler_init_grammar", &g->init_grammar},
        {"llama_sampler_init", &g->init},
        {"llama_sampler_apply", &g->apply},
        {"llama_sampler_accept", &g->accept},
        {"llama_sampler_reset", &g->reset},
        {"llama_sampler_clone", &g->clone},
        {"llama_sampler_free", &g->free},
        {"llama_vocab_is_eog", &g->is_eog},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (address == NULL) {
            snprintf(error, error_len, "llama.cpp's library has no %s", symbols[i].name);
            free(g);
            return NULL;
        }
        memcpy(symbols[i].field, &address, sizeof address);
    }
    g->vocab = vocab;
    return g;
}

static void *make_vocabulary(void *library, const lb_peer_vocab *vocab, char *error,
                             size_t error_len) {
    vocabulary *v = malloc(sizeof *v);
    (void)error, (void)error_len;
    if (v != NULL) *v = (vocabulary){library, vocab->n_tokens, vocab->eos};
    return v;
}

static void *compile(void *known, uint32_t kind, const char *source, char *error,
                     size_t error_len) {
    const vocabulary *v = known;
    if (kind != LB_PEER_GBNF) {
        snprintf(error, error_len, "llama.cpp reads GBNF alone");
        return NULL;
    }
    compiled *c = malloc(sizeof *c);
    if (c == NULL) return NULL;
    *c = (compiled){v, v->library->init_grammar(v->library->vocab, source, "root")};
    if (c->sampler != NULL) return c;
    snprintf(error, error_len, "llama.cpp does not parse the grammar");
    free(c);
    return NULL;
}

static void free_compiled(void *grammar) {
    compiled *c = grammar;
    c->vocabulary->library->free(c->sampler);
    free(c);
}

static matcher *wrap(const lb_gbnf *g, llama_sampler *sampler, uint32_t n_tokens, uint32_t eos) {
    matcher *m = calloc(1, sizeof *m);
    if (m == NULL) return NULL;
    *m = (matcher){g->apply, g->accept, sampler, {NULL, n_tokens, -1, false}, false, g, n_tokens,
                   eos, NULL};
    m->candidates.data = calloc(n_tokens, sizeof *m->candidates.data);
    m->bits = calloc((n_tokens + 31) / 32, sizeof *m->bits);
    return m;
}

static void *start(void *grammar, char *error, size_t error_len) {
    const compiled *c = grammar;
    const vocabulary *v = c->vocabulary;
    llama_sampler *found = v->library->clone(c->sampler);
    if (found == NULL) snprintf(error, error_len, "llama_sampler_clone returns NULL");
    return found ? wrap(v->library, found, v->n_tokens, v->eos) : NULL;
}

static void free_matcher(void *handle) {
    matcher *m = handle;
    m->library->free(m->sampler);
    free(m->candidates.data);
    free(m->bits);
    free(m);
}

static void prepare(void *handle) {
    matcher *m = handle;
    m->candidates.size = m->n_tokens;
    m->candidates.selected = -1;
    m->candidates.sorted = false;
    for (uint32_t i = 0; i < m->n_tokens; i++)
        m->candidates.data[i] = (llama_token_data){(int32_t)i, 0.0f, 0.0f};
}

static int32_t mask(void *handle) {
    matcher *m = handle;
    m->apply(m->sampler, &m->candidates);
    return 0;
}

/* A grammar has one end, a vocabulary may have several tokens for it: the trace's stands for all. */
static const uint32_t *finish(void *handle) {
    matcher *m = handle;
    memset(m->bits, 0, (m->n_tokens + 31) / 32 * sizeof *m->bits);
    for (size_t i = 0; i < m->candidates.size; i++) {
        const llama_token_data *d = &m->candidates.data[i];
        if (d->logit != -INFINITY) m->bits[d->id / 32] |= 1u << (d->id % 32);
    }
    return m->bits;
}

static int32_t accept(void *handle, uint32_t token) {
    matcher *m = handle;
    m->accept(m->sampler, (int32_t)token);
    m->ended = token == m->eos;
    return 0;
}

static bool stopped(void *handle) { return ((matcher *)handle)->ended; }

static bool complete(void *handle) {
    matcher *m = handle;
    if (m->ended || m->eos == UINT32_MAX) return m->ended;
    prepare(m);
    mask(m);
    return has_token(finish(m), (m->n_tokens + 31) / 32, m->eos);
}

static int32_t reset(void *handle) {
    matcher *m = handle;
    m->library->reset(m->sampler);
    m->ended = false;
    return 0;
}

static void *fork_matcher(const void *handle) {
    const matcher *m = handle;
    llama_sampler *found = m->library->clone(m->sampler);
    matcher *other = found ? wrap(m->library, found, m->n_tokens, m->eos) : NULL;
    if (other) other->ended = m->ended;
    return other;
}

void lb_gbnf_table(lb_gbnf *library, lb_peer *peer) {
    *peer = (lb_peer){
        .library = library,
        .vocabulary = make_vocabulary,
        .free_vocabulary = free,
        .compile = compile,
        .free_compiled = free_compiled,
        .start = start,
        .free_matcher = free_matcher,
        .prepare = prepare,
        .mask = mask,
        .finish = finish,
        .accept = accept,
        .complete = complete,
        .stopped = stopped,
        .reset = reset,
        .fork = fork_matcher,
    };
}

/* ---- empty: llama.cpp's own calls of a sampler that does nothing ---- */

static const char *empty_name(const llama_sampler *s) { (void)s; return "empty"; }
static void empty_accept(llama_sampler *s, int32_t token) { (void)s, (void)token; }
static void empty_apply(llama_sampler *s, llama_token_data_array *c) { (void)s, (void)c; }

int lb_gbnf_empty(lb_gbnf *library, lb_peer *peer, void **handle) {
    static llama_sampler_i nothing = {
        .name = empty_name, .accept = empty_accept, .apply = empty_apply};
    llama_sampler *sampler = library->init(&nothing, NULL);
    matcher *m = sampler ? wrap(library, sampler, 1, UINT32_MAX) : NULL;
    if (m == NULL) return -1;
    lb_gbnf_table(library, peer);
    *handle = m;
    return 0;
}
