/* augment.c: augmentations of a crop in memory, with the results of Pillow.
 *
 * An operation changes the pixels in place, or writes to the second buffer and swaps. Its arithmetic is
 * Pillow's (ImageEnhance, ImageOps): floats are float32 and truncated where Pillow's are.
 */
#include "augment.h"

#include <math.h>
#include <stdlib.h>

enum { LARGEST_SIDE = 65500, LARGEST_IMAGE = 1 << 29 /* pixels */ };

struct fd_augmenter {
    fd_canvas canvas;
    fd_mixing mixing;
    fd_resampler *resampler; /* made when it is first needed */
};

/* ---- blending ---- */

/* ImagingBlend: in float32, truncated. */
INLINE uint32_t mix(int32_t from, int32_t to, float factor) {
    return fd_level((int32_t)((float)from + factor * (float)(to - from)));
}

/* Blend two pixels, channel by channel. Pixels as numbers of 32 bits let the compiler vectorise. */
INLINE void save_mix(uint8_t *pixels, size_t i, uint32_t from, uint32_t to, float factor) {
    fd_save_pixel(pixels, i, mix((int32_t)(from & 255), (int32_t)(to & 255), factor),
                  mix((int32_t)(from >> 8 & 255), (int32_t)(to >> 8 & 255), factor),
                  mix((int32_t)(from >> 16 & 255), (int32_t)(to >> 16 & 255), factor));
}

VARIANTS(mix_level, (uint8_t *restrict pixels, size_t count, uint32_t level, float factor),
         (pixels, count, level, factor)) {
    for (size_t i = 0; i < count; i++)
        save_mix(pixels, i, level * 0x010101, fd_load_pixel(pixels, i), factor);
}

static int brighten(fd_canvas *canvas, const fd_operation *how) {
    mix_level(canvas->pixels, fd_count_pixels(canvas), 0, (float)how->colour.amount);
    return FD_OK;
}

VARIANTS(mix_rows,
         (uint8_t *restrict out, const uint8_t *restrict from, const uint8_t *restrict to,
          size_t count, float factor),
         (out, from, to, count, factor)) {
    for (size_t i = 0; i < count; i++)
        save_mix(out, i, fd_load_pixel(from, i), fd_load_pixel(to, i), factor);
}

/* ---- luminance ---- */

/* Pillow's convert("L"). */
INLINE uint32_t luminance(uint32_t pixel) {
    return ((pixel & 255) * 19595 + (pixel >> 8 & 255) * 38470 + (pixel >> 16 & 255) * 7471 +
            0x8000) >>
           16;
}

/* The caller clears `sum`. Blocks keep the 32-bit sums of a block from overflowing. */
VARIANTS(add_luminance, (const uint8_t *restrict pixels, size_t count, uint64_t *sum),
         (pixels, count, sum)) {
    enum { BLOCK = 1 << 16 };

    for (size_t from = 0; from < count; from += BLOCK) {
        size_t end = count - from < BLOCK ? count : from + BLOCK;
        uint32_t part = 0;
        for (size_t i = from; i < end; i++)
            part += luminance(fd_load_pixel(pixels, i));
        *sum += part;
    }
}

VARIANTS(saturate_by, (uint8_t *restrict pixels, size_t count, float factor),
         (pixels, count, factor)) {
    for (size_t i = 0; i < count; i++) {
        uint32_t pixel = fd_load_pixel(pixels, i);
        save_mix(pixels, i, luminance(pixel) * 0x010101, pixel, factor);
    }
}

static int saturate(fd_canvas *canvas, const fd_operation *how) {
    saturate_by(canvas->pixels, fd_count_pixels(canvas), (float)how->colour.amount);
    return FD_OK;
}

VARIANTS(make_grey, (uint8_t *restrict pixels, size_t count), (pixels, count)) {
    for (size_t i = 0; i < count; i++) {
        uint32_t grey = luminance(fd_load_pixel(pixels, i));
        fd_save_pixel(pixels, i, grey, grey, grey);
    }
}

static int grey(fd_canvas *canvas, const fd_operation *how) {
    (void)how;
    make_grey(canvas->pixels, fd_count_pixels(canvas));
    return FD_OK;
}

static int change_contrast(fd_canvas *canvas, const fd_operation *how) {
    size_t count = fd_count_pixels(canvas);
    uint64_t sum = 0;

    add_luminance(canvas->pixels, count, &sum);
    uint32_t mean = (uint32_t)((double)sum / (double)count + 0.5);
    mix_level(canvas->pixels, count, mean, (float)how->colour.amount);
    return FD_OK;
}

