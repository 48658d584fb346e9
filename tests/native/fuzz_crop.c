/* fuzz_crop.c: fuzz.c's last operation: what fd_plan_sample plans for any file can be carried out, and
 * fd_pool_make makes just that. */
#include "fuzz.h"
#include "must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SIDE = 300, UNTOUCHED = 0xA5 };

static fd_decoder *decoder;
static fd_pool *reading, *decoding;

static int32_t side(const uint8_t *at, int32_t most) { return 1 + (at[0] | at[1] << 8) % most; }

/* A number from `low` to `high`. */
static double between(uint8_t at, double low, double high) { return low + (high - low) * at / 255; }

/* What fd_recipe points to. */
typedef struct {
    fd_recipe recipe;
    fd_program program;
    fd_step steps[3];
} crop;

/* A random box or the whole image, resized, then perhaps cropped at the centre and mirrored. */
static void choose_crop(const uint8_t *head, crop *to) {
    double ratios[2] = {between(head[16], -4, 4), between(head[17], -4, 4)};
    double low = fmin(ratios[0], ratios[1]), high = fmax(ratios[0], ratios[1]);
    double area = between(head[18], 0.001, 1.5);
    int is_random = head[2] & 1, width = side(head + 6, MOST_SIDE),
        height = side(head + 8, MOST_SIDE);
    fd_step box = {.kind = FD_BOX,
                   .area = {area, area + between(head[19], 0, 1)},
                   .aspect = {low, high},
                   .operation = {.value = {0, 0, exp(low), exp(high)}}};
    fd_step exact = {.kind = FD_OPERATION,
                     .operation = {.kind = FD_RESIZE, .value = {width, height}}};
    fd_step scale = {.kind = FD_SCALE,
                     .operation = {.value = {side(head + 10, head[2] & 2 ? 70000 : 2 * MOST_SIDE),
                                             head[2] & 4 ? side(head + 12, 2 * MOST_SIDE) : 0}}};
    fd_step centre = {.kind = FD_CENTRAL_CROP,
                      .picks = head[1] >> 1 & 1,
                      .operation = {.value = {width, height}}};
    fd_step mirror = {.kind = FD_OPERATION, .operation = {.kind = FD_MIRROR}};
    if (head[2] & 32) /* numbers that make no sense may give anything, but in its bounds */
        memcpy(box.area, head + 22, 16);
    *to = (crop){.steps = {is_random ? box : scale, is_random ? exact : centre, mirror}};
    for (int i = 0; i < 3; i++)
        to->steps[i].probability = i == 2 ? between(head[20], 0, 1) : 1;
    to->program = (fd_program){to->steps, 3};
    to->recipe = (fd_recipe){.program = &to->program,
                             .width = width,
                             .height = height,
                             .headroom = head[2] & 8 ? 0 : between(head[21], 1, 4),
                             .pixels = fuzz_limits.pixels,
                             .upright = head[2] >> 4 & 1};
}

static void check_plan(const fd_header *header, const fd_request *request,
                       const fd_resize *resize) {
    int32_t width = (header->width + request->reduce - 1) / request->reduce;
    int32_t height = (header->height + request->reduce - 1) / request->reduce;
    if (!(0 <= resize->left && resize->left < resize->right && 0 <= resize->top &&
          resize->top < resize->bottom && resize->in_left <= resize->left &&
          resize->in_top <= resize->top && resize->right <= resize->in_right &&
          resize->bottom <= resize->in_bottom && resize->in_right <= width &&
          resize->in_bottom <= height))
        fail("a box that is not in the image");
}

/* The same by pools, from memory, of a seed or of what is recorded. */
static void check_pool(const uint8_t *data, size_t size, const uint64_t *seed,
                       const fd_recorded *recorded, const fd_recipe *recipe,
                       const fd_pixels *pixels, int status, const uint8_t *expected, size_t bytes) {
    uint8_t *out = must(malloc(bytes));
    fd_item item = {.data = data, .size = size, .request = {.limits = fuzz_limits}};
    fd_made done = fd_pool_make(reading, decoding, &item, 1, seed, recorded, recipe, pixels, out,
                                0);
    if (item.wanted != (status >= 0))
        fail("the pool takes what is not planned, or the other way round");
    if (status >= 0 && (item.status != status || done.made != (status == FD_OK)))
        fail("the pool gives another status");
    if (status == FD_OK && memcmp(out, expected, bytes) != 0)
        fail("the pool gives other pixels");
    free(out);
}

void fuzz_crop(const uint8_t *head, const uint8_t *data, size_t size) {
    fd_header header;
    fd_request request = {.limits = fuzz_limits};
    fd_resize resize;
    fd_operation operations[FD_MOST_OPERATIONS];
    int32_t count = 0;
    crop chosen;
    choose_crop(head, &chosen);
    fd_pixels pixels = {.dtype = FD_UINT8, .channels = 3, .channels_first = head[1] & 1};
    size_t bytes = (size_t)chosen.recipe.width * (size_t)chosen.recipe.height * 3;
    uint8_t *out = must(malloc(bytes)); /* of the exact size, for ASan */
    uint64_t seed;
    int status = -1;
    memcpy(&seed, head + 24, sizeof seed);
    memset(out, UNTOUCHED, bytes);
    if (decoder == NULL) {
        decoder = must(fd_decoder_create());
        reading = must(fd_pool_create(1));
        decoding = must(fd_pool_create(1));
    }
    uint64_t state = seed;
    if (fd_probe(data, size, &header) == FD_OK &&
        fd_plan_sample(&header, &state, &chosen.recipe, &request, &resize, operations, &count)) {
        check_plan(&header, &request, &resize);
        status = fd_decode_resized(decoder, data, size, &request, &resize, operations, count,
                                   &pixels, out);
        if (status == FD_ARGUMENT)
            fail("a plan that cannot be carried out");
    }
    check_pool(data, size, &seed, NULL, &chosen.recipe, &pixels, status, out, bytes);
    fd_recorded recorded = {.operations = operations};
    state = seed;
    if (fd_probe(data, size, &header) == FD_OK) {
        int32_t width = recorded.width = header.width, height = recorded.height = header.height;
        if (fd_draw_operations(&chosen.program, &width, &height, &state, operations,
                               &recorded.count) == FD_OK)
            check_pool(data, size, NULL, &recorded, &chosen.recipe, &pixels, status, out, bytes);
    }
    free(out);
}

void fuzz_crop_end(void) {
    fd_pool_destroy(reading);
    fd_pool_destroy(decoding);
    fd_decoder_destroy(decoder);
    reading = decoding = NULL;
    decoder = NULL;
}
