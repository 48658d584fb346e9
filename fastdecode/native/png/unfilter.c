/* unfilter.c: the filters of PNG (9.2 of the specification), byte by byte. */
#include "png_decoder.h"

#include <stdlib.h>
#include <string.h>

static void none(uint8_t *out, const uint8_t *in, const uint8_t *above, size_t size, size_t step) {
    (void)above, (void)step;
    memcpy(out, in, size);
}

static void sub(uint8_t *out, const uint8_t *in, const uint8_t *above, size_t size, size_t step) {
    (void)above;
    for (size_t i = 0; i < size; i++)
        out[i] = (uint8_t)(in[i] + (i < step ? 0 : out[i - step]));
}

static void up(uint8_t *out, const uint8_t *in, const uint8_t *above, size_t size, size_t step) {
    (void)step;
    for (size_t i = 0; i < size; i++)
        out[i] = (uint8_t)(in[i] + above[i]);
}

static void average(uint8_t *out, const uint8_t *in, const uint8_t *above, size_t size,
                    size_t step) {
    for (size_t i = 0; i < size; i++)
        out[i] = (uint8_t)(in[i] + ((i < step ? 0 : out[i - step]) + above[i]) / 2);
}

static int predicted(int left, int above, int corner) {
    int to_left = abs(above - corner), to_above = abs(left - corner);
    int to_corner = abs(left + above - 2 * corner);

    if (to_left <= to_above && to_left <= to_corner)
        return left;
    return to_above <= to_corner ? above : corner;
}

static void paeth(uint8_t *out, const uint8_t *in, const uint8_t *above, size_t size, size_t step) {
    for (size_t i = 0; i < step && i < size; i++)
        out[i] = (uint8_t)(in[i] + above[i]);
    for (size_t i = step; i < size; i++)
        out[i] = (uint8_t)(in[i] + predicted(out[i - step], above[i], above[i - step]));
}

const fd_unfilters fd_unfilters_plain = {{none, sub, up, average, paeth}, NULL};
