/* weights.h: the pixels and weights for one axis of a resize. */
#pragma once

#include "fastdecode.h"
#include "room.h"

/* One axis of a resize: `side` pixels at `start` become `canvas` results, of which `count` are
 * computed, from number `from` on. Only pixels in_first to in_end - 1 are read. */
typedef struct {
    double start, side;
    int32_t in_first, in_end;
    int32_t canvas, from, count;
    int32_t flip; /* the results are in reverse order */
    int32_t filter; /* fd_resize_filter */
} fd_span;

/* The axes of a resize: across and down. */
void fd_spans_of(const fd_resize *resize, fd_span spans[2]);

/* The pixels and weights of an axis: result i uses the pixels begin + first[i] to
 * begin + first[i] + count[i] - 1, with the weights from weights[i * stride] on. Without `flip`,
 * neither the first nor the last pixel decreases from one result to the next. */
typedef struct {
    int32_t begin, end; /* pixels that have a weight */
    int32_t most;       /* most pixels that any result uses */
    int32_t stride;
    int32_t bits;       /* 2^bits is the sum of a result's weights, which all fit an int16 */
    double support;     /* pixels to each side of a result's centre that have a weight */
    int32_t *first, *count;
    double *exact;
    uint16_t *weights;
    fd_room first_room, count_room, exact_room, weights_room;
} fd_axis;

/* Compute the pixels and exact weights of all results, and choose `bits`, which the caller may then
 * change, to at most 15. FD_OK or FD_NO_MEMORY. */
int fd_axis_measure(fd_axis *axis, const fd_span *span);

/* Round the weights of `results` results to integers. */
void fd_axis_quantise(fd_axis *axis, int32_t results);

void fd_axis_free(fd_axis *axis);
