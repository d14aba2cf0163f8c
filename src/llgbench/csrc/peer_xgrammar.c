/* xgrammar behind the adapter, by TVM FFI's C ABI (tvm/ffi/c_api.h): a call is a function object, an
 * array of tagged values and a place for the result. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "peers.h"

enum {
    ANY_NONE = 0, ANY_INT = 1, ANY_BOOL = 2, ANY_TENSOR = 7, ANY_TEXT = 8, ANY_BYTES = 9,
    ANY_OBJECT = 64 /* and above: counted by reference */
};

typedef struct {
    int32_t type;
    uint32_t padding;
    union {
        int64_t integer;
        const void *pointer;
    };
} any;

typedef struct {
    const char *data;
    size_t size;
} byte_array;

typedef struct {
    byte_array name, doc, metadata;
    int64_t flags;
    any method;
} method_info;

typedef struct {
    int32_t index, depth;
    byte_array key;
    const void *ancestors;
    uint64_t key_hash;
    int32_t n_fields, n_methods;
    const void *fields;
    const method_info *methods;
} type_info;

typedef struct {
    const any *data;
    int32_t size, begin;
} attribute_column;

/* An error's words stand behind the head that every object has. */
typedef struct {
    char head[24];
    byte_array kind, message;
} error_object;

/* DLPack's DLTensor. */
typedef struct {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} tensor;

typedef int (*function_body)(void *self, const any *args, int32_t n, any *result);

struct lb_xgrammar {
    int (*call)(const void *function, any *args, int32_t n, any *result);
    int (*release)(const void *object);
    int (*global)(const byte_array *name, void **function);
    int (*create)(void *self, function_body body, void (*free)(void *), void **function);
    int (*type_index)(const byte_array *key, int32_t *index);
    const type_info *(*type)(int32_t index);
    const attribute_column *(*attribute)(const byte_array *name);
    void (*take_error)(void **object);
    const void *array, *new_tokenizer, *new_compiler, *compile_schema, *compile_lark, *memory,
        *new_matcher, *fill, *accept, *is_completed, *is_terminated, *reset, *rollback, *fork;
    lb_xgrammar_options options;
};

typedef struct {
    const lb_xgrammar *library;
    any object;
    uint32_t n_tokens;
} holder; /* a vocabulary or a compiled grammar */

typedef struct {
    const lb_xgrammar *x;
    any object;
    uint32_t n_tokens, words;
    any fill_args[4], accept_args[3];
    int64_t shape[2];
    tensor tensor;
    bool all; /* the last mask allows everything, and says so */
    uint32_t *bits;
} matcher;

static any text(const char *value) { return (any){.type = ANY_TEXT, .pointer = value}; }
static any integer(int64_t value) { return (any){.type = ANY_INT, .integer = value}; }
static any boolean(bool value) { return (any){.type = ANY_BOOL, .integer = value}; }
static any none(void) { return (any){.type = ANY_NONE}; }
static byte_array named(const char *name) { return (byte_array){name, strlen(name)}; }

static void release(const lb_xgrammar *x, any value) {
    if (value.type >= ANY_OBJECT) x->release(value.pointer);
}

/* 0, or -1 with the error's words. */
static int call(const lb_xgrammar *x, const void *function, any *args, int32_t n, any *result,
                char *error, size_t error_len) {
    *result = none();
    if (x->call(function, args, n, result) == 0) return 0;
    void *raised = NULL;
    x->take_error(&raised);
    if (raised == NULL) {
        snprintf(error, error_len, "an error without words");
        return -1;
    }
    const error_object *e = raised;
    snprintf(error, error_len, "%.*s", (int)e->message.size, e->message.data);
    x->release(raised);
    return -1;
}

static int quiet(const lb_xgrammar *x, const void *function, any *args, int32_t n, any *result) {
    char ignored[64];
    return call(x, function, args, n, result, ignored, sizeof ignored);
}

/* A constructor got arguments from release to release; those of the end have defaults. */
static int construct(const lb_xgrammar *x, const void *function, any *args, int32_t n,
                     int32_t fewest, any *result, char *error, size_t error_len) {
    for (;; n--) {
        if (call(x, function, args, n, result, error, error_len) == 0) return 0;
        if (n == fewest || strstr(error, "Mismatched number of arguments") == NULL) return -1;
    }
}

/* ---- opening ---- */

