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

/* ---- runs of fd_warp_in_runs ---- */

/* Shares as 16 bits each: left, right, above, below. */
SIMD int64_t shares(int64_t x, int64_t y) {
    int64_t right = fd_share(x), below = fd_share(y), left = FD_WHOLE - right,
            above = FD_WHOLE - below;
    return FIRST_IS_LOW ? left | right << 16 | above << 32 | below << 48
                        : below | above << 16 | right << 32 | left << 48;
}

/* A pixel in each lane. */
SIMD_TARGET static void blend_run(uint8_t *out, const fd_canvas *canvas, fd_run run,
                                  int32_t count) {
    const ptrdiff_t stride = 4 * (ptrdiff_t)canvas->width;
    for (int32_t i = 0; i < count; i += LANES) {
        longs four, parts;
        for (int lane = 0; lane < LANES; lane++) {
            const uint8_t *at = fd_run_pixel(canvas, &run);
            int64_t above, below;
            memcpy(&above, at, sizeof above);
            memcpy(&below, at + stride, sizeof below);
            four[2 * lane] = above;
            four[2 * lane + 1] = below;
            parts[2 * lane] = parts[2 * lane + 1] = shares(run.x, run.y);
            run.x += i + 1 < count ? run.right : 0; /* the last lane may have none */
            run.y += i + 1 < count ? run.down : 0;
        }
        const ints half = all_ints(1 << (FD_SUM_BITS - 1));
        ints upper = plus_weighted((ints){0}, low_bytes((shorts)four), (shorts)parts, 0);
        ints lower = plus_weighted((ints){0}, high_bytes((shorts)four), (shorts)parts, 0);
        shorts rows = narrow((wide){upper >> FD_LESS_BITS, lower >> FD_LESS_BITS}, 0);
        ints sum = plus_weighted(half, rows, (shorts)parts, 1) >> FD_SUM_BITS;
        shorts made = narrow((wide){sum, sum}, 0);
        ints pixels = (ints)unsigned_bytes(made, made, 0);
        for (int lane = 0; lane < LANES; lane++, out += 4)
            memcpy(out, (int32_t[]){pixels[4 * lane]}, 4);
    }
}
