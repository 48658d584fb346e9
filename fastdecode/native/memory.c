/* memory.c: a memory manager for libjpeg that reuses the memory of one image for the next.
 *
 * libjpeg allocates everything for an image from a "pool", and frees the pool as a whole. Here that
 * pool is a few chunks, from which pieces are cut one after another; freeing it only resets a mark.
 * After the first images of a size there is no malloc, and there are no page faults: a progressive
 * image of 12 megapixels needs 36 MB. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#include <jerror.h>

#if defined(__SANITIZE_ADDRESS__)
#define EACH_PIECE_ALONE 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EACH_PIECE_ALONE 1
#endif
#endif

enum { ALIGNMENT = 64 }; /* libjpeg-turbo's SIMD needs 32, and rows padded to 64 */
#ifdef EACH_PIECE_ALONE
/* AddressSanitizer checks the bounds of chunks, not of pieces: so give each piece its own chunk. */
enum { LARGEST_KEPT = 0, SMALLEST_CHUNK = 0 };
#else
enum {
    LARGEST_KEPT = 64 << 20,   /* bytes: do not hold the memory of one huge image for ever */
    SMALLEST_CHUNK = 256 << 10 /* bytes: enough for a baseline image 2000 pixels wide */
};
#endif

/* The chunk's memory begins ALIGNMENT bytes after the start of this struct. */
typedef struct chunk {
    struct chunk *next;
    size_t size, used;
} chunk;

/* A pool. Pieces are cut from its `first` chunk. */
typedef struct {
    chunk *first;
    size_t total; /* bytes of all chunks */
    size_t used;  /* bytes in use by the current image */
} pool;

/* libjpeg only declares these two structs: the memory manager defines them. */
struct jvirt_sarray_control {
    JSAMPARRAY rows;
    JDIMENSION width, height;
    boolean zeroed;
    struct jvirt_sarray_control *next;
};

struct jvirt_barray_control {
    JBLOCKARRAY rows;
    JDIMENSION width, height;
    boolean zeroed;
    struct jvirt_barray_control *next;
};

struct fd_memory {
    struct jpeg_memory_mgr jpeg;  /* first: libjpeg sees only this */
    struct jpeg_memory_mgr *own; /* libjpeg's manager, which owns what was allocated before ours */
    pool pools[JPOOL_NUMPOOLS];
    size_t limit; /* bytes per image; 0 is no limit */
    jvirt_sarray_ptr samples; /* requested, not yet allocated */
    jvirt_barray_ptr blocks;
};

static fd_memory *memory_of(j_common_ptr jpeg) { return (fd_memory *)jpeg->mem; }

static size_t rounded_up(size_t size) {
    return (size + (ALIGNMENT - 1)) & ~(size_t)(ALIGNMENT - 1);
}

/* `size` is a multiple of ALIGNMENT. */
static chunk *new_chunk(size_t size) {
    if (size > SIZE_MAX - ALIGNMENT)
        return NULL;
    chunk *made = aligned_alloc(ALIGNMENT, ALIGNMENT + size);
    if (made == NULL)
        return NULL;
    made->next = NULL;
    made->size = size;
    made->used = 0;
    return made;
}

static void free_chunks(pool *from) {
    while (from->first != NULL) {
        chunk *gone = from->first;
        from->first = gone->next;
        free(gone);
    }
    from->total = 0;
}

static void *cut_off(j_common_ptr jpeg, int which, size_t size) {
    fd_memory *memory = memory_of(jpeg);
    pool *from = &memory->pools[which];
    if (size > SIZE_MAX / 4)
        ERREXIT1(jpeg, JERR_OUT_OF_MEMORY, 0);
    size = rounded_up(size);
    if (which == JPOOL_IMAGE && memory->limit &&
        (from->used > memory->limit || size > memory->limit - from->used))
        fd_errors_leave((fd_errors *)jpeg->err, FD_TOO_LARGE,
                        "decoding it takes more memory than is allowed");
    chunk *at = from->first;
    if (at == NULL || at->size - at->used < size) {
        at = new_chunk(size > SMALLEST_CHUNK ? size : SMALLEST_CHUNK);
        if (at == NULL)
            ERREXIT1(jpeg, JERR_OUT_OF_MEMORY, 0);
        at->next = from->first;
        from->first = at;
        from->total += at->size;
    }
    void *piece = (uint8_t *)at + ALIGNMENT + at->used;
    at->used += size;
    from->used += size;
    return piece;
}

/* `count` * `size`, or on overflow a size that cannot be allocated. */
static size_t times(size_t count, size_t size) {
    return count != 0 && size > SIZE_MAX / count ? SIZE_MAX : count * size;
}

static void *alloc(j_common_ptr jpeg, int which, size_t size) { return cut_off(jpeg, which, size); }

static JSAMPARRAY alloc_samples(j_common_ptr jpeg, int which, JDIMENSION width, JDIMENSION height) {
    size_t stride = rounded_up(width);
    JSAMPARRAY rows = cut_off(jpeg, which, height * sizeof(JSAMPROW));
    uint8_t *memory = cut_off(jpeg, which, times(stride, height));
    for (JDIMENSION y = 0; y < height; y++)
        rows[y] = memory + y * stride;
    return rows;
}

