/* decoder_stages.c: where the core's own decoder spends its time, compared with libjpeg-turbo's
 * decode_mcu.
 *
 * decoder.py compiles it as a library. It includes rows.c and leaves stages out by replacing their
 * functions with ones that do nothing:
 *
 *   prepared   header, scan without stuffing, tables
 *   entropy    the same, and all coefficients, stored
 *   samples    the same, and the inverse DCTs
 *   pixels     all of it, to RGB
 *   mcus       libjpeg-turbo's decode_mcu alone: no header, no tables, no pixels */
#define _POSIX_C_SOURCE 200809L
#include "../fastdecode/native/jpeg/rows.c"

#include "fastdecode.h"

#include <setjmp.h>
#include <stdio.h>
#include <time.h>

#include <jpeglib.h>

enum { PREPARED, ENTROPY, SAMPLES, PIXELS, MCUS };

typedef struct {
    const uint8_t *bytes;
    size_t size;
} file;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static int no_idct(const int16_t *first, const int16_t *second, const uint16_t *quantiser,
                   uint8_t *out, size_t stride) {
    (void)first, (void)second, (void)quantiser, (void)out, (void)stride;
    return 1;
}

static void no_colours(uint8_t *out, const uint8_t *y, const uint8_t *cb, const uint8_t *cr,
                       size_t count) {
    (void)out, (void)y, (void)cb, (void)cr, (void)count;
}

static void no_widening(uint8_t *out, const uint8_t *in, size_t count) {
    (void)out, (void)in, (void)count;
}

static void no_widening_between(uint8_t *out, const uint8_t *near, const uint8_t *far,
                                size_t count) {
    (void)out, (void)near, (void)far, (void)count;
}

static void nothing_between(uint8_t *out, const uint8_t *near, const uint8_t *far, int is_lower,
                            size_t count) {
    (void)out, (void)near, (void)far, (void)is_lower, (void)count;
}

/* Do what fd_baseline_decode does, up to a stage. */
static int decode_up_to(int stage, fd_baseline *baseline, const file *of, const fd_target *target) {
    fd_steps steps = *fd_kernels_now()->steps;
    if (stage < SAMPLES)
        steps.idct_8x8 = steps.idct_4x4 = steps.idct_2x2 = no_idct;
    if (stage < PIXELS) {
        steps.widen = no_widening;
        steps.widen_between = no_widening_between;
        steps.between = nothing_between;
        steps.rgb = steps.rgbx = no_colours;
    }
    baseline->steps = &steps;
    return fd_frame_read(&baseline->frame, of->bytes, of->size) && plan(baseline, target) &&
           fd_scan_read(&baseline->scan, &baseline->frame, of->bytes, of->size) &&
           make_tables(baseline) && make_room(baseline, target) &&
           (stage == PREPARED || decode_rows(baseline, target));
}

/* The first members of an entropy decoder in libjpeg-turbo's jpegint.h, which is not installed. */
typedef struct {
    void (*start_pass)(j_decompress_ptr cinfo);
    boolean (*decode_mcu)(j_decompress_ptr cinfo, JBLOCKROW *blocks);
} entropy_decoder;

static double time_of_mcus(const file *of) {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    static JBLOCK blocks[D_MAX_BLOCKS_IN_MCU];
    JBLOCKROW rows[D_MAX_BLOCKS_IN_MCU];
    cinfo.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&cinfo);
    jpeg_mem_src(&cinfo, of->bytes, of->size);
    jpeg_read_header(&cinfo, TRUE);
    jpeg_start_decompress(&cinfo);
    const entropy_decoder *decoder = (const void *)cinfo.entropy;
    size_t count = (size_t)cinfo.MCUs_per_row * cinfo.MCU_rows_in_scan;
    for (int i = 0; i < D_MAX_BLOCKS_IN_MCU; i++)
        rows[i] = &blocks[i];
    double start = now();
    for (size_t i = 0; i < count; i++) {
        memset(blocks, 0, (size_t)cinfo.blocks_in_MCU * sizeof *blocks);
        decoder->decode_mcu(&cinfo, rows);
    }
    double spent = now() - start;
    jpeg_destroy_decompress(&cinfo);
    return spent;
}

/* Decode a file up to a stage, to RGB without padding. Return microseconds, or -1 if the core
 * does not decode the file. */
double stage_us(int stage, const uint8_t *bytes, size_t size, uint8_t *out) {
    static fd_baseline *baseline;
    const file of = {bytes, size};
    fd_header header;
    if (baseline == NULL)
        baseline = fd_baseline_create();
    if (baseline == NULL || fd_probe(bytes, size, &header) != FD_OK)
        return -1;
    ptrdiff_t stride = 3 * (ptrdiff_t)header.width;
    fd_target target = {.reduce = 1, .layout = FD_RGB, .out = out, .stride = stride};
    if (stage == MCUS)
        return time_of_mcus(&of);
    double start = now();
    return decode_up_to(stage, baseline, &of, &target) ? now() - start : -1;
}
