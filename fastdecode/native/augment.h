/* augment.h: what the files of the augmentations share.
 *
 * Pixels are RGBX, four bytes each, without gaps. X has no meaning and may change. The loops are plain
 * C that the compiler vectorises; `VARIANTS` compiles each function for every processor and for AVX2.
 * All variants give the same bytes: integers are exact, and floats are rounded after each operation.
 */
#ifndef FASTDECODE_AUGMENT_H
#define FASTDECODE_AUGMENT_H

#include "kernels.h"
#include "weights.h"

#define INLINE static inline __attribute__((always_inline))

/* Whether the machine is little-endian. */
#define FIRST_IS_LOW (__BYTE_ORDER__ != __ORDER_BIG_ENDIAN__)

#ifdef FD_AVX2
/* Define `name` from the inline function `body` for both instruction sets, and the choice. */
#define VARIANTS(name, body, parameters, arguments)                                                \
    __attribute__((target("avx2"))) static void name##_avx2 parameters { body arguments; }         \
    static void name##_plain parameters { body arguments; }                                        \
    static void name parameters {                                                                  \
        if (fd_kernels_now()->is_avx2)                                                             \
            name##_avx2 arguments;                                                                 \
        else                                                                                       \
            name##_plain arguments;                                                                \
    }
#else
#define VARIANTS(name, body, parameters, arguments)                                                \
    static void name parameters { body arguments; }
#endif

/* An image and a second buffer of its size, into which an operation may write its result. */
typedef struct {
    uint8_t *pixels, *other;
    int32_t width, height;
} fd_canvas;

/* Make the second buffer the image. */
void fd_canvas_swap(fd_canvas *canvas);

/* ---- warp.c ---- */

/* Map the image by the inverse affine `matrix`: the result's pixel (x, y) is the source's at
 * matrix[0] * (x + .5) + matrix[1] * (y + .5) + matrix[2], and so on. */
int fd_warp(fd_canvas *canvas, const double matrix[6], fd_filter filter, const uint8_t fill[4],
            fd_room *room);

/* Turn the image counter-clockwise about its centre, as PIL.Image.rotate does. */
int fd_rotate(fd_canvas *canvas, double degrees, fd_filter filter, const uint8_t fill[4],
              fd_room *room);

/* ---- hue.c ---- */

/* Add `shift` (0 to 255) to the hue of each pixel, by way of Pillow's HSV. */
void fd_shift_hue(uint8_t *pixels, size_t count, int32_t shift);

/* ---- blur.c ---- */

/* Blur as torchvision does: a kernel of `size` (odd) by `size` weights of a Gaussian. */
int fd_blur(fd_canvas *canvas, int32_t size, double sigma_x, double sigma_y, fd_room *room);

#endif
