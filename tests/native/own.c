/* own.c: the core's own decoder gives what libjpeg-turbo gives, on sound files and made ones.
 *
 *   own COUNT FILE...
 *
 * Each file, COUNT images that are made here (every sampling that is taken, sides of 1 to 70 pixels,
 * qualities of 1 to 100, restart intervals of 0 to 7, tables of the standard and their own, baseline and
 * progressive by scans drawn at random), and COUNT of random coefficients, up to those that overflow: at
 * every reduction, in every layout, whole and in regions drawn at random, resized, by every set of
 * instructions. Ends with 0 and a line if all of it is equal. With the variable KEEP, a folder, what is made
 * stays there, for same.c on other processors. */
#include "judge.h"

#include "must.h"
#include "sets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

enum {
    REGIONS = 10,
    MOST_PIXELS = 1 << 25,
    MADE_REGIONS = 2,
    LARGEST_MADE = 70,
    SIDE = 40,
    MOST_SCANS = 32 /* the core leaves files with more to others */
};

static fd_decoder *own;
static fd_resampler *resampler;
static int64_t calls, own_calls, own_files, files;
static int counts; /* only with the first set: the others do the same */
static uint64_t state = UINT64_C(88172645463325252);

/* A whole number below `end`: xorshift, the same in every run. */
static int32_t draw(int32_t end) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (int32_t)((state >> 33) % (uint64_t)end);
}

static int32_t reduced(int32_t side, int32_t reduce) { return (side + reduce - 1) / reduce; }

/* ---- comparing ---- */

/* libjpeg complains of what the core has decoded: of a part that the core did not need. */
static void must_be_left_out(const char *name, const uint8_t *data, size_t size,
                             const fd_request *asked, uint8_t *out, ptrdiff_t stride) {
    fd_request request = *asked;
    request.thorough = 1;
    if (asked->thorough || fd_decode(own, data, size, &request, out, stride) == FD_OK)
        fail_for(name, "decoded what libjpeg complains of");
}

/* Both decoders on one request. Returns whether the core did it. */
static int compare(const char *name, const uint8_t *data, size_t size, const fd_request *request,
                   int32_t width, int32_t height) {
    size_t row = (size_t)width * (size_t)(request->layout == FD_L     ? 1
                                          : request->layout == FD_RGB ? 3
                                                                      : 4);
    size_t bytes = row * (size_t)height; /* exactly, for ASan */
    uint8_t *made = must(malloc(bytes)), *expected = must(malloc(bytes));
    int status = fd_decode(own, data, size, request, made, (ptrdiff_t)row);
    if (status != FD_OK && status != FD_UNSUPPORTED)
        fail_for(name, "neither decoded nor left to others");
    int is_own = status == FD_OK;
    int is_fine = judge(data, size, request, expected, (ptrdiff_t)row);
    if (is_own && !is_fine)
        must_be_left_out(name, data, size, request, made, (ptrdiff_t)row);
    else if (is_own && memcmp(made, expected, bytes) != 0)
        fail_for(name, "other pixels than libjpeg's");
    free(made);
    free(expected);
    calls += counts;
    own_calls += counts && is_own;
    return is_own;
}

/* The middle of an image, as a tensor: decoded and resized in one call, and in two. */
static void compare_resized(const char *name, const uint8_t *data, size_t size, int32_t width,
                            int32_t height, int32_t reduce) {
    static const fd_pixels PIXELS = {.dtype = FD_FLOAT32, .channels = 3, .scale = {1, 1, 1}};
    static float made[3 * SIDE * SIDE], expected[3 * SIDE * SIDE];
    fd_request request = {.reduce = reduce, .layout = FD_RGB};
    fd_resize resize = {.left = width / 5.0,
                        .top = height / 7.0,
                        .right = width,
                        .bottom = height * 0.9,
                        .in_left = width / 5,
                        .in_top = height / 7,
                        .in_right = width,
                        .in_bottom = height,
                        .canvas_width = SIDE,
                        .canvas_height = SIDE,
                        .width = SIDE,
                        .height = SIDE};
    if (fd_decode_resized(own, data, size, &request, &resize, NULL, 0, &PIXELS, made) != FD_OK)
        return;
    ptrdiff_t row = 3 * (ptrdiff_t)width;
    uint8_t *whole = must(malloc((size_t)row * (size_t)height));
    if (judge(data, size, &request, whole, row)) { /* compare() looks at what was left out */
        fd_resize_rgb(resampler, whole, width, height, 3, row, &resize, NULL, 0, &PIXELS, expected);
        if (memcmp(made, expected, sizeof made) != 0)
            fail_for(name, "another tensor than that of libjpeg's pixels");
    }
    free(whole);
}