static JBLOCKARRAY alloc_blocks(j_common_ptr jpeg, int which, JDIMENSION width, JDIMENSION height) {
    JBLOCKARRAY rows = cut_off(jpeg, which, height * sizeof(JBLOCKROW));
    JBLOCKROW memory = cut_off(jpeg, which, times(times(width, height), sizeof(JBLOCK)));
    for (JDIMENSION y = 0; y < height; y++)
        rows[y] = memory + (size_t)y * width;
    return rows;
}

/* "Virtual" arrays could lie on disk; here they are plain memory, which `realize` allocates. */
static jvirt_sarray_ptr request_samples(j_common_ptr jpeg, int which, boolean zeroed,
                                        JDIMENSION width, JDIMENSION height, JDIMENSION at_once) {
    (void)at_once;
    fd_memory *memory = memory_of(jpeg);
    jvirt_sarray_ptr array = cut_off(jpeg, which, sizeof *array);
    *array = (struct jvirt_sarray_control){NULL, width, height, zeroed, memory->samples};
    memory->samples = array;
    return array;
}

static jvirt_barray_ptr request_blocks(j_common_ptr jpeg, int which, boolean zeroed,
                                       JDIMENSION width, JDIMENSION height, JDIMENSION at_once) {
    (void)at_once;
    fd_memory *memory = memory_of(jpeg);
    jvirt_barray_ptr array = cut_off(jpeg, which, sizeof *array);
    *array = (struct jvirt_barray_control){NULL, width, height, zeroed, memory->blocks};
    memory->blocks = array;
    return array;
}

static void realize(j_common_ptr jpeg) {
    fd_memory *memory = memory_of(jpeg);
    for (; memory->samples != NULL; memory->samples = memory->samples->next) {
        jvirt_sarray_ptr array = memory->samples;
        array->rows = alloc_samples(jpeg, JPOOL_IMAGE, array->width, array->height);
        for (JDIMENSION y = 0; array->zeroed && y < array->height; y++)
            memset(array->rows[y], 0, array->width);
    }
    for (; memory->blocks != NULL; memory->blocks = memory->blocks->next) {
        jvirt_barray_ptr array = memory->blocks;
        array->rows = alloc_blocks(jpeg, JPOOL_IMAGE, array->width, array->height);
        for (JDIMENSION y = 0; array->zeroed && y < array->height; y++)
            memset(array->rows[y], 0, array->width * sizeof(JBLOCK));
    }
}

static JSAMPARRAY access_samples(j_common_ptr jpeg, jvirt_sarray_ptr array, JDIMENSION start,
                                 JDIMENSION count, boolean writable) {
    (void)writable;
    if (array->rows == NULL || start > array->height || count > array->height - start)
        ERREXIT(jpeg, JERR_BAD_VIRTUAL_ACCESS);
    return array->rows + start;
}

static JBLOCKARRAY access_blocks(j_common_ptr jpeg, jvirt_barray_ptr array, JDIMENSION start,
                                 JDIMENSION count, boolean writable) {
    (void)writable;
    if (array->rows == NULL || start > array->height || count > array->height - start)
        ERREXIT(jpeg, JERR_BAD_VIRTUAL_ACCESS);
    return array->rows + start;
}

static void empty(fd_memory *memory, int which) {
    pool *from = &memory->pools[which];
    if (which == JPOOL_IMAGE) {
        memory->samples = NULL;
        memory->blocks = NULL;
    }
    /* Replace several chunks by one of their total size for the next image. */
    size_t total = from->total;
    if (from->first != NULL && (from->first->next != NULL || total > LARGEST_KEPT)) {
        free_chunks(from);
        if (total <= LARGEST_KEPT && (from->first = new_chunk(total)) != NULL)
            from->total = total;
    }
    if (from->first != NULL)
        from->first->used = 0;
    from->used = 0;
}

static void free_pool(j_common_ptr jpeg, int which) { empty(memory_of(jpeg), which); }

static void destroy(j_common_ptr jpeg) {
    fd_memory *memory = memory_of(jpeg);
    for (int which = 0; which < JPOOL_NUMPOOLS; which++)
        free_chunks(&memory->pools[which]);
    jpeg->mem = memory->own;
    free(memory);
    jpeg->mem->self_destruct(jpeg);
}

fd_memory *fd_memory_install(j_decompress_ptr jpeg) {
    fd_memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL)
        return NULL;
    memory->own = jpeg->mem;
    memory->jpeg = (struct jpeg_memory_mgr){
        .alloc_small = alloc,
        .alloc_large = alloc,
        .alloc_sarray = alloc_samples,
        .alloc_barray = alloc_blocks,
        .request_virt_sarray = request_samples,
        .request_virt_barray = request_blocks,
        .realize_virt_arrays = realize,
        .access_virt_sarray = access_samples,
        .access_virt_barray = access_blocks,
        .free_pool = free_pool,
        .self_destruct = destroy,
        .max_memory_to_use = jpeg->mem->max_memory_to_use,
        .max_alloc_chunk = jpeg->mem->max_alloc_chunk,
    };
    jpeg->mem = &memory->jpeg;
    return memory;
}

void fd_memory_forget(fd_memory *memory) { empty(memory, JPOOL_PERMANENT); }

void fd_memory_limit(fd_memory *memory, int64_t bytes) {
    memory->limit = bytes > 0 ? (size_t)bytes : 0;
}
