/* weights.c: the source pixels of each result of an axis, and their weights: of the triangle filter, which
 * widens where it shrinks; of OpenCV's INTER_LINEAR, which does not; and of its INTER_AREA. */
#include "weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BITS = 22 }; /* 255 * 2^22 fits an int32 */

static const double NO_WEIGHT = 1e-6; /* relative to the centre: less is rounding noise */

void fd_spans_of(const fd_resize *of, fd_span spans[2]) {
    spans[0] = (fd_span){of->left,         of->right - of->left,
                         of->in_left,      of->in_right,
                         of->canvas_width, of->x,
                         of->width,        of->flip,
                         of->filter};
    spans[1] = (fd_span){
        of->top, of->bottom - of->top, of->in_top, of->in_bottom, of->canvas_height,
        of->y,   of->height,           0,          of->filter};
}

/* Truncate a number of pixels, and clamp it to the bounds. */
static int32_t whole_between(double value, int32_t low, int32_t high) {
    return value <= low ? low : value >= high ? high : (int32_t)value;
}

/* The weight of a pixel whose centre lies `distance` from that of a result. */
static double weight_of(const fd_span *span, double distance, double support) {
    if (span->filter != FD_FILTER_AREA)
        return 1.0 - fabs(distance * (1.0 / support));
    double half = support - 0.5; /* of the span that the result covers */
    return fmin(distance + 0.5, half) - fmax(distance - 0.5, -half);
}

/* OpenCV's area of a pixel that is enlarged. On an edge between two pixels its rounding decides. */
static int32_t enlarged_taps(const fd_span *span, int32_t place, double *weights, int32_t *first) {
    double inverse = span->canvas / span->side;
    int32_t at = (int32_t)floor(place * (1.0 / inverse));
    float share = (float)(place + 1 - (at + 1) * inverse);

    share = share <= 0.0f ? 0.0f : share - floorf(share);
    *first = whole_between(span->start + at, span->in_first, span->in_end - 1);
    if (share < (float)NO_WEIGHT || *first + 1 >= span->in_end) {
        weights[0] = 1.0;
        return 1;
    }
    weights[0] = 1.0 - (double)share;
    weights[1] = (double)share;
    return 2;
}

/* Compute the pixels of one result and their weights, whose sum is 1. Returns how many pixels. */
static int32_t taps_of(const fd_span *span, int32_t place, double scale, double support,
                       double *weights, int32_t *first) {
    if (span->filter == FD_FILTER_AREA && scale < 1.0)
        return enlarged_taps(span, place, weights, first);
    double center = span->start + (place + 0.5) * scale;
    int32_t low = whole_between(center - support + 0.5, span->in_first, span->in_end - 1);
    int32_t high = whole_between(center + support + 0.5, low + 1, span->in_end);
    double total = 0.0;
    int32_t count = 0;

    *first = low;
    for (int32_t j = low; j < high; j++) {
        double weight = weight_of(span, j - center + 0.5, support);
        if (weight > NO_WEIGHT) {
            *first = count == 0 ? j : *first;
            weights[count++] = weight;
            total += weight;
        }
    }
    if (count == 0) { /* no pixel is in reach: use the outermost one */
        weights[0] = 1.0;
        return 1;
    }
    double inverse = 1.0 / total;
    for (int32_t t = 0; t < count; t++)
        weights[t] *= inverse;
    return count;
}

/* The fraction bits with which each weight fits an int16. Inside the image the largest weight is
 * 1 / support; where the filter is cut off, the outermost result has the largest. Half of the range
 * is left for results in between. The bits depend on the whole canvas, so any part of it comes out
 * the same. */
static int32_t bits_for(const fd_span *span, double scale, double support, double *weights) {
    const int32_t ends[] = {0, span->canvas - 1};
    double peak = 1.0 / support;
    int32_t bits = 14;

    for (size_t e = 0; e < 2; e++) {
        int32_t first;
        int32_t count = taps_of(span, ends[e], scale, support, weights, &first);
        for (int32_t t = 0; t < count; t++)
            peak = weights[t] > peak ? weights[t] : peak;
    }
    while (bits < MOST_BITS && peak * (double)(INT32_C(1) << (bits + 1)) <= 16384.0)
        bits++;
    return bits;
}

/* How far from its centre a result reaches, in pixels. */
static double support_of(const fd_span *span, double scale) {
    if (span->filter == FD_FILTER_AREA)
        return (scale + 1.0) / 2.0;
    return scale > 1.0 && span->filter == FD_FILTER_OWN ? scale : 1.0;
}

int fd_axis_measure(fd_axis *axis, const fd_span *span) {
    double scale = span->side / span->canvas, support = support_of(span, scale);
    int32_t readable = span->in_end - span->in_first;
    size_t results = (size_t)span->count;

    axis->stride = whole_between(2.0 * support + 2.0, 1, readable);
    axis->first = fd_room_for(&axis->first_room, results * sizeof *axis->first);
    axis->count = fd_room_for(&axis->count_room, results * sizeof *axis->count);
    size_t weights = results * (size_t)axis->stride;
    axis->exact = fd_room_for(&axis->exact_room, weights * sizeof *axis->exact);
    axis->weights = fd_room_for(&axis->weights_room, weights * sizeof *axis->weights);
    if (!axis->first || !axis->count || !axis->exact || !axis->weights)
        return FD_NO_MEMORY;
    axis->support = support;
    axis->bits = bits_for(span, scale, support, axis->exact);
    axis->begin = span->in_end;
    axis->end = axis->most = 0;
    for (int32_t i = 0; i < span->count; i++) {
        int32_t place = span->from + (span->flip ? span->count - 1 - i : i);
        double *exact = axis->exact + (size_t)i * (size_t)axis->stride;
        int32_t first;
        int32_t count = taps_of(span, place, scale, support, exact, &first);

        axis->first[i] = first;
        axis->count[i] = count;
        axis->begin = first < axis->begin ? first : axis->begin;
        axis->end = first + count > axis->end ? first + count : axis->end;
        axis->most = count > axis->most ? count : axis->most;
    }
    for (int32_t i = 0; i < span->count; i++)
        axis->first[i] -= axis->begin;
    return FD_OK;
}

/* In fixed point a weight is round(sum up to it) - round(sum before it), times 2^bits.
 *
 * Round the running sums, not the weights: so the weights add up to 2^bits, and errors do not
 * accumulate. */
void fd_axis_quantise(fd_axis *axis, int32_t results) {
    double unit = (double)(INT32_C(1) << axis->bits);

    for (int32_t i = 0; i < results; i++) {
        const double *exact = axis->exact + (size_t)i * (size_t)axis->stride;
        uint16_t *weights = axis->weights + (size_t)i * (size_t)axis->stride;
        double sum = 0.5;
        int32_t before = 0;

        for (int32_t t = 0; t < axis->count[i]; t++) {
            sum += exact[t] * unit;
            weights[t] = (uint16_t)((int32_t)sum - before);
            before = (int32_t)sum;
        }
    }
}

void fd_axis_free(fd_axis *axis) {
    fd_room_free(&axis->first_room);
    fd_room_free(&axis->count_room);
    fd_room_free(&axis->exact_room);
    fd_room_free(&axis->weights_room);
}
