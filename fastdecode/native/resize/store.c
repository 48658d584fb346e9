/* store.c: stores rows of pixels as values, in the form that the caller asked for: those of an image, or of
 * one that is cut into patches. */
#include "kernels.h"

#include <string.h>

/* ---- values ---- */

/* How the levels of a channel become values: by a table, or if that is NULL by scale and bias. */
typedef struct {
    const float *table;
    float scale, bias;
} mapping;

INLINE mapping mapping_of(const fd_pixels *form, size_t c) {
    const float *table = form->table == NULL ? NULL : form->table + 256 * c;

    return (mapping){table, form->scale[c], form->bias[c]};
}

/* Scale a value and add the bias, rounding after each of the two operations. */
INLINE float scaled(uint32_t value, float scale, float bias) {
    float product = (float)(int32_t)value * scale;

    return product + bias;
}

/* The nearest number with the upper 16 bits of a float, to even; of finite ones. */
INLINE uint16_t to_bfloat16(float value) {
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Channel c of pixel i. Reading the pixel as one number lets the compiler vectorise, which a table does not. */
INLINE uint32_t channel(const uint8_t *rgbx, size_t i, size_t c, int looks_up) {
    uint32_t pixel;

    if (looks_up)
        return rgbx[4 * i + c];
    memcpy(&pixel, rgbx + 4 * i, sizeof pixel);
    return pixel >> (FIRST_IS_LOW ? 8 * c : 24 - 8 * c) & 255u;
}

/* Store a level as value `at`. `dtype`, and whether `looks_up`, are compile-time constants. */
INLINE void put(void *restrict out, size_t at, uint32_t level, mapping by, int dtype,
                int looks_up) {
    float value = looks_up ? by.table[level] : scaled(level, by.scale, by.bias);

    if (dtype == FD_FLOAT32)
        ((float *)out)[at] = value;
    else if (dtype == FD_BFLOAT16)
        ((uint16_t *)out)[at] = to_bfloat16(value);
    else
        ((uint8_t *)out)[at] = (uint8_t)level;
}

INLINE size_t bytes_of(int dtype) { return dtype == FD_FLOAT32 ? 4 : dtype == FD_BFLOAT16 ? 2 : 1; }

enum { FOUR = 4 };
typedef float floats __attribute__((vector_size(4 * FOUR)));
typedef uint32_t words __attribute__((vector_size(4 * FOUR)));
typedef uint16_t halves __attribute__((vector_size(2 * FOUR)));

/* Store the values of four pixels, that a table has for their channels. */
INLINE void put_four(void *restrict out, size_t at, const uint8_t *restrict levels,
                     const float *table, int dtype) {
    floats values = {table[levels[0]], table[levels[4]], table[levels[8]], table[levels[12]]};

    if (dtype == FD_FLOAT32) {
        memcpy((float *)out + at, &values, sizeof values);
        return;
    }
    words bits = (words)values;
    halves upper = __builtin_convertvector((bits + 0x7fff + (bits >> 16 & 1)) >> 16, halves);
    memcpy((uint16_t *)out + at, &upper, sizeof upper);
}

/* Store one channel, a value at each place of the plane. */
INLINE void store_plane(void *restrict out, const uint8_t *restrict rgbx, size_t c, mapping by,
                        size_t count, int dtype, int looks_up) {
    size_t done = 0;

    for (; looks_up && done + FOUR <= count; done += FOUR)
        put_four(out, done, rgbx + 4 * done + c, by.table, dtype);
    for (size_t i = done; i < count; i++)
        put(out, i, channel(rgbx, i, c, looks_up), by, dtype, looks_up);
}

INLINE void store_pixels(void *restrict out, const uint8_t *restrict rgbx, const fd_pixels *form,
                         size_t count, int dtype, int looks_up) {
    const mapping red = mapping_of(form, 0), green = mapping_of(form, 1),
                  blue = mapping_of(form, 2);
    uint8_t *bytes = out;

    for (size_t i = 0; dtype == FD_UINT8 && i < count; i++)
        for (size_t c = 0; c < 3; c++)
            bytes[3 * i + c] = rgbx[4 * i + c];
    for (size_t i = 0; dtype != FD_UINT8 && i < count; i++) {
        put(out, 3 * i, channel(rgbx, i, 0, looks_up), red, dtype, looks_up);
        put(out, 3 * i + 1, channel(rgbx, i, 1, looks_up), green, dtype, looks_up);
        put(out, 3 * i + 2, channel(rgbx, i, 2, looks_up), blue, dtype, looks_up);
    }
}

/* Store three planes at once: so each pixel is read once. */
INLINE void store_three(void *restrict reds, void *restrict greens, void *restrict blues,
                        const uint8_t *restrict rgbx, const fd_pixels *form, size_t count,
                        int dtype) {
    const mapping red = mapping_of(form, 0), green = mapping_of(form, 1),
                  blue = mapping_of(form, 2);

    for (size_t i = 0; i < count; i++) {
        put(reds, i, channel(rgbx, i, 0, 0), red, dtype, 0);
        put(greens, i, channel(rgbx, i, 1, 0), green, dtype, 0);
        put(blues, i, channel(rgbx, i, 2, 0), blue, dtype, 0);
    }
}

/* Store pixels; the planes lie `plane` values apart. */
INLINE void store_some(void *out, const uint8_t *rgbx, const fd_pixels *form, size_t plane,
                       size_t count, int dtype, int looks_up) {
    size_t channels = (size_t)form->channels, step = plane * bytes_of(dtype);

    if (channels == 3 && form->channels_first && dtype != FD_UINT8 && !looks_up)
        store_three(out, (char *)out + step, (char *)out + 2 * step, rgbx, form, count, dtype);
    else if (channels == 3 && !form->channels_first)
        store_pixels(out, rgbx, form, count, dtype, looks_up);
    else
        for (size_t c = 0; c < channels; c++)
            store_plane((char *)out + c * step, rgbx, c, mapping_of(form, c), count, dtype,
                        looks_up);
}

/* Call an inline function with the constants of a form as its last arguments. */
#define WITH_CONSTANTS(form, function, ...)                                                        \
    do {                                                                                           \
        if ((form)->dtype == FD_UINT8)                                                             \
            function(__VA_ARGS__, FD_UINT8, 0);                                                    \
        else if ((form)->dtype == FD_FLOAT32 && (form)->table == NULL)                             \
            function(__VA_ARGS__, FD_FLOAT32, 0);                                                  \
        else if ((form)->dtype == FD_FLOAT32)                                                      \
            function(__VA_ARGS__, FD_FLOAT32, 1);                                                  \
        else if ((form)->table == NULL)                                                            \
            function(__VA_ARGS__, FD_BFLOAT16, 0);                                                 \
        else                                                                                       \
            function(__VA_ARGS__, FD_BFLOAT16, 1);                                                 \
    } while (0)

FD_VARIANTS(void, fd_store,
            (void *out, const uint8_t *rgbx, const fd_pixels *form, size_t plane, size_t count),
            (out, rgbx, form, plane, count)) {
    if (form->channels == 4)
        memcpy(out, rgbx, 4 * count);
    else
        WITH_CONSTANTS(form, store_some, out, rgbx, form, plane, count);
}

size_t fd_value_size(const fd_pixels *form) { return bytes_of(form->dtype); }

/* ---- patches ---- */

/* How many steps each axis has, and how many values each step is. */
typedef struct {
    size_t counts[FD_PATCH_AXES], steps[FD_PATCH_AXES];
} layout;

static layout layout_of(const fd_pixels *form, size_t width, size_t height) {
    const fd_patches *how = &form->patches;
    size_t across = (size_t)how->width, down = (size_t)how->height, step = 1;
    layout of = {.counts = {[FD_PATCHES] = width / across * (height / down),
                            [FD_PLANES] = (size_t)form->channels,
                            [FD_REPEATS] = (size_t)how->repeats,
                            [FD_ROWS] = down,
                            [FD_COLUMNS] = across}};

    for (int i = FD_PATCH_AXES - 1; i >= 0; i--) {
        of.steps[how->order[i]] = step;
        step *= of.counts[how->order[i]];
    }
    return of;
}

int fd_can_be_cut(const fd_pixels *form, int32_t width, int32_t height) {
    const fd_patches *how = &form->patches;
    int64_t across = (int64_t)how->width * how->merge, down = (int64_t)how->height * how->merge;
    unsigned found = 0;

    if (how->width == 0 && how->height == 0)
        return 1;
    for (int i = 0; i < FD_PATCH_AXES; i++)
        found |= how->order[i] >= 0 && how->order[i] < FD_PATCH_AXES ? 1U << how->order[i] : 0;
    return how->width > 0 && how->height > 0 && how->merge > 0 && how->repeats > 0 &&
           found == (1U << FD_PATCH_AXES) - 1 && width % across == 0 && height % down == 0 &&
           (int64_t)width * height <= PTRDIFF_MAX / 12 / how->repeats;
}

/* Copy a few bytes; the last ones may be copied twice. */
INLINE void copy_run(char *restrict out, const char *restrict from, size_t count) {
    if (count < 8) {
        memcpy(out, from, count);
    } else if (count < 16) {
        memcpy(out, from, 8);
        memcpy(out + count - 8, from + count - 8, 8);
    } else {
        for (size_t i = 0; i < count - 16; i += 16)
            memcpy(out + i, from + i, 16);
        memcpy(out + count - 16, from + count - 16, 16);
    }
}

/* Repeat the rows of a patch, which are `length` bytes long, and `step` bytes apart. */
static void repeat(char *out, const char *rows, size_t length, size_t step, size_t count) {
    if (step == length)
        memcpy(out, rows, length * count);
    else
        for (size_t y = 0; y < count; y++)
            memcpy(out + step * y, rows + step * y, length);
}

/* Copy the rows of one plane, or of the pixels, of a patch, and then their repeats. */
INLINE void copy_rows(char *out, const char *from, size_t stride, const layout *of, size_t bytes,
                      size_t length) {
    size_t rows = of->counts[FD_ROWS], step = bytes * of->steps[FD_ROWS];

    for (size_t y = 0; y < rows; y++)
        copy_run(out + step * y, from + stride * y, length);
    for (size_t k = 1; k < of->counts[FD_REPEATS]; k++)
        repeat(out + bytes * k * of->steps[FD_REPEATS], out, length, step, rows);
}

/* Copy the values of one plane of one patch, which do not lie next to each other. */
INLINE void copy_values(char *out, const char *from, size_t stride, const layout *of,
                        size_t bytes) {
    const size_t *steps = of->steps;

    for (size_t y = 0; y < of->counts[FD_ROWS]; y++)
        for (size_t x = 0; x < of->counts[FD_COLUMNS]; x++)
            for (size_t k = 0; k < of->counts[FD_REPEATS]; k++) {
                size_t at = y * steps[FD_ROWS] + x * steps[FD_COLUMNS] + k * steps[FD_REPEATS];
                memcpy(out + bytes * at, from + stride * y + bytes * x, bytes);
            }
}

/* Copy a patch whose values in the band begin at `from`, and whose planes lie `plane` bytes apart there. */
INLINE void copy_patch(char *out, const char *from, size_t stride, size_t plane,
                       const fd_pixels *form, const layout *of) {
    size_t bytes = fd_value_size(form), columns = of->counts[FD_COLUMNS];
    size_t planes = form->channels_first ? of->counts[FD_PLANES] : 1;
    size_t values = form->channels_first ? 1 : of->counts[FD_PLANES];

    for (size_t c = 0; c < planes; c++) {
        if (of->steps[FD_COLUMNS] == values)
            copy_rows(out, from, stride, of, bytes, bytes * columns * values);
        else if (bytes == 4)
            copy_values(out, from, stride, of, 4);
        else
            copy_values(out, from, stride, of, bytes == 2 ? 2 : 1);
        out += bytes * of->steps[FD_PLANES];
        from += plane;
    }
}

/* Memory is written in the order of the patches, because most of it comes from no cache. The layouts that there
 * are (transformers 5.24; of a patch, from the outermost axis on):
 *
 *   channel, repeat, row, column: Qwen2-VL, GLM-4V, Kimi-K2.5, …
 *   repeat, channel, row, column: Muse Glimmer
 *   row, column, channel:         SigLIP2, LFM2-VL, Gemma 4, …
 *   row, column, channel, repeat: Cosmos3-Edge
 *
 * and in MiniCPM-V channel, row, patch, column. */
FD_VARIANTS(void, fd_cut,
            (char *out, const char *band, const fd_pixels *form, size_t width, size_t height,
             size_t y),
            (out, band, form, width, height, y)) {
    const layout of = layout_of(form, width, height);
    size_t bytes = fd_value_size(form), merge = (size_t)form->patches.merge;
    size_t across = width / of.counts[FD_COLUMNS], rows = of.counts[FD_ROWS];
    size_t value = bytes * (form->channels_first ? 1 : of.counts[FD_PLANES]);
    size_t stride = value * width, plane = stride * rows * merge;

    out += bytes * of.steps[FD_PATCHES] * across * merge * y;
    for (size_t left = 0; left < across; left += merge)
        for (size_t i = 0; i < merge * merge; i++, out += bytes * of.steps[FD_PATCHES]) {
            size_t column = (left + i % merge) * of.counts[FD_COLUMNS], row = i / merge * rows;
            copy_patch(out, band + stride * row + value * column, stride, plane, form, &of);
        }
}

size_t fd_band_height(const fd_pixels *form) {
    return (size_t)form->patches.height * (size_t)form->patches.merge;
}

int fd_cuts_planes(const fd_pixels *form, int32_t width, int32_t height) {
    const layout of = layout_of(form, (size_t)width, (size_t)height);

    return of.steps[FD_PLANES] != 1 || of.steps[FD_COLUMNS] != of.counts[FD_PLANES];
}
