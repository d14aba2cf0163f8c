/* The timed loop and the judgement over the adapter's table; see replay.c and judge.c, which do the
 * same for llguidance with more to ask of it. */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "internal.h"
#include "peers.h"

int lb_peer_open(const char *path, lb_peer *peer, char *error, size_t error_len) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL) {
        const char *why = dlerror();
        snprintf(error, error_len, "%s", why ? why : "dlopen failed");
        return -1;
    }
    *peer = (lb_peer){.refuses = true};
    const struct {
        const char *name;
        void *field;
        bool optional;
    } symbols[] = {
        {"lbp_vocabulary", &peer->vocabulary, false},
        {"lbp_free_vocabulary", &peer->free_vocabulary, false},
        {"lbp_compile", &peer->compile, false},
        {"lbp_free_compiled", &peer->free_compiled, false},
        {"lbp_start", &peer->start, false},
        {"lbp_free_matcher", &peer->free_matcher, false},
        {"lbp_mask", &peer->mask, false},
        {"lbp_finish", &peer->finish, false},
        {"lbp_accept", &peer->accept, false},
        {"lbp_complete", &peer->complete, false},
        {"lbp_stopped", &peer->stopped, false},
        {"lbp_reset", &peer->reset, true},
        {"lbp_fork", &peer->fork, true},
        {"lbp_memory", &peer->memory, true},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (address == NULL && !symbols[i].optional) {
            snprintf(error, error_len, "it has no %s, so it is not a shim of llgbench",
                     symbols[i].name);
            return -1;
        }
        memcpy(symbols[i].field, &address, sizeof address);
    }
    return 0;
}

uint64_t lb_peer_timed_vocabulary(const lb_peer *p, const lb_peer_vocab *vocab, char *error,
                                  size_t error_len, void **result) {
    uint64_t start = now_ns();
    *result = p->vocabulary(p->library, vocab, error, error_len);
    return now_ns() - start;
}

uint64_t lb_peer_timed_compile(const lb_peer *p, void *vocabulary, uint32_t kind,
                               const char *source, char *error, size_t error_len, void **result) {
    uint64_t start = now_ns();
    *result = p->compile(vocabulary, kind, source, error, error_len);
    return now_ns() - start;
}

uint64_t lb_peer_timed_start(const lb_peer *p, void *compiled, char *error, size_t error_len,
                             void **result) {
    uint64_t start = now_ns();
    *result = p->start(compiled, error, error_len);
    return now_ns() - start;
}

/* Its mask allows all of 32 tokens. */
static const uint32_t EMPTY_MASK[1] = {UINT32_MAX};
static int32_t empty_mask(void *m) { (void)m; return 0; }
static const uint32_t *empty_finish(void *m) { (void)m; return EMPTY_MASK; }
static int32_t empty_accept(void *m, uint32_t token) { (void)m; (void)token; return 0; }
static bool empty_stopped(void *m) { (void)m; return false; }

void lb_peer_empty(lb_peer *peer, void **handle) {
    *peer = (lb_peer){.mask = empty_mask, .finish = empty_finish, .accept = empty_accept,
                      .stopped = empty_stopped};
    *handle = NULL;
}

/* Whether a token that is not in the mask is taken all the same: a mask that was narrowed by
 * forcing names one spelling of several. */
static bool taken_all_the_same(const lb_peer *p, void *m, const uint32_t *token) {
    return p->validate ? p->validate(m, token, 1) == 1 : p->refuses;
}

void lb_peer_replay(const lb_peer *p, void *m, size_t words, const uint32_t *tokens, uint32_t n,
                    int options, lb_step *steps, lb_replay_result *result) {
    const uint64_t begin = now_ns();
    uint64_t timed = 0, t0, t1, t2, t3;
    uint32_t i = 0;
    int outcome = LB_END;
    if (options & LB_RESET && (p->reset == NULL || p->reset(m) != 0)) {
        *result = (lb_replay_result){.outcome = LB_RESET_ERROR};
        return;
    }
    for (; i < n; i++) {
        lb_step *step = &steps[i];
        *step = (lb_step){0};
        if (p->stopped(m)) {
            outcome = LB_STOPPED;
            break;
        }
        if (p->prepare) p->prepare(m);
        t0 = now_ticks();
        int32_t status = p->mask(m);
        t1 = now_ticks();
        step->op_ns = t1 - t0;
        const uint32_t *mask = status == 0 ? p->finish(m) : NULL;
        if (mask == NULL) {
            outcome = LB_MASK_ERROR;
            i++;
            break;
        }
        step->flags |= LB_STEP_TIMED;
        if (options & LB_FACTS) lb_mask_facts(mask, words, step);
        const bool allowed = has_token(mask, words, tokens[i]);
        if (allowed) step->flags |= LB_STEP_ALLOWED;
        if (!allowed && !taken_all_the_same(p, m, &tokens[i])) {
            outcome = LB_REJECTED;
            i++;
            break;
        }
        t2 = now_ticks();
        status = p->accept(m, tokens[i]);
        t3 = now_ticks();
        if (status != 0) {
            outcome = allowed ? LB_CONSUME_ERROR : LB_REJECTED;
            i++;
            break;
        }
        step->consume_ns = t3 - t2;
        step->flags |= LB_STEP_CONSUMED;
    }
    const double scale = lb_ns_per_tick();
    for (uint32_t j = 0; j < i; j++) {
        timed += steps[j].op_ns + steps[j].consume_ns;
        steps[j].op_ns = (uint64_t)((double)steps[j].op_ns * scale + 0.5);
        steps[j].consume_ns = (uint64_t)((double)steps[j].consume_ns * scale + 0.5);
    }
    result->n_steps = i;
    result->outcome = outcome;
    result->inside_ns = (uint64_t)((double)timed * scale + 0.5);
    result->wall_ns = now_ns() - begin;
}

