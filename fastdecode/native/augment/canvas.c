/* canvas.c: what all operations do with the pixels of an image. */
#include "canvas.h"

void fd_canvas_swap(fd_canvas *canvas) {
    uint8_t *pixels = canvas->other;
    fd_room room = canvas->rooms[1];

    canvas->other = canvas->pixels;
    canvas->pixels = pixels;
    canvas->rooms[1] = canvas->rooms[0];
    canvas->rooms[0] = room;
}

void fd_canvas_become(fd_canvas *canvas) {
    fd_canvas_swap(canvas);
    canvas->width = canvas->out_width;
    canvas->height = canvas->out_height;
}

void fd_look_up(uint8_t *pixels, size_t count, uint8_t (*tables)[256]) {
    for (size_t i = 0; i < count; i++) {
        uint32_t pixel = fd_load_pixel(pixels, i);
        fd_save_pixel(pixels, i, tables[0][pixel & 255], tables[1][pixel >> 8 & 255],
                      tables[2][pixel >> 16 & 255]);
    }
}

void fd_count_levels(const uint8_t *pixels, size_t count, uint32_t (*counts)[256]) {
    enum { SETS = 4 }; /* neighbours are often equal, and counting in one place would wait */
    uint32_t sets[SETS][3][256];

    memset(sets, 0, sizeof sets);
    for (size_t i = 0; i < count; i++) {
        uint32_t pixel = fd_load_pixel(pixels, i);
        sets[i % SETS][0][pixel & 255]++;
        sets[i % SETS][1][pixel >> 8 & 255]++;
        sets[i % SETS][2][pixel >> 16 & 255]++;
    }
    for (int c = 0; c < 3; c++)
        for (int v = 0; v < 256; v++)
            counts[c][v] = sets[0][c][v] + sets[1][c][v] + sets[2][c][v] + sets[3][c][v];
}

int32_t fd_padded(int32_t at, int32_t count, int32_t mode) {
    int32_t period = mode == FD_PAD_REFLECT ? 2 * (count - 1) : 2 * count;

    if (at >= 0 && at < count)
        return at;
    if (mode == FD_PAD_CONSTANT)
        return -1;
    if (mode == FD_PAD_EDGE || period == 0)
        return at < 0 ? 0 : count - 1;
    at = (at % period + period) % period;
    return at < count ? at : mode == FD_PAD_REFLECT ? period - at : period - 1 - at;
}

/* Pillow adds up doubles here. */
void fd_find_sources(int32_t *sources, int32_t count, double start, double step, int32_t limit) {
    double at = start + step * 0.5;

    for (int32_t i = 0; i < count; i++, at += step)
        sources[i] = at >= 0.0 && at < limit ? (int32_t)at : -1;
}
