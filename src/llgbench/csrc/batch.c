/* Batches: many sequences, a matcher each, their masks computed by a pool of threads.
 *
 * A step begins when the calling thread hands the work over and ends when the last mask is there,
 * by the clock of the thread that computed it: a server's decode runs meanwhile and must be no
 * shorter. What a server does between two steps (a token for each sequence, a clone for a text that
 * begins) is clocked apart. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

typedef struct {
    LlgMatcher *matcher;
    LlgConstraint *constraint;
    uint32_t text, position;
    uint32_t kept;                        /* drafted tokens that stay */
    uint64_t begun, end;                  /* ticks */
    uint64_t validate, ahead, rollback;   /* ticks */
    uint32_t drafted, valid, back, masks;
    int outcome;
} sequence;

typedef struct {
    const lb_batch *b;
    sequence *sequences;
    /* the pool */
    pthread_t *threads;
    uint32_t n_started;
    pthread_mutex_t lock;
    pthread_cond_t asked, finished;
    uint64_t generation, ended;
    bool stop;
    atomic_uint next, done;
    /* llg_par_compute_mask */
    lb_constraint_step *steps;
    uint32_t *masks;
    uint64_t end;
} run;

/* ---- one matcher by itself ---- */

enum { ASKED_AT_MOST = 64 };

/* A token that the grammar refuses in this state: not in the mask, and not valid either, for a mask
 * that is narrowed to what is forced leaves out tokens that are. */
static uint32_t refused_token(const lb_engine *e, LlgMatcher *m, const uint32_t *mask, size_t words,
                              uint32_t salt) {
    uint64_t x = salt * 2654435761u + 1;
    for (int i = 0; i < ASKED_AT_MOST; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        const size_t word = (size_t)(x >> 33) % words;
        if (mask[word] == UINT32_MAX) continue;
        const uint32_t token = (uint32_t)(word * 32) + (uint32_t)__builtin_ctz(~mask[word]);
        /* The last word's upper bits may stand for no token: validating one is an error. */
        if (word + 1 < words && e->matcher_validate_tokens(m, &token, 1) == 0) return token;
    }
    return UINT32_MAX;
}

int lb_batch_alone(const lb_engine *e, LlgMatcher *m, size_t words, lb_batch_text *text) {
    const uint32_t n = text->n;
    for (text->n = 0; text->n < n; text->n++) {
        const uint32_t i = text->n;
        if (e->matcher_is_stopped(m)) return LB_STOPPED;
        if (e->matcher_compute_mask(m) != 0) return LB_MASK_ERROR;
        const uint32_t *mask = e->matcher_get_mask(m);
        if (mask == NULL) return LB_MASK_ERROR;
        uint32_t *kept = memcpy(text->masks + i * words, mask, words * sizeof *mask);
        text->refused[i] = refused_token(e, m, kept, words, i);
        if (e->matcher_validate_tokens(m, text->tokens + i, 1) != 1) return LB_REJECTED;
        if (e->matcher_consume_token(m, text->tokens[i]) != 0) return LB_CONSUME_ERROR;
    }
    return LB_END;
}

/* ---- the work of one sequence ---- */

static const uint32_t *truth(const run *r, const sequence *s, uint32_t ahead) {
    return r->b->texts[s->text].masks + (size_t)(s->position + ahead) * r->b->words;
}

static bool same(const run *r, const uint32_t *mask, const uint32_t *other) {
    return mask != NULL && memcmp(mask, other, r->b->words * sizeof *mask) == 0;
}

/* The same in every run: what of a draft is refused depends on the place alone. */
static uint32_t drawn(const run *r, const sequence *s, uint32_t salt, uint32_t below) {
    uint64_t x = ((uint64_t)r->b->seed << 32 | s->text) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 29)) + ((uint64_t)s->position << 3) + salt;
    x = (x ^ (x >> 32)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 29)) * 0x94d049bb133111ebu;
    return (uint32_t)((x >> 32) % below);
}

static void fail(sequence *s, int outcome) {
    if (s->outcome == LB_BATCH_DONE) s->outcome = outcome;
}

static bool mask_here(const run *r, sequence *s) {
    if (r->b->engine->matcher_compute_mask(s->matcher) == 0) return true;
    fail(s, LB_BATCH_FAILED);
    return false;
}