/* By single steps: it needs neither valgrind nor counters of the processor, and every instruction
 * that a library has is known to it. */
int64_t lb_peer_empty_instructions(const lb_peer *peer, void *handle, uint32_t n) {
    uint32_t *tokens = calloc(n, sizeof *tokens);
    lb_step *steps = calloc(n, sizeof *steps);
    lb_replay_result result;
    int64_t count = 0;
    int status;
    const pid_t child = tokens && steps ? fork() : -1;
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(1);
        raise(SIGSTOP);
        lb_peer_replay(peer, handle, 1, tokens, n, 0, steps, &result);
        _exit(result.n_steps == n ? 0 : 1);
    }
    while (child > 0 && waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
        if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) != 0) kill(child, SIGKILL);
        count++;
    }
    free(tokens);
    free(steps);
    return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? count : -1;
}

/* ---- the judgement ---- */

typedef struct {
    const lb_peer *peer;
    void *matcher;
    const uint32_t *mask;
    size_t words;
    int outcome;
    bool live;
    uint32_t taken;
} side;

static void end(side *s, int outcome) {
    s->outcome = outcome;
    s->live = false;
}

static void compute(side *s, bool last) {
    s->mask = NULL;
    if (!s->live) return;
    if (s->peer->stopped(s->matcher)) {
        end(s, last ? LB_END : LB_STOPPED);
        return;
    }
    if (s->peer->prepare) s->peer->prepare(s->matcher);
    s->mask = s->peer->mask(s->matcher) == 0 ? s->peer->finish(s->matcher) : NULL;
    if (s->mask == NULL) end(s, LB_MASK_ERROR);
}

static void advance(side *s, const uint32_t *token, bool allowed) {
    if (!s->live) return;
    if (!allowed && !taken_all_the_same(s->peer, s->matcher, token))
        end(s, LB_REJECTED);
    else if (s->peer->accept(s->matcher, *token) != 0)
        end(s, allowed ? LB_CONSUME_ERROR : LB_REJECTED);
    else
        s->taken++;
}

/* From here on a class explains what an engine forbids alone. */
enum { ONE_SIDED = 3 };

static uint32_t lowest(uint32_t word, size_t at) {
    return (uint32_t)(at * 32) + (uint32_t)__builtin_ctz(word);
}

/* How many words are looked at together, by vector instructions. */
enum { BLOCK = 16 };

__attribute__((target_clones("avx2", "default")))
static bool block_differs(const uint32_t *a, const uint32_t *b, const uint32_t *asked) {
    uint32_t any = 0;
    for (int i = 0; i < BLOCK; i++) any |= (a[i] ^ b[i]) & asked[i];
    return any != 0;
}

__attribute__((target_clones("popcnt", "default")))
static uint32_t count(const uint32_t *mask, const uint32_t *asked, size_t words) {
    uint32_t n = 0;
    for (size_t i = 0; i < words; i++) n += (uint32_t)__builtin_popcount(mask[i] & asked[i]);
    return n;
}

static void compare(const side *m, const side *r, const uint32_t *asked, const uint32_t *classes,
                    lb_peer_difference *d) {
    uint32_t extra = 0, missing = 0, left_extra = UINT32_MAX, left = UINT32_MAX;
    uint16_t explained = 0;
    for (size_t i = 0; i < m->words; i++) {
        if (i % BLOCK == 0 && i + BLOCK <= m->words &&
            !block_differs(m->mask + i, r->mask + i, asked + i)) {
            i += BLOCK - 1;
            continue;
        }
        const uint32_t a = m->mask[i] & asked[i], b = r->mask[i] & asked[i];
        if (a == b) continue;
        uint32_t rest = a ^ b;
        extra += (uint32_t)__builtin_popcount(a & ~b);
        missing += (uint32_t)__builtin_popcount(b & ~a);
        for (int c = 0; c < LB_PEER_CLASSES; c++) {
            uint32_t known = rest & classes[(size_t)c * m->words + i];
            if (c >= ONE_SIDED) known &= ~a;
            if (known) explained |= (uint16_t)(1u << c);
            rest &= ~known;
        }
        if (rest & a && left_extra == UINT32_MAX) left_extra = lowest(rest & a, i);
        if (rest & b && left == UINT32_MAX) left = lowest(rest & b, i);
    }
    const bool forced = extra == 0 && missing != 0 && count(m->mask, asked, m->words) == 1;
    const bool wrong = left_extra != UINT32_MAX;
    *d = (lb_peer_difference){
        extra, missing, forced ? UINT32_MAX : wrong ? left_extra : left,
        forced ? 0 : explained, forced, wrong};
}

