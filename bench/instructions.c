/* instructions.c: one piece of work of the core, or of a library that it is compared with, done COUNT times.
 *
 *   instructions                                       the names of the sets
 *   instructions SET COUNT own|libjpeg REDUCE FILE     decode a JPEG
 *   instructions SET COUNT png|libpng 1 FILE           decode a PNG to RGB
 *   instructions SET COUNT resize FILTER -             640 x 480 to a float tensor of 224 x 224
 *   instructions SET COUNT operate KIND -              an operation on 224 x 224 pixels
 *
 * instructions.py runs it under an emulator that counts. It prints a checksum of the result, which is the same
 * on every processor, and with every set of instructions. */
#include "judge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

enum { WIDTH = 640, HEIGHT = 480, SIDE = 224 };

static _Noreturn void fail(const char *words) {
    fprintf(stderr, "instructions.c: %s\n", words);
    exit(1);
}

static void *must(void *memory) {
    if (memory == NULL)
        fail("no memory");
    return memory;
}

typedef struct {
    uint8_t *data;
    size_t size;
} bytes;

static bytes read_file(const char *path) {
    bytes out = {must(malloc((size_t)1 << 28)), 0};
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail(path);
    out.size = fread(out.data, 1, (size_t)1 << 28, file);
    fclose(file);
    return out;
}

/* Gradients with some noise. */
static bytes drawing(void) {
    bytes out = {must(malloc(3 * WIDTH * HEIGHT)), 3 * WIDTH * HEIGHT};
    uint32_t state = 1;
    for (uint32_t i = 0; i < out.size; i++) {
        state = state * 1103515245u + 12345u;
        out.data[i] = (uint8_t)((i / 9 + i / WIDTH) % 200 + (state >> 16) % 40);
    }
    return out;
}

static bytes decode(const bytes *file, int32_t reduce, int is_own, int count) {
    fd_decoder *decoder = must(fd_decoder_create());
    fd_request request = {.reduce = reduce, .layout = FD_RGB};
    fd_header header;
    if (fd_probe(file->data, file->size, &header) != FD_OK)
        fail("no header");
    size_t width = (size_t)(header.width + reduce - 1) / (size_t)reduce;
    size_t height = (size_t)(header.height + reduce - 1) / (size_t)reduce;
    bytes out = {must(malloc(3 * width * height)), 3 * width * height};
    ptrdiff_t stride = (ptrdiff_t)(3 * width);
    for (int i = 0; i < count; i++)
        if (!is_own) {
            if (!judge(file->data, file->size, &request, out.data, stride))
                fail("libjpeg-turbo complains");
        } else if (fd_decode(decoder, file->data, file->size, &request, out.data, stride) !=
                   FD_OK) {
            fail(fd_decoder_message(decoder));
        }
    return out;
}

static bytes decode_by_libpng(const bytes *file, int count) {
    bytes out = {NULL, 0};
    for (int i = 0; i < count; i++) {
        png_image image = {.version = PNG_IMAGE_VERSION};
        if (!png_image_begin_read_from_memory(&image, file->data, file->size))
            fail(image.message);
        image.format = PNG_FORMAT_RGB;
        out.size = PNG_IMAGE_SIZE(image);
        out.data = must(realloc(out.data, out.size));
        if (!png_image_finish_read(&image, NULL, out.data, 0, NULL))
            fail(image.message);
    }
    return out;
}

static bytes resize(const bytes *image, int32_t filter, int count) {
    const fd_pixels pixels = {
        .dtype = FD_FLOAT32, .channels = 3, .channels_first = 1, .scale = {1, 2, 3}};
    const fd_resize how = {.left = 10.5,
                           .top = 7.25,
                           .right = 630,
                           .bottom = 470,
                           .in_right = WIDTH,
                           .in_bottom = HEIGHT,
                           .canvas_width = SIDE,
                           .canvas_height = SIDE,
                           .width = SIDE,
                           .height = SIDE,
                           .filter = filter};
    fd_resampler *resampler = must(fd_resampler_create());
    bytes out = {must(malloc(12 * SIDE * SIDE)), 12 * SIDE * SIDE};
    for (int i = 0; i < count; i++)
        if (fd_resize_rgb(resampler, image->data, WIDTH, HEIGHT, 3, 3 * WIDTH, &how, NULL, 0,
                          &pixels, out.data) != FD_OK)
            fail("no such filter");
    return out;
}

static bytes operate(const bytes *image, int32_t kind, int count) {
    const double matrix[6] = {0.9, 0.1, 3.3, -0.1, 0.95, 7.7}, blur[6] = {23, 1.2, 1.2};
    fd_operation how = {.kind = kind % 100, .filter = kind / 100, .value = {0.3}};
    fd_augmenter *augmenter = must(fd_augmenter_create());
    bytes out = {must(malloc(3 * SIDE * SIDE)), 3 * SIDE * SIDE};
    if (how.kind == FD_WARP || how.kind == FD_BLUR)
        memcpy(how.value, how.kind == FD_WARP ? matrix : blur, sizeof matrix);
    for (int i = 0; i < count; i++)
        if (fd_augment_rgb(augmenter, image->data, SIDE, SIDE, &how, 1, out.data) != FD_OK)
            fail("no such operation");
    return out;
}

int main(int argc, char **argv) {
    if (argc == 1)
        return puts(fd_instructions()) < 0;
    if (argc != 6 || fd_use_instructions(argv[1]) != FD_OK)
        fail("wrong arguments, or no such set");
    int count = atoi(argv[2]), number = atoi(argv[4]), is_drawn = strcmp(argv[5], "-") == 0;
    const char *what = argv[3];
    bytes in = is_drawn ? drawing() : read_file(argv[5]);
    bytes out = strcmp(what, "libpng") == 0   ? decode_by_libpng(&in, count)
                : strcmp(what, "resize") == 0 ? resize(&in, number, count)
                : strcmp(what, "operate") == 0
                    ? operate(&in, number, count)
                    : decode(&in, number, strcmp(what, "libjpeg") != 0, count);
    uint64_t sum = 1469598103934665603u;
    for (size_t i = 0; i < out.size; i++)
        sum = (sum ^ out.data[i]) * 1099511628211u;
    printf("%016llx\n", (unsigned long long)sum);
    return 0;
}
