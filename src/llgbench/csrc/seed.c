/* Part of the program that counts: the same hash seeds in every process of one number.
 *
 * Rust's hash maps draw their seeds from getrandom; other seeds mean other collisions, some tenths
 * of a percent of instructions, and of a single step percents. Equal seeds for both sides take that
 * out of their ratio.
 *
 * What they cannot take out: ahash, which llguidance uses, adds the addresses of its own statics and
 * of each hasher (ahash 0.8, random_state.rs), and two libraries have two addresses. Processes of
 * different numbers are given different ones, so that this shows as what it is, their spread. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/types.h>

enum { PAGE = 4096, MOST_PAGES = 4096 };

ssize_t getrandom(void *buffer, size_t size, unsigned flags);

static uint64_t seed(void) {
    const char *given = getenv("LLGBENCH_SEED");
    return (given ? strtoull(given, NULL, 10) : 0) * 0x9e3779b97f4a7c15u + 1;
}

/* A gap that moves all that is mapped after it: libraries, and the blocks of steady.c. */
__attribute__((constructor)) static void move(void) {
    mmap(NULL, (1 + (seed() >> 40) % MOST_PAGES) * PAGE, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

ssize_t getrandom(void *buffer, size_t size, unsigned flags) {
    uint64_t state = seed();
    unsigned char *bytes = buffer;
    (void)flags;
    for (size_t i = 0; i < size; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (unsigned char)(state >> 56);
    }
    return (ssize_t)size;
}
