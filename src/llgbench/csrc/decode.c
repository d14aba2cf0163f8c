/* The decode loop: llama.cpp decodes, the grammar masks, a token is chosen and accepted. A step's
 * work is llama.cpp's and llguidance's, each call with its clock; the rest is bookkeeping, which
 * shows as what the step's wall time has over the sum. Ticks become nanoseconds after the loop. */
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* Tokens that compute_ff_tokens may return at once. */
enum { FORCED_ROOM = 256 };

typedef struct {
    const lb_decoding *d;
    llama_token_data_array candidates;
    llama_token_data *data;
    llama_batch batch;
    int32_t *rows;          /* [n_sequences], the batch's row with a sequence's logits, or -1 */
    lb_decode_step *step;
} loop;

#define CLOCKED(field, call) \
    do { \
        uint64_t begun_ = now_ticks(); \
        call; \
        l->step->field += now_ticks() - begun_; \
    } while (0)

/* ---- another thread for the masks ---- */

typedef struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const lb_decoding *d;
    uint64_t ticks;
    bool wanted, stop;
} masker;

static uint64_t compute_masks(const lb_decoding *d) {
    uint64_t begun = now_ticks();
    for (uint32_t i = 0; i < d->n_sequences; i++) {
        const lb_sequence *s = &d->sequences[i];
        if (!s->done && s->grammar != NULL) lb_sampler_mask(s->grammar);
    }
    return now_ticks() - begun;
}

