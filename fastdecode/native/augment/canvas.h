/* canvas.h: an image in memory, on which all augmentations work.
 *
 * Pixels are RGBX, four bytes each, without gaps. X has no meaning and may change. The loops are plain
 * C that the compiler vectorises; `VARIANTS` compiles each function for every processor and for AVX2.
 */
#pragma once

#include "kernels.h"
#include "room.h"

#include <string.h>

/* An image and a second buffer, into which an operation may write its result. */
typedef struct fd_canvas {
    uint8_t *pixels, *other;
    int32_t width, height;
    int32_t out_width, out_height; /* of the result of the operation; the buffer has room for it */
    fd_room rooms[2]; /* of the image, and of the second buffer */
    fd_room scratch; /* what an operation needs beside them */
} fd_canvas;

INLINE size_t fd_count_pixels(const fd_canvas *canvas) {
    return (size_t)canvas->width * (size_t)canvas->height;
}

/* Make the second buffer the image, of the same size. */
void fd_canvas_swap(fd_canvas *canvas);

/* Make it the image, of the result's size. */
void fd_canvas_become(fd_canvas *canvas);

/* Pixels as numbers of 32 bits let the compiler vectorise. */
INLINE uint32_t fd_load_pixel(const uint8_t *pixels, size_t i) {
    uint32_t pixel;

    memcpy(&pixel, pixels + 4 * i, sizeof pixel);
    return FIRST_IS_LOW ? pixel : __builtin_bswap32(pixel);
}

INLINE void fd_save_pixel(uint8_t *pixels, size_t i, uint32_t red, uint32_t green, uint32_t blue) {
    uint32_t pixel = red | green << 8 | blue << 16;

    pixel = FIRST_IS_LOW ? pixel : __builtin_bswap32(pixel);
    memcpy(pixels + 4 * i, &pixel, sizeof pixel);
}

/* The nearest level of a byte. Numbers of operations are so small that any level which is computed as a float
 * fits an integer, and that is limited in fewer steps. */
INLINE uint32_t fd_level(int32_t value) {
    return (uint32_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* How often each level of each channel occurs. */
void fd_count_levels(const uint8_t *pixels, size_t count, uint32_t (*counts)[256]);

/* Replace each value by the entry of its channel's table. */
void fd_look_up(uint8_t *pixels, size_t count, uint8_t (*tables)[256]);

/* The source of place `at` of an axis of `count` pixels; -1 is the fill. A mirror image is repeated. */
int32_t fd_padded(int32_t at, int32_t count, int32_t mode);

/* Find the source of each of `count` results along an axis of `limit` pixels as Pillow does; -1 is
 * outside. */
void fd_find_sources(int32_t *sources, int32_t count, double start, double step, int32_t limit);
