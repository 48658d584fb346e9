/* same.c: a checksum of all that the core makes of files, the same on every system and processor.
 *
 *   same FILE...
 *
 * JPEGs at every reduction, whole and in part, and their repacks; PNGs as they are stored, and converted;
 * both resized to tensors. It is that of the best set of instructions; the others must give the same, though
 * what no real image has, one may refuse and another not. elsewhere.py compares the line with that of this
 * machine, where own.c and fuzz_png.c have other libraries for judges. */
#include "must.h"
#include "sets.h"

#include <stdio.h>

enum {
    MOST_PIXELS = 1 << 22,
    MOST_RESULTS = 100, /* of a file */
    SIDE = 40,
    SHORT = sizeof(uint16_t),
    WIDE = sizeof(uint32_t)
};

/* What comes of a file: a checksum each, or 0 for what was refused. */
typedef struct {
    int count;
    uint64_t sums[MOST_RESULTS];
} results;

static fd_decoder *decoder;
static results found;

/* Add a result: of values, not of bytes, as these have an order. */
static void add(int status, const void *values, size_t size, size_t each) {
    const uint8_t *at = values;
    uint64_t sum = status == FD_OK ? UINT64_C(14695981039346656037) : 0;
    for (size_t i = 0; status == FD_OK && i < size; i += each) {
        uint32_t wide = at[i];
        uint16_t narrow;
        if (each == WIDE) {
            memcpy(&wide, at + i, sizeof wide);
        } else if (each == SHORT) {
            memcpy(&narrow, at + i, sizeof narrow);
            wide = narrow;
        }
        sum = (sum ^ wide) * UINT64_C(1099511628211);
    }
    found.sums[found.count++] = sum;
}

static void decode(const uint8_t *data, size_t size, const fd_header *header, fd_request request) {
    int is_stored = request.layout == FD_STORED;
    size_t each = is_stored && header->bits == 16 ? SHORT : 1;
    size_t pixel = each * (size_t)(is_stored                  ? header->components
                                   : request.layout == FD_L   ? 1
                                   : request.layout == FD_RGB ? 3
                                                              : 4);
    int32_t width = (header->width + request.reduce - 1) / request.reduce;
    int32_t height = (header->height + request.reduce - 1) / request.reduce;
    for (int part = 0; part < 2; part++) {
        if (part)
            request = (fd_request){width / 3,           height / 4,     width - width / 5,
                                   height - height / 6, request.reduce, request.layout,
                                   !request.thorough,   {0, 0}};
        else
            request.right = width, request.bottom = height;
        size_t row = (size_t)(request.right - request.left) * pixel;
        size_t all = row * (size_t)(request.bottom - request.top);
        uint8_t *out = must(calloc(all + 1, 1));
        add(fd_decode(decoder, data, size, &request, out, (ptrdiff_t)row), out, all, each);
        free(out);
    }
}

static void resize(const uint8_t *data, size_t size, const fd_header *header, int32_t reduce) {
    static const fd_pixels PIXELS = {.dtype = FD_FLOAT32,
                                     .channels = 3,
                                     .channels_first = 1,
                                     .scale = {0.017F, 0.0175F, 0.0174F}};
    static float out[3 * SIDE * SIDE];
    int32_t width = (header->width + reduce - 1) / reduce;
    int32_t height = (header->height + reduce - 1) / reduce;
    fd_request request = {.reduce = reduce, .layout = FD_RGB};
    fd_resize how = {.left = width / 5.0,
                     .right = width,
                     .bottom = height * 0.9,
                     .in_left = width / 5,
                     .in_right = width,
                     .in_bottom = height,
                     .canvas_width = SIDE,
                     .canvas_height = SIDE,
                     .width = SIDE,
                     .height = SIDE,
                     .filter = reduce % (FD_FILTER_HAMMING + 1)};
    int status = fd_decode_resized(decoder, data, size, &request, &how, NULL, 0, &PIXELS, out);
    add(status, out, sizeof out, WIDE);
}

static void repack(const uint8_t *data, size_t size) {
    const fd_limits limits = {0, 0};
    uint8_t *out = NULL;
    size_t all = 0;
    int status = fd_add_restart_markers(data, size, &limits, &out, &all);
    add(status, out, all, 1);
    fd_free(out);
}

static void make_all(const uint8_t *data, size_t size) {
    fd_header header;
    found.count = 0;
    if (fd_probe(data, size, &header) != FD_OK ||
        (int64_t)header.width * header.height > MOST_PIXELS)
        return;
    int is_png = header.sof == FD_PNG;
    for (int32_t reduce = 1; reduce <= (is_png ? 1 : 8); reduce *= 2) {
        for (int layout = FD_L; layout <= (is_png ? FD_STORED : FD_RGBA); layout++)
            decode(data, size, &header, (fd_request){.reduce = reduce, .layout = layout});
        resize(data, size, &header, reduce);
    }
    if (!is_png)
        repack(data, size);
}

/* With every set of instructions; what the best one made stays. */
static void make_with_all(const char *name, const uint8_t *data, size_t size) {
    results best = {0};
    for (const char *sets = fd_instructions(); use_next(&sets);) {
        make_all(data, size);
        for (int i = 0; i < best.count; i++)
            if (found.sums[i] != best.sums[i] && found.sums[i] && best.sums[i])
                fail_for(name, "the sets of instructions differ");
        if (best.count == 0)
            best = found;
    }
    found = best;
}

int main(int count, char **names) {
    uint64_t sum = 0;
    int made = 0, refused = 0;
    decoder = must(fd_decoder_create());
    for (int i = 1; i < count; i++) {
        uint8_t *data = must(malloc(MOST_PIXELS));
        FILE *file = fopen(names[i], "rb");
        if (file == NULL)
            fail_for(names[i], "cannot be read");
        size_t size = fread(data, 1, MOST_PIXELS, file);
        fclose(file);
        data = must(realloc(data, size)); /* exactly, as ever */
        make_with_all(names[i], data, size);
        free(data);
        for (int k = 0; k < found.count; k++) {
            sum = (sum ^ found.sums[k]) * UINT64_C(1099511628211);
            *(found.sums[k] ? &made : &refused) += 1;
        }
    }
    fd_decoder_destroy(decoder);
    printf("%d results, and %d refused, of %d files: %016llx\n", made, refused, count - 1,
           (unsigned long long)sum);
    return made == 0;
}
