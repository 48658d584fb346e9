/* idct.c: transforms coefficients to samples, bit-identical to libjpeg's jidctint.c and jidctred.c.
 *
 * An inverse DCT is a sum of products with constant integers, rounded once after the columns and
 * once after the rows: any order of addition gives the same result, as long as nothing overflows.
 * libjpeg-turbo's implementations overflow, each differently, on coefficients that no real image
 * has. Blocks with such coefficients are refused, and another library decodes the file.
 *
 * The arithmetic is unsigned, so intermediate sums may wrap around without harm. */
#include "baseline.h"

#include "idct.h"

enum {
    CONSTANT_BITS = 13,
    COLUMN_BITS = 2, /* fraction bits that the columns keep for the rows */
    LARGEST_SUM = 32767, /* of the magnitudes in a column or row: intermediates fit 16 bits */
    CENTRE = 128,
    LARGEST_SAMPLE = 511 /* the smallest is -512; beyond these, libjpeg's table wraps around */
};

/* Round a sum with `shift` fraction bits to the nearest integer. */
static int32_t rounded(uint32_t sum, int shift) {
    return (int32_t)(sum + (UINT32_C(1) << (shift - 1))) >> shift;
}

static int32_t magnitude(int32_t value) { return value < 0 ? -value : value; }

