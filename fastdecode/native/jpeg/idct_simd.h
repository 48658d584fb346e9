/* idct_simd.h: the inverse DCTs of idct.c in vectors: a block, or two with 32 bytes, at a time.
 *
 * Values have 16 bits; products and sums of two products have 32. Blocks whose values could exceed
 * 16 bits go to idct.c. Samples are clamped. */

#include "idct.h"

enum {
    CONSTANT_BITS = 13,
    COLUMN_BITS = 2,
    /* 128, and half for rounding, in the unit of a row's first value */
    CENTRE = (128 << (COLUMN_BITS + 3)) + (1 << (COLUMN_BITS + 3 - 1)),
    /* Limit of the sum of a column's magnitudes: results are at most 4 * 1.39 times as large, and
     * the row pass adds two of them, and CENTRE, in 16 bits. */
    LARGEST_SUM = (32767 - CENTRE) / 12
};

/* Dequantise. Returns 0 if values might exceed 16 bits. */
SIMD int dequantise(shorts *row, const int16_t *const *blocks, const uint16_t *quantiser) {
    for (int i = 0; i < FD_SIDE; i++)
        row[i] = load_blocks(blocks[0] + FD_SIDE * i, blocks[LANES - 1] + FD_SIDE * i) *
                 repeat(quantiser + FD_SIDE * i);
    return !__builtin_expect(magnitudes_exceed(row, LARGEST_SUM), 0);
}

/* ---- 8 by 8 ---- */

enum { E2, E3, E6, Z37, Z, Z15, B07, B01, B31, B15, B13, B23 }; /* places in FACTORS_8 */
static const int16_t FACTORS_8[16] = {[E2] = F_0_541,
                                      [E3] = F_0_541 + F_0_765,
                                      [E6] = F_0_541 - F_1_847,
                                      [Z37] = F_1_175 - F_1_961,
                                      [Z] = F_1_175,
                                      [Z15] = F_1_175 - F_0_390,
                                      [B07] = F_0_298 - F_0_899,
                                      [B01] = -F_0_899,
                                      [B31] = F_1_501 - F_0_899,
                                      [B15] = F_2_053 - F_2_562,
                                      [B13] = -F_2_562,
                                      [B23] = F_3_072 - F_2_562};

/* a * k[i] + b * k[j] + c * k[m] + d * k[n] */
SIMD wide four_products(factors k, shorts a, shorts b, shorts c, shorts d, int i, int j, int m,
                        int n) {
    return plus_products(products(k, a, b, i, j), k, c, d, m, n);
}

/* The transform of idct.c; `start` is added to each result before it is narrowed. */
SIMD void transform(shorts *row, const factors k, const wide start, const int shift) {
    wide even0 = plus_scaled_sum(start, row[0], row[4], CONSTANT_BITS);
    wide even1 = plus_scaled_difference(start, row[0], row[4], CONSTANT_BITS);
    wide even2 = products(k, row[2], row[6], E2, E6), even3 = products(k, row[2], row[6], E3, E2);
    wide a0 = plus(even0, even3), a3 = minus(even0, even3);
    wide a1 = plus(even1, even2), a2 = minus(even1, even2);

    shorts sum73 = row[7] + row[3], sum51 = row[5] + row[1];
    wide z3 = products(k, sum73, sum51, Z37, Z), z4 = products(k, sum73, sum51, Z, Z15);
    wide b0 = plus_products(z3, k, row[7], row[1], B07, B01);
    wide b3 = plus_products(z4, k, row[7], row[1], B01, B31);
    wide b1 = plus_products(z4, k, row[5], row[3], B15, B13);
    wide b2 = plus_products(z3, k, row[5], row[3], B13, B23);

    row[0] = narrow_sum(a0, b3, shift);
    row[7] = narrow_difference(a0, b3, shift);
    row[1] = narrow_sum(a1, b2, shift);
    row[6] = narrow_difference(a1, b2, shift);
    row[2] = narrow_sum(a2, b1, shift);
    row[5] = narrow_difference(a2, b1, shift);
    row[3] = narrow_sum(a3, b0, shift);
    row[4] = narrow_difference(a3, b0, shift);
}