static const void *find(const lb_xgrammar *x, const char *type, const char *method) {
    char key[128];
    int32_t index;
    snprintf(key, sizeof key, "xgrammar.tvm_ffi_binding.%s", type);
    byte_array name = named(key), wanted = named(method);
    if (x->type_index(&name, &index) != 0) {
        void *raised = NULL;
        x->take_error(&raised);
        if (raised) x->release(raised);
        return NULL;
    }
    const type_info *info = x->type(index);
    for (int32_t i = 0; info != NULL && i < info->n_methods; i++) {
        const method_info *m = &info->methods[i];
        if (m->name.size == wanted.size && memcmp(m->name.data, method, wanted.size) == 0)
            return m->method.pointer;
    }
    const attribute_column *column = x->attribute(&wanted);
    if (column == NULL || index < column->begin || index - column->begin >= column->size)
        return NULL;
    const any *found = &column->data[index - column->begin];
    return found->type >= ANY_OBJECT ? found->pointer : NULL;
}

static int resolve(lb_xgrammar *x, void *library, char *error, size_t error_len) {
    const struct {
        const char *name;
        void *field;
    } symbols[] = {
        {"TVMFFIFunctionCall", &x->call},
        {"TVMFFIObjectDecRef", &x->release},
        {"TVMFFIFunctionGetGlobal", &x->global},
        {"TVMFFIFunctionCreate", &x->create},
        {"TVMFFITypeKeyToIndex", &x->type_index},
        {"TVMFFIGetTypeInfo", &x->type},
        {"TVMFFIGetTypeAttrColumn", &x->attribute},
        {"TVMFFIErrorMoveFromRaised", &x->take_error},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (address == NULL) {
            snprintf(error, error_len, "libtvm_ffi.so has no %s", symbols[i].name);
            return -1;
        }
        memcpy(symbols[i].field, &address, sizeof address);
    }
    return 0;
}

static int resolve_methods(lb_xgrammar *x, char *error, size_t error_len) {
    const struct {
        const char *type, *name;
        const void **field;
        bool optional;
    } methods[] = {
        {"TokenizerInfo", "__ffi_init__", &x->new_tokenizer, false},
        {"GrammarCompiler", "__ffi_init__", &x->new_compiler, false},
        {"GrammarCompiler", "compile_json_schema", &x->compile_schema, false},
        {"GrammarCompiler", "compile_lark", &x->compile_lark, true},
        {"CompiledGrammar", "memory_size_bytes", &x->memory, false},
        {"GrammarMatcher", "__ffi_init__", &x->new_matcher, false},
        {"GrammarMatcher", "fill_next_token_bitmask", &x->fill, false},
        {"GrammarMatcher", "accept_token", &x->accept, false},
        {"GrammarMatcher", "is_completed", &x->is_completed, false},
        {"GrammarMatcher", "is_terminated", &x->is_terminated, false},
        {"GrammarMatcher", "reset", &x->reset, false},
        {"GrammarMatcher", "rollback", &x->rollback, false},
        {"GrammarMatcher", "fork", &x->fork, true},
    };
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        *methods[i].field = find(x, methods[i].type, methods[i].name);
        if (*methods[i].field == NULL && !methods[i].optional) {
            snprintf(error, error_len, "its bindings have no %s.%s; releases 0.2.x have",
                     methods[i].type, methods[i].name);
            return -1;
        }
    }
    byte_array name = named("ffi.Array");
    void *array = NULL;
    if (x->global(&name, &array) != 0 || array == NULL) {
        snprintf(error, error_len, "libtvm_ffi.so has no ffi.Array");
        return -1;
    }
    x->array = array;
    return 0;
}

lb_xgrammar *lb_xgrammar_open(const char *tvm_ffi, const char *bindings,
                              const lb_xgrammar_options *options, char *error, size_t error_len) {
    enum { HOW = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE };
    Lmid_t space = LM_ID_BASE;
    void *base = dlmopen(options->apart ? LM_ID_NEWLM : space, tvm_ffi, HOW);
    if (base != NULL && options->apart && dlinfo(base, RTLD_DI_LMID, &space) != 0) base = NULL;
    /* The bindings ask for libtvm_ffi.so by its name, which the linker then finds loaded. */
    void *library = base ? dlmopen(space, bindings, HOW) : NULL;
    lb_xgrammar *x = calloc(1, sizeof *x);
    if (library == NULL || x == NULL) {
        const char *why = library ? "no memory" : dlerror();
        snprintf(error, error_len, "%s", why ? why : "dlopen failed");
        free(x);
        return NULL;
    }
    x->options = *options;
    if (resolve(x, base, error, error_len) == 0 && resolve_methods(x, error, error_len) == 0)
        return x;
    free(x);
    return NULL;
}

