/* hue.c: shifts the hue of pixels by way of Pillow's HSV, in uint8.
 *
 * The results are those of Pillow's convert("HSV") and back, which lose information: a shift of 0 also
 * changes pixels. Pillow computes some steps in doubles; of all colours, these steps have its results.
 */
#include "augment.h"

#include <stdlib.h>

/* The hue (0 to 255) of a pixel; of a grey one, which has none, any. */
INLINE int32_t hue_of(int32_t red, int32_t green, int32_t blue, int32_t most, int32_t least) {
    int32_t is_red = -(red == most), is_green = ~is_red & -(green == most);
    int32_t is_blue = ~(is_red | is_green), start = (2 & is_green) | (4 & is_blue);
    int32_t before = (blue & is_red) | (red & is_green) | (green & is_blue);
    int32_t sign = before == least ? 1 : -1, range = most - least;
    int32_t apart = 2 * most - (red + green + blue - least); /* from the middle one */
    float part = (float)(sign * apart) / (float)(range > 0 ? range : 1);
    float sixth = (float)(start + sign) - part;

    return (int32_t)((sixth / 6.0f + (sixth < 0.0f ? 1.0f : 0.0f)) * 255.0f);
}

/* A channel of a colour of so much saturation and value; `less` (0 to 255) is its distance from the
 * largest one. */
INLINE uint32_t channel(int32_t less, int32_t share, int32_t most) {
    const float whole = 255 * 255, half = 255 * 255 / 2; /* rounded down */
    less = less < 0 ? 0 : less > 255 ? 255 : less;
    float rest = whole - (float)(less * share);

    return (uint32_t)(int32_t)(((float)most * rest + half) * (1.0f / whole));
}

VARIANTS(shift_hue, (uint8_t *restrict pixels, size_t count, int32_t shift),
         (pixels, count, shift)) {
    for (size_t i = 0; i < count; i++) {
        uint32_t pixel = fd_load_pixel(pixels, i);
        int32_t red = pixel & 255, green = pixel >> 8 & 255, blue = pixel >> 16 & 255;
        int32_t most = red > green ? red : green, least = red < green ? red : green;
        most = most > blue ? most : blue;
        least = least < blue ? least : blue;
        int32_t share = (int32_t)((float)(255 * (most - least)) / (float)(most > 0 ? most : 1));
        int32_t hue = (hue_of(red, green, blue, most, least) + shift) & 255;
        int32_t turn = hue < 255 ? 6 * hue : 0; /* in 255ths of a sixth of the circle */
        fd_save_pixel(pixels, i, channel(510 - abs(turn - 765), share, most),
                      channel(abs(turn - 510) - 255, share, most),
                      channel(abs(turn - 1020) - 255, share, most));
    }
}

int fd_shift_hue(fd_canvas *canvas, const fd_operation *how) {
    /* torchvision truncates the shift; Python's % 256 of a negative one is & 255. */
    shift_hue(canvas->pixels, fd_count_pixels(canvas), (int32_t)(how->colour.amount * 255.0) & 255);
    return FD_OK;
}
