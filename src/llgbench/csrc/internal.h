/* What the C files share and Python does not see. */
#ifndef LLGBENCH_INTERNAL_H
#define LLGBENCH_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "llgbench.h"

static inline uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The cheapest even clock of this machine; lb_ns_per_tick() converts. What is timed lasts a
 * microsecond or more, so rdtsc needs no fence: the instructions it may move past are a few. */
static inline uint64_t now_ticks(void) {
#if defined(__x86_64__)
    if (lb_clock_is_tsc) return __rdtsc();
#endif
    return now_ns();
}

/* Allowed tokens and a hash of the mask: csrc/replay.c. */
void lb_mask_facts(const uint32_t *mask, size_t words, lb_step *step);

static inline bool has_token(const uint32_t *mask, size_t words, uint32_t token) {
    return token / 32 < words && (mask[token / 32] >> (token % 32) & 1);
}

#endif
