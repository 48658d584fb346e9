/* blur.c: Gaussian blurs: that of torchvision, as two passes of a one-dimensional kernel, and Pillow's.
 *
 * torchvision adds the products of the whole kernel in another order; its result differs by at most 1
 * in about 2 of 100 000 values. Edges are mirrored without repeating the outermost pixel.
 */
#include "operations.h"

#include <math.h>
#include <string.h>

enum { LARGEST = 255 }; /* weights of a kernel */

typedef struct {
    int32_t reach; /* weights to each side of the centre that are not negligible */
    float weights[LARGEST];
} kernel;

/* The weights from -reach to reach. */
static kernel make_kernel(int32_t size, double sigma) {
    kernel made = {.reach = 0};
    double exact[LARGEST], sum = 0.0;
    int32_t half = size / 2;

    for (int32_t i = 0; i < size; i++) {
        double distance = (i - half) / sigma;
        exact[i] = exp(-0.5 * distance * distance);
        sum += exact[i];
    }
    for (int32_t i = half; i < size && exact[i] / sum > 2e-8; i++)
        made.reach = i - half;
    for (int32_t i = -made.reach; i <= made.reach; i++)
        made.weights[i + made.reach] = (float)(exact[half + i] / sum);
    return made;
}

VARIANTS(add_bytes, (float *restrict sums, const uint8_t *restrict row, float weight, size_t count),
         (sums, row, weight, count)) {
    for (size_t i = 0; i < count; i++)
        sums[i] += weight * (float)row[i];
}

/* Blur a row of sums across; `sums` has `reach` mirrored pixels at both ends. */
VARIANTS(finish_row,
         (uint8_t *restrict out, const float *restrict sums, const kernel *across, size_t count),
         (out, sums, across, count)) {
    enum { STEP = 32 };
    size_t taps = 2 * (size_t)across->reach + 1;

    for (size_t from = 0; from < count; from += STEP) {
        float total[STEP] = {0};
        size_t end = count - from < STEP ? count - from : STEP;
        for (size_t t = 0; t < taps; t++)
            for (size_t i = 0; i < STEP; i++)
                total[i] += across->weights[t] * sums[from + 4 * t + i];
        for (size_t i = 0; i < end; i++)
            out[from + i] = (uint8_t)(int32_t)rintf(total[i]);
    }
}

int fd_blur(fd_canvas *canvas, const fd_operation *how) {
    int32_t width = canvas->width, height = canvas->height;
    int32_t side = how->blur.width > 0 ? (int32_t)how->blur.width
                                       : (int32_t)(how->blur.sigma_across * 3.5) * 2 + 1;
    int32_t side_down = how->blur.height > 0 ? (int32_t)how->blur.height : side;

    if (side / 2 >= width || side_down / 2 >= height)
        return FD_ARGUMENT; /* it could not be mirrored; torch refuses it, too */
    kernel across = make_kernel(side, how->blur.sigma_across);
    kernel down = make_kernel(side_down, how->blur.sigma_down);
    size_t count = 4 * (size_t)width, margin = 4 * (size_t)across.reach;
    float *padded = fd_room_for(&canvas->scratch,
                                (count + 2 * margin + FD_PADDING) * sizeof *padded);
    if (padded == NULL)
        return FD_NO_MEMORY;
    float *sums = padded + margin;
    for (int32_t y = 0; y < height; y++) {
        memset(sums, 0, count * sizeof *sums);
        for (int32_t t = -down.reach; t <= down.reach; t++)
            add_bytes(sums,
                      canvas->pixels + (size_t)fd_padded(y + t, height, FD_PAD_REFLECT) * count,
                      down.weights[t + down.reach], count);
        for (int32_t x = 1; x <= across.reach; x++) {
            memcpy(sums - 4 * (ptrdiff_t)x, sums + 4 * (ptrdiff_t)x, 4 * sizeof *sums);
            memcpy(sums + count + 4 * (ptrdiff_t)(x - 1), sums + count - 4 * (ptrdiff_t)(x + 1),
                   4 * sizeof *sums);
        }
        finish_row(canvas->other + (size_t)y * count, padded, &across, count);
    }
    fd_canvas_swap(canvas);
    return FD_OK;
}

/* ---- Pillow's blur ---- */

enum { PASSES = 3, SUM_BITS = 24 }; /* boxes along each axis; fraction bits of a weight */