static void compare_all(const char *name, const uint8_t *data, size_t size, int regions) {
    fd_header header;
    int is_own = 0;
    if (fd_probe(data, size, &header) != FD_OK ||
        (int64_t)header.width * header.height > MOST_PIXELS)
        return;
    for (int32_t reduce = 1; reduce <= 8; reduce *= 2) {
        int32_t width = reduced(header.width, reduce), height = reduced(header.height, reduce);
        for (int layout = FD_L; layout <= FD_RGBA; layout++) {
            fd_request whole = {.reduce = reduce, .layout = layout, .thorough = draw(2)};
            is_own |= compare(name, data, size, &whole, width, height);
            for (int i = 0; i < regions; i++) {
                fd_request part = {.reduce = reduce, .layout = layout, .thorough = draw(2)};
                part.left = draw(width);
                part.top = draw(height);
                part.right = part.left + 1 + draw(width - part.left);
                part.bottom = part.top + 1 + draw(height - part.top);
                compare(name, data, size, &part, part.right - part.left, part.bottom - part.top);
            }
        }
        compare_resized(name, data, size, width, height, reduce);
    }
    files += counts;
    own_files += counts && is_own;
}

/* With every set of instructions that can run here. */
static void compare_sets(const char *name, const uint8_t *data, size_t size, int regions) {
    counts = 1;
    for (const char *sets = fd_instructions(); use_next(&sets); counts = 0)
        compare_all(name, data, size, regions);
}

/* ---- making images ---- */

typedef struct {
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    unsigned char *data;
    unsigned long size;
    jpeg_scan_info scans[MOST_SCANS];
    char name[120];
} encoder;

static void add_scan(encoder *made, int components, const int *which, int from, int to, int high,
                     int low) {
    jpeg_scan_info *scan = &made->scans[made->jpeg.num_scans++];
    *scan = (jpeg_scan_info){
        .comps_in_scan = components, .Ss = from, .Se = to, .Ah = high, .Al = low};
    memcpy(scan->component_index, which, (size_t)components * sizeof *which);
}

/* Scans of the coefficients `from` to `to` of some components: down to a bit, and one for each bit. */
static void add_bits(encoder *made, int components, const int *which, int from, int to) {
    int low = draw(4);
    add_scan(made, components, which, from, to, 0, low);
    for (; low > 0; low--)
        add_scan(made, components, which, from, to, low, low - 1);
}

/* DC of some components together, or of each alone; then AC in up to three bands, in any order. */
static void choose_scans(encoder *made) {
    static const int ALL[] = {0, 1, 2};
    int count = made->jpeg.num_components, together = count > 1 ? 1 + draw(count) : 1,
        first = draw(count);
    made->jpeg.num_scans = 0;
    for (int c = 0; c < count; c += together)
        add_bits(made, c + together < count ? together : count - c, ALL + c, 0, 0);
    for (int i = 0; i < count; i++) {
        int c = (first + i) % count;
        for (int from = 1, to; from < DCTSIZE2; from = to + 1) {
            to = draw(3) ? DCTSIZE2 - 1 : from + draw(DCTSIZE2 - from);
            if (made->jpeg.num_scans > MOST_SCANS - 16)
                to = DCTSIZE2 - 1;
            add_bits(made, 1, &ALL[c], from, to);
        }
    }
    made->jpeg.scan_info = made->scans;
}

static void begin(encoder *made, int components) {
    static const int FACTORS[4][2] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}};
    struct jpeg_compress_struct *jpeg = &made->jpeg;
    const int *factors = FACTORS[draw(4)];
    jpeg->err = jpeg_std_error(&made->errors);
    jpeg_create_compress(jpeg);
    made->data = NULL;
    made->size = 0;
    jpeg_mem_dest(jpeg, &made->data, &made->size);
    jpeg->image_width = (JDIMENSION)(1 + draw(LARGEST_MADE));
    jpeg->image_height = (JDIMENSION)(1 + draw(LARGEST_MADE));
    jpeg->input_components = components;
    jpeg->in_color_space = components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(jpeg);
    int quality = 1 + draw(100);
    jpeg_set_quality(jpeg, quality, TRUE);
    jpeg->optimize_coding = draw(2);
    jpeg->restart_interval = (unsigned)draw(8);
    if (components == 3) {
        jpeg->comp_info[0].h_samp_factor = factors[0];
        jpeg->comp_info[0].v_samp_factor = factors[1];
    }
    if (draw(2))
        choose_scans(made);
    snprintf(made->name, sizeof made->name,
             "%ux%u of %d, %dx%d, quality %d, restart %u%s, %d scans", jpeg->image_width,
             jpeg->image_height, components, factors[0], factors[1], quality,
             jpeg->restart_interval, jpeg->optimize_coding ? ", optimised" : "", jpeg->num_scans);
}

