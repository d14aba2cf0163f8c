/* llguidance as a llama_sampler, as llama.cpp's common/llguidance.cpp makes it one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

typedef struct {
    lb_grammar *grammar;
    LlgMatcher *matcher; /* NULL: dropped */
    size_t words;
} state;

static state *state_of(const llama_sampler *sampler) { return sampler->ctx; }

/* The first message is kept: those that follow are its consequences. */
static void note_error(state *s) {
    lb_grammar *g = s->grammar;
    const char *message = g->engine->matcher_get_error(s->matcher);
    if (message != NULL && g->error[0] == '\0') snprintf(g->error, sizeof g->error, "%s", message);
}

const uint32_t *lb_sampler_mask(llama_sampler *sampler) {
    state *s = state_of(sampler);
    if (s->matcher == NULL) return NULL;
    const lb_engine *e = s->grammar->engine;
    const uint32_t *mask = e->matcher_get_mask(s->matcher);
    if (mask != NULL) return mask;
    if (e->matcher_compute_mask(s->matcher) == 0) return e->matcher_get_mask(s->matcher);
    note_error(s);
    __atomic_add_fetch(&s->grammar->drops, 1, __ATOMIC_RELAXED);
    e->free_matcher(s->matcher);
    s->matcher = NULL;
    return NULL;
}

LlgMatcher *lb_sampler_matcher(const llama_sampler *sampler) { return state_of(sampler)->matcher; }

static const char *sampler_name(const llama_sampler *sampler) {
    (void)sampler;
    return "llguidance";
}

static void sampler_accept(llama_sampler *sampler, int32_t token) {
    state *s = state_of(sampler);
    if (s->matcher == NULL) return;
    const lb_engine *e = s->grammar->engine;
    /* An end token after the last one the grammar can take is refused, and is no error of anybody;
     * nor is a token after an error a second one. */
    bool spent = e->matcher_is_stopped(s->matcher);
    if (e->matcher_consume_token(s->matcher, (uint32_t)token) == 0 || spent) return;
    note_error(s);
    __atomic_add_fetch(&s->grammar->errors, 1, __ATOMIC_RELAXED);
}

static void sampler_apply(llama_sampler *sampler, llama_token_data_array *candidates) {
    const uint32_t *mask = lb_sampler_mask(sampler);
    if (mask != NULL) lb_apply(mask, state_of(sampler)->words, candidates);
}

static void sampler_reset(llama_sampler *sampler) {
    state *s = state_of(sampler);
    if (s->matcher != NULL) s->grammar->engine->matcher_reset(s->matcher);
}

static llama_sampler *sampler_clone(const llama_sampler *sampler) {
    const state *s = state_of(sampler);
    const lb_engine *e = s->grammar->engine;
    return lb_sampler_new(s->grammar, s->matcher ? e->clone_matcher(s->matcher) : NULL);
}

static void sampler_free(llama_sampler *sampler) {
    state *s = state_of(sampler);
    if (s->matcher != NULL) s->grammar->engine->free_matcher(s->matcher);
    __atomic_sub_fetch(&s->grammar->live, 1, __ATOMIC_RELEASE);
    free(s);
}

static llama_sampler_i INTERFACE = {
    .name = sampler_name,
    .accept = sampler_accept,
    .apply = sampler_apply,
    .reset = sampler_reset,
    .clone = sampler_clone,
    .free = sampler_free,
};

llama_sampler *lb_sampler_new(lb_grammar *grammar, LlgMatcher *matcher) {
    state *s = malloc(sizeof *s);
    if (s == NULL) return NULL;
    *s = (state){grammar, matcher, 0};
    if (matcher != NULL) s->words = grammar->engine->matcher_get_mask_byte_size(matcher) / 4;
    __atomic_add_fetch(&grammar->live, 1, __ATOMIC_RELAXED);
    return grammar->llama->sampler_init(&INTERFACE, s);
}

static inline void apply_one(const uint32_t *mask, size_t words, llama_token_data *candidate) {
    if (!has_token(mask, words, (uint32_t)candidate->id)) candidate->logit = -INFINITY;
}

/* Eight candidates are 24 values of 4 bytes, three vectors of eight: id, logit, p, id, ... */
enum { GROUP = 8 };
typedef int32_t lanes __attribute__((vector_size(32), aligned(4), may_alias));
_Static_assert(sizeof(llama_token_data) * GROUP == 3 * sizeof(lanes), "a group is three vectors");

