/* warp.h: what all versions of the interpolating warp share. */
#pragma once

#include "operations.h"

#include <math.h>

enum { FD_PLACES = 64 };

/* Places between source pixels: right of and below the centre of pixel (x, y), which may lie one
 * outside the image. */
typedef struct {
    int32_t is_inside[FD_PLACES]; /* else the result is the fill */
    int32_t x[FD_PLACES], y[FD_PLACES];
    double dx[FD_PLACES], dy[FD_PLACES];
} fd_places;

INLINE void fd_find_places_in(const fd_canvas *canvas, const double *m, int32_t x, int32_t y,
                              fd_places *places, const int is_tilted) {
    double width = canvas->width, height = canvas->height;

    for (int32_t i = 0; i < FD_PLACES; i++) {
        double across = m[0] * (x + i + 0.5) + m[1] * (y + 0.5) + m[2];
        double down = m[3] * (x + i + 0.5) + m[4] * (y + 0.5) + m[5];
        if (is_tilted) {
            double over = m[6] * (x + i + 0.5) + m[7] * (y + 0.5) + 1;
            across /= over;
            down /= over;
        }
        int32_t is_inside = (across >= 0.0) & (across < width) & (down >= 0.0) & (down < height);
        across = is_inside ? across - 0.5 : 0.0; /* others may not fit an integer */
        down = is_inside ? down - 0.5 : 0.0;
        int32_t column = (int32_t)across - (across < 0.0), row = (int32_t)down - (down < 0.0);
        places->is_inside[i] = is_inside;
        places->x[i] = column;
        places->y[i] = row;
        places->dx[i] = across - column;
        places->dy[i] = down - row;
    }
}

/* Find the places that the result shows from pixel (x, y) on; `m` are the eight numbers of a perspective. */
INLINE void fd_find_places(const fd_canvas *canvas, const double *m, int32_t x, int32_t y,
                           fd_places *places) {
    if (m[6] == 0.0 && m[7] == 0.0)
        fd_find_places_in(canvas, m, x, y, places, 0);
    else
        fd_find_places_in(canvas, m, x, y, places, 1);
}

/* The source's pixel (x, y), or the nearest one to it. */
INLINE const uint8_t *fd_pixel(const fd_canvas *canvas, int32_t x, int32_t y) {
    x = x < 0 ? 0 : x < canvas->width ? x : canvas->width - 1;
    y = y < 0 ? 0 : y < canvas->height ? y : canvas->height - 1;
    return canvas->pixels + 4 * ((ptrdiff_t)y * canvas->width + x);
}

/* ---- a run of pixels, in fixed point ---- */

enum {
    FD_PLACE_BITS = 24, /* fraction bits of a place */
    FD_SHARE_BITS = 14, /* of the share of the pixel to the right, or below */
    FD_WHOLE = 1 << FD_SHARE_BITS,
    FD_LESS_BITS = 7, /* to drop after the first of two blends, for 16 bits */
    FD_SUM_BITS = 2 * FD_SHARE_BITS - FD_LESS_BITS
};

/* The place of a pixel, and the way to the next one. */
typedef struct fd_run {
    int64_t x, y, right, down;
} fd_run;

INLINE const uint8_t *fd_run_pixel(const fd_canvas *canvas, const fd_run *run) {
    ptrdiff_t x = (ptrdiff_t)(run->x >> FD_PLACE_BITS), y = (ptrdiff_t)(run->y >> FD_PLACE_BITS);
    return canvas->pixels + 4 * (y * canvas->width + x);
}

INLINE int32_t fd_share(int64_t place) {
    return (int32_t)(place >> (FD_PLACE_BITS - FD_SHARE_BITS)) & (FD_WHOLE - 1);
}

/* Whether each pixel of the result is one of the source, so that interpolation changes nothing. */
INLINE int fd_moves_whole_pixels(const double m[6]) {
    return m[0] == 1.0 && m[1] == 0.0 && m[3] == 0.0 && m[4] == 1.0 && m[2] == rint(m[2]) &&
           m[5] == rint(m[5]);
}

/* ---- warp.c, warp_simd.h ---- */

/* Write pixel (x, y) of a warp by the matrix `m`. */
typedef void fd_write_pixel(uint8_t *out, const fd_canvas *canvas, const double *m, int32_t x,
                            int32_t y, const fd_operation *how);

/* Write a bilinear warp to the second buffer: pixels whose four neighbours exist within a 50th of a level,
 * those without one as `outside`, and the others by `write_pixel`; without `outside`, these, too. */
void fd_warp_in_runs(const fd_canvas *canvas, const double *m, const uint8_t *outside,
                     fd_write_pixel *write_pixel, const fd_operation *how);

fd_warp_smooth fd_warp_smooth_plain;
fd_blend_run fd_blend_run_plain;
