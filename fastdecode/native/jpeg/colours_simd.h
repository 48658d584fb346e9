/* colours_simd.h: upsampling and colours of colours.c in vectors. */

/* (a + b + rounding) >> shift, of numbers without a sign. */
SIMD pair mean(pair a, pair b, int rounding, int shift) {
    return (pair){logical_right(a.low + b.low + (int16_t)rounding, shift),
                  logical_right(a.high + b.high + (int16_t)rounding, shift)};
}

SIMD pair three_times(pair a) { return (pair){a.low * 3, a.high * 3}; }

SIMD_TARGET static void widen(uint8_t *out, const uint8_t *in, size_t count) {
    const pair none = {{0}, {0}};
    for (size_t i = 0; i < count; i += SIMD_BYTES) {
        const uint8_t *at = in + i;
        store_in_turn(out + 2 * i, mean(three_to_one(at, at - 1), none, 1, 2),
                      mean(three_to_one(at, at + 1), none, 2, 2));
    }
}

SIMD_TARGET static void widen_between(uint8_t *out, const uint8_t *near, const uint8_t *far,
                                      size_t count) {
    pair last = three_to_one(near - SIMD_BYTES, far - SIMD_BYTES), here = three_to_one(near, far);
    for (size_t i = 0; i < count; i += SIMD_BYTES) {
        pair next = three_to_one(near + i + SIMD_BYTES, far + i + SIMD_BYTES);
        pair three = three_times(here);
        store_in_turn(out + 2 * i, mean(three, before(last, here), 8, 4),
                      mean(three, after(here, next), 7, 4));
        last = here;
        here = next;
    }
}

SIMD_TARGET static void between(uint8_t *out, const uint8_t *near, const uint8_t *far, int is_lower,
                                size_t count) {
    const pair rounding = {all(is_lower ? 2 : 1), all(is_lower ? 2 : 1)};
    for (size_t i = 0; i < count; i += SIMD_BYTES) {
        pair made = mean(three_to_one(near + i, far + i), rounding, 0, 2);
        store(out + i, unsigned_bytes(made.low, made.high, 0));
    }
}

/* ---- colours ---- */

enum { CB, CR, GREEN_BITS = 15, R_CR = 22971, B_CB = 29033 }; /* 1.402 and 1.772 in 1 / 2^14 */
static const int16_t GREENS[16] = {[CB] = -11277, [CR] = -23401}; /* in 1 / 2^15 */

/* Pixels as 16 bits of red, green and blue. */
typedef struct {
    shorts red, green, blue;
} colours;

SIMD colours coloured(const factors k, shorts y, shorts cb, shorts cr) {
    cb += -128;
    cr += -128;
    wide green = plus_products(rounding(GREEN_BITS), k, cb, cr, CB, CR);
    return (colours){y + times(cr + cr, R_CR), y + narrow(green, GREEN_BITS),
                     y + times(cb + cb, B_CB)};
}

SIMD void convert(uint8_t *out, const uint8_t *y, const uint8_t *cb, const uint8_t *cr,
                  size_t count, const size_t size) {
    const factors k = factors_of(GREENS);
    for (size_t i = 0; i < count; i += SIMD_BYTES) {
        shorts ys = load(y + i), cbs = load(cb + i), crs = load(cr + i);
        colours low = coloured(k, low_bytes(ys), low_bytes(cbs), low_bytes(crs));
        colours high = coloured(k, high_bytes(ys), high_bytes(cbs), high_bytes(crs));
        shorts red = unsigned_bytes(low.red, high.red, 0);
        shorts green = unsigned_bytes(low.green, high.green, 0);
        shorts blue = unsigned_bytes(low.blue, high.blue, 0);
        if (size == 3)
            store_rgb(out + 3 * i, red, green, blue);
        else
            store_rgbx(out + 4 * i, red, green, blue);
    }
}

SIMD_TARGET static void rgb(uint8_t *out, const uint8_t *y, const uint8_t *cb, const uint8_t *cr,
                            size_t count) {
    convert(out, y, cb, cr, count, 3);
}

SIMD_TARGET static void rgbx(uint8_t *out, const uint8_t *y, const uint8_t *cb, const uint8_t *cr,
                             size_t count) {
    convert(out, y, cb, cr, count, 4);
}

/* Each load reads 4 bytes too many, and the last pixels are copied one by one. */
SIMD_TARGET static void to_rgbx(uint8_t *out, const uint8_t *rgb, size_t count) {
    size_t i = 0;
#ifdef SIMD_LOOKUP
    const bytes places = (bytes)repeat(
        (const uint8_t[]){0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9, 9, 10, 11, 12});
    for (; i + 4 * LANES + 2 <= count; i += 4 * LANES) {
        const uint8_t *at = rgb + 3 * i;
        shorts pixels = load_blocks((const int16_t *)(const void *)at,
                                    (const int16_t *)(const void *)(at + 12));
        store(out + 4 * i, SIMD_LOOKUP(pixels, places));
    }
#endif
    fd_to_rgbx_plain(out + 4 * i, rgb + 3 * i, count - i);
}
