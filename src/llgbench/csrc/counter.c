/* The program that runs under callgrind: engines and our own C code, no Python and no llama.cpp.
 *
 *     counter JOB RECORDING [MAPS]
 *
 * JOB is done as count.c says. RECORDING has, as 32-bit words: the version; how many sources, and of
 * each how many questions and the questions in order of length, then bytes, as lb_recording has
 * them; how many steps, and of each how many tokens it took when the answers were recorded. MAPS,
 * where given, gets what was mapped into the process at its end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum { REFUSED = 2, SHOWN = 40 };

typedef struct {
    const uint8_t *bytes;
    const uint32_t *tokens;
    uint32_t n_bytes, n_tokens;
} question;

typedef struct {
    question *questions;
    size_t n;
} answers;

static const uint8_t *at, *end;

__attribute__((noreturn)) static void refuse(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(REFUSED);
}

static const void *block(size_t size) {
    const size_t padded = (size + 3) & ~(size_t)3;
    if ((size_t)(end - at) < padded) refuse("the recording is cut short");
    const void *found = at;
    at += padded;
    return found;
}

static uint32_t word(void) { return *(const uint32_t *)block(4); }

static uint8_t *whole(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) refuse("the job cannot be read");
    const long length = ftell(file);
    uint8_t *data = malloc(length > 0 ? (size_t)length : 1);
    rewind(file);
    if (length < 0 || data == NULL || fread(data, 1, (size_t)length, file) != (size_t)length)
        refuse("the job cannot be read");
    fclose(file);
    *size = (size_t)length;
    return data;
}

static int order(const void *a, const void *b) {
    const question *x = a, *y = b;
    if (x->n_bytes != y->n_bytes) return x->n_bytes < y->n_bytes ? -1 : 1;
    return memcmp(x->bytes, y->bytes, x->n_bytes);
}

static size_t answer(const void *user_data, const uint8_t *bytes, size_t bytes_len,
                     uint32_t *tokens, size_t n_tokens) {
    const answers *known = user_data;
    const question asked = {.bytes = bytes, .n_bytes = (uint32_t)bytes_len};
    const question *found =
        known->n ? bsearch(&asked, known->questions, known->n, sizeof asked, order) : NULL;
    if (found == NULL) {
        fprintf(stderr, "tokenize_fn is asked what it was not asked when its answers were recorded: "
                        "%zu bytes, \"", bytes_len);
        for (size_t i = 0; i < bytes_len && i < SHOWN; i++)
            fprintf(stderr, bytes[i] >= ' ' && bytes[i] < 0x7f ? "%c" : "\\x%02x", bytes[i]);
        fprintf(stderr, bytes_len > SHOWN ? "…\"\n" : "\"\n");
        _Exit(REFUSED);
    }
    const size_t n = found->n_tokens < n_tokens ? found->n_tokens : n_tokens;
    if (n) memcpy(tokens, found->tokens, n * sizeof *tokens);
    return found->n_tokens;
}

static lb_tokenize_source read_source(void) {
    answers *known = malloc(sizeof *known);
    if (known == NULL) refuse("no memory");
    known->n = word();
    if (known->n > (size_t)(end - at) / 8) refuse("the recording is cut short");
    known->questions = calloc(known->n + 1, sizeof *known->questions);
    if (known->questions == NULL) refuse("no memory");
    for (size_t i = 0; i < known->n; i++) {
        question *q = &known->questions[i];
        q->n_bytes = word();
        q->bytes = block(q->n_bytes);
        q->n_tokens = word();
        q->tokens = block((size_t)q->n_tokens * sizeof *q->tokens);
        if (i && order(q - 1, q) >= 0) refuse("the recording is not in order");
    }
    return (lb_tokenize_source){answer, known};
}

static void copy(const char *from, const char *to) {
    FILE *in = fopen(from, "r"), *out = fopen(to, "w");
    if (in == NULL || out == NULL) refuse("what is mapped cannot be shown");
    for (int c; (c = fgetc(in)) != EOF;) fputc(c, out);
    fclose(in);
    fclose(out);
}

int main(int argc, char **argv) {
    char why[1024];
    size_t job_size, size;
    if (argc != 3 && argc != 4) refuse("usage: counter JOB RECORDING [MAPS]");
    const uint8_t *job = whole(argv[1], &job_size);
    at = whole(argv[2], &size);
    end = at + size;
    if (word() != LB_JOB_VERSION) refuse("this is a recording of another version");
    const uint32_t n_sources = word();
    if (n_sources > size / 4) refuse("the recording is cut short");
    lb_tokenize_source *sources = calloc(n_sources + 1, sizeof *sources);
    for (uint32_t i = 0; sources && i < n_sources; i++) sources[i] = read_source();
    const uint32_t n = word();
    const uint32_t *taken = block((size_t)n * sizeof *taken);
    lb_count_result *results = calloc(n + 1, sizeof *results);
    if (sources == NULL || results == NULL) refuse("no memory");
    if (lb_count_run(job, job_size, sources, n_sources, results, n, why, sizeof why) != 0)
        refuse(why);
    for (uint32_t i = 0; i < n; i++)
        if (results[i].taken != taken[i]) {
            fprintf(stderr, "step %u took %u tokens under valgrind and %u without\n", i,
                    results[i].taken, taken[i]);
            return REFUSED;
        }
    if (argc == 4) copy("/proc/self/maps", argv[3]);
    return 0;
}
