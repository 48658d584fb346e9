/* fuzz_program.c: random programs of augmentations on images of any size, for libFuzzer.
 *
 * The bytes of the input are choices: an image, a resize, a program or operations, and the form of the
 * result. What a program draws must follow from the state of the random numbers alone. All instruction
 * sets must give the same bytes, in new memory or used; and what is refused must write nothing.
 *
 * With -DALONE it takes a number of inputs instead, makes them, and prints a checksum of all results, which
 * must be the same on every processor.
 */
#include "fastdecode.h"

#include "must.h"
#include "sets.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SIDE = 300, MOST_STEPS = 48, MOST_DRAWN = 3, UNTOUCHED = 0xA5 };

/* The choices that are left. After the last one they go on at random, so that short inputs are whole
 * programs, too. */
typedef struct {
    const uint8_t *at, *end;
    uint32_t state;
} choices;

static fd_augmenter *augmenter; /* used again, as the threads of a pool do */
static fd_resampler *resampler;

static uint32_t take(choices *from) {
    uint32_t next = from->at < from->end ? *from->at++ : from->state >> 24;

    from->state = (from->state + next) * 1664525 + 1013904223;
    return next;
}

static uint32_t take_two(choices *from) {
    uint32_t low = take(from);
    return low | take(from) << 8;
}

static int32_t below(choices *from, int32_t limit) {
    return (int32_t)(take_two(from) % (uint32_t)limit);
}

static double between(choices *from, double low, double high) {
    return low + (high - low) * take_two(from) / 65535;
}