/* Clamp to a sample; clears `fine` if the implementations differ on this value. */
static uint8_t sample(int32_t value, int *fine) {
    *fine &= value >= -LARGEST_SAMPLE - 1 && value <= LARGEST_SAMPLE;
    value += CENTRE;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* Dequantise, by columns. Returns 0 if a column's magnitudes are too large. */
static int dequantise(int32_t *out, const int16_t *block, const uint16_t *quantiser) {
    int32_t most = 0;
    for (int x = 0; x < FD_SIDE; x++) {
        int32_t sum = 0;
        for (int y = 0; y < FD_SIDE; y++) {
            out[y * FD_SIDE + x] = block[y * FD_SIDE + x] * quantiser[y * FD_SIDE + x];
            sum += magnitude(out[y * FD_SIDE + x]); /* 8 * 32768 * 255 fits */
        }
        most = sum > most ? sum : most;
    }
    return most <= LARGEST_SUM;
}

/* Whether a row's magnitudes are small enough. */
static int fits(const int32_t *row, size_t step) {
    int32_t sum = 0;
    for (size_t i = 0; i < FD_SIDE; i++)
        sum += magnitude(row[i * step]);
    return sum <= LARGEST_SUM;
}

/* ---- 8, 4 or 2 numbers ---- */

/* Transform 8 numbers, `step` apart: Loeffler, Ligtenberg and Moschytz, "Practical fast 1-D DCT algorithms
 * with 11 multiplications", 1989; as jpeg_idct_islow with 12, of which no result has two in a row. The even
 * half (0, 4; 2 and 6 turned by 3/8 pi) gives a, the odd one (7, 5, 3, 1, turned twice) gives b; results are
 * a + b and, mirrored, a - b. Constants have 13 bits: a sample is at most one level from the exact one. */
static void transform_8(const int32_t *in, size_t step, int32_t *out, size_t out_step, int shift) {
    uint32_t in0 = (uint32_t)in[0], in1 = (uint32_t)in[step], in2 = (uint32_t)in[2 * step],
             in3 = (uint32_t)in[3 * step], in4 = (uint32_t)in[4 * step],
             in5 = (uint32_t)in[5 * step], in6 = (uint32_t)in[6 * step],
             in7 = (uint32_t)in[7 * step];

    uint32_t z = (in2 + in6) * F_0_541;
    uint32_t even2 = z - in6 * F_1_847, even3 = z + in2 * F_0_765;
    uint32_t even0 = (in0 + in4) << CONSTANT_BITS, even1 = (in0 - in4) << CONSTANT_BITS;
    uint32_t a0 = even0 + even3, a3 = even0 - even3, a1 = even1 + even2, a2 = even1 - even2;

    uint32_t z5 = (in7 + in3 + in5 + in1) * F_1_175;
    uint32_t z1 = (in7 + in1) * F_0_899, z2 = (in5 + in3) * F_2_562;
    uint32_t z3 = z5 - (in7 + in3) * F_1_961, z4 = z5 - (in5 + in1) * F_0_390;
    uint32_t b0 = in7 * F_0_298 - z1 + z3, b1 = in5 * F_2_053 - z2 + z4;
    uint32_t b2 = in3 * F_3_072 - z2 + z3, b3 = in1 * F_1_501 - z1 + z4;

    out[0] = rounded(a0 + b3, shift);
    out[7 * out_step] = rounded(a0 - b3, shift);
    out[out_step] = rounded(a1 + b2, shift);
    out[6 * out_step] = rounded(a1 - b2, shift);
    out[2 * out_step] = rounded(a2 + b1, shift);
    out[5 * out_step] = rounded(a2 - b1, shift);
    out[3 * out_step] = rounded(a3 + b0, shift);
    out[4 * out_step] = rounded(a3 - b0, shift);
}

static void transform_4(const int32_t *in, size_t step, int32_t *out, size_t out_step, int shift) {
    uint32_t in0 = (uint32_t)in[0], in1 = (uint32_t)in[step], in2 = (uint32_t)in[2 * step],
             in3 = (uint32_t)in[3 * step], in5 = (uint32_t)in[5 * step],
             in6 = (uint32_t)in[6 * step], in7 = (uint32_t)in[7 * step];

    uint32_t even = in0 << (CONSTANT_BITS + 1), more = in2 * F_1_847 - in6 * F_0_765;
    uint32_t a0 = even + more, a1 = even - more;
    uint32_t b0 = in3 * F_0_899 + in1 * F_2_562 - in7 * F_0_509 - in5 * F_0_601;
    uint32_t b1 = in5 * F_1_451 + in1 * F_1_061 - in7 * F_0_211 - in3 * F_2_172;

    out[0] = rounded(a0 + b0, shift);
    out[3 * out_step] = rounded(a0 - b0, shift);
    out[out_step] = rounded(a1 + b1, shift);
    out[2 * out_step] = rounded(a1 - b1, shift);
}

static void transform_2(const int32_t *in, size_t step, int32_t *out, size_t out_step, int shift) {
    uint32_t a = (uint32_t)in[0] << (CONSTANT_BITS + 2);
    uint32_t b = (uint32_t)in[5 * step] * F_0_850 + (uint32_t)in[step] * F_3_624 -
                 (uint32_t)in[7 * step] * F_0_720 - (uint32_t)in[3 * step] * F_1_272;

    out[0] = rounded(a + b, shift);
    out[out_step] = rounded(a - b, shift);
}

/* ---- blocks ---- */

typedef void transform(const int32_t *in, size_t step, int32_t *out, size_t out_step, int shift);

/* Transform the columns of a block and then the rows, to `side` by `side` samples; their results have `less`
 * more fraction bits than those of 8 by 8. */
static int block_of(size_t side, int less, transform *by, const int16_t *block,
                    const uint16_t *quantiser, uint8_t *out, size_t stride) {
    int32_t in[FD_COEFFICIENTS], columns[FD_COEFFICIENTS], row[FD_SIDE];
    int fine = 1;
    if (!dequantise(in, block, quantiser))
        return 0;
    for (size_t x = 0; x < FD_SIDE; x++)
        by(in + x, FD_SIDE, columns + x, FD_SIDE, CONSTANT_BITS - COLUMN_BITS + less);
    for (size_t y = 0; y < side; y++) {
        fine &= fits(columns + y * FD_SIDE, 1);
        by(columns + y * FD_SIDE, 1, row, 1, CONSTANT_BITS + COLUMN_BITS + 3 + less);
        for (size_t x = 0; x < side; x++)
            out[y * stride + x] = sample(row[x], &fine);
    }
    return fine;
}

int fd_idct_8x8(const int16_t *first, const int16_t *second, const uint16_t *quantiser,
                uint8_t *out, size_t stride) {
    return block_of(8, 0, transform_8, first, quantiser, out, stride) &
           block_of(8, 0, transform_8, second, quantiser, out + 8, stride);
}

int fd_idct_4x4(const int16_t *first, const int16_t *second, const uint16_t *quantiser,
                uint8_t *out, size_t stride) {
    return block_of(4, 1, transform_4, first, quantiser, out, stride) &
           block_of(4, 1, transform_4, second, quantiser, out + 4, stride);
}

int fd_idct_2x2(const int16_t *first, const int16_t *second, const uint16_t *quantiser,
                uint8_t *out, size_t stride) {
    return block_of(2, 2, transform_2, first, quantiser, out, stride) &
           block_of(2, 2, transform_2, second, quantiser, out + 2, stride);
}

int fd_idct_1x1(const int16_t *first, const int16_t *second, const uint16_t *quantiser,
                uint8_t *out, size_t stride) {
    int fine = 1;
    (void)stride;
    out[0] = sample(rounded((uint32_t)(first[0] * quantiser[0]), 3), &fine);
    out[1] = sample(rounded((uint32_t)(second[0] * quantiser[0]), 3), &fine);
    return fine;
}
