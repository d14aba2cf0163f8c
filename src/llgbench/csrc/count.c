/* The replay under callgrind: every call into llguidance counted by itself, and nothing else.
 *
 * Callgrind hands out its count in a dump alone, which sets it back to zero; a dump costs some
 * milliseconds and is not itself counted. Instrumentation is on only between start and stop, so
 * that Python and llama.cpp run uninstrumented. Outside valgrind the requests do nothing. */
#include <stdio.h>

#include "internal.h"

#if defined(__has_include)
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#endif
#endif

#ifdef CALLGRIND_DUMP_STATS_AT
bool lb_count_built(void) { return true; }
#else
bool lb_count_built(void) { return false; }
#define CALLGRIND_START_INSTRUMENTATION (void)0
#define CALLGRIND_STOP_INSTRUMENTATION (void)0
#define CALLGRIND_TOGGLE_COLLECT (void)0
#define CALLGRIND_DUMP_STATS_AT(name) (void)(name)
#endif

static void dump(const char *label, const char *what) {
    char name[256];
    snprintf(name, sizeof name, "%s %s", label, what);
    CALLGRIND_DUMP_STATS_AT(name);
}

/* Needs --collect-atstart=no. */
#define COUNTED(what, call) \
    do { \
        CALLGRIND_TOGGLE_COLLECT; \
        call; \
        CALLGRIND_TOGGLE_COLLECT; \
        dump(label, what); \
    } while (0)

LlgMatcher *lb_count_new_matcher(const lb_engine *e, const lb_constraint_init *init,
                                 const char *kind, const char *data, const char *label) {
    LlgMatcher *m = NULL;
    CALLGRIND_START_INSTRUMENTATION;
    COUNTED("compile", m = e->new_matcher(init, kind, data));
    CALLGRIND_STOP_INSTRUMENTATION;
    return m;
}

uint32_t lb_count_replay(const lb_engine *e, LlgMatcher *m, const uint32_t *tokens, uint32_t n,
                         int parts, lb_dump_after after, const char *label) {
    const size_t words = e->matcher_get_mask_byte_size(m) / 4;
    int32_t status = 0;
    uint32_t i = 0;

#define PART(part, what, call) \
    do { \
        if (parts & (part)) CALLGRIND_TOGGLE_COLLECT; \
        call; \
        if (parts & (part)) { \
            CALLGRIND_TOGGLE_COLLECT; \
            if (after == LB_DUMP_CALL) dump(label, what); \
        } \
    } while (0)

    CALLGRIND_START_INSTRUMENTATION;
    for (; i < n && !e->matcher_is_stopped(m); i++) {
        PART(LB_PART_MASK, "mask", status = e->matcher_compute_mask(m));
        if (status != 0) break;
        if (!has_token(e->matcher_get_mask(m), words, tokens[i]) &&
            e->matcher_validate_tokens(m, tokens + i, 1) != 1)
            break;
        PART(LB_PART_CONSUME, "consume", status = e->matcher_consume_token(m, tokens[i]));
        if (status != 0) break;
        if (after == LB_DUMP_STEP) dump(label, "step");
    }
    if (after == LB_DUMP_REPLAY) dump(label, "sum");
    CALLGRIND_STOP_INSTRUMENTATION;
#undef PART
    return i;
}

int32_t lb_count_mask(const lb_engine *e, LlgMatcher *m, void (*drop)(LlgMatcher *),
                      const char *label) {
    int32_t status;
    drop(m);
    CALLGRIND_START_INSTRUMENTATION;
    COUNTED("mask", status = e->matcher_compute_mask(m));
    CALLGRIND_STOP_INSTRUMENTATION;
    return status;
}
