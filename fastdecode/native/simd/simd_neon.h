/* simd_neon.h: the operations of simd.h for ARM64's NEON. */
#include <arm_neon.h>
#ifdef __linux__
#include <sys/auxv.h>
#endif

#define SIMD_NEON

/* Whether the processor computes CRCs. */
static inline int has_crc(void) {
#if defined(__ARM_FEATURE_CRC32) || defined(__APPLE__)
    return 1;
#elif defined(__linux__)
    return (getauxval(AT_HWCAP) & 1 << 7) != 0; /* HWCAP_CRC32 */
#else
    return 0;
#endif
}

#define IN_TURN(name, type, intrinsic)                                                             \
    SIMD shorts name(shorts a, shorts b) { return (shorts)intrinsic((type)a, (type)b); }
IN_TURN(low_8, uint8x16_t, vzip1q_u8)
IN_TURN(low_16, int16x8_t, vzip1q_s16)
IN_TURN(low_32, int32x4_t, vzip1q_s32)
IN_TURN(low_64, int64x2_t, vzip1q_s64)
IN_TURN(high_8, uint8x16_t, vzip2q_u8)
IN_TURN(high_16, int16x8_t, vzip2q_s16)
IN_TURN(high_32, int32x4_t, vzip2q_s32)
IN_TURN(high_64, int64x2_t, vzip2q_s64)

/* In two registers: multiplications take a factor from any place in one. The assembly keeps the
 * compiler from seeing constants, each of which it would put into a register of its own. */
typedef struct {
    int16x8_t at[2];
} factors;

SIMD factors factors_of(const int16_t *table) {
    factors k = {{vld1q_s16(table), vld1q_s16(table + 8)}};
    __asm__("" : "+w"(k.at[0]), "+w"(k.at[1]));
    return k;
}

#define PRODUCT(n)                                                                                 \
    case n:                                                                                        \
        low = vmlal_laneq_s16(low, vget_low_s16(x), k.at[(n) / 8], (n) % 8);                       \
        high = vmlal_high_laneq_s16(high, x, k.at[(n) / 8], (n) % 8);                              \
        break
#define FOUR_PRODUCTS(n)                                                                           \
    PRODUCT(n);                                                                                    \
    PRODUCT(n + 1);                                                                                \
    PRODUCT(n + 2);                                                                                \
    PRODUCT(n + 3)

/* The cases are for clang, which wants a literal; only one remains. */
SIMD wide plus_product(wide sum, factors k, shorts a, const int i) {
    int32x4_t low = (int32x4_t)sum.low, high = (int32x4_t)sum.high;
    int16x8_t x = (int16x8_t)a;
    switch (i) {
        FOUR_PRODUCTS(0);
        FOUR_PRODUCTS(4);
        FOUR_PRODUCTS(8);
        FOUR_PRODUCTS(12);
    }
    return (wide){(ints)low, (ints)high};
}

SIMD wide plus_products(wide sum, factors k, shorts a, shorts b, int i, int j) {
    return plus_product(plus_product(sum, k, a, i), k, b, j);
}

/* sum + (a << bits) */
SIMD wide plus_scaled(wide sum, shorts a, const int bits) {
    int16x8_t x = (int16x8_t)a;
    int16x4_t low = vget_low_s16(x);
    if (bits == 13)
        return plus(sum, (wide){(ints)vshll_n_s16(low, 13), (ints)vshll_high_n_s16(x, 13)});
    return plus(sum, (wide){(ints)vshll_n_s16(low, 14), (ints)vshll_high_n_s16(x, 14)});
}

SIMD wide plus_scaled_sum(wide sum, shorts a, shorts b, const int bits) {
    return plus_scaled(sum, a + b, bits);
}

SIMD wide plus_scaled_difference(wide sum, shorts a, shorts b, const int bits) {
    return plus_scaled(sum, a - b, bits);
}

SIMD wide rounding(int shift) {
    (void)shift;
    return (wide){{0}, {0}};
}

