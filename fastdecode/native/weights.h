/* weights.h: one direction of a resize, worked out. */
#ifndef FASTDECODE_WEIGHTS_H
#define FASTDECODE_WEIGHTS_H

#include "fastdecode.h"

/* Memory that grows and never shrinks. Zeroed before its first use; its owner frees `memory`. */
typedef struct {
    void *memory;
    size_t size;
} fd_room;

/* `size` bytes at the start of a cache line; what was there may be lost. NULL: no memory. */
void *fd_room_for(fd_room *room, size_t size);

/* One direction of a resize, as asked for: from `side` pixels at `start` to `canvas` results, of
 * which `count` are made, from number `from` on. Only pixels in_first to in_end - 1 are read. */
typedef struct {
    double start, side;
    int32_t in_first, in_end;
    int32_t canvas, from, count;
    int32_t flip; /* the results are made in reverse order */
} fd_span;

/* The same, worked out: result i is made of the pixels begin + first[i] to
 * begin + first[i] + count[i] - 1, with weights[i * stride] and those that follow it. Without
 * `flip` neither the first pixel nor the last ever goes back from one result to the next. */
typedef struct {
    int32_t begin, end; /* pixels that have a weight */
    int32_t most;       /* pixels that one result is made of */
    int32_t stride;
    int32_t bits;       /* 2^bits is the sum of a result's weights, which all fit an int16 */
    double support;     /* pixels to each side of a result's centre that have a weight */
    int32_t *first, *count;
    double *exact;
    uint16_t *weights;
    fd_room first_room, count_room, exact_room, weights_room;
} fd_axis;

/* Find the pixels and exact weights of all results, and how many bits are best. FD_OK or
 * FD_NO_MEMORY. Afterwards `bits` may be changed, to at most 15. */
int fd_axis_measure(fd_axis *axis, const fd_span *span);

/* Make the weights whole numbers, of `results` results. */
void fd_axis_quantise(fd_axis *axis, int32_t results);

void fd_axis_free(fd_axis *axis);

#endif