/* A box of pixels: `reach` to each side of the centre count `inner`, the next ones `outer`. */
typedef struct {
    int32_t reach;
    uint32_t inner, outer;
} box;

/* The box whose repeated mean is nearest to a Gaussian (Gwosdek et al., "Theoretical foundations of
 * Gaussian convolution by extended box filtering", 2011), in Pillow's precisions. */
static box box_of(double sigma) {
    float radius = (float)sigma, variance = radius * radius / PASSES;
    float side = (float)sqrt(12.0 * (double)variance + 1.0);
    float reach = (float)floor(((double)side - 1.0) / 2.0);
    float part = (float)((double)(2 * reach + 1) *
                         ((double)(reach * (reach + 1)) - 3.0 * (double)variance));

    part /= 6 * (variance - (reach + 1) * (reach + 1));
    float whole = reach + part;
    box made = {.reach = (int32_t)whole};
    made.inner = (uint32_t)((float)(1 << SUM_BITS) / (whole * 2 + 1));
    made.outer = ((1U << SUM_BITS) - (uint32_t)(made.reach * 2 + 1) * made.inner) / 2;
    return made;
}

/* Make a row of the mean from the sums of the rows within reach, and move the sums down by one. */
VARIANTS(mean_row,
         (uint8_t *restrict out, uint32_t *restrict sums, const uint8_t *const *restrict rows,
          const box *by, size_t count),
         (out, sums, rows, by, count)) {
    const uint8_t *above = rows[0], *first = rows[1], *below = rows[2];

    for (size_t i = 0; i < count; i++) {
        uint32_t ends = (uint32_t)above[i] + below[i];
        out[i] = (uint8_t)((sums[i] * by->inner + ends * by->outer + (1U << (SUM_BITS - 1))) >>
                           SUM_BITS);
        sums[i] += (uint32_t)below[i] - first[i];
    }
}

/* Replace each pixel by the mean of the box above and below it; beyond the edge are its pixels. */
static void mean_down(fd_canvas *canvas, const box *by, uint32_t *sums) {
    size_t stride = 4 * (size_t)canvas->width;

    memset(sums, 0, stride * sizeof *sums);
    for (int32_t y = -by->reach; y <= by->reach; y++) {
        const uint8_t *row = canvas->pixels +
                             stride * (size_t)fd_padded(y, canvas->height, FD_PAD_EDGE);
        for (size_t i = 0; i < stride; i++)
            sums[i] += row[i];
    }
    for (int32_t y = 0; y < canvas->height; y++) {
        const uint8_t *rows[3];
        const int32_t places[3] = {y - by->reach - 1, y - by->reach, y + by->reach + 1};
        for (int i = 0; i < 3; i++)
            rows[i] = canvas->pixels +
                      stride * (size_t)fd_padded(places[i], canvas->height, FD_PAD_EDGE);
        mean_row(canvas->other + stride * (size_t)y, sums, rows, by, stride);
    }
    fd_canvas_swap(canvas);
}

/* Exchange rows and columns, in squares that fit the cache. */
static void transpose(fd_canvas *canvas) {
    enum { SIDE = 16 };
    size_t width = (size_t)canvas->width, height = (size_t)canvas->height;

    for (size_t top = 0; top < height; top += SIDE)
        for (size_t left = 0; left < width; left += SIDE)
            for (size_t y = top; y < top + SIDE && y < height; y++)
                for (size_t x = left; x < left + SIDE && x < width; x++)
                    memcpy(canvas->other + 4 * (x * height + y),
                           canvas->pixels + 4 * (y * width + x), 4);
    canvas->width = (int32_t)height;
    canvas->height = (int32_t)width;
    fd_canvas_swap(canvas);
}

int fd_box_blur(fd_canvas *canvas, const fd_operation *how) {
    int32_t longer = canvas->width > canvas->height ? canvas->width : canvas->height;
    box by = box_of(how->sigma);
    uint32_t *sums = fd_room_for(&canvas->scratch, 4 * (size_t)longer * sizeof *sums);

    if (sums == NULL)
        return FD_NO_MEMORY;
    if (how->sigma == 0.0)
        return FD_OK;
    for (int axis = 0; axis < 2; axis++) { /* Pillow blurs across first */
        transpose(canvas);
        for (int i = 0; i < PASSES; i++)
            mean_down(canvas, &by, sums);
    }
    return FD_OK;
}
