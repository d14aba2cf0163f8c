/* The judgement: a variant's masks beside those of exact bytes with nothing forced. */
#include "internal.h"

typedef struct {
    const lb_engine *engine;
    LlgMatcher *matcher;
    const uint32_t *mask;
    size_t words;
    int outcome;
    uint64_t *inside;
} side;

static bool compute(side *s) {
    uint64_t start = now_ticks();
    int32_t status = s->engine->matcher_compute_mask(s->matcher);
    *s->inside += now_ticks() - start;
    s->mask = status == 0 ? s->engine->matcher_get_mask(s->matcher) : NULL;
    if (s->mask == NULL) s->outcome = LB_MASK_ERROR;
    return s->mask != NULL;
}

static bool takes(side *s, const uint32_t *token) {
    if (has_token(s->mask, s->words, *token)) return true;
    uint64_t start = now_ticks();
    bool valid = s->engine->matcher_validate_tokens(s->matcher, token, 1) == 1;
    *s->inside += now_ticks() - start;
    if (!valid) s->outcome = LB_REJECTED;
    return valid;
}

static bool consume(side *s, uint32_t token) {
    uint64_t start = now_ticks();
    int32_t status = s->engine->matcher_consume_token(s->matcher, token);
    *s->inside += now_ticks() - start;
    if (status != 0) s->outcome = LB_CONSUME_ERROR;
    return status == 0;
}

__attribute__((target_clones("avx2", "popcnt", "default")))
static void difference(const uint32_t *a, const uint32_t *b, size_t words, uint32_t *only_a,
                       uint32_t *only_b, uint32_t *in_a) {
    uint32_t na = 0, nb = 0, all = 0;
    for (size_t i = 0; i < words; i++) {
        na += (uint32_t)__builtin_popcount(a[i] & ~b[i]);
        nb += (uint32_t)__builtin_popcount(b[i] & ~a[i]);
        all += (uint32_t)__builtin_popcount(a[i]);
    }
    *only_a = na;
    *only_b = nb;
    *in_a = all;
}

static uint32_t first_only(const uint32_t *a, const uint32_t *b, size_t words) {
    for (size_t i = 0; i < words; i++)
        if (a[i] & ~b[i]) return (uint32_t)(i * 32) + (uint32_t)__builtin_ctz(a[i] & ~b[i]);
    return UINT32_MAX;
}

static void compare(const side *m, const side *r, uint32_t step, lb_judgement *j) {
    uint32_t forbidden, missing, allowed;
    difference(m->mask, r->mask, m->words, &forbidden, &missing, &allowed);
    bool narrowed = forbidden == 0 && missing != 0 && allowed == 1;
    if (narrowed) {
        j->narrowed_steps++;
        return;
    }
    j->forbidden += forbidden;
    j->missing += missing;
    j->forbidden_steps += forbidden != 0;
    j->missing_steps += missing != 0;
    if (j->first_step == UINT32_MAX && (forbidden || missing)) {
        j->first_step = step;
        j->first_token = forbidden ? first_only(m->mask, r->mask, m->words)
                                   : first_only(r->mask, m->mask, m->words);
    }
}

void lb_judge(const lb_engine *engine, LlgMatcher *matcher, LlgMatcher *reference,
              const uint32_t *tokens, uint32_t n, lb_judgement *j) {
    *j = (lb_judgement){.first_step = UINT32_MAX, .first_token = UINT32_MAX};
    uint64_t begin = now_ns();
    size_t words = engine->matcher_get_mask_byte_size(matcher) / 4;
    side m = {engine, matcher, NULL, words, LB_END, &j->inside_ns};
    side r = {engine, reference, NULL, words, LB_END, &j->inside_ns};

    for (uint32_t i = 0;; i++) {
        if (engine->matcher_is_stopped(matcher) && engine->matcher_is_stopped(reference)) {
            if (i < n) m.outcome = r.outcome = LB_STOPPED;
            break;
        }
        bool m_masks = compute(&m), r_masks = compute(&r);
        if (m_masks && r_masks) {
            compare(&m, &r, i, j);
            j->n_steps++;
        }
        if (i == n || !m_masks || !r_masks) break;
        bool m_takes = takes(&m, tokens + i), r_takes = takes(&r, tokens + i);
        if (!m_takes || !r_takes) break;
        bool m_consumed = consume(&m, tokens[i]), r_consumed = consume(&r, tokens[i]);
        if (!m_consumed || !r_consumed) break;
    }
    j->outcome = m.outcome;
    j->reference_outcome = r.outcome;
    j->accepting = m.outcome == LB_END && engine->matcher_is_accepting(matcher);
    j->reference_accepting = r.outcome == LB_END && engine->matcher_is_accepting(reference);
    j->inside_ns = (uint64_t)((double)j->inside_ns * lb_ns_per_tick() + 0.5);
    j->wall_ns = now_ns() - begin;
}