/* ---- sharpness ---- */

/* Apply ImageFilter.SMOOTH to a row: the weights are 1, that of the centre is 5, and their sum is 13.
 * 5042 / 2^16 divides exactly by 13 up to 255 * 13 + 6. `sums` has room for a row. */
VARIANTS(smooth_row,
         (uint8_t *restrict out, const uint8_t *restrict row, size_t stride,
          uint16_t *restrict sums),
         (out, row, stride, sums)) {
    const uint8_t *above = row - stride, *below = row + stride;

    for (size_t i = 0; i < stride; i++)
        sums[i] = (uint16_t)(above[i] + row[i] + below[i]);
    for (size_t i = 4; i < stride - 4; i++) {
        uint16_t sum = (uint16_t)(sums[i - 4] + sums[i] + sums[i + 4] + 4 * row[i] + 6);
        out[i] = (uint8_t)(sum * 5042U >> 16);
    }
    memcpy(out, row, 4);
    memcpy(out + stride - 4, row + stride - 4, 4);
}

static int sharpen(fd_canvas *canvas, const fd_operation *how) {
    size_t width = (size_t)canvas->width, stride = 4 * width;
    uint16_t *sums = fd_room_for(&canvas->scratch, stride * sizeof *sums + stride);

    if (sums == NULL)
        return FD_NO_MEMORY;
    if (canvas->width < 3 || canvas->height < 3) /* Pillow smooths nothing */
        return FD_OK;
    uint8_t *smooth = (uint8_t *)(sums + stride);
    size_t last = (size_t)(canvas->height - 1) * stride;
    memcpy(canvas->other, canvas->pixels, stride);
    memcpy(canvas->other + last, canvas->pixels + last, stride);
    for (size_t at = stride; at < last; at += stride) {
        smooth_row(smooth, canvas->pixels + at, stride, sums);
        mix_rows(canvas->other + at, smooth, canvas->pixels + at, width, (float)how->colour.amount);
    }
    fd_canvas_swap(canvas);
    return FD_OK;
}

/* ---- one value to another ---- */

VARIANTS(invert_from, (uint8_t *restrict bytes, size_t count, uint8_t threshold),
         (bytes, count, threshold)) {
    for (size_t i = 0; i < count; i++) {
        uint8_t turned = (uint8_t)~bytes[i];
        bytes[i] = bytes[i] >= threshold ? turned : bytes[i];
    }
}

static int invert(fd_canvas *canvas, const fd_operation *how) {
    (void)how;
    invert_from(canvas->pixels, 4 * fd_count_pixels(canvas), 0);
    return FD_OK;
}

/* Pillow compares with the threshold as a float: values below it stay. */
static int solarize(fd_canvas *canvas, const fd_operation *how) {
    if (how->threshold <= 255.0)
        invert_from(canvas->pixels, 4 * fd_count_pixels(canvas),
                    (uint8_t)(how->threshold > 0.0 ? ceil(how->threshold) : 0));
    return FD_OK;
}

/* timm's SolarizeAdd. */
VARIANTS(lift_by, (uint8_t *restrict bytes, size_t count, uint32_t more), (bytes, count, more)) {
    for (size_t i = 0; i < count; i++) {
        uint32_t lifted = bytes[i] + more;
        bytes[i] = (uint8_t)(bytes[i] >= 128 ? bytes[i] : lifted > 255 ? 255 : lifted);
    }
}

static int lift(fd_canvas *canvas, const fd_operation *how) {
    lift_by(canvas->pixels, 4 * fd_count_pixels(canvas), (uint32_t)how->lift);
    return FD_OK;
}

VARIANTS(keep_bits, (uint8_t *restrict bytes, size_t count, uint8_t mask), (bytes, count, mask)) {
    for (size_t i = 0; i < count; i++)
        bytes[i] &= mask;
}

static int posterize(fd_canvas *canvas, const fd_operation *how) {
    keep_bits(canvas->pixels, 4 * fd_count_pixels(canvas), (uint8_t)(0xff00 >> (int)how->bits));
    return FD_OK;
}

void fd_look_up(uint8_t *pixels, size_t count, uint8_t (*tables)[256]) {
    for (size_t i = 0; i < count; i++) {
        uint32_t pixel = fd_load_pixel(pixels, i);
        fd_save_pixel(pixels, i, tables[0][pixel & 255], tables[1][pixel >> 8 & 255],
                      tables[2][pixel >> 16 & 255]);
    }
}

/* ---- autocontrast and equalize ---- */

