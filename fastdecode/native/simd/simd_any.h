/* simd_any.h: the operations of simd.h in plain C on vectors of 16 bytes, which GCC and clang
 * compile for any processor, of either byte order. */

#if defined(__clang__)
#define PLACES(type, a, b, ...) ((shorts)__builtin_shufflevector((type)(a), (type)(b), __VA_ARGS__))
#else
#define PLACES(type, a, b, ...)                                                                    \
    ((shorts)__builtin_shuffle((type)(a), (type)(b), (type){__VA_ARGS__}))
#endif

#define IN_TURN(name, type, ...)                                                                   \
    SIMD shorts name(shorts a, shorts b) { return PLACES(type, a, b, __VA_ARGS__); }
IN_TURN(low_8, bytes, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
IN_TURN(high_8, bytes, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
IN_TURN(low_16, shorts, 0, 8, 1, 9, 2, 10, 3, 11)
IN_TURN(high_16, shorts, 4, 12, 5, 13, 6, 14, 7, 15)
IN_TURN(low_32, ints, 0, 4, 1, 5)
IN_TURN(high_32, ints, 2, 6, 3, 7)
IN_TURN(low_64, longs, 0, 2)
IN_TURN(high_64, longs, 1, 3)

typedef const int16_t *factors;

SIMD factors factors_of(const int16_t *table) { return table; }

/* The numbers of a half, with the sign in the upper 16 bits. */
SIMD wide extended(shorts a) {
    if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)
        return (wide){(ints)low_16(a, a) >> 16, (ints)high_16(a, a) >> 16};
    return (wide){(ints)low_16((shorts){0}, a) >> 16, (ints)high_16((shorts){0}, a) >> 16};
}

SIMD wide plus_products(wide sum, factors k, shorts a, shorts b, int i, int j) {
    wide x = extended(a), y = extended(b);
    sum.low += x.low * k[i] + y.low * k[j];
    sum.high += x.high * k[i] + y.high * k[j];
    return sum;
}

SIMD wide plus_scaled_sum(wide sum, shorts a, shorts b, int bits) {
    wide x = extended(a + b);
    return plus(sum, (wide){x.low << bits, x.high << bits});
}

SIMD wide plus_scaled_difference(wide sum, shorts a, shorts b, int bits) {
    wide x = extended(a - b);
    return plus(sum, (wide){x.low << bits, x.high << bits});
}

SIMD wide rounding(int shift) {
    ints half = all_ints(1 << (shift - 1));
    return (wide){half, half};
}

/* The lower 16 bits: no value that counts has more. */
SIMD shorts narrow(wide a, int shift) {
    shorts low = (shorts)(a.low >> shift), high = (shorts)(a.high >> shift);
    if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)
        return PLACES(shorts, low, high, 1, 3, 5, 7, 9, 11, 13, 15);
    return PLACES(shorts, low, high, 0, 2, 4, 6, 8, 10, 12, 14);
}

SIMD shorts narrow_sum(wide a, wide b, int shift) { return narrow(plus(a, b), shift); }

SIMD shorts narrow_difference(wide a, wide b, int shift) { return narrow(minus(a, b), shift); }

SIMD shorts clamped_to(shorts a, int least, int most) {
    shorts low = all(least), high = all(most);
    a = (a & (a > low)) | (low & (a <= low));
    return (a & (a < high)) | (high & (a >= high));
}