static bool compare_here(const run *r, sequence *s, uint32_t ahead) {
    s->masks++;
    if (same(r, r->b->engine->matcher_get_mask(s->matcher), truth(r, s, ahead))) return true;
    fail(s, LB_BATCH_DIFFERENT);
    return false;
}

/* A draft is the text's own next tokens, one of them replaced by a token that the grammar refuses.
 * The valid ones before it are consumed with a mask at each place, as the model needs them to choose
 * its own tokens; then the model keeps some of them, and the others are taken back. The last token
 * of a text is never drafted: a matcher that has ended has no way back. */
static void draft(const run *r, sequence *s) {
    const lb_engine *e = r->b->engine;
    const lb_batch_text *text = &r->b->texts[s->text];
    const uint32_t left = text->n - 1 - s->position;
    const uint32_t n = r->b->draft < left ? r->b->draft : left;
    uint32_t tokens[n + 1], valid = drawn(r, s, 1, n + 1);
    memcpy(tokens, text->tokens + s->position, n * sizeof *tokens);
    if (valid < n && text->refused[s->position + valid] == UINT32_MAX) valid = n;
    if (valid < n) tokens[valid] = text->refused[s->position + valid];
    s->kept = drawn(r, s, 2, valid + 1);
    s->drafted = n;
    s->valid = valid;
    s->back = valid - s->kept;

    uint64_t begun = now_ticks();
    const int32_t found = n ? e->matcher_validate_tokens(s->matcher, tokens, n) : 0;
    s->validate = now_ticks() - begun;
    if (found != (int32_t)valid) {
        fail(s, found < 0 ? LB_BATCH_FAILED : LB_BATCH_DIFFERENT);
        return;
    }
    begun = now_ticks();
    for (uint32_t i = 0; i <= valid; i++) {
        if (!mask_here(r, s)) return;
        if (r->b->check_ahead && !compare_here(r, s, i)) return;
        if (i < valid && e->matcher_consume_token(s->matcher, tokens[i]) != 0) {
            fail(s, LB_BATCH_FAILED);
            return;
        }
    }
    s->ahead = now_ticks() - begun;
    if (s->back == 0) return;
    begun = now_ticks();
    if (e->matcher_rollback(s->matcher, s->back) != 0) fail(s, LB_BATCH_FAILED);
    s->rollback = now_ticks() - begun;
}

static void work(const run *r, sequence *s) {
    s->begun = now_ticks();
    if (r->b->draft)
        draft(r, s);
    else
        mask_here(r, s);
    s->end = now_ticks();
}

/* ---- the pool ---- */

static void *worker(void *argument) {
    run *r = argument;
    uint64_t seen = 0;
    for (;;) {
        pthread_mutex_lock(&r->lock);
        while (r->generation == seen && !r->stop) pthread_cond_wait(&r->asked, &r->lock);
        seen = r->generation;
        const bool stop = r->stop;
        pthread_mutex_unlock(&r->lock);
        if (stop) return NULL;
        for (;;) {
            const uint32_t i = atomic_fetch_add(&r->next, 1);
            if (i >= r->b->n_sequences) break;
            work(r, &r->sequences[i]);
            if (atomic_fetch_add(&r->done, 1) + 1 == r->b->n_sequences) {
                pthread_mutex_lock(&r->lock);
                r->ended++;
                pthread_cond_signal(&r->finished);
                pthread_mutex_unlock(&r->lock);
            }
        }
    }
}

static bool start(run *r) {
    for (; r->n_started < r->b->n_threads; r->n_started++)
        if (pthread_create(&r->threads[r->n_started], NULL, worker, r) != 0) return false;
    return true;
}

static void finish(run *r) {
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->asked);
    pthread_mutex_unlock(&r->lock);
    for (uint32_t i = 0; i < r->n_started; i++) pthread_join(r->threads[i], NULL);
}