VARIANTS(find_range, (const uint8_t *restrict pixels, size_t count, uint8_t *low, uint8_t *high),
         (pixels, count, low, high)) {
    enum { LANES = 64 };
    uint8_t least[LANES], most[LANES];
    size_t bytes = 4 * count, i = 0;

    memset(least, 255, sizeof least);
    memset(most, 0, sizeof most);
    for (; i + LANES <= bytes; i += LANES)
        for (size_t k = 0; k < LANES; k++) {
            least[k] = pixels[i + k] < least[k] ? pixels[i + k] : least[k];
            most[k] = pixels[i + k] > most[k] ? pixels[i + k] : most[k];
        }
    for (; i < bytes; i++) {
        least[i % 4] = pixels[i] < least[i % 4] ? pixels[i] : least[i % 4];
        most[i % 4] = pixels[i] > most[i % 4] ? pixels[i] : most[i % 4];
    }
    for (size_t k = 4; k < LANES; k++) {
        least[k % 4] = least[k] < least[k % 4] ? least[k] : least[k % 4];
        most[k % 4] = most[k] > most[k % 4] ? most[k] : most[k % 4];
    }
    memcpy(low, least, 4);
    memcpy(high, most, 4);
}

static int autocontrast(fd_canvas *canvas, const fd_operation *how) {
    uint8_t low[4], high[4], tables[3][256];
    size_t count = fd_count_pixels(canvas);

    find_range(canvas->pixels, count, low, high);
    for (int c = 0; c < 3; c++) {
        int is_flat = low[c] == high[c];
        double scale = is_flat ? 1.0 : 255.0 / (high[c] - low[c]);
        double offset = is_flat ? 0.0 : -low[c] * scale;
        float step = is_flat ? 1.0f : (float)(high[c] - low[c]) * (float)(1.0 / 255.0);
        for (int v = 0; v < 256; v++) {
            float part = (float)(is_flat ? v : v - low[c]) / step;
            int value = how->library == FD_TORCHVISION ? (int)part : (int)(v * scale + offset);
            tables[c][v] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
        }
    }
    fd_look_up(canvas->pixels, count, tables);
    return FD_OK;
}

void fd_count_levels(const uint8_t *pixels, size_t count, uint32_t (*counts)[256]) {
    enum { SETS = 4 }; /* neighbours are often equal, and counting in one place would wait */
    uint32_t sets[SETS][3][256];

    memset(sets, 0, sizeof sets);
    for (size_t i = 0; i < count; i++) {
        uint32_t pixel = fd_load_pixel(pixels, i);
        sets[i % SETS][0][pixel & 255]++;
        sets[i % SETS][1][pixel >> 8 & 255]++;
        sets[i % SETS][2][pixel >> 16 & 255]++;
    }
    for (int c = 0; c < 3; c++)
        for (int v = 0; v < 256; v++)
            counts[c][v] = sets[0][c][v] + sets[1][c][v] + sets[2][c][v] + sets[3][c][v];
}

static int equalize(fd_canvas *canvas, const fd_operation *how) {
    size_t count = fd_count_pixels(canvas);
    uint32_t counts[3][256];
    uint8_t tables[3][256];

    (void)how;
    fd_count_levels(canvas->pixels, count, counts);
    for (int c = 0; c < 3; c++) {
        uint32_t levels = 0, last = 0;
        for (int v = 0; v < 256; v++)
            if (counts[c][v]) {
                last = counts[c][v];
                levels++;
            }
        uint32_t step = levels > 1 ? ((uint32_t)count - last) / 255 : 0, sum = step / 2;
        for (int v = 0; v < 256; v++) {
            uint32_t value = step ? sum / step : (uint32_t)v;
            tables[c][v] = (uint8_t)(value > 255 ? 255 : value);
            sum += counts[c][v];
        }
    }
    fd_look_up(canvas->pixels, count, tables);
    return FD_OK;
}

/* ---- mirroring ---- */

FD_VARIANTS(void, fd_mirror_row, (uint8_t *restrict out, const uint8_t *restrict row, size_t width),
            (out, row, width)) {
    for (size_t x = 0; x < width; x++)
        memcpy(out + 4 * x, row + 4 * (width - 1 - x), 4);
}

static int mirror(fd_canvas *canvas, const fd_operation *how) {
    size_t width = (size_t)canvas->width;

    (void)how;
    for (size_t y = 0; y < (size_t)canvas->height; y++)
        fd_mirror_row(canvas->other + 4 * width * y, canvas->pixels + 4 * width * y, width);
    fd_canvas_swap(canvas);
    return FD_OK;
}

