/* corpus.c: every file through every operation of fuzz.c, then every allocation fails once.
 *
 *   corpus FILE...
 *
 * To be built with sanitizers, by check.sh, and linked with --wrap for malloc and its like. Ends
 * with 0 and two lines if all was as it should be. */
#include "fuzz.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SMALL = 4000, /* bytes: such a file is decoded again for each allocation */
    STARVED_FILES = 6,
    SIDE = 40,
    MOST_PIXELS = 1 << 20
};

static const char *present; /* the file that is gone through */

static int64_t left = -1; /* allocations until they fail; negative: they do not */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

static int fails(void) {
    if (left > 0)
        left--;
    return left == 0;
}

void *__wrap_malloc(size_t size) { return fails() ? NULL : __real_malloc(size); }

void *__wrap_calloc(size_t count, size_t size) {
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size) {
    return fails() ? NULL : __real_realloc(memory, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size) {
    return fails() ? NULL : __real_aligned_alloc(alignment, size);
}

static _Noreturn void fail(const char *path, const char *words) {
    fprintf(stderr, "corpus.c: %s: %s\n", path, words);
    abort();
}

/* With abort_on_error=1 the sanitizers come here, too. */
static void name_file(int signal) {
    (void)signal;
    fprintf(stderr, "corpus.c: that was %s\n", present);
}

static uint8_t *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
        fail(path, "cannot be read");
    *size = (size_t)ftell(file);
    rewind(file);
    /* Of the exact size, so that ASan sees what is read behind it. */
    uint8_t *data = malloc(*size ? *size : 1);
    if (data == NULL || fread(data, 1, *size, file) != *size)
        fail(path, "cannot be read");
    fclose(file);
    return data;
}

/* Every operation, with numbers that are the same in each run. */
static void go_through(const uint8_t *data, size_t size, uint32_t seed) {
    uint8_t head[HEAD];
    for (int operation = 0; operation < OPERATIONS; operation++) {
        for (size_t i = 0; i < HEAD; i++) {
            seed = seed * 1664525U + 1013904223U;
            head[i] = (uint8_t)(seed >> 24);
        }
        head[0] = (uint8_t)operation;
        head[1] &= operation == 0 ? 0x3F : 0x1F; /* numbers that make sense */
        fuzz_one(head, data, size);
    }
}

/* ---- no memory ---- */

static uint8_t rgb[3 * MOST_PIXELS];
static float tensor[3 * SIDE * SIDE];

/* Whether a status is one that a good file may have when memory ends: inside, the decoders do not tell
 * it from what they leave to others. */
static int settle(const char *path, int status) {
    int may_be = left == 0 && (status == FD_NO_MEMORY || status == FD_UNSUPPORTED);
    if (status != FD_OK && !may_be)
        fail(path, "another status when memory ends");
    return status == FD_OK;
}

static const fd_pixels PIXELS = {.dtype = FD_FLOAT32, .channels = 3, .scale = {1, 1, 1}};

static int decode_all(const char *path, fd_decoder *decoder, const uint8_t *data, size_t size) {
    static const fd_limits limits;
    fd_request request = {.reduce = 1, .layout = FD_RGB};
    fd_header header;
    uint8_t *again;
    size_t again_size;
    if (fd_probe(data, size, &header) != FD_OK)
        fail(path, "was good before");
    fd_resize resize = {.right = header.width,
                        .bottom = header.height,
                        .in_right = header.width,
                        .in_bottom = header.height,
                        .canvas_width = SIDE,
                        .canvas_height = SIDE,
                        .width = SIDE,
                        .height = SIDE};
    fd_resampler *resampler = fd_resampler_create();
    int good = settle(path, fd_decode(decoder, data, size, &request, rgb, 3 * header.width));
    good &= settle(
        path, fd_decode_resized(decoder, data, size, &request, &resize, NULL, 0, &PIXELS, tensor));
    good &= settle(path, fd_add_restart_markers(data, size, &limits, &again, &again_size));
    good &= settle(path, resampler == NULL
                             ? FD_NO_MEMORY
                             : fd_resize_rgb(resampler, rgb, header.width, header.height, 3,
                                             3 * header.width, &resize, NULL, 0, &PIXELS, tensor));
    fd_resampler_destroy(resampler);
    fd_free(again);
    return good;
}