/* Which candidate of its group a lane belongs to, -1 where the lane is of the other kind. */
static const lanes ID_OF[3] = {
    {0, -1, -1, 1, -1, -1, 2, -1}, {-1, 3, -1, -1, 4, -1, -1, 5}, {-1, -1, 6, -1, -1, 7, -1, -1}};
static const lanes LOGIT_OF[3] = {
    {-1, 0, -1, -1, 1, -1, -1, 2}, {-1, -1, 3, -1, -1, 4, -1, -1}, {5, -1, -1, 6, -1, -1, 7, -1}};

/* Candidates mostly come in the order of their ids, and then a byte of the mask tells of eight of
 * them. The ids are compared all the same, which costs nothing more of memory: they lie in the
 * cache lines of the logits. A group out of order is done one by one. */
__attribute__((target_clones("avx2", "default")))
void lb_apply(const uint32_t *mask, size_t words, llama_token_data_array *candidates) {
    llama_token_data *data = candidates->data;
    const uint8_t *bytes = (const uint8_t *)mask; /* little-endian, as llama.cpp's loop needs too */
    const size_t size = candidates->size;
    const int32_t minus_infinity = (int32_t)0xff800000;
    lanes is_id[3], is_logit[3], bit[3], expected[3];
    for (int k = 0; k < 3; k++) {
        is_id[k] = ID_OF[k] >= 0;
        is_logit[k] = LOGIT_OF[k] >= 0;
        expected[k] = ID_OF[k] & is_id[k];
        bit[k] = (((lanes){} + 1) << (LOGIT_OF[k] & is_logit[k])) & is_logit[k];
    }
    size_t i = 0;
    for (; i + GROUP <= size && i + GROUP <= words * 32; i += GROUP) {
        lanes *group = (lanes *)(data + i);
        const int32_t base = (int32_t)i;
        lanes v0 = group[0], v1 = group[1], v2 = group[2];
        lanes differs = ((v0 ^ (expected[0] + base)) & is_id[0]) |
                        ((v1 ^ (expected[1] + base)) & is_id[1]) |
                        ((v2 ^ (expected[2] + base)) & is_id[2]);
        typedef int64_t halves __attribute__((vector_size(32)));
        halves h = (halves)differs;
        if (h[0] | h[1] | h[2] | h[3]) {
            for (size_t j = i; j < i + GROUP; j++) apply_one(mask, words, data + j);
            continue;
        }
        const int32_t allowed = bytes[i / GROUP];
        if (allowed == 0xff) continue;
        lanes out0 = ((bit[0] & allowed) == 0) & is_logit[0];
        lanes out1 = ((bit[1] & allowed) == 0) & is_logit[1];
        lanes out2 = ((bit[2] & allowed) == 0) & is_logit[2];
        group[0] = (v0 & ~out0) | (out0 & minus_infinity);
        group[1] = (v1 & ~out1) | (out1 & minus_infinity);
        group[2] = (v2 & ~out2) | (out2 & minus_infinity);
    }
    for (; i < size; i++) apply_one(mask, words, data + i);
}

void lb_apply_plain(const uint32_t *mask, size_t words, llama_token_data_array *candidates) {
    (void)words;
    for (size_t i = 0; i < candidates->size; ++i) {
        int32_t token = candidates->data[i].id;
        if ((mask[token / 32] & (1u << (token % 32))) == 0) candidates->data[i].logit = -INFINITY;
    }
}

int lb_compare_apply(const uint32_t *mask, size_t words, uint32_t n, uint32_t rounds,
                     uint64_t *ours_ns, uint64_t *plain_ns, uint64_t *fill_ns) {
    llama_token_data *data = malloc(n * sizeof *data);
    if (data == NULL) return -1;
    llama_token_data_array candidates = {data, n, -1, false};
    for (uint32_t r = 0; r < 2 * rounds; r++) {
        uint64_t t0 = now_ns();
        for (uint32_t i = 0; i < n; i++) data[i] = (llama_token_data){(int32_t)i, 1.0f, 0.0f};
        uint64_t t1 = now_ns();
        fill_ns[r / 2] = t1 - t0;
        /* Which goes first changes from round to round. */
        if ((r ^ r / 2) & 1) {
            lb_apply(mask, words, &candidates);
            ours_ns[r / 2] = now_ns() - t1;
        } else {
            lb_apply_plain(mask, words, &candidates);
            plain_ns[r / 2] = now_ns() - t1;
        }
    }
    free(data);
    return 0;
}
