/* warp_simd.h: the bilinear and bicubic warp of warp.c, the channels of a pixel in vectors. */

/* The four channels of a pixel. */
typedef struct {
    doubles part[4 * sizeof(double) / SIMD_BYTES];
} channels;

SIMD channels channels_at(const uint8_t *pixel) {
    channels out;
    read_channels(out.part, pixel);
    return out;
}

SIMD channels linear(channels left, channels right, double place) {
    for (size_t i = 0; i < sizeof left / SIMD_BYTES; i++)
        left.part[i] += (right.part[i] - left.part[i]) * place;
    return left;
}

SIMD channels cubic(const channels *four, double place) {
    channels out;
    for (size_t i = 0; i < sizeof out / SIMD_BYTES; i++) {
        doubles a = four[0].part[i], b = four[1].part[i], c = four[2].part[i], d = four[3].part[i];
        doubles p2 = c - a, ba = b - a, p3 = c - (ba + ba) - d, p4 = ba - c + d;
        out.part[i] = b + place * (p2 + place * (p3 + place * p4));
    }
    return out;
}

/* Pixel (x, y) of the source; `is_inside` says that there is one. */
SIMD channels source(const fd_canvas *canvas, int32_t x, int32_t y, int is_inside) {
    return channels_at(is_inside ? canvas->pixels + 4 * ((ptrdiff_t)y * canvas->width + x)
                                 : fd_pixel(canvas, x, y));
}

SIMD channels bilinear(const fd_canvas *canvas, int32_t x, int32_t y, double dx, double dy,
                       const int is_inside) {
    channels rows[2];
    for (int i = 0; i < 2; i++)
        rows[i] = linear(source(canvas, x, y + i, is_inside),
                         source(canvas, x + 1, y + i, is_inside), dx);
    return linear(rows[0], rows[1], dy);
}

SIMD channels bicubic(const fd_canvas *canvas, int32_t x, int32_t y, double dx, double dy,
                      const int is_inside) {
    channels rows[4], four[4];
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 4; k++)
            four[k] = source(canvas, x - 1 + k, y - 1 + i, is_inside);
        rows[i] = cubic(four, dx);
    }
    return cubic(rows, dy);
}

SIMD void warp(const fd_canvas *canvas, const double *m, const int is_cubic, const uint8_t *fill) {
    uint8_t *out = canvas->other;
    const int32_t before = is_cubic ? 1 : 0, after = is_cubic ? 2 : 1; /* neighbours of a pixel */
    fd_places at;

    for (int32_t y = 0; y < canvas->out_height; y++)
        for (int32_t x = 0; x < canvas->out_width; x++, out += 4) {
            int32_t i = x % FD_PLACES;
            if (i == 0)
                fd_find_places(canvas, m, x, y, &at);
            if (!at.is_inside[i]) {
                memcpy(out, fill, 4);
                continue;
            }
            int32_t column = at.x[i], row = at.y[i];
            double dx = at.dx[i], dy = at.dy[i];
            channels made;
            if (column >= before && row >= before && column + after < canvas->width &&
                row + after < canvas->height)
                made = is_cubic ? bicubic(canvas, column, row, dx, dy, 1)
                                : bilinear(canvas, column, row, dx, dy, 1);
            else
                made = is_cubic ? bicubic(canvas, column, row, dx, dy, 0)
                                : bilinear(canvas, column, row, dx, dy, 0);
            write_channels(out, made.part);
        }
}

SIMD_TARGET static void warp_smooth(const fd_canvas *canvas, const double *m, int is_cubic,
                                    const uint8_t *fill) {
    if (is_cubic)
        warp(canvas, m, 1, fill);
    else
        warp(canvas, m, 0, fill);
}
