/* twopass.h: resizing with Pillow's own results, row by row. */
#pragma once

#include "kernels.h"
#include "weights.h"

enum {
    FD_WEIGHT_BITS = 22, /* of a weight; the sum of any result's products fits an int32 */
    FD_TAPS = 4,         /* weights are padded with zeros to a multiple of this */
    FD_LOW_BITS = 11     /* of a weight, in `low`; the others are in `high` */
};

/* One axis: result i uses `count[i]` pixels from first[i] on, with the weights from
 * weights[i * stride] on, in 1 / 2^22. `parts` has them once more as pairs of 16 bits: for each four
 * weights, four high parts and then four low ones; or, of torch's filters, the weights themselves in
 * 1 / 2^bits, and zeros. */
typedef struct fd_pillow_axis {
    fd_span span; /* what it is of */
    int32_t begin, end; /* source pixels that have a weight; first[i] is counted from `begin` */
    int32_t most, stride, bits;
    int32_t same; /* result i is pixel i + `same`, unchanged; -1: it is not */
    int32_t *first, *count, *weights;
    int16_t *parts;
    double *exact; /* the weights before they are rounded, and those of no result behind */
    fd_room first_room, count_room, weights_room, parts_room, exact_room;
} fd_pillow_axis;

/* Takes row `y` of a result. */
typedef void fd_emit_row(void *state, int32_t y, const uint8_t *rgbx);

/* Zeroed before its first use. */
typedef struct {
    fd_pillow_axis across, down;
    int32_t width, height, next; /* of the result; its next row */
    int rows_first;              /* blend rows before columns */
    size_t stride;               /* bytes of a row after the first step, in whole steps */
    /* Those rows, or source rows. Row y is at y % down.most, and once more `most` places later, so
     * that rows which are blended are next to each other. */
    const uint8_t **recent;
    uint8_t *ring, *blended, *out;
    fd_room recent_room, ring_room, blended_room, out_room;
    fd_emit_row *emit;
    void *state;
} fd_twopass;

/* Prepare a resize. Sets `window` and `sink` as fd_resampler_begin does; each row of the result is
 * given to `emit` as RGBX. */
int fd_twopass_begin(fd_twopass *twopass, const fd_resize *resize, fd_emit_row *emit, void *state,
                     int32_t window[4], fd_sink *sink);

void fd_twopass_free(fd_twopass *twopass);

/* ---- twopass.c, twopass_simd.h ---- */

fd_resize_row fd_resize_row_plain;
fd_blend_rows fd_blend_rows_plain;
