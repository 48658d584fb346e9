/* resample.h: antialiased resizing, row by row. */
#pragma once

#include "twopass.h"

enum { FD_SUMS = 4 }; /* result rows that may be in progress; two are enough */

/* Resizes one image after another. Zeroed before its first use. */
typedef struct {
    fd_emit_row *emit;
    void *state;
    int32_t width, height; /* of the result */
    int32_t window_height;
    fd_axis across, down;
    fd_columns columns;
    int32_t fraction; /* fraction bits of the values in `row` */
    int few; /* a result row needs at most FD_FEW_ROWS */
    int blends; /* if also `blend` is exact enough */
    int32_t next; /* next result row to compute */
    int32_t chunk; /* first source row that is not added yet */
    size_t count; /* values in a source row, rounded up to whole blocks */
    const uint8_t *recent[FD_FEW_ROWS]; /* source row y is at y % FD_FEW_ROWS */
    int32_t *sums; /* weighted sums of source rows, for FD_SUMS results */
    int16_t *row; /* source rows blended for one result row */
    uint8_t *rgbx; /* the result row */
    fd_twopass twopass; /* instead of the above, for Pillow's and torch's filters */
    fd_room sums_room, row_room, rgbx_room, weights_room;
} fd_scaler;

/* Prepare a resize that is possible. Sets `window` and `sink` as fd_resampler_begin does; each row of the
 * result is given to `emit` as RGBX. */
int fd_scaler_begin(fd_scaler *scaler, const fd_resize *resize, fd_emit_row *emit, void *state,
                    int32_t window[4], fd_sink *sink);

void fd_scaler_free(fd_scaler *scaler);