SIMD shorts even_bytes(shorts a, shorts b) {
    if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)
        return PLACES(bytes, a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return PLACES(bytes, a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}

SIMD shorts unsigned_bytes(shorts a, shorts b, int shift) {
    (void)shift;
    return even_bytes(clamped_to(a, 0, 255), clamped_to(b, 0, 255));
}

SIMD shorts times(shorts a, int factor) {
    wide x = extended(a);
    x.low = x.low * factor + (1 << 14);
    x.high = x.high * factor + (1 << 14);
    return narrow(x, 15);
}

SIMD int magnitudes_exceed(const shorts *row, int limit) {
    ushorts sums = {0}, is_large = {0};
    for (int i = 0; i < 8; i++) {
        shorts is_negative = row[i] < 0;
        sums += (ushorts)((row[i] ^ is_negative) - is_negative);
        is_large |= sums; /* a sum that wraps around was at least 2^15 before */
    }
    longs found = (longs)(((shorts)is_large < 0) | ((shorts)sums > (int16_t)limit));
    return (found[0] | found[1]) != 0;
}

SIMD ints plus_weighted(ints sum, shorts pixels, shorts weights, const int i) {
    wide two = extended(pixels);
    return sum + two.low * weights[2 * i] + two.high * weights[2 * i + 1];
}

SIMD shorts chosen(shorts mask, shorts a, shorts b) { return (a & mask) | (b & ~mask); }

SIMD shorts least(shorts a, shorts b) { return chosen(a < b, a, b); }

SIMD shorts distance(shorts a, shorts b) { return chosen(a > b, a - b, b - a); }

SIMD shorts mean_of_bytes(shorts a, shorts b) { return (a & b) + (((a ^ b) >> 1) & all(0x7F7F)); }

SIMD shorts low_bytes(shorts a) {
    return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? low_8((shorts){0}, a) : low_8(a, (shorts){0});
}

SIMD shorts high_bytes(shorts a) {
    return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? high_8((shorts){0}, a) : high_8(a, (shorts){0});
}

SIMD pair three_to_one(const uint8_t *near, const uint8_t *far) {
    shorts n = load(near), f = load(far);
    return (pair){low_bytes(n) * 3 + low_bytes(f), high_bytes(n) * 3 + high_bytes(f)};
}

SIMD shorts one_before(shorts a, shorts b) {
    return PLACES(shorts, a, b, 7, 8, 9, 10, 11, 12, 13, 14);
}

SIMD shorts one_after(shorts a, shorts b) { return PLACES(shorts, a, b, 1, 2, 3, 4, 5, 6, 7, 8); }

SIMD void store_in_turn(uint8_t *out, pair even, pair odd) {
    if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__) {
        pair swapped = even;
        even = odd;
        odd = swapped;
    }
    store(out, even.low | odd.low << 8);
    store(out + 16, even.high | odd.high << 8);
}

SIMD wide plus_two(wide sum, shorts a, shorts b, const int16_t *two) {
    return plus_products(sum, two, a, b, 0, 1);
}

SIMD void read_channels(doubles *out, const uint8_t *pixel) {
    out[0] = (doubles){pixel[0], pixel[1]};
    out[1] = (doubles){pixel[2], pixel[3]};
}

SIMD void write_channels(uint8_t *pixel, const doubles *in) {
    for (int i = 0; i < 4; i++) {
        double value = in[i / 2][i % 2];
        pixel[i] = (uint8_t)(value <= 0.0 ? 0 : value >= 255.0 ? 255 : (int32_t)value);
    }
}

SIMD void store_two_rows(uint8_t *out, size_t stride, shorts a) {
    int64_t upper = ((longs)a)[0], lower = ((longs)a)[1];
    memcpy(out, &upper, sizeof upper);
    memcpy(out + stride, &lower, sizeof lower);
}

SIMD void store_rgbx(uint8_t *out, shorts r, shorts g, shorts b) {
    const shorts full = all(-1);
    shorts rg_low = low_8(r, g), rg_high = high_8(r, g);
    shorts bx_low = low_8(b, full), bx_high = high_8(b, full);
    store(out, low_16(rg_low, bx_low));
    store(out + 16, high_16(rg_low, bx_low));
    store(out + 32, low_16(rg_high, bx_high));
    store(out + 48, high_16(rg_high, bx_high));
}

SIMD void store_rgb(uint8_t *out, shorts r, shorts g, shorts b) {
    uint8_t pixels[64];
    store_rgbx(pixels, r, g, b);
    for (int i = 0; i < 16; i++)
        memcpy(out + 3 * i, pixels + 4 * i, 3);
}