/* Write what was made into a folder. */
static void keep(const encoder *made, const char *folder) {
    static int number;
    char path[300];
    snprintf(path, sizeof path, "%s/%04d.jpg", folder, number++);
    FILE *file = must(fopen(path, "wb"));
    if (fwrite(made->data, 1, made->size, file) != made->size || fclose(file) != 0)
        fail_for(path, "cannot be written");
}

static void finish(encoder *made) {
    jpeg_finish_compress(&made->jpeg);
    if (getenv("KEEP") != NULL)
        keep(made, getenv("KEEP"));
    compare_sets(made->name, made->data, made->size, MADE_REGIONS);
    jpeg_destroy_compress(&made->jpeg);
    free(made->data);
}

/* Noise, flat areas and edges, by turns. */
static void make_image(void) {
    encoder made;
    int components = draw(5) ? 3 : 1, kind = draw(3);
    uint8_t row[3 * LARGEST_MADE];
    JSAMPROW rows[1] = {row};
    begin(&made, components);
    jpeg_start_compress(&made.jpeg, TRUE);
    for (JDIMENSION y = 0; y < made.jpeg.image_height; y++) {
        for (JDIMENSION i = 0; i < made.jpeg.image_width * (JDIMENSION)components; i++)
            row[i] = (uint8_t)(kind == 0   ? (JDIMENSION)draw(256)
                               : kind == 1 ? (i / 9 + y / 5) * 31
                                           : (i / 7 + y / 11) % 2 * 255);
        jpeg_write_scanlines(&made.jpeg, rows, 1);
    }
    finish(&made);
}

/* Coefficients that no image has: sparse or dense, small or as large as can be written. */
static void make_coefficients(void) {
    encoder made;
    jvirt_barray_ptr arrays[3];
    begin(&made, 3);
    struct jpeg_compress_struct *jpeg = &made.jpeg;
    int32_t density = 1 + draw(64), largest = 1 << (1 + draw(10));
    for (int c = 0; c < 3; c++) {
        jpeg_component_info *info = &jpeg->comp_info[c];
        JDIMENSION across = (jpeg->image_width + 15) / 8 + 2,
                   down = (jpeg->image_height + 15) / 8 + 2;
        info->width_in_blocks = across;
        info->height_in_blocks = down;
        arrays[c] = jpeg->mem->request_virt_barray((j_common_ptr)jpeg, JPOOL_IMAGE, TRUE, across,
                                                   down, (JDIMENSION)info->v_samp_factor);
    }
    jpeg_write_coefficients(jpeg, arrays);
    for (int c = 0; c < 3; c++)
        for (JDIMENSION y = 0; y < (jpeg->image_height + 15) / 8 + 2; y++) {
            JBLOCKARRAY blocks = jpeg->mem->access_virt_barray((j_common_ptr)jpeg, arrays[c], y, 1,
                                                               TRUE);
            for (JDIMENSION x = 0; x < (jpeg->image_width + 15) / 8 + 2; x++)
                for (int k = 0; k < DCTSIZE2; k++)
                    blocks[0][x][k] = (JCOEF)(draw(64) < density
                                                  ? draw(2 * largest - 1) - largest + 1
                                                  : 0);
        }
    finish(&made);
}

static uint8_t *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
        fail_for(path, "cannot be read");
    *size = (size_t)ftell(file);
    rewind(file);
    uint8_t *data = must(malloc(*size)); /* exactly, for ASan */
    if (fread(data, 1, *size, file) != *size)
        fail_for(path, "cannot be read");
    fclose(file);
    return data;
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 0;
    own = must(fd_decoder_create());
    resampler = must(fd_resampler_create());
    for (int i = 2; i < argc; i++) {
        size_t size;
        uint8_t *data = read_file(argv[i], &size);
        compare_sets(argv[i], data, size, REGIONS);
        free(data);
    }
    printf("%lld of %lld files in %lld of %lld ways by the core itself\n", (long long)own_files,
           (long long)files, (long long)own_calls, (long long)calls);
    own_files = files = own_calls = calls = 0;
    for (int i = 0; i < count; i++)
        make_image();
    if (own_files != files)
        fail_for("made images", "some were left to others");
    printf("%lld images made here, all by the core itself\n", (long long)files);
    own_files = files = own_calls = calls = 0;
    for (int i = 0; i < count; i++)
        make_coefficients();
    if (count > 0 && (own_calls == 0 || own_calls == calls))
        fail_for("random coefficients", "all of them, or none, were left to others");
    printf("%lld of random coefficients, %lld of %lld ways by the core itself\n", (long long)files,
           (long long)own_calls, (long long)calls);
    fd_decoder_destroy(own);
    fd_resampler_destroy(resampler);
    return 0;
}
