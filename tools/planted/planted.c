/* An engine with a planted slowdown: llguidance's functions handed on, and more work in some steps.
 *
 * Built with -DENGINE="path of the library it wraps". What it adds is a loop of a fixed number of
 * additions, so that it costs the same in instructions and, nearly, in time. Read once when loaded:
 *
 *   PLANTED_IN     mask or consume: which call gets the work (mask)
 *   PLANTED_WORK   rounds of the loop per planted call (0)
 *   PLANTED_SHARE  1 in so many calls gets it (1: every call)
 *   PLANTED_SCALE  percent: makes the work a share of what the wrapped call itself cost, by its
 *                  time; PLANTED_WORK is then ignored (0: off). For the clock alone.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct LlgMatcher LlgMatcher;

/* Every function that llgbench resolves and this library does not change: a jump through a
 * pointer, whatever its arguments are. */
#define FORWARD(name) \
    static void *p_##name; \
    __asm__(".globl llg_" #name "\n.type llg_" #name ", @function\nllg_" #name ":\n" \
            "jmp *p_" #name "(%rip)\n"); \
    static void **const used_##name __attribute__((used)) = &p_##name;
#define FORWARDED(X) \
    X(get_version) X(new_tokenizer) X(free_tokenizer) X(constraint_init_set_defaults) \
    X(new_matcher) X(clone_matcher) X(free_matcher) X(matcher_get_error) X(matcher_get_mask) \
    X(matcher_get_mask_byte_size) X(matcher_validate_tokens) X(matcher_compute_ff_tokens) \
    X(matcher_rollback) X(matcher_reset) X(matcher_is_accepting) X(matcher_is_stopped)
FORWARDED(FORWARD)

static int32_t (*real_mask)(LlgMatcher *);
static int32_t (*real_consume)(LlgMatcher *, uint32_t);
static bool in_consume;
static uint64_t work, share = 1, scale, calls;

static void *find(void *library, const char *name) {
    void *address = dlsym(library, name);
    if (address == NULL) fprintf(stderr, "planted: %s has no %s\n", ENGINE, name), abort();
    return address;
}

static uint64_t setting(const char *name, uint64_t otherwise) {
    const char *value = getenv(name);
    return value ? strtoull(value, NULL, 10) : otherwise;
}

__attribute__((constructor)) static void begin(void) {
    void *library = dlopen(ENGINE, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL) fprintf(stderr, "planted: %s\n", dlerror()), abort();
#define FILL(name) p_##name = find(library, "llg_" #name);
    FORWARDED(FILL)
    void *mask = find(library, "llg_matcher_compute_mask");
    void *consume = find(library, "llg_matcher_consume_token");
    memcpy(&real_mask, &mask, sizeof mask);
    memcpy(&real_consume, &consume, sizeof consume);
    const char *where = getenv("PLANTED_IN");
    in_consume = where != NULL && strcmp(where, "consume") == 0;
    work = setting("PLANTED_WORK", 0);
    share = setting("PLANTED_SHARE", 1);
    scale = setting("PLANTED_SCALE", 0);
}

/* Any even clock will do: only its ratios count. */
static uint64_t ticks(void) {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#endif
}

static void spin(uint64_t rounds) {
    for (uint64_t i = 0; i < rounds; i++) __asm__ volatile("" ::: "memory");
}

/* After the call: `since` is when it began. */
static void plant(uint64_t since) {
    if (share == 0 || calls++ % share != 0) return;
    if (scale == 0) {
        spin(work);
        return;
    }
    uint64_t until = ticks();
    until += (until - since) * scale / 100;
    while (ticks() < until) {}
}

int32_t llg_matcher_compute_mask(LlgMatcher *matcher) {
    uint64_t since = scale && !in_consume ? ticks() : 0;
    int32_t status = real_mask(matcher);
    if (!in_consume) plant(since);
    return status;
}

int32_t llg_matcher_consume_token(LlgMatcher *matcher, uint32_t token) {
    uint64_t since = scale && in_consume ? ticks() : 0;
    int32_t status = real_consume(matcher, token);
    if (in_consume) plant(since);
    return status;
}