static void wait_for(run *r, uint64_t generation) {
    pthread_mutex_lock(&r->lock);
    while (r->ended < generation) pthread_cond_wait(&r->finished, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

/* `done` is set back before `next`: a worker that is still looking for work of the step before may
 * take some of this one. */
static void ask(run *r) {
    atomic_store(&r->done, 0);
    atomic_store(&r->next, 0);
    pthread_mutex_lock(&r->lock);
    r->generation++;
    pthread_cond_broadcast(&r->asked);
    pthread_mutex_unlock(&r->lock);
}

/* Called by one of rayon's threads. */
static void all_done(const void *user_data) {
    run *r = (run *)(uintptr_t)user_data;
    const uint64_t end = now_ticks();
    pthread_mutex_lock(&r->lock);
    r->end = end;
    r->ended++;
    pthread_cond_signal(&r->finished);
    pthread_mutex_unlock(&r->lock);
}

/* ---- between two steps ---- */

static bool constraint_step(const run *r, sequence *s, uint32_t token) {
    lb_commit_result committed;
    return r->b->parallel->commit_token(s->constraint, token, &committed) == 0;
}

static bool consume(const run *r, sequence *s, uint32_t token) {
    return r->b->parallel ? constraint_step(r, s, token)
                          : r->b->engine->matcher_consume_token(s->matcher, token) == 0;
}

static void drop(const run *r, sequence *s) {
    if (s->matcher != NULL) r->b->engine->free_matcher(s->matcher);
    if (s->constraint != NULL) r->b->parallel->free_constraint(s->constraint);
    s->matcher = NULL;
    s->constraint = NULL;
}

static bool clone(const run *r, sequence *s) {
    if (r->b->parallel)
        s->constraint = r->b->parallel->clone_constraint(r->b->constraint);
    else
        s->matcher = r->b->engine->clone_matcher(r->b->elder);
    return s->matcher != NULL || s->constraint != NULL;
}

/* Each sequence at its own place of its own text: the fractions of multiples of the golden ratio
 * lie evenly for any number of sequences. */
static bool place(const run *r, sequence *s, uint32_t i) {
    const double golden = 0.6180339887498949;
    s->text = i % r->b->n_texts;
    const lb_batch_text *text = &r->b->texts[s->text];
    const double share = i * golden;
    const uint32_t position = (uint32_t)((share - (uint64_t)share) * text->n);
    if (!clone(r, s)) return false;
    for (s->position = 0; s->position < position; s->position++) {
        lb_mask_result mask;
        if (r->b->parallel && r->b->parallel->compute_mask(s->constraint, &mask) != 0) return false;
        if (!consume(r, s, text->tokens[s->position])) return false;
    }
    return true;
}

/* ---- the steps ---- */

/* Hold what is there against the truth; drafts that were taken back, at the place they return to. */
static void check(const run *r, sequence *s, uint32_t i) {
    if (s->outcome != LB_BATCH_DONE) return;
    if (r->b->parallel) {
        s->masks++;
        if (r->b->parallel->get_error(s->constraint) != NULL)
            fail(s, LB_BATCH_FAILED);
        else if (!same(r, r->masks + i * r->b->words, truth(r, s, 0)))
            fail(s, LB_BATCH_DIFFERENT);
    } else if (s->back == 0 || mask_here(r, s)) {
        compare_here(r, s, s->kept);
    }
}

static void advance(const run *r, sequence *s, lb_batch_step *step) {
    const lb_batch_text *text = &r->b->texts[s->text];
    uint64_t begun = now_ticks();
    const bool taken = consume(r, s, text->tokens[s->position + s->kept]);
    step->consume_ns += now_ticks() - begun;
    if (!taken) {
        fail(s, LB_BATCH_FAILED);
        return;
    }
    s->position += s->kept + 1;
    if (s->position < text->n) return;
    drop(r, s);
    s->text = (s->text + 1) % r->b->n_texts;
    s->position = 0;
    begun = now_ticks();
    const bool cloned = clone(r, s);
    step->clone_ns += now_ticks() - begun;
    step->n_clones++;
    if (!cloned) fail(s, LB_BATCH_MEMORY);
}

static bool one_step(run *r, uint64_t generation, lb_batch_step *step, lb_batch_result *result) {
    const uint32_t n = r->b->n_sequences;
    for (uint32_t i = 0; i < n; i++) {
        sequence *s = &r->sequences[i];
        s->validate = s->ahead = s->rollback = 0;
        s->kept = s->drafted = s->valid = s->back = s->masks = 0;
    }
    const uint64_t begun = now_ticks();
    if (r->b->parallel)
        r->b->parallel->par_compute_mask(r->steps, n, r, all_done);
    else
        ask(r);
    wait_for(r, generation);
    *step = (lb_batch_step){0};
    uint64_t end = r->end;
    for (uint32_t i = 0; i < n; i++) {
        sequence *s = &r->sequences[i];
        const uint64_t spent = s->end - s->begun;
        if (s->end > end) end = s->end;
        if (spent > step->slowest_ns) step->slowest_ns = spent;
        step->work_ns += spent;
        step->validate_ns += s->validate;
        step->ahead_ns += s->ahead;
        step->rollback_ns += s->rollback;
        step->n_drafted += s->drafted;
        step->n_valid += s->valid;
        step->n_back += s->back;
        step->n_rollbacks += s->back != 0;
    }
    step->step_ns = end - begun;
    for (uint32_t i = 0; i < n; i++) {
        sequence *s = &r->sequences[i];
        const uint32_t text = s->text, position = s->position;
        check(r, s, i);
        step->n_masks += s->masks;
        if (s->outcome == LB_BATCH_DONE) advance(r, s, step);
        if (s->outcome != LB_BATCH_DONE) {
            *result = (lb_batch_result){.outcome = s->outcome, .n_steps = result->n_steps,
                                        .sequence = i, .text = text, .position = position};
            return false;
        }
    }
    return true;
}

static void to_ns(lb_batch_step *step, double scale) {
    uint64_t *times[] = {&step->step_ns,  &step->slowest_ns,  &step->work_ns,    &step->validate_ns,
                         &step->ahead_ns, &step->rollback_ns, &step->consume_ns, &step->clone_ns};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        *times[i] = (uint64_t)((double)*times[i] * scale + 0.5);
}

static bool allocate(run *r) {
    const lb_batch *b = r->b;
    r->sequences = calloc(b->n_sequences, sizeof *r->sequences);
    r->threads = calloc(b->n_threads, sizeof *r->threads);
    if (r->sequences == NULL || r->threads == NULL) return false;
    if (b->parallel == NULL) return true;
    r->steps = calloc(b->n_sequences, sizeof *r->steps);
    r->masks = calloc(b->n_sequences, b->words * sizeof *r->masks);
    return r->steps != NULL && r->masks != NULL;
}

/* A sequence's constraint changes when its text ends; the place of its mask does not. */
static void fill_steps(run *r) {
    for (uint32_t i = 0; r->b->parallel && i < r->b->n_sequences; i++)
        r->steps[i] = (lb_constraint_step){r->sequences[i].constraint,
                                           r->masks + i * r->b->words,
                                           r->b->words * sizeof *r->masks};
}

void lb_batch_run(const lb_batch *b, lb_batch_step *steps, lb_batch_result *result) {
    run state = {.b = b}, *r = &state;
    const uint64_t begin = now_ns();
    *result = (lb_batch_result){.outcome = LB_BATCH_MEMORY};
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->asked, NULL);
    pthread_cond_init(&r->finished, NULL);
    bool ready = allocate(r);
    for (uint32_t i = 0; ready && i < b->n_sequences; i++)
        if (!place(r, &r->sequences[i], i)) {
            *result = (lb_batch_result){.outcome = LB_BATCH_FAILED, .sequence = i,
                                        .text = r->sequences[i].text,
                                        .position = r->sequences[i].position};
            ready = false;
        }
    if (ready && (b->parallel != NULL || start(r))) {
        result->outcome = LB_BATCH_DONE;
        for (uint64_t generation = 1; generation <= b->n_steps; generation++) {
            fill_steps(r);
            if (!one_step(r, generation, &steps[result->n_steps], result)) break;
            result->n_steps++;
        }
    }
    finish(r);
    result->wall_ns = now_ns() - begin;
    const double scale = lb_ns_per_tick();
    for (uint32_t i = 0; i < result->n_steps; i++) to_ns(&steps[i], scale);
    for (uint32_t i = 0; r->sequences != NULL && i < b->n_sequences; i++)
        drop(r, &r->sequences[i]);
    free(r->sequences);
    free(r->threads);
    free(r->steps);
    free(r->masks);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->asked);
    pthread_cond_destroy(&r->finished);
}
