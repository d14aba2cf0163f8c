/* The timed loop. Four clock readings a step, two around each timed call and nothing else inside;
 * ticks become nanoseconds after the loop. */
#include "internal.h"

uint64_t lb_timed_new_tokenizer(const lb_engine *engine, const lb_tokenizer_init *init,
                                char *error, size_t error_len, LlgTokenizer **result) {
    uint64_t start = now_ns();
    *result = engine->new_tokenizer(init, error, error_len);
    return now_ns() - start;
}

uint64_t lb_timed_new_matcher(const lb_engine *engine, const lb_constraint_init *init,
                              const char *kind, const char *data, LlgMatcher **result) {
    uint64_t start = now_ns();
    *result = engine->new_matcher(init, kind, data);
    return now_ns() - start;
}

uint64_t lb_timed_mask(const lb_engine *e, LlgMatcher *m, void (*drop)(LlgMatcher *)) {
    drop(m);
    uint64_t start = now_ns();
    int32_t status = e->matcher_compute_mask(m);
    uint64_t end = now_ns();
    return status == 0 ? end - start : UINT64_MAX;
}

/* Allowed tokens and a hash of the mask, in one pass. The four lanes keep the multiplications
 * independent; equal masks have equal hashes, and different ones differ but for 1 in 2^64. */
__attribute__((target_clones("avx2", "popcnt", "default")))
void lb_mask_facts(const uint32_t *mask, size_t words, lb_step *step) {
    const uint64_t k = 0x9e3779b97f4a7c15u;
    uint64_t lane[4] = {1, 2, 3, 4};
    uint32_t allowed = 0;
    size_t i = 0;
    for (; i + 4 <= words; i += 4)
        for (int j = 0; j < 4; j++) {
            uint32_t w = mask[i + j];
            allowed += (uint32_t)__builtin_popcount(w);
            lane[j] = (lane[j] ^ w) * k;
            lane[j] ^= lane[j] >> 29;
        }
    for (; i < words; i++) {
        allowed += (uint32_t)__builtin_popcount(mask[i]);
        lane[0] = (lane[0] ^ mask[i]) * k;
        lane[0] ^= lane[0] >> 29;
    }
    uint64_t h = 0;
    for (int j = 0; j < 4; j++) h = (h ^ lane[j]) * k, h ^= h >> 32;
    step->allowed = allowed;
    step->mask_hash = h;
}

enum { VALIDATED = 16, FORCED_ROOM = 256 };

/* What an operation may return where it went well. */
static int32_t most(int op) {
    return op == LB_OP_VALIDATE ? VALIDATED : op == LB_OP_FORCED ? FORCED_ROOM : 0;
}

void lb_replay(const lb_engine *e, LlgMatcher *m, size_t words, const uint32_t *tokens, uint32_t n,
               int op, int options, lb_step *steps, lb_replay_result *result) {
    const bool masks = op == LB_OP_MASK || op == LB_OP_CACHED;
    const uint64_t begin = now_ns();
    uint32_t forced[FORCED_ROOM];
    uint64_t untimed = 0, t0, t1;
    uint32_t i = 0;
    int outcome = LB_END;
    int32_t status = 0;

/* A call that is needed and not the one in question: its time is llguidance's all the same. */
#define UNTIMED(call) \
    do { \
        t0 = now_ticks(); \
        status = (call); \
        untimed += now_ticks() - t0; \
    } while (0)

    if (options & LB_RESET) {
        UNTIMED(e->matcher_reset(m));
        if (status != 0) {
            *result = (lb_replay_result){.outcome = LB_RESET_ERROR};
            return;
        }
    }
    for (; i < n; i++) {
        lb_step *step = &steps[i];
        *step = (lb_step){0};
        if (e->matcher_is_stopped(m)) {
            outcome = LB_STOPPED;
            break;
        }
        status = 0;
        if (op == LB_OP_CACHED) UNTIMED(e->matcher_compute_mask(m));
        if (op == LB_OP_ROLLBACK) {
            UNTIMED(e->matcher_validate_tokens(m, tokens + i, 1));
            if (status != 1) {
                outcome = status < 0 ? LB_CONSUME_ERROR : LB_REJECTED;
                i++;
                break;
            }
            const uint64_t before = untimed;
            UNTIMED(e->matcher_consume_token(m, tokens[i]));
            if (status != 0) {
                outcome = LB_CONSUME_ERROR;
                i++;
                break;
            }
            /* A token that ends the grammar leaves a spent matcher: its rollback is not timed. */
            if (e->matcher_is_stopped(m)) {
                step->consume_ns = untimed - before;
                untimed = before;
                step->flags |= LB_STEP_CONSUMED;
                continue;
            }
        }

        t0 = t1 = 0;
        if (op != LB_OP_CACHED || status == 0) {
            t0 = now_ticks();
            switch (op) {
                case LB_OP_VALIDATE:
                    status = e->matcher_validate_tokens(m, tokens + i,
                                                        n - i < VALIDATED ? n - i : VALIDATED);
                    break;
                case LB_OP_FORCED:
                    status = e->matcher_compute_ff_tokens(m, forced, FORCED_ROOM);
                    break;
                case LB_OP_ROLLBACK:
                    status = e->matcher_rollback(m, 1);
                    break;
                default:
                    status = e->matcher_compute_mask(m);
            }
            t1 = now_ticks();
        }
        step->op_ns = t1 - t0;
        const uint32_t *mask = masks && status == 0 ? e->matcher_get_mask(m) : NULL;
        if (status < 0 || status > most(op) || (masks && mask == NULL)) {
            outcome = LB_MASK_ERROR;
            i++;
            break;
        }
        step->flags |= LB_STEP_TIMED;

        bool allowed = false;
        if (masks) {
            if (options & LB_FACTS) lb_mask_facts(mask, words, step);
            allowed = has_token(mask, words, tokens[i]);
            if (allowed) step->flags |= LB_STEP_ALLOWED;
        }
        /* A forced mask names one spelling of the bytes; the trace may hold another, right one. */
        if (!allowed) UNTIMED(e->matcher_validate_tokens(m, tokens + i, 1));
        if (!allowed && status != 1) {
            outcome = status < 0 ? LB_CONSUME_ERROR : LB_REJECTED;
            i++;
            break;
        }

        uint64_t t2 = now_ticks();
        status = e->matcher_consume_token(m, tokens[i]);
        uint64_t t3 = now_ticks();
        step->consume_ns = t3 - t2;
        if (status != 0) {
            outcome = LB_CONSUME_ERROR;
            i++;
            break;
        }
        step->flags |= LB_STEP_CONSUMED;
    }
#undef UNTIMED

    const double scale = lb_ns_per_tick();
    uint64_t timed = 0;
    for (uint32_t j = 0; j < i; j++) {
        timed += steps[j].op_ns + steps[j].consume_ns;
        steps[j].op_ns = (uint64_t)((double)steps[j].op_ns * scale + 0.5);
        steps[j].consume_ns = (uint64_t)((double)steps[j].consume_ns * scale + 0.5);
    }
    result->n_steps = i;
    result->outcome = outcome;
    result->inside_ns = (uint64_t)((double)(timed + untimed) * scale + 0.5);
    result->wall_ns = now_ns() - begin;
}