/* Any number, NaN and infinity among them. */
static double any_number(choices *from) {
    uint64_t bits = 0;
    double number;

    for (size_t i = 0; i < sizeof number; i++)
        bits |= (uint64_t)take(from) << 8 * i;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* ---- programs ---- */

/* The limits of the first value of each kind of operation. */
static const struct {
    double low, high;
} LIMITS[] = {
    [FD_BRIGHTNESS] = {0, 4},     [FD_CONTRAST] = {0, 4},    [FD_SATURATION] = {0, 4},
    [FD_HUE] = {-0.5, 0.5},       [FD_SHARPNESS] = {0, 4},   [FD_SOLARIZE] = {0, 256},
    [FD_SOLARIZE_ADD] = {0, 255}, [FD_POSTERIZE] = {0, 8},   [FD_BOX_BLUR] = {0, 60},
    [FD_ROTATE] = {-720, 720},    [FD_AFFINE] = {-400, 400}, [FD_MIX_BEGIN] = {0, 1},
    [FD_MIX_ADD] = {0, 1},        [FD_MIX_END] = {0, 1},     [FD_ERASE] = {0, MOST_SIDE},
    [FD_PERSPECTIVE] = {-2, 2},   [FD_RESIZE] = {0, 99},     [FD_CROP] = {0, 20},
    [FD_PAD] = {0, 30},           [FD_LEVELS] = {-1, 4},     [FD_SHIFT_COLOURS] = {-400, 400},
    [FD_FILL] = {0, 20},          [FD_NOISE] = {0, 300},     [FD_MEAN_BLUR] = {2, 12},
    [FD_CLAHE] = {0, 50},         [FD_CHANNELS] = {-1, 4},   [FD_GAMMA] = {0, 4},
    [FD_CONVOLVE] = {0, 1},       [FD_MEDIAN] = {2, 6},      [FD_DOWNSCALE] = {0, 1.1},
    [FD_LENS] = {-2, 2},          [FD_GRID] = {0, 12},       [FD_ELASTIC] = {0, 99},
};

/* Numbers that the operation takes, or nearly: some are beyond what an image of this size allows. */
static void choose_values(choices *from, fd_operation *operation) {
    double *value = operation->value;

    value[0] = between(from, LIMITS[operation->kind].low, LIMITS[operation->kind].high);
    switch (operation->kind) {
    case FD_POSTERIZE:
        value[0] = floor(value[0]);
        break;
    case FD_BLUR:
        value[0] = 2 * below(from, take(from) & 7 ? 8 : 128) + 1;
        value[1] = between(from, 0.01, 20);
        value[2] = between(from, 0.01, 20);
        break;
    case FD_WARP:
        for (int i = 0; i < 6; i++)
            value[i] = i % 3 == 2 ? between(from, -400, 400) : between(from, -2, 2);
        if (take(from) & 1)
            value[1] = value[3] = 0;
        break;
    case FD_AFFINE:
        value[1] = floor(between(from, -MOST_SIDE, MOST_SIDE));
        value[2] = floor(between(from, -MOST_SIDE, MOST_SIDE));
        value[3] = between(from, 0.01, 4);
        value[4] = between(from, -95, 95);
        value[5] = between(from, -95, 95);
        value[6] = between(from, 0.01, 4);
        value[7] = below(from, 5);
        break;
    case FD_PERMUTE:
        for (int i = 0; i < 3; i++)
            value[i] = below(from, take(from) < 16 ? 4 : 3);
        break;
    case FD_ERASE:
        for (int i = 1; i < 4; i++)
            value[i] = floor(between(from, 0, MOST_SIDE));
        break;
    case FD_ROTATE:
        for (int i = 1; i < 4; i++)
            value[i] = i == 1 ? below(from, 3) : between(from, -MOST_SIDE, MOST_SIDE);
        break;
    case FD_PERSPECTIVE:
        for (int i = 1; i < FD_VALUES; i++)
            value[i] = i > 5 ? between(from, -0.1, 0.1) : between(from, -30, 30);
        break;
    case FD_LEVELS:
    case FD_SHIFT_COLOURS:
    case FD_NOISE:
        for (int i = 1; i < 4; i++)
            value[i] = between(from, -60, 60);
        break;
    case FD_MEAN_BLUR:
        for (int i = 1; i < 5; i++)
            value[i] = between(from, i == 1 ? -400 : -2, i == 1 ? 400 : 2);
        value[5] = take(from) & 1;
        break;
    case FD_CHANNELS:
    case FD_CONVOLVE:
        for (int i = 1; i < 6; i++)
            value[i] = between(from, -2, i < 3 ? 4 : 300);
        break;
    case FD_LENS:
    case FD_GRID:
    case FD_ELASTIC:
        value[1] = between(from, -0.5, operation->kind == FD_ELASTIC ? 9 : 1);
        value[2] = between(from, 0, 1);
        value[3] = take(from) & 1;
        value[4] = below(from, 20);
        value[7] = below(from, 5);
        break;
    case FD_CLAHE:
        value[1] = below(from, 20);
        value[2] = below(from, 20);
        break;
    case FD_RESIZE:
    case FD_CROP:
    case FD_PAD:
    case FD_FILL:
        value[0] = floor(value[0]);
        for (int i = 1; i < 4; i++)
            value[i] = floor(between(from, 0, operation->kind == FD_RESIZE ? 99 : 20));
        break;
    default:
        break;
    }
}

static fd_operation choose_operation(choices *from) {
    fd_operation operation = {.kind = 1 + below(from, FD_ELASTIC),
                              .library = below(from, 3),
                              .filter = below(from, take(from) < 40 ? 9 : 3),
                              .noise = below(from, 3)};
    choose_values(from, &operation);
    for (int i = 0; i < 4; i++)
        operation.fill[i] = (uint8_t)take(from);
    operation.fill[3] &= 1;
    for (int i = 0; i < 3; i++)
        operation.level[i] = (float)between(from, -3, 3);
    operation.seed = take_two(from);
    if (take(from) < 6) { /* numbers that make no sense */
        int32_t at = below(from,
                           FD_VALUES); /* first, as every compiler must draw in the same order */
        operation.value[at] = any_number(from);
    }
    return operation;
}

typedef struct {
    fd_step steps[MOST_STEPS];
    fd_drawn drawn[MOST_STEPS][MOST_DRAWN];
    int32_t count;
} tree;

static fd_drawn choose_drawn(choices *from, const fd_operation *operation) {
    fd_drawn drawn = {.at = below(from, FD_VALUES),
                      .copied = below(from, FD_VALUES + 1) - 1,
                      .of = below(from, 3),
                      .is_whole = (int32_t)(take(from) & 1),
                      .is_rounded = (int32_t)(take(from) & 1),
                      .is_cut = (int32_t)(take(from) & 1),
                      .either_sign = (int32_t)(take(from) & 1),
                      .mean = between(from, 0, 1),
                      .deviation = between(from, -1, 1)};
    const double *value = operation->value;
    double unit = drawn.of ? MOST_SIDE : 1;
    drawn.start = value[drawn.at] / unit * between(from, -1, 1);
    drawn.range = value[drawn.at] / unit * between(from, -1, 1);
    if (take(from) < 3)
        drawn.range = any_number(from);
    if (take(from) < 2) /* a value that does not exist */
        drawn.at = below(from, 20) - 7;
    return drawn;
}

static void choose_numbers(choices *from, fd_step *step) {
    static const double ALPHAS[] = {0.1, 1.0, 30.0, 0.5};

    step->picks = below(from, 4);
    step->probability = between(from, 0, 2);
    step->weight = between(from, 0, 4);
    step->alpha = ALPHAS[below(from, 4)];
    for (int i = 0; i < 2; i++) {
        step->area[i] = between(from, 0, 1.2);
        step->aspect[i] = between(from, -3, 3);
    }
    if (take(from) < 6) {
        double *numbers[] = {&step->probability, &step->weight,  &step->alpha,
                             &step->area[0],     &step->area[1], &step->aspect[0]};
        double *number = numbers[below(from, 6)];
        *number = any_number(from);
    }
}

/* Add a step and those inside it. */
static void add_step(choices *from, tree *to, int depth) {
    int32_t at = to->count++;
    fd_step *step = &to->steps[at];

    memset(step, 0, sizeof *step);
    step->kind = depth > 2 ? FD_OPERATION : 1 + below(from, FD_PERSPECTIVE_CHANGE);
    choose_numbers(from, step);
    step->operation = choose_operation(from);
    if (step->kind == FD_ERASURE)
        step->operation.kind = FD_ERASE;
    if (step->kind == FD_OPERATION) {
        step->drawn_count = below(from, MOST_DRAWN + 1);
        for (int32_t i = 0; i < step->drawn_count; i++)
            to->drawn[at][i] = choose_drawn(from, &step->operation);
        step->drawn = to->drawn[at];
    } else if (step->kind > FD_ERASURE) {
        for (int i = 0; i < FD_VALUES; i++)
            step->operation.value[i] = floor(between(from, 0, i < 3 ? 60 : 5));
        if (step->kind == FD_BOX || step->kind == FD_PERSPECTIVE_CHANGE)
            for (int i = 0; i < 4; i++)
                step->operation.value[i] = between(from, 0, i == 3 ? 3 : 1);
        if (take(from) < 6) {
            int32_t odd = below(from, FD_VALUES);
            step->operation.value[odd] = any_number(from);
        }
    } else if (step->kind != FD_ERASURE) {
        int32_t children = below(from, 5);
        for (int32_t i = 0; i < children && to->count < MOST_STEPS; i++)
            add_step(from, to, depth + 1);
        step->inner = to->count - at - 1;
    }
    if (take(from) < 2) /* perhaps no tree any more */
        step->inner = below(from, MOST_STEPS) - 8;
}

/* Draw the operations of a program; return their number. */
static int32_t draw(choices *from, int32_t wide, int32_t high, fd_operation *operations) {
    int32_t width = wide, height = high;
    static tree made;
    fd_operation again[FD_MOST_OPERATIONS];
    uint64_t state = take_two(from), other = state;
    int32_t count = -1, count_again = -1, steps = 1 + below(from, 6);

    made.count = 0;
    for (int32_t i = 0; i < steps && made.count < MOST_STEPS; i++)
        add_step(from, &made, 0);
    size_t size = (size_t)made.count * sizeof *made.steps;
    fd_step *copy = must(malloc(size)); /* of the exact size, for ASan */
    memcpy(copy, made.steps, size);
    const fd_program program = {copy, made.count};
    memset(operations, 0, sizeof again);
    memset(again, 0, sizeof again);
    int status = fd_draw_operations(&program, &width, &height, &state, operations, &count);
    if (fd_draw_operations(&program, &wide, &high, &other, again, &count_again) != status)
        fail("the same state gives another status");
    free(copy);
    if (status != FD_OK && status != FD_ARGUMENT)
        fail("a status that drawing does not have");
    if (status != FD_OK)
        return 0;
    if (count < 0 || count > FD_MOST_OPERATIONS)
        fail("more operations than there is room for");
    if (width != wide || height != high)
        fail("the same state gives another size");
    if (count != count_again || state != other || memcmp(operations, again, sizeof again) != 0)
        fail("the same state gives other operations");
    return count;
}

/* ---- images ---- */

static uint8_t *choose_image(choices *from, int32_t width, int32_t height) {
    size_t size = 3 * (size_t)width * (size_t)height;
    uint8_t *pixels = must(malloc(size)); /* of the exact size, for ASan */
    uint32_t kind = take(from) % 4, low = take(from), state = take_two(from) | 1;
    uint32_t levels = kind == 0 ? 256 : kind == 1 ? 1 : 2 + take(from) % 16;

    for (size_t i = 0; i < size; i++) {
        state = state * 1664525 + 1013904223;
        uint32_t ramp = kind == 3 ? (uint32_t)(i / 3 % (size_t)width) : 0;
        pixels[i] = (uint8_t)(low + ramp + (state >> 16) % levels);
    }
    return pixels;
}

/* A box of the image, or all of it, and a rectangle of what it is resized to. */
static fd_resize choose_resize(choices *from, int32_t width, int32_t height, int32_t most,
                               int is_unchanged) {
    int32_t left = is_unchanged ? 0 : below(from, width),
            top = is_unchanged ? 0 : below(from, height);
    int32_t right = is_unchanged ? width : left + 1 + below(from, width - left);
    int32_t bottom = is_unchanged ? height : top + 1 + below(from, height - top);
    fd_resize resize = {.left = left,
                        .top = top,
                        .right = right,
                        .bottom = bottom,
                        .in_left = left,
                        .in_top = top,
                        .in_right = right,
                        .in_bottom = bottom,
                        .canvas_width = is_unchanged ? width : 1 + below(from, most),
                        .canvas_height = is_unchanged ? height : 1 + below(from, most),
                        .filter = below(from, FD_FILTER_NEAREST)};

    resize.width = resize.canvas_width;
    resize.height = resize.canvas_height;
    if (!is_unchanged) {
        resize.x = below(from, resize.canvas_width);
        resize.y = below(from, resize.canvas_height);
        resize.width = 1 + below(from, resize.canvas_width - resize.x);
        resize.height = 1 + below(from, resize.canvas_height - resize.y);
        resize.flip = (int32_t)(take(from) & 1);
    }
    return resize;
}

/* ---- promises ---- */

/* A call whose result has to be the same with every instruction set. */
typedef struct {
    const uint8_t *pixels;
    int32_t width, height;
    const fd_resize *resize; /* NULL: the operations alone */
    const fd_operation *operations;
    int32_t count;
    const fd_pixels *form;
    size_t size; /* of the result, in bytes */
} call;

/* Make the call with memory that was used before, or with new memory. */
static int make(const call *to, int is_new, uint8_t *out) {
    if (to->resize == NULL) {
        fd_augmenter *with = is_new ? must(fd_augmenter_create()) : augmenter;
        int status = fd_augment_rgb(with, to->pixels, to->width, to->height, to->operations,
                                    (size_t)to->count, out);
        if (is_new)
            fd_augmenter_destroy(with);
        return status;
    }
    fd_resampler *with = is_new ? must(fd_resampler_create()) : resampler;
    int status = fd_resize_rgb(with, to->pixels, to->width, to->height, 3, 3 * (ptrdiff_t)to->width,
                               to->resize, to->operations, to->count, to->form, out);
    if (is_new)
        fd_resampler_destroy(with);
    return status;
}

static uint64_t checksum;

/* The size of a value, in bytes. */
static size_t size_of(const fd_pixels *form) {
    return form->dtype == FD_FLOAT32 ? 4 : form->dtype == FD_BFLOAT16 ? 2 : 1;
}

/* Choose how a result of this size is cut: mostly so that it fits. */
static fd_patches choose_patches(choices *from, int32_t width, int32_t height) {
    int32_t merge = 1 + below(from, 3), left[FD_PATCH_AXES] = {0, 1, 2, 3, 4};
    fd_patches made = {1 + below(from, 20), 1 + below(from, 20), merge, 1 + below(from, 3), {0}};

    for (int i = 0; i < FD_PATCH_AXES; i++) {
        int32_t at = below(from, FD_PATCH_AXES - i);
        made.order[i] = left[at];
        left[at] = left[FD_PATCH_AXES - 1 - i];
    }
    while (made.width > 1 && width % (made.width * merge) != 0)
        made.width--;
    while (made.height > 1 && height % (made.height * merge) != 0)
        made.height--;
    made.order[below(from, FD_PATCH_AXES)] += below(from, 20) == 19;
    return made;
}

/* Add a result to the checksum: values, not bytes, as these have an order. */
static void add_result(const call *to, const uint8_t *result) {
    size_t bytes = to->resize != NULL ? size_of(to->form) : 1;

    for (size_t i = 0; i < to->size; i += bytes) {
        uint32_t value = result[i];
        uint16_t half;
        if (bytes == sizeof value)
            memcpy(&value, result + i, sizeof value);
        if (bytes == sizeof half) {
            memcpy(&half, result + i, sizeof half);
            value = half;
        }
        checksum = (checksum ^ value) * UINT64_C(1099511628211);
    }
}

/* Return the result, which the caller owns, or NULL if it is refused. */
static uint8_t *make_with_all(const call *to) {
    uint8_t *first = NULL;
    int status = FD_OK;

    for (const char *sets = fd_instructions(); use_next(&sets);) {
        uint8_t *out = must(malloc(to->size)); /* of the exact size, for ASan */
        memset(out, UNTOUCHED, to->size);
        int now = make(to, first != NULL, out);
        for (size_t i = 0; now != FD_OK && i < to->size; i++)
            if (out[i] != UNTOUCHED)
                fail("what is refused writes something");
        if (first != NULL && now != status)
            fail("another instruction set gives another status");
        if (first != NULL && memcmp(first, out, to->size) != 0)
            fail("another instruction set gives another result");
        free(first);
        first = out;
        status = now;
    }
    if (status == FD_OK) {
        add_result(to, first);
        return first;
    }
    free(first);
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    choices from = {input, input + size, 1};
    fd_operation operations[FD_MOST_OPERATIONS];
    uint32_t how = take(&from);
    int32_t most = (how & 96) == 96 ? MOST_SIDE : how & 1 ? 12 : 40; /* large ones take longer */
    int32_t width = 1 + below(&from, most), height = 1 + below(&from, most), count = 0;
    int is_unchanged = how >> 1 & 1, is_float = how >> 2 & 1;

    if (augmenter == NULL) {
        augmenter = must(fd_augmenter_create());
        resampler = must(fd_resampler_create());
    }
    uint8_t *pixels = choose_image(&from, width, height);
    fd_resize resize = choose_resize(&from, width, height, most, is_unchanged);
    if (how & 16) /* no program: any operations */
        for (int32_t some = below(&from, 6); count < some; count++)
            operations[count] = choose_operation(&from);
    else
        count = draw(&from, resize.width, resize.height, operations);

    if (most == MOST_SIDE && count > 4) /* all of them might take too long */
        count = 4;
    int32_t across = resize.width, down = resize.height;
    for (int32_t i = 0; i < count; i++) {
        if (!fd_resized_by(&operations[i], &across, &down)) /* it will be refused */
            break;
        if (across > 2 * MOST_SIDE || down > 2 * MOST_SIDE) { /* it would take too long */
            free(pixels);
            return 0;
        }
    }
    fd_pixels form = {.dtype = is_float ? FD_FLOAT32 : FD_UINT8,
                      .channels = how & 128 ? 1 : 3,
                      .channels_first = (int32_t)(how >> 3 & 1),
                      .scale = {0.017f, 0.0175f, 0.0174f},
                      .bias = {-2.1f, -2.0f, -1.8f}};
    size_t values = (size_t)form.channels * (size_t)across * (size_t)down;
    if (is_float && below(&from, 3) == 2)
        form.dtype = FD_BFLOAT16;
    int is_cut = below(&from, 3) == 2;
    if (is_cut) {
        form.patches = choose_patches(&from, across, down);
        values *= (size_t)form.patches.repeats;
    }
    call to = {pixels, width, height, &resize, operations, count, &form, values * size_of(&form)};
    uint8_t *resized = make_with_all(&to);
    if (is_unchanged && !is_float && !is_cut && !form.channels_first && form.channels == 3) {
        to.resize = NULL;
        uint8_t *augmented = make_with_all(&to);
        if ((augmented == NULL) != (resized == NULL) ||
            (augmented != NULL && memcmp(augmented, resized, to.size) != 0))
            fail("augmentations of a resize that changes nothing are other ones");
        free(augmented);
    }
    free(resized);
    free(pixels);
    fd_use_instructions("");
    return 0;
}

#ifdef ALONE
int main(int count, char **words) {
    uint8_t input[64];
    uint32_t state = 1;

    for (int i = 0; i < (count > 1 ? atoi(words[1]) : 1000); i++) {
        for (size_t k = 0; k < sizeof input; k++) {
            state = state * 1664525 + 1013904223;
            input[k] = (uint8_t)(state >> 24);
        }
        LLVMFuzzerTestOneInput(input, state >> 20 & 63);
    }
    printf("results of augmentations: %016llx\n", (unsigned long long)checksum);
    return 0;
}
#endif
