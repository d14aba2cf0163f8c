/* Part of the program that counts: an allocator whose calls cost the same whatever was
 * allocated before.
 *
 * glibc's malloc searches bins and joins neighbours, so that what it costs depends on the whole
 * history of the heap. That moves a count of consume_token by several percent between two engines
 * that run the same code, far beyond what is to be told apart. Here a block's size is rounded up to
 * a power of two, each size has a list of free blocks, and nothing is ever split, joined or given
 * back. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

/* Before each block; as long as malloc's alignment, so that the block has it too. */
typedef struct {
    void *base;
    size_t order; /* the block with its head has 1 << order bytes from base */
} head;

enum { ALIGNMENT = 16, SMALLEST = 5, ORDERS = 48, CHUNK = 1 << 20 };
_Static_assert(sizeof(head) == ALIGNMENT, "a block must stay aligned");

static void *free_blocks[ORDERS];
static char *chunk, *chunk_end;
static atomic_flag busy = ATOMIC_FLAG_INIT;

void *malloc(size_t size);
void free(void *block);
void *calloc(size_t n, size_t size);
void *realloc(void *block, size_t size);
void *memalign(size_t alignment, size_t size);
void *aligned_alloc(size_t alignment, size_t size);
int posix_memalign(void **block, size_t alignment, size_t size);
size_t malloc_usable_size(void *block);

static char *map(size_t size) {
    char *found = mmap(NULL, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return found == MAP_FAILED ? NULL : found;
}

static size_t order_of(size_t size) {
    if (size <= (size_t)1 << SMALLEST) return SMALLEST;
    return 64 - (size_t)__builtin_clzl(size - 1);
}

/* 1 << order bytes, aligned to ALIGNMENT. */
static void *take(size_t order) {
    const size_t size = (size_t)1 << order;
    char *found;
    while (atomic_flag_test_and_set(&busy)) {
    }
    found = free_blocks[order];
    if (found) {
        free_blocks[order] = *(void **)found;
    } else if (size >= CHUNK) {
        found = map(size);
    } else {
        if ((size_t)(chunk_end - chunk) < size) {
            chunk = map(CHUNK);
            chunk_end = chunk ? chunk + CHUNK : NULL;
        }
        found = chunk;
        if (chunk) chunk += size;
    }
    atomic_flag_clear(&busy);
    return found;
}

void *memalign(size_t alignment, size_t size) {
    const size_t room = alignment > ALIGNMENT ? alignment : sizeof(head);
    if (size > PTRDIFF_MAX - 2 * room - sizeof(head) || room > (size_t)1 << 40) goto none;
    /* A block of the default alignment follows its head; any other needs room to be moved. */
    const size_t order = order_of(size + (room == sizeof(head) ? room : 2 * room));
    if (order >= ORDERS) goto none;
    char *base = take(order);
    if (!base) goto none;
    char *block = (char *)(((uintptr_t)base + sizeof(head) + room - 1) & ~(uintptr_t)(room - 1));
    ((head *)block)[-1] = (head){base, order};
    return block;
none:
    errno = ENOMEM;
    return NULL;
}

void *malloc(size_t size) { return memalign(ALIGNMENT, size); }

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **block, size_t alignment, size_t size) {
    void *found = memalign(alignment, size);
    if (!found) return ENOMEM;
    *block = found;
    return 0;
}

void free(void *block) {
    if (!block) return;
    const head h = ((head *)block)[-1];
    while (atomic_flag_test_and_set(&busy)) {
    }
    *(void **)h.base = free_blocks[h.order];
    free_blocks[h.order] = h.base;
    atomic_flag_clear(&busy);
}

size_t malloc_usable_size(void *block) {
    if (!block) return 0;
    const head h = ((head *)block)[-1];
    return (size_t)((char *)h.base + ((size_t)1 << h.order) - (char *)block);
}

void *calloc(size_t n, size_t size) {
    size_t all;
    if (__builtin_mul_overflow(n, size, &all)) {
        errno = ENOMEM;
        return NULL;
    }
    void *block = malloc(all);
    return block ? memset(block, 0, all) : NULL;
}

void *realloc(void *block, size_t size) {
    if (!block) return malloc(size);
    const size_t room = malloc_usable_size(block);
    if (size <= room) return block;
    void *bigger = malloc(size);
    if (!bigger) return NULL;
    memcpy(bigger, block, room);
    free(block);
    return bigger;
}