SIMD shorts narrow(wide a, const int shift) {
    int32x4_t low = (int32x4_t)a.low, high = (int32x4_t)a.high;
    switch (shift) { /* an intrinsic needs a literal */
    case 0:
        return (shorts)vmovn_high_s32(vmovn_s32(low), high);
    case 11:
        return (shorts)vrshrn_high_n_s32(vrshrn_n_s32(low, 11), high, 11);
    case 12:
        return (shorts)vrshrn_high_n_s32(vrshrn_n_s32(low, 12), high, 12);
    case 13:
        return (shorts)vrshrn_high_n_s32(vrshrn_n_s32(low, 13), high, 13);
    case 15:
        return (shorts)vrshrn_high_n_s32(vrshrn_n_s32(low, 15), high, 15);
    default:
        return (shorts)vshrn_high_n_s32(vshrn_n_s32(low, 16), high, 16);
    }
}

SIMD shorts narrow_sum(wide a, wide b, const int shift) {
    int32x4_t b_low = (int32x4_t)b.low, b_high = (int32x4_t)b.high;
    if (shift <= 16)
        return narrow(plus(a, b), shift);
    return (shorts)vaddhn_high_s32(vaddhn_s32((int32x4_t)a.low, b_low), (int32x4_t)a.high, b_high);
}

SIMD shorts narrow_difference(wide a, wide b, const int shift) {
    int32x4_t b_low = (int32x4_t)b.low, b_high = (int32x4_t)b.high;
    if (shift <= 16)
        return narrow(minus(a, b), shift);
    return (shorts)vsubhn_high_s32(vsubhn_s32((int32x4_t)a.low, b_low), (int32x4_t)a.high, b_high);
}

SIMD shorts unsigned_bytes(shorts a, shorts b, const int shift) {
    int16x8_t low = (int16x8_t)a, high = (int16x8_t)b;
    switch (shift) {
    case 18:
        return (shorts)vqshrun_high_n_s16(vqshrun_n_s16(low, 2), high, 2);
    case 19:
        return (shorts)vqshrun_high_n_s16(vqshrun_n_s16(low, 3), high, 3);
    case 20:
        return (shorts)vqshrun_high_n_s16(vqshrun_n_s16(low, 4), high, 4);
    default:
        return (shorts)vqmovun_high_s16(vqmovun_s16(low), high);
    }
}

SIMD shorts times(shorts a, int factor) {
    return (shorts)vqrdmulhq_n_s16((int16x8_t)a, (int16_t)factor);
}

/* 32767 + 32768: the sum of two rows cannot wrap around. */
SIMD int magnitudes_exceed(const shorts *row, int limit) {
    uint16x8_t sums = {0};
    for (int i = 0; i < 8; i += 2) {
        int16x8_t magnitude = vqabsq_s16((int16x8_t)row[i]);
        magnitude = vabaq_s16(magnitude, (int16x8_t)row[i + 1], vdupq_n_s16(0));
        sums = i ? vqaddq_u16(sums, (uint16x8_t)magnitude) : (uint16x8_t)magnitude;
    }
    return vmaxvq_u16(sums) > limit;
}

#define WEIGHTED(i)                                                                                \
    vmlal_high_laneq_s16(vmlal_laneq_s16((int32x4_t)sum, vget_low_s16((int16x8_t)pixels),          \
                                         (int16x8_t)weights, 2 * i),                               \
                         (int16x8_t)pixels, (int16x8_t)weights, 2 * i + 1)

SIMD ints plus_weighted(ints sum, shorts pixels, shorts weights, const int i) {
    return (ints)(i == 0 ? WEIGHTED(0) : i == 1 ? WEIGHTED(1) : i == 2 ? WEIGHTED(2) : WEIGHTED(3));
}

SIMD shorts least(shorts a, shorts b) { return (shorts)vminq_s16((int16x8_t)a, (int16x8_t)b); }

SIMD shorts distance(shorts a, shorts b) { return (shorts)vabdq_s16((int16x8_t)a, (int16x8_t)b); }

SIMD shorts mean_of_bytes(shorts a, shorts b) {
    return (shorts)vhaddq_u8((uint8x16_t)a, (uint8x16_t)b);
}

#define BYTES_UP(a, count) (shorts) vextq_u8(vdupq_n_u8(0), (uint8x16_t)(a), 16 - (count))
#define SIMD_LOOKUP(a, places) (shorts) vqtbl1q_u8((uint8x16_t)(a), (uint8x16_t)(places))