/* Tokens of its mask that an engine is asked to accept: more at a text's first state. */
enum { TRIED_FIRST = 16, TRIED = 2 };

/* The first word from `at` on, all around, that has a token of the mask; `words` where none has. */
static size_t next_word(const uint32_t *mask, const uint32_t *asked, size_t words, size_t at) {
    static const uint32_t nothing[BLOCK];
    for (size_t k = 0; k < words; k++, at = at + 1 < words ? at + 1 : 0) {
        if (mask[at] & asked[at]) return at;
        while (at + 1 + BLOCK <= words && k + 1 + BLOCK <= words &&
               !block_differs(mask + at + 1, nothing, asked + at + 1)) {
            at += BLOCK;
            k += BLOCK;
        }
    }
    return words;
}

/* Some tokens of a mask, over the whole vocabulary, but not the end token, behind which some engines
 * do not roll back. */
static int choose(const side *m, const uint32_t *asked, uint32_t eos, uint32_t step, uint32_t *chosen) {
    uint64_t x = step + 1;
    int n = 0;
    for (int left = step ? TRIED : TRIED_FIRST; left > 0; left--) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        const size_t at = next_word(m->mask, asked, m->words, (size_t)(x >> 33) % m->words);
        if (at == m->words) break;
        uint32_t found = m->mask[at] & asked[at];
        if (at == eos / 32) found &= ~(1u << eos % 32);
        if (found) chosen[n++] = lowest(found, at);
    }
    return n;
}

/* Whether an engine accepts what its mask allows. By rollback where there is one, for a fork may copy
 * all that an engine has built. Returns the ticks in the engine. */
static uint64_t try_allowed(side *m, const uint32_t *chosen, int n, uint32_t step,
                            lb_peer_judgement *j) {
    const lb_peer *p = m->peer;
    if (p->rollback == NULL && p->fork == NULL) return 0;
    const uint64_t begin = now_ticks();
    for (int i = 0; i < n && j->refused_token == UINT32_MAX; i++) {
        void *other = p->rollback ? NULL : p->fork(m->matcher);
        if (p->rollback == NULL && other == NULL) break;
        const bool taken = p->accept(other ? other : m->matcher, chosen[i]) == 0;
        j->asked++;
        if (!taken) {
            j->refused_step = step;
            j->refused_token = chosen[i];
        }
        if (other)
            p->free_matcher(other);
        else if (!taken || p->rollback(m->matcher, 1) != 0)
            break;
    }
    return now_ticks() - begin;
}

void lb_peer_judge(const lb_peer *peer, void *matcher, const lb_peer *reference, void *truth,
                   size_t words, const uint32_t *asked, uint32_t eos, const uint8_t *state,
                   const uint32_t *classes, const uint32_t *tokens, uint32_t n,
                   lb_peer_difference *differences, lb_peer_judgement *j) {
    side m = {peer, matcher, NULL, words, LB_END, true, 0};
    side r = {reference, truth, NULL, words, LB_END, true, 0};
    uint32_t chosen[TRIED_FIRST];
    *j = (lb_peer_judgement){.refused_step = UINT32_MAX, .refused_token = UINT32_MAX};
    const uint64_t all = now_ticks();
    uint64_t inside = 0;
    for (uint32_t i = 0; m.live || r.live; i++) {
        uint64_t begin = now_ticks();
        compute(&m, i == n);
        compute(&r, i == n);
        inside += now_ticks() - begin;
        if (m.mask && r.mask) {
            const uint32_t *here = classes + (size_t)state[i] * LB_PEER_CLASSES * words;
            compare(&m, &r, asked, here, &differences[i]);
            j->n_steps++;
        }
        /* Before the engine is called again, which may write its mask anew. */
        const bool allowed = i < n && m.mask && has_token(m.mask, words, tokens[i]);
        const bool true_one = i < n && r.mask && has_token(r.mask, words, tokens[i]);
        if (m.mask)
            inside += try_allowed(&m, chosen, choose(&m, asked, eos, i, chosen), i, j);
        if (i == n) break;
        begin = now_ticks();
        advance(&m, &tokens[i], allowed);
        advance(&r, &tokens[i], true_one);
        inside += now_ticks() - begin;
    }
    const uint64_t begin = now_ticks();
    j->complete = m.outcome == LB_END && peer->complete(matcher);
    j->reference_complete = r.outcome == LB_END && reference->complete(truth);
    const uint64_t end_ticks = now_ticks();
    j->inside_share = (double)(inside + end_ticks - begin) / (double)(end_ticks - all);
    j->taken = m.taken;
    j->reference_taken = r.taken;
    j->outcome = m.outcome;
    j->reference_outcome = r.outcome;
}
