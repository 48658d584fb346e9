/* squeeze_simd.h: the resampler's loop over the columns of a row (kernels.c) in vectors. */

/* Four results at a time; with two lanes, results i and i + 4 of a group share a vector, so that
 * all are stored in order. `pairs` is a compile-time constant if it is small. */
SIMD void squeeze_some(uint8_t *out, const int16_t *row, const fd_columns *columns, int32_t pairs) {
    const int32_t shift = columns->shift;
    const int16_t *of_group = columns->weights;
    for (int32_t g = 0; g < columns->groups; g++, of_group += 2 * FD_GROUP * pairs) {
        for (int h = 0; h < FD_GROUP; h += 4 * LANES) {
            const int32_t *first = columns->first + (ptrdiff_t)g * FD_GROUP + h;
            const int16_t *weights = of_group + 2 * h, *pixel[8];
            ints sum[4] = {{0}, {0}, {0}, {0}};
            for (int i = 0; i < 4 * LANES; i++)
                pixel[i] = row + 4 * (ptrdiff_t)first[i];
            for (int32_t k = 0; k < pairs; k++, weights += 2 * FD_GROUP) {
                shorts of_all = load(weights);
                for (int i = 0; i < 4; i++) {
                    const int16_t *other = pixel[i + 4 * (LANES - 1)];
                    shorts pixels = load_blocks(pixel[i] + 8 * (ptrdiff_t)k,
                                                other + 8 * (ptrdiff_t)k);
                    sum[i] = plus_weighted(sum[i], pixels, of_all, i);
                }
            }
            wide left = {sum[0] >> shift, sum[1] >> shift};
            wide right = {sum[2] >> shift, sum[3] >> shift};
            store(out, unsigned_bytes(narrow(left, 0), narrow(right, 0), 0));
            out += 16 * LANES;
        }
    }
}

SIMD_TARGET static void squeeze(uint8_t *out, const int16_t *row, const fd_columns *columns) {
    switch (columns->pairs) {
    case 1:
        squeeze_some(out, row, columns, 1);
        break;
    case 2:
        squeeze_some(out, row, columns, 2);
        break;
    default:
        squeeze_some(out, row, columns, columns->pairs);
    }
}