/* The whole of any image, as a square. */
static const fd_step SQUARE = {.kind = FD_OPERATION,
                               .probability = 1,
                               .operation = {.kind = FD_RESIZE, .value = {SIDE, SIDE}}};
static const fd_program PROGRAM = {&SQUARE, 1};
static const fd_recipe RECIPE = {
    .program = &PROGRAM, .width = SIDE, .height = SIDE, .pixels = MOST_PIXELS};
static const uint64_t SEED = 7;

static int pool_all(const char *path) {
    fd_item item = {.path = path, .out = rgb, .request = {.reduce = 1, .layout = FD_RGB}};
    fd_pool *pool = fd_pool_create(1);
    if (!settle(path, pool == NULL ? FD_NO_MEMORY : FD_OK))
        return 0;
    fd_pool_open(pool, &item, 1);
    int good = settle(path, item.status);
    item.wanted = good;
    item.stride = 3 * (ptrdiff_t)item.header.width;
    fd_pool_decode(pool, &item, 1, NULL);
    good &= settle(path, item.status);
    fd_pool_make(pool, pool, &item, 1, &SEED, NULL, &RECIPE, &PIXELS, tensor, 0);
    good &= settle(path, item.status);
    fd_pool_destroy(pool);
    fd_items_free(&item, 1);
    return good;
}

/* Let memory end at the first allocation, at the second, ... until it is enough. After each time
 * the same decoder has to work again. Returns how many allocations there are. */
static int64_t starve(const char *path, const uint8_t *data, size_t size) {
    for (int64_t allowed = 1;; allowed++) {
        left = allowed;
        fd_decoder *decoder = fd_decoder_create();
        int good = decoder != NULL && decode_all(path, decoder, data, size);
        good &= pool_all(path);
        left = -1;
        if (decoder != NULL && !decode_all(path, decoder, data, size))
            fail(path, "does not decode any more");
        fd_decoder_destroy(decoder);
        if (good)
            return allowed;
    }
}

/* Whether a file is a small JPEG that decodes without a warning. */
static int can_starve(const uint8_t *data, size_t size) {
    fd_header header;
    fd_request request = {.reduce = 1, .layout = FD_RGB};
    if (size > SMALL || fd_probe(data, size, &header) != FD_OK || header.sof == FD_PNG ||
        (int64_t)header.width * header.height > MOST_PIXELS)
        return 0;
    fd_decoder *decoder = fd_decoder_create();
    int status = decoder == NULL ? FD_NO_MEMORY
                                 : fd_decode(decoder, data, size, &request, rgb, 3 * header.width);
    fd_decoder_destroy(decoder);
    return status == FD_OK;
}

int main(int argc, char **argv) {
    int starved = 0;
    int64_t allocations = 0;
    fuzz_limits = (fd_limits){.pixels = 30000000, .scans = 500};
    signal(SIGABRT, name_file);
    for (int i = 1; i < argc; i++) {
        size_t size;
        present = argv[i];
        uint8_t *data = read_file(argv[i], &size);
        go_through(data, size, (uint32_t)i);
        if (starved < STARVED_FILES && can_starve(data, size)) {
            allocations += starve(argv[i], data, size);
            starved++;
        }
        free(data);
    }
    fuzz_end();
    fuzz_crop_end();
    printf("%d files, every operation\n", argc - 1);
    printf("%d of them without memory, %d allocations in all\n", starved, (int)allocations);
    return argc < 2 || starved == 0;
}
