/* A tokenize_fn that keeps every question with its answer, for a process without llama.cpp. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Room for so many bytes more, filled up to whole words; NULL where there is none. */
static uint8_t *extend(lb_recording *r, size_t size) {
    const size_t padded = (size + 3) & ~(size_t)3;
    if (r->room - r->size < padded) {
        const size_t room = 2 * r->room + padded + 4096;
        uint8_t *data = realloc(r->data, room);
        if (data == NULL) return NULL;
        r->data = data;
        r->room = room;
    }
    uint8_t *found = r->data + r->size;
    memset(found, 0, padded);
    r->size += padded;
    return found;
}

static bool keep(lb_recording *r, const void *items, size_t item, size_t n) {
    const uint32_t count = (uint32_t)n;
    uint8_t *head = extend(r, sizeof count);
    if (head == NULL) return false;
    memcpy(head, &count, sizeof count);
    uint8_t *body = extend(r, n * item);
    if (body == NULL) return false;
    if (n) memcpy(body, items, n * item);
    return true;
}

/* The caller may have too little room; the recording has the whole answer all the same. */
static size_t record(const void *user_data, const uint8_t *bytes, size_t bytes_len,
                     uint32_t *tokens, size_t n_tokens) {
    lb_recording *r = (lb_recording *)(uintptr_t)user_data;
    size_t room = bytes_len + 16, n;
    for (;;) {
        uint32_t *whole = malloc(room * sizeof *whole);
        if (whole == NULL) {
            r->failed = true;
            return 0;
        }
        n = lb_tokenize(r->context, bytes, bytes_len, whole, room);
        if (n <= room) {
            if (!keep(r, bytes, 1, bytes_len) || !keep(r, whole, sizeof *whole, n))
                r->failed = true;
            memcpy(tokens, whole, (n < n_tokens ? n : n_tokens) * sizeof *whole);
        }
        free(whole);
        if (n <= room) return n;
        room = n;
    }
}

lb_tokenize_fn lb_record_pointer(void) { return record; }

void lb_recording_free(lb_recording *r) {
    free(r->data);
    memset(r, 0, sizeof *r);
}
