/* twopass_simd.h: the two passes of twopass.c in vectors.
 *
 * A weight has 23 bits. Its two parts have 16 bits each, so that products are those of 16 bits; the sums
 * of the parts are joined at the end. Of torch's filters it has 16 bits, and is `whole`. */

SIMD int is_whole(const fd_pillow_axis *axis) { return axis->bits < FD_WEIGHT_BITS; }

/* Join the sums of both parts. */
SIMD ints joined(ints high, ints low, const int whole) {
    return whole ? high : (high << FD_LOW_BITS) + low;
}

/* Round sums to whole values. */
SIMD ints rounded(ints sum, int32_t bits) { return (sum + (1 << (bits - 1))) >> bits; }

/* The sums of result `x`, or of the last one; those of all lanes together count. They are of `taps` pixels, or of
 * as many as have a weight. */
SIMD ints sums_of(const uint8_t *row, const fd_pillow_axis *axis, int32_t x, int32_t width,
                  const int32_t taps, const int whole) {
    size_t at = (size_t)(x < width ? x : width - 1);
    const int16_t *parts = axis->parts + 2 * at * (size_t)axis->stride;
    const uint8_t *from = row + 4 * (size_t)axis->first[at];
    const int32_t count = taps > 0 ? taps : axis->count[at];
    ints high = {0}, low = {0};
    for (int32_t k = 0; k < count; k += FD_TAPS)
        add_four_pixels(&high, &low, from + 4 * k, parts + 2 * k);
    return joined(high, low, whole);
}

SIMD void resize_by(uint8_t *out, const uint8_t *row, const fd_pillow_axis *axis, int32_t width,
                    const int32_t taps, const int whole) {
    const int32_t bits = whole ? axis->bits : FD_WEIGHT_BITS;
    for (int32_t x = 0; x < width; x += 2 * LANES) {
        ints even = sums_of_lanes(sums_of(row, axis, x, width, taps, whole),
                                  sums_of(row, axis, x + 2, width, taps, whole));
        ints odd = sums_of_lanes(sums_of(row, axis, x + 1, width, taps, whole),
                                 sums_of(row, axis, x + 3, width, taps, whole));
        shorts narrowed = narrow((wide){rounded(even, bits), rounded(odd, bits)}, 0);
        longs pixels = (longs)unsigned_bytes(narrowed, narrowed, 0);
        for (int lane = 0; lane < LANES; lane++)
            memcpy(out + 4 * (ptrdiff_t)x + 8 * lane, (int64_t[]){pixels[2 * lane]}, 8);
    }
}

/* Where they are few, all results take as many pixels, with weights of 0 at the end: the length of the loop is
 * known, and no more than FD_PADDING bytes are read after a row. */
SIMD void resize_with(uint8_t *out, const uint8_t *row, const fd_pillow_axis *axis, int32_t width,
                      const int whole) {
    if (axis->most <= FD_TAPS)
        resize_by(out, row, axis, width, FD_TAPS, whole);
    else if (axis->most <= 2 * FD_TAPS)
        resize_by(out, row, axis, width, 2 * FD_TAPS, whole);
    else if (axis->most <= 3 * FD_TAPS)
        resize_by(out, row, axis, width, 3 * FD_TAPS, whole);
    else
        resize_by(out, row, axis, width, 0, whole);
}

SIMD_TARGET static void resize_row(uint8_t *out, const uint8_t *row, const fd_pillow_axis *axis,
                                   int32_t width) {
    if (is_whole(axis))
        resize_with(out, row, axis, width, 1);
    else
        resize_with(out, row, axis, width, 0);
}

SIMD shorts joined_words(wide high, wide low, const int whole, int32_t bits) {
    return narrow((wide){rounded(joined(high.low, low.low, whole), bits),
                         rounded(joined(high.high, low.high, whole), bits)},
                  0);
}

SIMD void blend_with(uint8_t *out, const uint8_t *const *rows, size_t stride,
                     const fd_pillow_axis *axis, int32_t i, const int whole) {
    const int32_t bits = whole ? axis->bits : FD_WEIGHT_BITS;
    const int16_t *parts = axis->parts + 2 * (size_t)i * (size_t)axis->stride;
    const int32_t taps = axis->count[i];
    for (size_t from = 0; from < stride; from += SIMD_BYTES) {
        wide high[2] = {{{0}, {0}}, {{0}, {0}}}, low[2] = {{{0}, {0}}, {{0}, {0}}};
        for (int32_t k = 0; k < taps; k += 2) {
            const int16_t *at = parts + k / FD_TAPS * 2 * FD_TAPS + k % FD_TAPS;
            shorts one = load(rows[k] + from);
            shorts two = load(rows[k + 1 < taps ? k + 1 : k] + from); /* after the last: weight 0 */
            high[0] = plus_two(high[0], low_bytes(one), low_bytes(two), at);
            high[1] = plus_two(high[1], high_bytes(one), high_bytes(two), at);
            low[0] = plus_two(low[0], low_bytes(one), low_bytes(two), at + FD_TAPS);
            low[1] = plus_two(low[1], high_bytes(one), high_bytes(two), at + FD_TAPS);
        }
        store(out + from, unsigned_bytes(joined_words(high[0], low[0], whole, bits),
                                         joined_words(high[1], low[1], whole, bits), 0));
    }
}

SIMD_TARGET static void blend_rows(uint8_t *out, const uint8_t *const *rows, size_t stride,
                                   const fd_pillow_axis *axis, int32_t i) {
    if (is_whole(axis))
        blend_with(out, rows, stride, axis, i, 1);
    else
        blend_with(out, rows, stride, axis, i, 0);
}