static void *masker_main(void *argument) {
    masker *m = argument;
    pthread_mutex_lock(&m->lock);
    while (!m->stop) {
        if (m->wanted) {
            pthread_mutex_unlock(&m->lock);
            uint64_t ticks = compute_masks(m->d);
            pthread_mutex_lock(&m->lock);
            m->ticks = ticks;
            m->wanted = false;
            pthread_cond_broadcast(&m->changed);
        } else {
            pthread_cond_wait(&m->changed, &m->lock);
        }
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

static int masker_begin(masker *m, const lb_decoding *d) {
    *m = (masker){.d = d};
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->changed, NULL);
    return pthread_create(&m->thread, NULL, masker_main, m);
}

static void masker_ask(masker *m) {
    pthread_mutex_lock(&m->lock);
    m->wanted = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

static uint64_t masker_wait(masker *m) {
    pthread_mutex_lock(&m->lock);
    while (m->wanted) pthread_cond_wait(&m->changed, &m->lock);
    uint64_t ticks = m->ticks;
    pthread_mutex_unlock(&m->lock);
    return ticks;
}

static void masker_end(masker *m) {
    pthread_mutex_lock(&m->lock);
    m->stop = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->changed);
}

/* ---- a step's parts ---- */

static LlgMatcher *matcher_of(const lb_sequence *s) {
    return s->grammar != NULL ? lb_sampler_matcher(s->grammar) : NULL;
}

static void commit(loop *l, lb_sequence *s, int32_t token) {
    const lb_decoder *llama = l->d->llama;
    uint64_t begun = now_ticks();
    if (s->grammar != NULL) llama->sampler_accept(s->grammar, token);
    llama->sampler_accept(s->chain, token);
    l->step->accept_ns += now_ticks() - begun;
    s->committed[s->n_committed++] = token;
    s->pending[s->n_pending++] = token;
    l->step->n_committed++;
    if (s->n_committed == s->n || (s->trace == NULL && llama->is_eog(l->d->vocab, token)))
        s->done = true;
}

/* Commit what llguidance forces; along a trace only where that is the trace's spelling. */
static void force(loop *l, lb_sequence *s) {
    LlgMatcher *matcher = matcher_of(s);
    uint32_t forced[FORCED_ROOM];
    int32_t n = 0;
    if (matcher == NULL) return;
    CLOCKED(forced_ns, n = l->d->engine->matcher_compute_ff_tokens(matcher, forced, FORCED_ROOM));
    if (n > FORCED_ROOM) return; /* more than there was room for: none of it is true */
    for (int32_t i = 0; i < n && !s->done; i++) {
        int32_t token = (int32_t)forced[i];
        if (s->trace != NULL && token != s->trace[s->n_committed]) break;
        if (s->n_pending == l->d->batch_room / l->d->n_sequences) break;
        commit(l, s, token);
        l->step->n_forced++;
    }
}

/* Put every pending token into the batch; only the last of a sequence needs logits. */
static void fill_batch(loop *l) {
    llama_batch *b = &l->batch;
    b->n_tokens = 0;
    for (uint32_t i = 0; i < l->d->n_sequences; i++) {
        lb_sequence *s = &l->d->sequences[i];
        l->rows[i] = -1;
        if (s->done) continue;
        for (uint32_t j = 0; j < s->n_pending; j++) {
            int32_t row = b->n_tokens++;
            b->token[row] = s->pending[j];
            b->pos[row] = s->position++;
            b->n_seq_id[row] = 1;
            b->seq_id[row][0] = (int32_t)i;
            b->logits[row] = j + 1 == s->n_pending;
            l->rows[i] = row;
        }
        s->n_pending = 0;
    }
    l->step->n_batch = (uint32_t)b->n_tokens;
}

/* As common/sampling.cpp's set_logits. */
static void set_candidates(loop *l, int32_t row, int32_t wanted) {
    uint64_t begun = now_ticks();
    const float *logits = l->d->llama->get_logits_ith(l->d->context, row);
    for (uint32_t i = 0; i < l->d->n_vocab; i++)
        l->data[i] = (llama_token_data){(int32_t)i, logits[i], 0.0f};
    if (wanted >= 0) l->data[wanted].logit = FLT_MAX;
    l->candidates = (llama_token_data_array){l->data, l->d->n_vocab, -1, false};
    l->step->candidates_ns += now_ticks() - begun;
}

static int32_t chosen(const loop *l) {
    int64_t selected = l->candidates.selected;
    return selected >= 0 ? l->candidates.data[selected].id : l->candidates.data[0].id;
}

static void apply_grammar(loop *l, const lb_sequence *s, llama_token_data_array *candidates) {
    if (s->grammar != NULL)
        CLOCKED(apply_ns, l->d->llama->sampler_apply(s->grammar, candidates));
}

static void apply_chain(loop *l, const lb_sequence *s) {
    CLOCKED(sample_ns, l->d->llama->sampler_apply(s->chain, &l->candidates));
}

static const uint32_t *compute_mask(loop *l, const lb_sequence *s) {
    const uint32_t *mask = NULL;
    if (l->d->options & LB_OVERLAP) return lb_sampler_mask(s->grammar); /* it is there */
    CLOCKED(mask_ns, mask = lb_sampler_mask(s->grammar));
    return mask;
}

static bool fits(loop *l, const lb_sequence *s, int32_t token) {
    if (l->d->mode == LB_VALIDATE_FIRST) {
        uint32_t candidate = (uint32_t)token;
        int32_t valid = 0;
        LlgMatcher *matcher = matcher_of(s);
        if (matcher == NULL) return true;
        CLOCKED(check_ns, valid = l->d->engine->matcher_validate_tokens(matcher, &candidate, 1));
        return valid == 1;
    }
    compute_mask(l, s);
    llama_token_data single = {token, 1.0f, 0.0f};
    llama_token_data_array one = {&single, 1, -1, false};
    apply_grammar(l, s, &one);
    return single.logit != -INFINITY;
}

static int32_t sample(loop *l, const lb_sequence *s, int32_t row, int32_t wanted) {
    set_candidates(l, row, wanted);
    if (s->grammar == NULL) {
        apply_chain(l, s);
        return chosen(l);
    }
    if (l->d->mode != LB_MASK_FIRST) {
        apply_chain(l, s);
        int32_t token = chosen(l);
        if (fits(l, s, token)) return token;
        l->step->n_missed++;
        set_candidates(l, row, wanted);
    }
    compute_mask(l, s);
    apply_grammar(l, s, &l->candidates);
    apply_chain(l, s);
    return chosen(l);
}

/* Sample and commit one token. What stands in a mask is read before the token is consumed. */
static void advance(loop *l, lb_sequence *s, int32_t row) {
    const int32_t next = s->trace != NULL ? s->trace[s->n_committed] : -1;
    LlgMatcher *matcher = matcher_of(s);
    bool spent = matcher == NULL || l->d->engine->matcher_is_stopped(matcher);
    int32_t token = sample(l, s, row, l->d->options & LB_AGREE ? next : -1);
    matcher = matcher_of(s);
    if (!spent && matcher != NULL) {
        l->step->n_constrained++;
        const uint32_t *mask = l->d->engine->matcher_get_mask(matcher);
        size_t words = l->d->engine->matcher_get_mask_byte_size(matcher) / 4;
        if (next >= 0 && mask != NULL && !has_token(mask, words, (uint32_t)next))
            l->step->n_refused++;
    }
    commit(l, s, next >= 0 ? next : token);
}

/* ---- the loop ---- */

static bool any_left(const lb_decoding *d) {
    for (uint32_t i = 0; i < d->n_sequences; i++)
        if (!d->sequences[i].done) return true;
    return false;
}

static bool allocate(loop *l) {
    const uint32_t room = l->d->batch_room;
    l->data = malloc(l->d->n_vocab * sizeof *l->data);
    l->rows = malloc(l->d->n_sequences * sizeof *l->rows);
    l->batch.token = malloc(room * sizeof(int32_t));
    l->batch.pos = malloc(room * sizeof(int32_t));
    l->batch.n_seq_id = malloc(room * sizeof(int32_t));
    l->batch.seq_id = calloc(room + 1, sizeof(int32_t *));
    l->batch.logits = malloc(room);
    int32_t *ids = malloc(room * sizeof(int32_t));
    if (l->batch.seq_id == NULL || ids == NULL) {
        free(ids);
        return false;
    }
    for (uint32_t i = 0; i < room; i++) l->batch.seq_id[i] = ids + i;
    return l->data && l->rows && l->batch.token && l->batch.pos && l->batch.n_seq_id &&
           l->batch.logits;
}

static void release(loop *l) {
    free(l->data);
    free(l->rows);
    free(l->batch.token);
    free(l->batch.pos);
    free(l->batch.n_seq_id);
    if (l->batch.seq_id != NULL) free(l->batch.seq_id[0]);
    free(l->batch.seq_id);
    free(l->batch.logits);
}

static void to_ns(lb_decode_step *step, double scale) {
    uint64_t *times[] = {&step->wall_ns,   &step->decode_ns, &step->candidates_ns, &step->mask_ns,
                         &step->wait_ns,   &step->apply_ns,  &step->sample_ns,     &step->check_ns,
                         &step->accept_ns, &step->forced_ns};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        *times[i] = (uint64_t)((double)*times[i] * scale + 0.5);
}

void lb_decode(const lb_decoding *d, lb_decode_step *steps, lb_decode_result *result) {
    loop state = {.d = d}, *l = &state;
    masker helper;
    const bool overlap = d->options & LB_OVERLAP;
    *result = (lb_decode_result){.outcome = LB_DECODE_MEMORY};
    if (!allocate(l) || (overlap && masker_begin(&helper, d) != 0)) {
        release(l);
        return;
    }
    result->outcome = LB_DECODED;
    d->llama->memory_clear(d->llama->get_memory(d->context), false);
    const uint64_t begin = now_ns();
    uint32_t n = 0;
    while (any_left(d)) {
        l->step = &steps[n];
        *l->step = (lb_decode_step){0};
        const uint64_t begun = now_ticks();
        if (d->options & LB_FORCED)
            for (uint32_t i = 0; i < d->n_sequences; i++)
                if (!d->sequences[i].done) force(l, &d->sequences[i]);
        fill_batch(l);
        if (l->batch.n_tokens > 0) {
            if (overlap) CLOCKED(wait_ns, masker_ask(&helper));
            int32_t status = 0;
            CLOCKED(decode_ns, {
                status = d->llama->decode(d->context, l->batch);
                d->llama->synchronize(d->context);
            });
            if (overlap) CLOCKED(wait_ns, l->step->mask_ns = masker_wait(&helper));
            if (status != 0) {
                result->outcome = LB_DECODE_FAILED;
                result->detail = status;
                break;
            }
            for (uint32_t i = 0; i < d->n_sequences; i++)
                if (l->rows[i] >= 0) advance(l, &d->sequences[i], l->rows[i]);
        }
        l->step->wall_ns = now_ticks() - begun;
        n++;
    }
    result->wall_ns = now_ns() - begin;
    result->n_steps = n;
    if (overlap) masker_end(&helper);
    const double scale = lb_ns_per_tick();
    for (uint32_t i = 0; i < n; i++) to_ns(&steps[i], scale);
    release(l);
}