static int turn_over(fd_canvas *canvas, const fd_operation *how) {
    size_t stride = 4 * (size_t)canvas->width, height = (size_t)canvas->height;

    (void)how;
    for (size_t y = 0; y < height; y++)
        memcpy(canvas->other + stride * y, canvas->pixels + stride * (height - 1 - y), stride);
    fd_canvas_swap(canvas);
    return FD_OK;
}

VARIANTS(permute_as, (uint8_t *restrict pixels, size_t count, const double *restrict from),
         (pixels, count, from)) {
    uint32_t shifts[3];

    for (int c = 0; c < 3; c++)
        shifts[c] = 8 * (uint32_t)(FIRST_IS_LOW ? (int32_t)from[c] : 3 - (int32_t)from[c]);
    for (size_t i = 0; i < count; i++) {
        uint32_t pixel;
        memcpy(&pixel, pixels + 4 * i, sizeof pixel);
        for (int c = 0; c < 3; c++)
            pixels[4 * i + (size_t)c] = (uint8_t)(pixel >> shifts[c]);
    }
}

static int permute(fd_canvas *canvas, const fd_operation *how) {
    permute_as(canvas->pixels, fd_count_pixels(canvas), how->channels);
    return FD_OK;
}

/* ---- the interface ---- */

void fd_canvas_swap(fd_canvas *canvas) {
    uint8_t *pixels = canvas->other;
    fd_room room = canvas->rooms[1];

    canvas->other = canvas->pixels;
    canvas->pixels = pixels;
    canvas->rooms[1] = canvas->rooms[0];
    canvas->rooms[0] = room;
}

void fd_canvas_become(fd_canvas *canvas) {
    fd_canvas_swap(canvas);
    canvas->width = canvas->out_width;
    canvas->height = canvas->out_height;
}

/* Find the size of an operation's result, and memory for it. */
static int prepare(fd_canvas *canvas, const fd_operation *operation) {
    canvas->out_width = canvas->width;
    canvas->out_height = canvas->height;
    if (!fd_resized_by(operation, &canvas->out_width, &canvas->out_height) ||
        canvas->out_width > LARGEST_SIDE || canvas->out_height > LARGEST_SIDE ||
        (int64_t)canvas->out_width * canvas->out_height > LARGEST_IMAGE)
        return FD_ARGUMENT;
    size_t size = 4 * (size_t)canvas->out_width * (size_t)canvas->out_height + FD_PADDING;
    canvas->other = fd_room_for(&canvas->rooms[1], size);
    return canvas->other == NULL ? FD_NO_MEMORY : FD_OK;
}

/* What applies an operation: for Pillow's result, torchvision's and OpenCV's; NULL is as Pillow. */
static fd_apply *const APPLY[][3] = {
    [FD_BRIGHTNESS] = {brighten},
    [FD_CONTRAST] = {change_contrast, fd_tensor_contrast, fd_opencv_contrast},
    [FD_SATURATION] = {saturate, fd_tensor_saturate, fd_opencv_saturate},
    [FD_HUE] = {fd_shift_hue, fd_tensor_hue},
    [FD_SHARPNESS] = {sharpen},
    [FD_GREY] = {grey, fd_tensor_grey, fd_opencv_grey},
    [FD_INVERT] = {invert},
    [FD_SOLARIZE] = {solarize},
    [FD_SOLARIZE_ADD] = {lift},
    [FD_POSTERIZE] = {posterize},
    [FD_EQUALIZE] = {equalize, equalize, fd_opencv_equalize},
    [FD_AUTOCONTRAST] = {autocontrast},
    [FD_BLUR] = {fd_blur},
    [FD_BOX_BLUR] = {fd_box_blur},
    [FD_MIRROR] = {mirror},
    [FD_TURN_OVER] = {turn_over},
    [FD_WARP] = {fd_warp},
    [FD_ROTATE] = {fd_rotate},
    [FD_AFFINE] = {fd_affine},
    [FD_PERMUTE] = {permute},
    [FD_PERSPECTIVE] = {fd_perspective, fd_perspective, fd_remap},
    [FD_CROP] = {fd_crop},
    [FD_PAD] = {fd_pad},
    [FD_LEVELS] = {NULL, NULL, fd_levels},
    [FD_SHIFT_COLOURS] = {NULL, NULL, fd_shift_colours},
    [FD_FILL] = {fd_fill_box},
    [FD_NOISE] = {NULL, NULL, fd_add_noise},
    [FD_MEAN_BLUR] = {fd_mean_blur},
    [FD_CLAHE] = {fd_clahe},
    [FD_CHANNELS] = {NULL, NULL, fd_scale_channels},
    [FD_GAMMA] = {NULL, NULL, fd_gamma},
    [FD_CONVOLVE] = {fd_convolve},
    [FD_MEDIAN] = {fd_median},
    [FD_DOWNSCALE] = {fd_downscale},
    [FD_LENS] = {fd_remap},
    [FD_GRID] = {fd_remap},
    [FD_ELASTIC] = {fd_remap},
};

