/* unfilter_simd.h: the filters of unfilter.c in vectors of 16 bytes, a pixel or a vector at a time. Rows
 * are read and written up to FD_ROW_PADDING bytes past their ends. */

/* `step` is a constant in all of these. The pixel's bytes come first, others follow. */
SIMD shorts read_pixel(const uint8_t *at, size_t step) {
    int64_t eight = 0;
    memcpy(&eight, at, step > 4 ? 8 : 4);
    return (shorts)(longs){eight, 0};
}

SIMD void write_pixel(uint8_t *at, shorts pixel, size_t step) {
    int64_t eight = ((longs)pixel)[0];
    memcpy(at, &eight, step > 4 ? 8 : step < 3 ? step : 4);
}

/* Without carry from byte to byte. */
SIMD shorts byte_sum(shorts a, shorts b) { return (shorts)((bytes)a + (bytes)b); }

/* ---- Sub, Up and Average ---- */

SIMD void sub_row(uint8_t *out, const uint8_t *in, size_t size, size_t step) {
    shorts left = {0};
#ifdef SIMD_LOOKUP
    /* Small pixels: sums of those before, within 16 bytes, in four steps, each of which doubles how far they
     * reach; then the last of the bytes before is added. */
    const size_t whole = 16 / step * step;
    uint8_t order[16];
    for (size_t i = 0; i < 16; i++)
        order[i] = (uint8_t)(whole - step + i % step);
    const shorts last = load(order);
    for (size_t i = 0; step <= 3 && i < size; i += whole) {
        shorts sums = load(in + i);
        if (step == 1)
            sums = byte_sum(sums, BYTES_UP(sums, 1));
        sums = byte_sum(sums, step < 3 ? BYTES_UP(sums, 2) : BYTES_UP(sums, 3));
        sums = byte_sum(sums, step < 3 ? BYTES_UP(sums, 4) : BYTES_UP(sums, 6));
        sums = byte_sum(sums, step < 3 ? BYTES_UP(sums, 8) : BYTES_UP(sums, 12));
        sums = byte_sum(sums, left);
        store(out + i, sums);
        left = SIMD_LOOKUP(sums, last);
    }
    if (step <= 3)
        return;
#endif
    for (size_t i = 0; i < size; i += step) {
        left = byte_sum(left, read_pixel(in + i, step));
        write_pixel(out + i, left, step);
    }
}

SIMD void average_row(uint8_t *out, const uint8_t *in, const uint8_t *above, size_t size,
                      size_t step) {
    shorts left = {0};
    for (size_t i = 0; i < size; i += step) {
        shorts mean = mean_of_bytes(left, read_pixel(above + i, step));
        left = byte_sum(read_pixel(in + i, step), mean);
        write_pixel(out + i, left, step);
    }
}

/* ---- Paeth ---- */

/* PNG, 9.4: the neighbour (left, above, corner) that is nearest to left + above - corner, in that order at a
 * tie. The distances are |above - corner|, |left - corner| and |left + above - 2 corner|.
 *
 * One pixel, 16 bits for each byte. Only what depends on `left`, the result for the pixel before,
 * decides how long a pixel takes. */
SIMD shorts paeth_pixel(shorts data, shorts left, shorts above, shorts corner) {
    shorts to_left = distance(above, corner), to_above = distance(left, corner);
    shorts to_corner = distance(left, corner + corner - above);
    shorts best = chosen(to_left > to_above, byte_sum(data, above), byte_sum(data, left));
    return chosen(least(to_left, to_above) > to_corner, byte_sum(data, corner), best);
}

SIMD void paeth_row(uint8_t *out, const uint8_t *in, const uint8_t *above, size_t size,
                    size_t step) {
    shorts left = {0}, corner = {0};
    for (size_t i = 0; i < size; i += step) {
        shorts top = low_bytes(read_pixel(above + i, step));
        left = paeth_pixel(low_bytes(read_pixel(in + i, step)), left, top, corner);
        corner = top;
        write_pixel(out + i, unsigned_bytes(left, left, 0), step);
    }
}

/* The lower row follows one pixel behind the upper one, in the other half of the same vectors. */
SIMD void two_rows(uint8_t *upper, uint8_t *lower, const uint8_t *in, const uint8_t *in_lower,
                   const uint8_t *above, size_t size, size_t step) {
    const shorts zero = {0};
    shorts top = low_bytes(read_pixel(above, step));
    shorts left = paeth_pixel(low_bytes(read_pixel(in, step)), zero, top, zero), corner = top;
    write_pixel(upper, unsigned_bytes(left, left, 0), step);
    for (size_t i = step; i < size; i += step) {
        uint8_t two[8];
        memcpy(two, in + i, 4);
        memcpy(two + 4, in_lower + i - step, 4);
        top = low_64(low_bytes(read_pixel(above + i, step)), left);
        left = paeth_pixel(low_bytes(read_pixel(two, 8)), left, top, corner);
        corner = top;
        write_pixel(two, unsigned_bytes(left, left, 0), 8);
        memcpy(upper + i, two, 4);
        memcpy(lower + i - step, two + 4, 4);
    }
    shorts data = low_64(zero, low_bytes(read_pixel(in_lower + size - step, step)));
    left = paeth_pixel(data, left, low_64(zero, left), corner);
    left = high_64(left, left);
    write_pixel(lower + size - step, unsigned_bytes(left, left, 0), step);
}

/* ---- by kind ---- */

/* One function for each distance between pixels, so that it is a constant. */
#define FOR_EACH_STEP(call)                                                                        \
    step == 1   ? call(1)                                                                          \
    : step == 2 ? call(2)                                                                          \
    : step == 3 ? call(3)                                                                          \
    : step == 4 ? call(4)                                                                          \
    : step == 6 ? call(6)                                                                          \
                : call(8)

SIMD_TARGET static void none(uint8_t *out, const uint8_t *in, const uint8_t *above, size_t size,
                             size_t step) {
    (void)above, (void)step;
    memcpy(out, in, size);
}

SIMD_TARGET static void sub(uint8_t *out, const uint8_t *in, const uint8_t *above, size_t size,
                            size_t step) {
    (void)above;
#define SUB(n) sub_row(out, in, size, n)
    FOR_EACH_STEP(SUB);
}

SIMD_TARGET static void up(uint8_t *out, const uint8_t *in, const uint8_t *above, size_t size,
                           size_t step) {
    (void)step;
    for (size_t i = 0; i < size; i += SIMD_BYTES)
        store(out + i, byte_sum(load(in + i), load(above + i)));
}

SIMD_TARGET static void average(uint8_t *out, const uint8_t *in, const uint8_t *above, size_t size,
                                size_t step) {
#define AVERAGE(n) average_row(out, in, above, size, n)
    FOR_EACH_STEP(AVERAGE);
}

SIMD_TARGET static void paeth(uint8_t *out, const uint8_t *in, const uint8_t *above, size_t size,
                              size_t step) {
#define PAETH(n) paeth_row(out, in, above, size, n)
    FOR_EACH_STEP(PAETH);
}

SIMD_TARGET
static void two_paeth(uint8_t *out, size_t out_stride, const uint8_t *in, size_t in_stride,
                      const uint8_t *above, size_t size, size_t step) {
    if (step == 3)
        two_rows(out, out + out_stride, in, in + in_stride, above, size, 3);
    else
        two_rows(out, out + out_stride, in, in + in_stride, above, size, 4);
}

const fd_unfilters SIMD_SET(fd_unfilters) = {{none, sub, up, average, paeth}, two_paeth};
