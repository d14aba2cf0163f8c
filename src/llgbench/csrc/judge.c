/* The judgement: a variant's masks beside those of exact bytes with nothing forced. */
#include <string.h>

#include "internal.h"

typedef struct {
    const lb_engine *engine;
    LlgMatcher *matcher;
    const uint32_t *mask;
    size_t words;
    int outcome;
    bool live;       /* goes on: not stopped, not rejected, no error */
    uint32_t taken;  /* tokens consumed */
    uint64_t *inside;
} side;

static void end(side *s, int outcome) {
    s->outcome = outcome;
    s->live = false;
}

/* A matcher that has finished gives no mask; that is no error of its own. */
static void notice_stop(side *s, bool last) {
    s->mask = NULL;
    if (s->live && s->engine->matcher_is_stopped(s->matcher)) end(s, last ? LB_END : LB_STOPPED);
}

static void note(lb_fault *fault, int kind, int32_t status, uint32_t step, uint32_t token) {
    if (fault->kind == LB_NO_FAULT) *fault = (lb_fault){kind, status, step, token};
}

static int32_t compute(side *s) {
    uint64_t start = now_ticks();
    int32_t status = s->engine->matcher_compute_mask(s->matcher);
    *s->inside += now_ticks() - start;
    s->mask = status == 0 ? s->engine->matcher_get_mask(s->matcher) : NULL;
    if (s->mask == NULL) end(s, LB_MASK_ERROR);
    return status;
}

static void advance(side *s, const uint32_t *token) {
    int32_t status = 1;
    uint64_t start = now_ticks();
    if (s->mask == NULL || !has_token(s->mask, s->words, *token))
        status = s->engine->matcher_validate_tokens(s->matcher, token, 1);
    if (status != 1) {
        end(s, status < 0 ? LB_CONSUME_ERROR : LB_REJECTED);
    } else if (s->engine->matcher_consume_token(s->matcher, *token) != 0) {
        end(s, LB_CONSUME_ERROR);
    } else {
        s->taken++;
    }
    *s->inside += now_ticks() - start;
}

/* Tokens asked for on each side of a mask: at the first state of a text, and at the others. A few
 * a state are hundreds a text, and take less than the two masks do. */
enum { ASKED_FIRST = 32, ASKED = 2 };

/* Whether validate_tokens says of one token what the mask says; false once the reference is lost. */
static bool agrees(side *r, uint32_t token, uint32_t step, lb_fault *fault) {
    bool in = has_token(r->mask, r->words, token);
    uint64_t start = now_ticks();
    int32_t status = r->engine->matcher_validate_tokens(r->matcher, &token, 1);
    *r->inside += now_ticks() - start;
    if (status == (int32_t)in) return true;
    if (status == 0 || status == 1) {
        note(fault, in ? LB_FAULT_LET_IN : LB_FAULT_LEFT_OUT, status, step, token);
        return true;
    }
    note(fault, LB_FAULT_VALIDATE, status, step, token);
    end(r, LB_CONSUME_ERROR);
    return false;
}

/* The first token at or after the word `at`, around the end, that the mask has (`flip` = 0) or has
 * not (`flip` = UINT32_MAX); UINT32_MAX where there is none. */
static uint32_t from(const side *r, const uint32_t *asked, uint32_t flip, size_t at) {
    for (size_t i = 0; i < r->words; i++) {
        size_t word = at + i < r->words ? at + i : at + i - r->words;
        uint32_t found = (r->mask[word] ^ flip) & asked[word];
        if (found) return (uint32_t)(word * 32) + (uint32_t)__builtin_ctz(found);
    }
    return UINT32_MAX;
}

/* The engine's mask holds until its next call, so the questions go by a copy. */
static void answer(side *r, uint32_t *copy, const uint32_t *asked, const uint32_t *token,
                   uint32_t step, lb_fault *fault) {
    r->mask = memcpy(copy, r->mask, r->words * sizeof *copy);
    if (token != NULL && !agrees(r, *token, step, fault)) return;
    uint64_t x = step + 1;
    for (int i = step ? ASKED : ASKED_FIRST; i > 0; i--)
        for (int out = 0; out < 2; out++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            uint32_t t = from(r, asked, out ? UINT32_MAX : 0, (size_t)(x >> 33) % r->words);
            if (t != UINT32_MAX && !agrees(r, t, step, fault)) return;
        }
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

void lb_judge(const lb_engine *engine, LlgMatcher *matcher, LlgMatcher *reference, size_t words,
              const uint32_t *asked, uint32_t *copy, const uint32_t *tokens, uint32_t n,
              lb_judgement *j) {
    *j = (lb_judgement){.first_step = UINT32_MAX, .first_token = UINT32_MAX,
                        .fault = {.step = UINT32_MAX, .token = UINT32_MAX}};
    uint64_t begin = now_ns();
    side m = {engine, matcher, NULL, words, LB_END, true, 0, &j->inside_ns};
    side r = {engine, reference, NULL, words, LB_END, true, 0, &j->inside_ns};

    /* Where one side ends the other goes on alone, so that each has its own outcome: a variant
     * that takes what the reference refuses has not accepted the text by that. */
    for (uint32_t i = 0; m.live || r.live; i++) {
        const uint32_t *token = i < n ? tokens + i : NULL;
        notice_stop(&m, i == n);
        notice_stop(&r, i == n);
        if (m.live) compute(&m);
        if (r.live) {
            int32_t status = compute(&r);
            if (status > 0) note(&j->fault, LB_FAULT_STATUS, status, i, UINT32_MAX);
            if (status == 0 && !r.live) note(&j->fault, LB_FAULT_NO_MASK, 0, i, UINT32_MAX);
        }
        if (m.mask != NULL && r.mask != NULL) {
            compare(&m, &r, i, j);
            j->n_steps++;
        }
        if (r.live) answer(&r, copy, asked, token, i, &j->fault);
        if (token == NULL) break;
        if (m.live) advance(&m, token);
        if (r.live) {
            bool allowed = has_token(r.mask, words, *token);
            advance(&r, token);
            if (allowed && r.outcome == LB_CONSUME_ERROR)
                note(&j->fault, LB_FAULT_CONSUME, -1, i, *token);
        }
    }
    j->taken = m.taken;
    j->reference_taken = r.taken;
    j->outcome = m.outcome;
    j->reference_outcome = r.outcome;
    j->accepting = m.outcome == LB_END && engine->matcher_is_accepting(matcher);
    j->reference_accepting = r.outcome == LB_END && engine->matcher_is_accepting(reference);
    j->inside_ns = (uint64_t)((double)j->inside_ns * lb_ns_per_tick() + 0.5);
    j->wall_ns = now_ns() - begin;
}