SIMD void transpose(shorts *row) {
    shorts a[8], b[8];
    for (int i = 0; i < 4; i++) {
        a[2 * i] = low_16(row[2 * i], row[2 * i + 1]);
        a[2 * i + 1] = high_16(row[2 * i], row[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++) {
            b[4 * i + 2 * j] = low_32(a[4 * i + j], a[4 * i + j + 2]);
            b[4 * i + 2 * j + 1] = high_32(a[4 * i + j], a[4 * i + j + 2]);
        }
    }
    for (int i = 0; i < 4; i++) {
        row[2 * i] = low_64(b[i], b[i + 4]);
        row[2 * i + 1] = high_64(b[i], b[i + 4]);
    }
}

/* Transpose the columns, and store them as rows of samples. */
SIMD void store_columns(const shorts *column, uint8_t *out, size_t stride, const int shift) {
    shorts p[4], q[4];
    for (int i = 0; i < 4; i++) /* column i of 8 rows, and column i + 4 */
        p[i] = unsigned_bytes(column[i], column[i + 4], shift);
    q[0] = low_8(p[0], p[2]); /* columns 0 and 2, row by row */
    q[1] = low_8(p[1], p[3]);
    q[2] = high_8(p[0], p[2]); /* 4 and 6 */
    q[3] = high_8(p[1], p[3]);
    p[0] = low_8(q[0], q[1]);  /* columns 0 to 3 of rows 0 to 3 */
    p[1] = high_8(q[0], q[1]); /* of rows 4 to 7 */
    p[2] = low_8(q[2], q[3]);
    p[3] = high_8(q[2], q[3]);
    store_two_rows(out, stride, low_32(p[0], p[2]));
    store_two_rows(out + 2 * stride, stride, high_32(p[0], p[2]));
    store_two_rows(out + 4 * stride, stride, low_32(p[1], p[3]));
    store_two_rows(out + 6 * stride, stride, high_32(p[1], p[3]));
}

SIMD_TARGET static int idct_8x8(const int16_t *first, const int16_t *second,
                                const uint16_t *quantiser, uint8_t *out, size_t stride) {
    enum { COLUMNS = CONSTANT_BITS - COLUMN_BITS, ROWS = CONSTANT_BITS + COLUMN_BITS + 3 };
    const int16_t *const blocks[2] = {first, second};
    const factors k = factors_of(FACTORS_8);
    const wide none = {{0}, {0}};
    for (int i = 0; i < 2; i += LANES) {
        shorts row[8];
        if (!dequantise(row, blocks + i, quantiser))
            return fd_idct_8x8(first, second, quantiser, out, stride);
        transform(row, k, rounding(COLUMNS), COLUMNS);
        transpose(row);
        row[0] += CENTRE;
        transform(row, k, none, ROWS);
        store_columns(row, out + FD_SIDE * i, stride, ROWS);
    }
    return 1;
}

/* ---- 4 by 4 ---- */

enum { C2, C6, C10, C30, C50, C70, C11, C31, C51, C71 }; /* places in FACTORS_4 */
static const int16_t FACTORS_4[16] = {
    [C2] = F_1_847,   [C6] = -F_0_765, [C10] = F_2_562,  [C30] = F_0_899, [C50] = -F_0_601,
    [C70] = -F_0_509, [C11] = F_1_061, [C31] = -F_2_172, [C51] = F_1_451, [C71] = -F_0_211};

SIMD_TARGET static int idct_4x4(const int16_t *first, const int16_t *second,
                                const uint16_t *quantiser, uint8_t *out, size_t stride) {
    enum { COLUMNS = CONSTANT_BITS - COLUMN_BITS + 1, ROWS = CONSTANT_BITS + COLUMN_BITS + 3 + 1 };
    const int16_t *const blocks[2] = {first, second};
    const factors k = factors_of(FACTORS_4);
    const wide centre = {all_ints(CENTRE << (CONSTANT_BITS + 1)), {0}};
    const shorts zero = {0};
    shorts made[2];
    for (int i = 0; i < 2; i += LANES) {
        shorts row[8];
        if (!dequantise(row, blocks + i, quantiser))
            return fd_idct_4x4(first, second, quantiser, out, stride);

        wide even = plus_scaled_sum(rounding(COLUMNS), row[0], zero, CONSTANT_BITS + 1);
        wide more = products(k, row[2], row[6], C2, C6);
        wide b0 = four_products(k, row[1], row[3], row[5], row[7], C10, C30, C50, C70);
        wide b1 = four_products(k, row[1], row[3], row[5], row[7], C11, C31, C51, C71);
        wide a0 = plus(even, more), a1 = minus(even, more);
        shorts w0 = narrow_sum(a0, b0, COLUMNS), w3 = narrow_difference(a0, b0, COLUMNS);
        shorts w1 = narrow_sum(a1, b1, COLUMNS), w2 = narrow_difference(a1, b1, COLUMNS);

        /* Columns of four values, two per half: 0 and 1, 2 and 3, 4 and 5, 6 and 7. */
        shorts t0 = low_16(w0, w1), t1 = high_16(w0, w1);
        shorts t2 = low_16(w2, w3), t3 = high_16(w2, w3);
        shorts c01 = low_32(t0, t2), c23 = high_32(t0, t2);
        shorts c45 = low_32(t1, t3), c67 = high_32(t1, t3);
        ints base = plus_scaled_sum(centre, c01, zero, CONSTANT_BITS + 1).low;
        ints c26 = products(k, c23, c67, C2, C6).low; /* the lower halves count */
        wide o0 = four_products(k, c01, c23, c45, c67, C10, C30, C50, C70);
        wide o1 = four_products(k, c01, c23, c45, c67, C11, C31, C51, C71);
        wide left = {base + c26, base - c26}, right = {base - c26, base + c26};
        wide odd = {o0.high, o1.high}, turned = {o1.high, o0.high}; /* the upper ones */
        made[i] = by_rows_4x4(unsigned_bytes(narrow_sum(left, odd, ROWS),
                                             narrow_difference(right, turned, ROWS), ROWS));
    }
    store_4x4(out, stride, made);
    return 1;
}

/* ---- 2 by 2 ---- */

enum { ODD_1, ODD_3, ODD_5, ODD_7 }; /* places in FACTORS_2 */
static const int16_t FACTORS_2[16] = {
    [ODD_1] = F_3_624, [ODD_3] = -F_1_272, [ODD_5] = F_0_850, [ODD_7] = -F_0_720};

SIMD_TARGET static int idct_2x2(const int16_t *first, const int16_t *second,
                                const uint16_t *quantiser, uint8_t *out, size_t stride) {
    enum { COLUMNS = CONSTANT_BITS - COLUMN_BITS + 2, ROWS = CONSTANT_BITS + COLUMN_BITS + 3 + 2 };
    const int16_t *const blocks[2] = {first, second};
    const factors k = factors_of(FACTORS_2);
    const wide centre = {all_ints(CENTRE << (CONSTANT_BITS + 2)), {0}};
    for (int i = 0; i < 2; i += LANES) {
        shorts row[8];
        if (!dequantise(row, blocks + i, quantiser))
            return fd_idct_2x2(first, second, quantiser, out, stride);

        wide a = plus_scaled_sum(rounding(COLUMNS), row[0], row[0], CONSTANT_BITS + 1);
        wide b = four_products(k, row[1], row[3], row[5], row[7], ODD_1, ODD_3, ODD_5, ODD_7);
        shorts w0 = narrow_sum(a, b, COLUMNS), w1 = narrow_difference(a, b, COLUMNS);

        /* w0 and w1 in turn: columns 0 and 1, 2 and 3, 4 and 5, 6 and 7. */
        shorts c0123 = low_16(w0, w1), c4567 = high_16(w0, w1);
        shorts c2301 = high_64(c0123, c0123), c6745 = high_64(c4567, c4567);
        wide base = plus_scaled_sum(centre, c0123, c0123, CONSTANT_BITS + 1);
        wide odd = four_products(k, c0123, c2301, c4567, c6745, ODD_1, ODD_3, ODD_5, ODD_7);
        /* Numbers 0 and 1 of `base`, and 2 and 3 of `odd`, both of the lower half. */
        ints even = base.low, other = (ints)high_64((shorts)odd.low, (shorts)odd.low);
        shorts left = low_32((shorts)(even + other), (shorts)(even - other));
        wide four = {(ints)left, (ints)left};
        shorts samples = narrow(four, ROWS);
        samples = unsigned_bytes(samples, samples, ROWS);
        for (size_t lane = 0; lane < LANES; lane++) {
            uint32_t pixels = (uint32_t)((ints)samples)[4 * lane];
            memcpy(out + 2 * (i + lane), &pixels, 2);
            memcpy(out + stride + 2 * (i + lane), (uint8_t *)&pixels + 2, 2);
        }
    }
    return 1;
}
