/* Preloaded into a process that counts: the same hash seeds in every process of one number.
 *
 * Rust's hash maps draw their seeds from getrandom; other seeds mean other collisions, some tenths
 * of a percent of instructions. Equal seeds for both sides take that out of their ratio. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>

ssize_t getrandom(void *buffer, size_t size, unsigned flags);

ssize_t getrandom(void *buffer, size_t size, unsigned flags) {
    const char *given = getenv("LLGBENCH_SEED");
    uint64_t state = (given ? strtoull(given, NULL, 10) : 0) * 0x9e3779b97f4a7c15u + 1;
    unsigned char *bytes = buffer;
    (void)flags;
    for (size_t i = 0; i < size; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (unsigned char)(state >> 56);
    }
    return (ssize_t)size;
}