static int run(fd_augmenter *augmenter, const fd_operation *how) {
    fd_canvas *canvas = &augmenter->canvas;
    int32_t library = how->library == FD_TORCHVISION || how->library == FD_OPENCV ? how->library
                                                                                  : FD_PILLOW;

    if (how->kind >= FD_MIX_BEGIN && how->kind <= FD_MIX_END)
        return fd_mix(canvas, &augmenter->mixing, how);
    if (how->kind == FD_RESIZE) {
        if (augmenter->resampler == NULL)
            augmenter->resampler = fd_resampler_create();
        return augmenter->resampler == NULL ? FD_NO_MEMORY
                                            : fd_scale(canvas, augmenter->resampler, how);
    }
    if (how->kind < 0 || how->kind >= (int32_t)(sizeof APPLY / sizeof *APPLY))
        return FD_ARGUMENT;
    fd_apply *const *apply = APPLY[how->kind], *own = apply[library];
    own = own == NULL ? apply[FD_PILLOW] : own;
    return own == NULL ? FD_ARGUMENT : own(canvas, how);
}

int fd_augmenter_begin(fd_augmenter *augmenter, int32_t width, int32_t height, uint8_t **pixels) {
    size_t size = 4 * (size_t)width * (size_t)height + FD_PADDING;

    if (width < 1 || height < 1 || width > LARGEST_SIDE || height > LARGEST_SIDE)
        return FD_ARGUMENT;
    fd_canvas *canvas = &augmenter->canvas;
    canvas->pixels = fd_room_for(&canvas->rooms[0], size);
    canvas->width = width;
    canvas->height = height;
    *pixels = canvas->pixels;
    return canvas->pixels != NULL ? FD_OK : FD_NO_MEMORY;
}

int fd_augmenter_run(fd_augmenter *augmenter, const fd_operation *operations, size_t count,
                     const uint8_t **pixels, int32_t *width, int32_t *height) {
    augmenter->mixing.is_begun = 0;
    for (size_t i = 0, done = 1; i < count; i += done, done = 1) {
        int status = fd_is_good(&operations[i]) ? prepare(&augmenter->canvas, &operations[i])
                                                : FD_ARGUMENT;
        if (status == FD_OK && operations[i].library == FD_FLOATS)
            status = fd_run_floats(&augmenter->canvas, &operations[i], count - i, &done);
        else if (status == FD_OK)
            status = run(augmenter, &operations[i]);
        if (status != FD_OK)
            return status;
    }
    *pixels = augmenter->canvas.pixels;
    *width = augmenter->canvas.width;
    *height = augmenter->canvas.height;
    return augmenter->mixing.is_begun ? FD_ARGUMENT : FD_OK;
}

int fd_augment_rgb(fd_augmenter *augmenter, const uint8_t *rgb, int32_t width, int32_t height,
                   const fd_operation *operations, size_t count, uint8_t *out) {
    uint8_t *pixels;
    const uint8_t *result;

    if (augmenter == NULL || rgb == NULL || out == NULL || (operations == NULL && count > 0))
        return FD_ARGUMENT;
    int status = fd_augmenter_begin(augmenter, width, height, &pixels);
    if (status != FD_OK)
        return status;
    size_t all = (size_t)width * (size_t)height;
    for (size_t i = 0; i < all; i++)
        memcpy(pixels + 4 * i, rgb + 3 * i, 3);
    status = fd_augmenter_run(augmenter, operations, count, &result, &width, &height);
    all = (size_t)width * (size_t)height;
    for (size_t i = 0; status == FD_OK && i < all; i++)
        memcpy(out + 3 * i, result + 4 * i, 3);
    return status;
}

fd_augmenter *fd_augmenter_create(void) { return calloc(1, sizeof(fd_augmenter)); }

void fd_augmenter_destroy(fd_augmenter *augmenter) {
    if (augmenter == NULL)
        return;
    fd_room_free(&augmenter->canvas.rooms[0]);
    fd_room_free(&augmenter->canvas.rooms[1]);
    fd_resampler_destroy(augmenter->resampler);
    fd_room_free(&augmenter->canvas.scratch);
    fd_room_free(&augmenter->mixing.sums_room);
    fd_room_free(&augmenter->mixing.kept_room);
    free(augmenter);
}
