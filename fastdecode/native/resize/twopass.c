/* twopass.c: resizing with Pillow's or torch's own results: one axis after the other, with a rounding to
 * bytes in between.
 *
 * Filters, their weights and all roundings are those of Image.resize of 8-bit images in Pillow 13;
 * resample.c rounds only once, and so differs by several levels where a filter overshoots. Pillow takes
 * the columns first, unless the rows of the whole image, not of its box, shrink by more than twice as
 * many pixels as the columns. That rule is from experiments: it holds in 5 414 of 5 414 cases.
 *
 * torch's interpolate(antialias=True) has the same filters for bytes. It always takes the columns first,
 * and its weights have 16 bits: as many of a fraction as the largest weight of the axis leaves.
 */
#include "twopass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PI 3.14159265358979323846

/* ---- weights ---- */

static double triangle(double x) {
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

static double cubic(double x) {
    const double a = -0.5;

    x = fabs(x);
    if (x < 1.0)
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    return x < 2.0 ? (((x - 5) * x + 8) * x - 4) * a : 0.0;
}

static double sinc(double x) { return x == 0.0 ? 1.0 : sin(x * PI) / (x * PI); }

static double lanczos(double x) { return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0; }

static double hamming(double x) {
    x = fabs(x);
    if (x == 0.0)
        return 1.0;
    return x >= 1.0 ? 0.0 : sin(x * PI) / (x * PI) * (0.54 + 0.46 * cos(x * PI));
}

static double box(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }

static const struct {
    double (*weight)(double x);
    double support;
} FILTERS[] = {[FD_FILTER_TRIANGLE] = {triangle, 1.0}, [FD_FILTER_CUBIC] = {cubic, 2.0},
               [FD_FILTER_LANCZOS] = {lanczos, 3.0},   [FD_FILTER_HAMMING] = {hamming, 1.0},
               [FD_FILTER_BOX] = {box, 0.5},           [FD_FILTER_TORCH_TRIANGLE] = {triangle, 1.0},
               [FD_FILTER_TORCH_CUBIC] = {cubic, 2.0}, [FD_FILTER_TORCH_LANCZOS] = {lanczos, 3.0}};

static int is_of_torch(int32_t filter) { return filter >= FD_FILTER_TORCH_TRIANGLE; }

/* As precompute_coeffs in Pillow's Resample.c: the filter, widened by the scale where it shrinks, at the
 * distance of each pixel's centre from the result's; divided by the sum.
 *
 * Compute the pixels of a result on the canvas, and their shares. Returns their number. */
static int32_t share(double *shares, const fd_span *span, int32_t place, int32_t *begin) {
    double scale = span->side / span->canvas, enlarged = scale < 1.0 ? 1.0 : scale;
    double support = FILTERS[span->filter].support * enlarged, inverse = 1.0 / enlarged;
    double total = 0.0;
    /* Pillow counts from the first pixel of the part that was cut out, and so must the roundings. */
    double center = (span->start - span->in_first) + (place + 0.5) * scale;
    double low = center - support + 0.5, high = center + support + 0.5;
    int32_t readable = span->in_end - span->in_first;
    int32_t first = low < 0.0 ? 0 : (int32_t)low;
    int32_t count = (high > readable ? readable : (int32_t)high) - first;

    for (int32_t k = 0; k < count; k++) {
        shares[k] = FILTERS[span->filter].weight((k + first - center + 0.5) * inverse);
        total += shares[k];
    }
    for (int32_t k = 0; k < count && total != 0.0; k++)
        shares[k] /= total;
    *begin = first;
    return count;
}

/* Compute the shares of all results. Returns the fraction bits of their weights. Torch's depend on all of the
 * canvas: as many as let the largest weight fit 16 bits (UpSampleKernel.cpp, _compute_index_ranges_int16_weights). */
static int32_t share_all(fd_pillow_axis *axis, const fd_span *span) {
    int whole = is_of_torch(span->filter);
    int32_t from = whole ? 0 : span->from, end = whole ? span->canvas : span->from + span->count;
    double most = 0.0;
    int32_t bits = 0;

    for (int32_t place = from; place < end; place++) {
        int32_t i = place - span->from, first;
        int is_result = i >= 0 && i < span->count;
        i = !is_result ? span->count : span->flip ? span->count - 1 - i : i;
        double *shares = axis->exact + (size_t)i * (size_t)axis->stride;
        int32_t count = share(shares, span, place, &first);
        if (is_result) {
            axis->first[i] = span->in_first + first;
            axis->count[i] = count;
        }
        for (int32_t k = 0; k < count; k++)
            most = fmax(most, shares[k]);
    }
    while (bits < FD_WEIGHT_BITS && (!whole || (int32_t)(0.5 + most * (1 << (bits + 1))) < 1 << 15))
        bits++;
    return bits;
}

/* Compute the weights of one result. */
static void weigh(fd_pillow_axis *axis, int32_t i) {
    const int32_t bits = axis->bits, count = axis->count[i],
                  low = bits == FD_WEIGHT_BITS ? FD_LOW_BITS : FD_WEIGHT_BITS - bits;
    const double *shares = axis->exact + (size_t)i * (size_t)axis->stride;
    int32_t *weights = axis->weights + (size_t)i * (size_t)axis->stride;

    for (int32_t k = 0; k < count; k++) {
        double weight = shares[k] * (1 << bits);
        weights[k] = (int32_t)(weight < 0.0 ? weight - 0.5 : weight + 0.5) *
                     (1 << (FD_WEIGHT_BITS - bits));
    }
    memset(weights + count, 0, (size_t)(axis->stride - count) * sizeof *weights);
    int16_t *parts = axis->parts + 2 * (size_t)i * (size_t)axis->stride;
    for (int32_t k = 0; k < axis->stride; k++) {
        int16_t *to = parts + k / FD_TAPS * 2 * FD_TAPS + k % FD_TAPS;
        to[0] = (int16_t)(weights[k] >> low);
        to[FD_TAPS] = (int16_t)(weights[k] & ((1 << low) - 1));
    }
}

/* Where the pixels begin that are the results, each with a weight of 1 and no others; -1 if one is not. */
static int32_t unchanged_from(const fd_pillow_axis *axis, int32_t results) {
    int32_t from = -1;

    for (int32_t i = 0; i < results; i++) {
        const int32_t *weights = axis->weights + (size_t)i * (size_t)axis->stride;
        int32_t at = -1;
        for (int32_t k = 0; k < axis->count[i]; k++) {
            if (weights[k] == 1 << FD_WEIGHT_BITS)
                at = axis->first[i] + k - i;
            else if (weights[k] != 0)
                return -1;
        }
        if (at < 0 || (i > 0 && at != from))
            return -1;
        from = at;
    }
    return from;
}

static int are_same(const fd_span *one, const fd_span *other) {
    return one->start == other->start && one->side == other->side &&
           one->in_first == other->in_first && one->in_end == other->in_end &&
           one->canvas == other->canvas && one->from == other->from && one->count == other->count &&
           one->flip == other->flip && one->filter == other->filter;
}

/* Images often come in one size: then the weights are there. */
static int prepare(fd_pillow_axis *axis, const fd_span *span) {
    if (are_same(&axis->span, span))
        return FD_OK;
    axis->span.canvas = 0;
    double scale = span->side / span->canvas;
    double support = FILTERS[span->filter].support * (scale < 1.0 ? 1.0 : scale);
    size_t results = (size_t)span->count;

    axis->stride = ((int32_t)ceil(support) * 2 + 1 + FD_TAPS - 1) / FD_TAPS * FD_TAPS;
    axis->first = fd_room_for(&axis->first_room, results * sizeof *axis->first);
    axis->count = fd_room_for(&axis->count_room, results * sizeof *axis->count);
    axis->weights = fd_room_for(&axis->weights_room,
                                results * (size_t)axis->stride * sizeof *axis->weights);
    axis->parts = fd_room_for(&axis->parts_room,
                              2 * results * (size_t)axis->stride * sizeof *axis->parts);
    axis->exact = fd_room_for(&axis->exact_room,
                              (results + 1) * (size_t)axis->stride * sizeof *axis->exact);
    if (!axis->first || !axis->count || !axis->weights || !axis->parts || !axis->exact)
        return FD_NO_MEMORY;
    axis->bits = share_all(axis, span);
    axis->begin = span->in_end;
    axis->end = axis->most = 0;
    for (int32_t i = 0; i < span->count; i++) {
        weigh(axis, i);
        int32_t end = axis->first[i] + axis->count[i];
        axis->begin = axis->first[i] < axis->begin ? axis->first[i] : axis->begin;
        axis->end = end > axis->end ? end : axis->end;
        axis->most = axis->count[i] > axis->most ? axis->count[i] : axis->most;
    }
    for (int32_t i = 0; i < span->count; i++)
        axis->first[i] -= axis->begin;
    axis->same = unchanged_from(axis, span->count);
    axis->span = *span;
    return FD_OK;
}

/* ---- the two passes ---- */

INLINE uint8_t finished(int32_t sum) {
    sum >>= FD_WEIGHT_BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

void fd_resize_row_plain(uint8_t *restrict out, const uint8_t *restrict row,
                         const fd_pillow_axis *axis, int32_t width) {
    for (int32_t x = 0; x < width; x++) {
        const int32_t *weights = axis->weights + (size_t)x * (size_t)axis->stride;
        const uint8_t *from = row + 4 * (size_t)axis->first[x];
        for (int c = 0; c < 3; c++) {
            int32_t sum = 1 << (FD_WEIGHT_BITS - 1);
            for (int32_t k = 0; k < axis->count[x]; k++)
                sum += from[4 * k + c] * weights[k];
            out[4 * x + c] = finished(sum);
        }
    }
}

enum { STEP = 32 }; /* bytes of a row at a time */

void fd_blend_rows_plain(uint8_t *restrict out, const uint8_t *const *restrict rows, size_t stride,
                         const fd_pillow_axis *axis, int32_t result) {
    const int32_t *weights = axis->weights + (size_t)result * (size_t)axis->stride;
    for (size_t from = 0; from < stride; from += STEP) {
        int32_t sums[STEP];
        for (size_t i = 0; i < STEP; i++)
            sums[i] = 1 << (FD_WEIGHT_BITS - 1);
        for (int32_t k = 0; k < axis->count[result]; k++) {
            const uint8_t *row = rows[k] + from;
            for (size_t i = 0; i < STEP; i++)
                sums[i] += row[i] * weights[k];
        }
        for (size_t i = 0; i < STEP; i++)
            out[from + i] = finished(sums[i]);
    }
}

/* Blend rows to row `i` of the result. */
static void blend_rows(uint8_t *out, const fd_twopass *twopass, int32_t i) {
    const fd_pillow_axis *down = &twopass->down;
    const uint8_t *const *rows = twopass->recent + down->first[i] % down->most;

    if (down->same >= 0)
        memcpy(out, twopass->recent[(down->same + i) % down->most], twopass->stride);
    else
        fd_kernels_now()->blend_rows(out, rows, twopass->stride, down, i);
}

static void resize_row(uint8_t *out, const uint8_t *row, const fd_twopass *twopass) {
    const fd_pillow_axis *across = &twopass->across;

    if (across->same >= 0)
        memcpy(out, row + 4 * (size_t)across->same, 4 * (size_t)twopass->width);
    else
        fd_kernels_now()->resize_row(out, row, across, twopass->width);
}

/* Of a row that comes: across, keep it, and down as soon as a result's last row is there; or down first, of
 * source rows, and then across. */
static void take_row(void *state, int32_t y, const uint8_t *pixels) {
    fd_twopass *twopass = state;
    const fd_pillow_axis *down = &twopass->down;
    int32_t place = y % down->most;

    if (!twopass->rows_first) {
        uint8_t *row = twopass->ring + (size_t)place * twopass->stride;
        resize_row(row, pixels, twopass);
        pixels = row;
    }
    twopass->recent[place] = twopass->recent[place + down->most] = pixels;
    while (twopass->next < twopass->height &&
           down->first[twopass->next] + down->count[twopass->next] - 1 <= y) {
        int32_t i = twopass->next++;
        uint8_t *out = twopass->rows_first ? twopass->blended : twopass->out;
        blend_rows(out, twopass, i);
        if (twopass->rows_first)
            resize_row(twopass->out, twopass->blended, twopass);
        twopass->emit(twopass->state, i, twopass->out);
    }
}

/* The bytes of a row of RGBX, in whole steps. */
static size_t stride_of(int32_t width) { return (4 * (size_t)width + STEP - 1) / STEP * STEP; }

int fd_twopass_begin(fd_twopass *twopass, const fd_resize *resize, fd_emit_row *emit, void *state,
                     int32_t window[4], fd_sink *sink) {
    fd_span spans[2];
    int32_t shrunk = resize->in_bottom - resize->in_top - resize->canvas_height;

    fd_spans_of(resize, spans);
    if (prepare(&twopass->across, &spans[0]) != FD_OK ||
        prepare(&twopass->down, &spans[1]) != FD_OK)
        return FD_NO_MEMORY;
    int32_t narrowed = resize->in_right - resize->in_left - resize->canvas_width;
    twopass->rows_first = !is_of_torch(resize->filter) && shrunk > 0 && shrunk > 2 * narrowed;
    int32_t columns = twopass->across.end - twopass->across.begin;
    twopass->stride = stride_of(twopass->rows_first ? columns : resize->width);
    twopass->width = resize->width;
    twopass->height = resize->height;
    twopass->next = 0;
    twopass->emit = emit;
    twopass->state = state;
    size_t depth = (size_t)twopass->down.most, room = twopass->stride + FD_PADDING;
    twopass->recent = fd_room_for(&twopass->recent_room, 2 * depth * sizeof *twopass->recent);
    twopass->ring = fd_room_for(&twopass->ring_room, twopass->stride * depth);
    twopass->blended = fd_room_for(&twopass->blended_room, room);
    twopass->out = fd_room_for(&twopass->out_room, stride_of(resize->width));
    if (!twopass->recent || !twopass->ring || !twopass->blended || !twopass->out)
        return FD_NO_MEMORY;
    window[0] = twopass->across.begin;
    window[1] = twopass->down.begin;
    window[2] = twopass->across.end;
    window[3] = twopass->down.end;
    *sink = (fd_sink){.row = take_row,
                      .state = twopass,
                      .rows_kept = twopass->rows_first ? twopass->down.most : 1};
    return FD_OK;
}

static void free_axis(fd_pillow_axis *axis) {
    fd_room_free(&axis->first_room);
    fd_room_free(&axis->count_room);
    fd_room_free(&axis->weights_room);
    fd_room_free(&axis->parts_room);
    fd_room_free(&axis->exact_room);
}

void fd_twopass_free(fd_twopass *twopass) {
    free_axis(&twopass->across);
    free_axis(&twopass->down);
    fd_room_free(&twopass->recent_room);
    fd_room_free(&twopass->ring_room);
    fd_room_free(&twopass->blended_room);
    fd_room_free(&twopass->out_room);
}