/* ---- vocabulary and grammar ---- */

static void *hold(const lb_xgrammar *x, any object, uint32_t n_tokens) {
    holder *h = malloc(sizeof *h);
    if (h != NULL) *h = (holder){x, object, n_tokens};
    return h;
}

static void free_holder(void *held) {
    holder *h = held;
    release(h->library, h->object);
    free(h);
}

static void *make_vocabulary(void *library, const lb_peer_vocab *vocab, char *error,
                             size_t error_len) {
    const lb_xgrammar *x = library;
    any *items = calloc(vocab->n_tokens, sizeof *items);
    byte_array *pieces = calloc(vocab->n_tokens, sizeof *pieces);
    any tokens = none(), stops = none(), made = none(), eos = integer(vocab->eos);
    const uint8_t *at = vocab->bytes;
    int status = -1;
    if (items == NULL || pieces == NULL) goto done;
    for (uint32_t i = 0; i < vocab->n_tokens; at += vocab->lens[i++]) {
        /* A token without bytes is special to xgrammar, and in no mask. */
        pieces[i] = (byte_array){(const char *)at, vocab->marked[i] ? 0 : vocab->lens[i]};
        items[i] = (any){.type = ANY_BYTES, .pointer = &pieces[i]};
    }
    if (call(x, x->array, items, (int32_t)vocab->n_tokens, &tokens, error, error_len) != 0 ||
        call(x, x->array, &eos, vocab->eos != UINT32_MAX, &stops, error, error_len) != 0)
        goto done;
    any args[] = {tokens, integer(0), integer(vocab->n_tokens), stops, boolean(false)};
    status = call(x, x->new_tokenizer, args, 5, &made, error, error_len);
done:
    release(x, tokens);
    release(x, stops);
    free(items);
    free(pieces);
    return status == 0 ? hold(x, made, vocab->n_tokens) : NULL;
}

/* A compiler of its own for each grammar: its cache would make the second compilation nothing. One
 * thread, as the other engines have. */
static void *compile(void *vocabulary, uint32_t kind, const char *source, char *error,
                     size_t error_len) {
    const holder *v = vocabulary;
    const lb_xgrammar *x = v->library;
    any compiler = none(), made = none(), pair = none();
    any args[] = {v->object, integer(1), boolean(true), integer(-1), boolean(x->options.lazy)};
    if (construct(x, x->new_compiler, args, 5, x->options.lazy ? 5 : 4, &compiler, error,
                  error_len) != 0) {
        if (x->options.lazy && strstr(error, "Mismatched number") != NULL)
            snprintf(error, error_len, "this release has no lazy mode; 0.2.9 has");
        return NULL;
    }
    int status = -1;
    if (kind == LB_PEER_SCHEMA) {
        any separators[] = {text(x->options.comma), text(x->options.colon)};
        if (x->options.any_whitespace ||
            call(x, x->array, separators, 2, &pair, error, error_len) == 0) {
            /* Not strict: properties and items that the schema does not name are allowed, as
             * JSON Schema has it. */
            any given[] = {compiler, text(source), boolean(x->options.any_whitespace), none(),
                           pair, boolean(false), none(), boolean(false)};
            status = construct(x, x->compile_schema, given, 8, 7, &made, error, error_len);
        }
    } else if (x->compile_lark == NULL) {
        snprintf(error, error_len, "this release does not read Lark; 0.2.9 does");
    } else if (call(x, x->array, NULL, 0, &pair, error, error_len) == 0) {
        any given[] = {compiler, text(source), pair, pair};
        status = call(x, x->compile_lark, given, 4, &made, error, error_len);
    }
    release(x, pair);
    release(x, compiler);
    return status == 0 ? hold(x, made, v->n_tokens) : NULL;
}

static uint64_t memory(void *compiled) {
    holder *c = compiled;
    any size;
    if (quiet(c->library, c->library->memory, &c->object, 1, &size) != 0) return 0;
    return (uint64_t)size.integer;
}

/* ---- the matcher ---- */

