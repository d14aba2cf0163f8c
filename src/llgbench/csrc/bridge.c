/* How llama.cpp's vocabulary becomes llguidance's tokenizer: token bytes and tokenize_fn. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* llama.cpp's common/llguidance.cpp gives each token this much room. */
enum { TOKEN_ROOM = 1024 };
/* llguidance's mark for a token that grammars name rather than spell. */
enum { SPECIAL_MARK = 0xff };

static int32_t token_bytes(const lb_llama *llama, const llama_vocab *vocab, int32_t token,
                           char *out, int32_t room, int source, bool special) {
    if (source == LB_DETOKENIZE)
        return llama->detokenize(vocab, &token, 1, out, room, false, special);
    return llama->token_to_piece(vocab, token, out, room, 0, special);
}

/* Both functions return minus the room they need when it is not enough. */
static int32_t put_token(const lb_llama *llama, const llama_vocab *vocab, int32_t token,
                         lb_token_table *table, size_t *capacity, int source, bool special) {
    size_t mark = special ? 1 : 0;
    for (size_t room = TOKEN_ROOM;;) {
        if (*capacity - table->size < room + mark) {
            size_t grown = *capacity * 2 + room + mark;
            uint8_t *bytes = realloc(table->bytes, grown);
            if (bytes == NULL) return -1;
            table->bytes = bytes;
            *capacity = grown;
        }
        char *out = (char *)table->bytes + table->size + mark;
        int32_t n = token_bytes(llama, vocab, token, out, (int32_t)room, source, special);
        if (n >= 0) return n;
        if ((size_t)-n <= room) return -1;
        room = (size_t)-n;
    }
}

int lb_token_table_build(const lb_llama *llama, const llama_vocab *vocab, int source,
                         lb_token_table *table) {
    uint64_t start = now_ns();
    memset(table, 0, sizeof *table);
    int32_t n_tokens = llama->n_tokens(vocab);
    size_t capacity = (size_t)n_tokens * 16 + TOKEN_ROOM;
    table->n_tokens = (uint32_t)n_tokens;
    table->lens = malloc((size_t)n_tokens * sizeof *table->lens);
    table->marked = calloc((size_t)n_tokens, 1);
    table->bytes = malloc(capacity);
    if (table->lens == NULL || table->marked == NULL || table->bytes == NULL) goto fail;

    for (int32_t token = 0; token < n_tokens; token++) {
        int32_t n = put_token(llama, vocab, token, table, &capacity, source, false);
        if (n == 0) {
            n = put_token(llama, vocab, token, table, &capacity, source, true);
            if (n > 0) {
                table->bytes[table->size] = SPECIAL_MARK;
                table->marked[token] = 1;
                n += 1;
            }
        }
        if (n < 0) goto fail;
        table->lens[token] = (uint32_t)n;
        table->size += (size_t)n;
    }
    table->build_ns = now_ns() - start;
    return 0;

fail:
    lb_token_table_free(table);
    return -1;
}

void lb_token_table_free(lb_token_table *table) {
    free(table->lens);
    free(table->bytes);
    free(table->marked);
    memset(table, 0, sizeof *table);
}

static size_t plain_tokenize(const lb_tokenize_context *c, const char *text, size_t len,
                             int32_t *tokens, size_t n_max) {
    int32_t n = c->llama->tokenize(c->vocab, text, (int32_t)len, tokens, (int32_t)n_max, false,
                                   c->parse_special);
    return n < 0 ? (size_t)-n : (size_t)n;
}

/* Sentinel + bytes may need more room than the caller gave, so it is tokenized aside. Where the
 * sentinel's tokens do not come back first, nothing may be dropped: the answer is no token. */
static size_t sentinel_tokenize(const lb_tokenize_context *c, const uint8_t *bytes, size_t len,
                                uint32_t *out, size_t n_max) {
    size_t head = (size_t)c->sentinel_len, drop = (size_t)c->n_sentinel_tokens;
    size_t room = head + len + drop + 8, answer = 0;
    char *text = malloc(head + len + 1);
    int32_t *tokens = malloc(room * sizeof *tokens);
    if (text != NULL && tokens != NULL) {
        memcpy(text, c->sentinel, head);
        memcpy(text + head, bytes, len);
        size_t n = plain_tokenize(c, text, head + len, tokens, room);
        if (n >= drop && n <= room &&
            memcmp(tokens, c->sentinel_tokens, drop * sizeof *tokens) == 0) {
            answer = n - drop;
            memcpy(out, tokens + drop, (answer < n_max ? answer : n_max) * sizeof *tokens);
        }
    }
    free(text);
    free(tokens);
    return answer;
}

size_t lb_tokenize(const void *user_data, const uint8_t *bytes, size_t bytes_len,
                   uint32_t *output_tokens, size_t output_tokens_len) {
    const lb_tokenize_context *c = user_data;
    if (c->sentinel != NULL)
        return sentinel_tokenize(c, bytes, bytes_len, output_tokens, output_tokens_len);
    return plain_tokenize(c, (const char *)bytes, bytes_len, (int32_t *)output_tokens,
                          output_tokens_len);
}

lb_tokenize_fn lb_tokenize_pointer(void) { return lb_tokenize; }