SIMD shorts chosen(shorts mask, shorts a, shorts b) {
    return (shorts)vbslq_s16((uint16x8_t)mask, (int16x8_t)a, (int16x8_t)b);
}

SIMD shorts low_bytes(shorts a) { return (shorts)vmovl_u8(vget_low_u8((uint8x16_t)a)); }

SIMD shorts high_bytes(shorts a) { return (shorts)vmovl_high_u8((uint8x16_t)a); }

SIMD pair three_to_one(const uint8_t *near, const uint8_t *far) {
    const uint8x16_t three = vdupq_n_u8(3), n = vld1q_u8(near), f = vld1q_u8(far);
    return (pair){(shorts)vmlal_u8(vmovl_u8(vget_low_u8(f)), vget_low_u8(n), vget_low_u8(three)),
                  (shorts)vmlal_high_u8(vmovl_high_u8(f), n, three)};
}

SIMD shorts one_before(shorts a, shorts b) {
    return (shorts)vextq_s16((int16x8_t)a, (int16x8_t)b, 7);
}

SIMD shorts one_after(shorts a, shorts b) {
    return (shorts)vextq_s16((int16x8_t)a, (int16x8_t)b, 1);
}

SIMD void store_in_turn(uint8_t *out, pair even, pair odd) {
    vst1q_u16((uint16_t *)(void *)out, vsliq_n_u16((uint16x8_t)even.low, (uint16x8_t)odd.low, 8));
    vst1q_u16((uint16_t *)(void *)(out + 16),
              vsliq_n_u16((uint16x8_t)even.high, (uint16x8_t)odd.high, 8));
}

SIMD wide plus_two(wide sum, shorts a, shorts b, const int16_t *two) {
    int16x8_t x = (int16x8_t)a, y = (int16x8_t)b;
    int32x4_t low = vmlal_n_s16((int32x4_t)sum.low, vget_low_s16(x), two[0]);
    int32x4_t high = vmlal_high_n_s16((int32x4_t)sum.high, x, two[0]);
    return (wide){(ints)vmlal_n_s16(low, vget_low_s16(y), two[1]),
                  (ints)vmlal_high_n_s16(high, y, two[1])};
}

/* By way of floats, which are exact. */
SIMD void read_channels(doubles *out, const uint8_t *pixel) {
    uint32_t four;
    memcpy(&four, pixel, sizeof four);
    uint16x4_t words = vget_low_u16(vmovl_u8(vcreate_u8(four)));
    float32x4_t floats = vcvtq_f32_u32(vmovl_u16(words));
    out[0] = (doubles)vcvt_f64_f32(vget_low_f32(floats));
    out[1] = (doubles)vcvt_high_f64_f32(floats);
}

SIMD void write_channels(uint8_t *pixel, const doubles *in) {
    int32x2_t low = vqmovn_s64(vcvtq_s64_f64((float64x2_t)in[0]));
    int32x4_t whole = vqmovn_high_s64(low, vcvtq_s64_f64((float64x2_t)in[1]));
    uint16x4_t words = vqmovun_s32(whole);
    uint32_t four = vget_lane_u32((uint32x2_t)vqmovn_u16(vcombine_u16(words, words)), 0);
    memcpy(pixel, &four, sizeof four);
}

SIMD void store_two_rows(uint8_t *out, size_t stride, shorts a) {
    vst1_u8(out, vget_low_u8((uint8x16_t)a));
    vst1_u8(out + stride, vget_high_u8((uint8x16_t)a));
}

SIMD void store_rgbx(uint8_t *out, shorts r, shorts g, shorts b) {
    uint8x16x4_t pixels = {{(uint8x16_t)r, (uint8x16_t)g, (uint8x16_t)b, vdupq_n_u8(255)}};
    vst4q_u8(out, pixels);
}

SIMD void store_rgb(uint8_t *out, shorts r, shorts g, shorts b) {
    uint8x16x3_t pixels = {{(uint8x16_t)r, (uint8x16_t)g, (uint8x16_t)b}};
    vst3q_u8(out, pixels);
}