static matcher *wrap(const lb_xgrammar *x, any object, uint32_t n_tokens) {
    matcher *m = calloc(1, sizeof *m);
    if (m == NULL) return NULL;
    m->x = x;
    m->object = object;
    m->n_tokens = n_tokens;
    m->words = (n_tokens + 31) / 32;
    m->bits = calloc(m->words, sizeof *m->bits);
    m->shape[0] = 1;
    m->shape[1] = m->words;
    m->tensor = (tensor){.data = m->bits, .device_type = 1, .ndim = 2, .code = 0, .bits = 32,
                         .lanes = 1, .shape = m->shape};
    m->fill_args[0] = m->accept_args[0] = object;
    m->fill_args[1] = (any){.type = ANY_TENSOR, .pointer = &m->tensor};
    m->fill_args[2] = integer(0);
    m->accept_args[1] = integer(0);
    m->fill_args[3] = m->accept_args[2] = boolean(false);
    return m;
}

static void *start(void *compiled, char *error, size_t error_len) {
    const holder *c = compiled;
    any made, args[] = {c->object, none(), boolean(false), integer(-1), none()};
    if (construct(c->library, c->library->new_matcher, args, 5, 4, &made, error, error_len) != 0)
        return NULL;
    return wrap(c->library, made, c->n_tokens);
}

static void free_matcher(void *handle) {
    matcher *m = handle;
    release(m->x, m->object);
    free(m->bits);
    free(m);
}

static int32_t mask(void *handle) {
    matcher *m = handle;
    any result = {.type = ANY_NONE};
    int status = m->x->call(m->x->fill, m->fill_args, 4, &result);
    m->all = !result.integer;
    return status;
}

static const uint32_t *finish(void *handle) {
    matcher *m = handle;
    if (m->all) memset(m->bits, 0xff, m->words * sizeof *m->bits);
    return m->bits;
}

static int32_t accept(void *handle, uint32_t token) {
    matcher *m = handle;
    any result = {.type = ANY_NONE};
    m->accept_args[1].integer = token;
    int status = m->x->call(m->x->accept, m->accept_args, 3, &result);
    return status != 0 ? -1 : !result.integer;
}

static bool ask(const matcher *m, const void *question) {
    any result, self = m->object;
    return quiet(m->x, question, &self, 1, &result) == 0 && result.integer;
}

static bool stopped(void *handle) { return ask(handle, ((matcher *)handle)->x->is_terminated); }

static bool complete(void *handle) {
    return stopped(handle) || ask(handle, ((matcher *)handle)->x->is_completed);
}

static int32_t reset(void *handle) {
    matcher *m = handle;
    any result, self = m->object;
    return quiet(m->x, m->x->reset, &self, 1, &result);
}

static int32_t rollback(void *handle, size_t n) {
    matcher *m = handle;
    any result, args[] = {m->object, integer((int64_t)n)};
    return quiet(m->x, m->x->rollback, args, 2, &result);
}

static void *fork_matcher(const void *handle) {
    const matcher *m = handle;
    any made, self = m->object;
    return quiet(m->x, m->x->fork, &self, 1, &made) == 0 ? wrap(m->x, made, m->n_tokens) : NULL;
}

void lb_xgrammar_table(lb_xgrammar *x, lb_peer *peer) {
    *peer = (lb_peer){
        .library = x,
        .vocabulary = make_vocabulary,
        .free_vocabulary = free_holder,
        .compile = compile,
        .free_compiled = free_holder,
        .start = start,
        .free_matcher = free_matcher,
        .mask = mask,
        .finish = finish,
        .accept = accept,
        .complete = complete,
        .stopped = stopped,
        .reset = reset,
        .rollback = rollback,
        .fork = x->fork ? fork_matcher : NULL,
        .memory = memory,
        .refuses = true,
    };
}

/* ---- empty ---- */

static int say_yes(void *self, const any *args, int32_t n, any *result) {
    (void)self, (void)args, (void)n;
    *result = boolean(true);
    return 0;
}

static int say_no(void *self, const any *args, int32_t n, any *result) {
    (void)self, (void)args, (void)n;
    *result = boolean(false);
    return 0;
}

int lb_xgrammar_empty(lb_xgrammar *library, lb_peer *peer, void **handle) {
    static lb_xgrammar empty;
    void *yes = NULL, *no = NULL;
    if (library->create(NULL, say_yes, NULL, &yes) != 0 ||
        library->create(NULL, say_no, NULL, &no) != 0)
        return -1;
    empty = *library;
    empty.fill = empty.accept = yes;
    empty.is_terminated = no;
    lb_xgrammar_table(&empty, peer);
    matcher *m = wrap(&empty, none(), 32);
    if (m == NULL) return -1;
    *m->bits = UINT32_MAX;
    *handle = m;
    return 0;
}
