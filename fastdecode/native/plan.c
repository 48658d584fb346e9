/* plan.c: decides what of an image is decoded for a sample.
 *
 * A sample is a program from the whole image to the result. What its first operations leave out of the
 * image is not decoded, and what they resize or mirror is done as the rows come.
 */
#include "internal.h"

#include <math.h>
#include <string.h>

/* The rule of core_can_decode() in _decode/resizing.py: images that all other backends decode to the same
 * pixels. */
static int is_known(const fd_header *header, const fd_recipe *recipe) {
    int sof = header->sof == 0xC0 || header->sof == 0xC1 || header->sof == 0xC2;
    int colours = header->components == 1 || header->components == 3;
    int is_jpeg = sof && colours && header->bits == 8;
    return (is_jpeg || header->sof == FD_PNG) && header->ended == 1 && header->width >= 1 &&
           header->height >= 1 && (int64_t)header->width * header->height <= recipe->pixels &&
           !(recipe->upright && header->may_turn);
}

/* The resize of an image of this size to itself. */
static fd_resize unchanged(int32_t width, int32_t height) {
    return (fd_resize){.right = width,
                       .bottom = height,
                       .in_right = width,
                       .in_bottom = height,
                       .canvas_width = width,
                       .canvas_height = height,
                       .width = width,
                       .height = height};
}

static void crop(fd_resize *resize, const double value[FD_VALUES]) {
    int32_t left = (int32_t)value[0], width = (int32_t)value[2];

    resize->x += resize->flip ? resize->width - left - width : left;
    resize->y += (int32_t)value[1];
    resize->width = width;
    resize->height = (int32_t)value[3];
}

/* Resize the part that is kept. As the operation would, read no pixels beyond it. */
static void scale(fd_resize *resize, const fd_operation *operation) {
    int32_t left = (int32_t)resize->left + resize->x, top = (int32_t)resize->top + resize->y;
    int32_t right = left + resize->width, bottom = top + resize->height;

    *resize = unchanged((int32_t)operation->value[0], (int32_t)operation->value[1]);
    resize->left = resize->in_left = left;
    resize->top = resize->in_top = top;
    resize->right = resize->in_right = right;
    resize->bottom = resize->in_bottom = bottom;
    resize->filter = operation->filter;
}

/* Whether a resize can be done while decoding. Of a mirror image, the core's own filter has the same result. */
static int can_scale(const fd_resize *resize, const fd_operation *operation) {
    int is_exact = operation->filter != FD_FILTER_OWN;

    return operation->filter != FD_FILTER_NEAREST && !(is_exact && resize->flip);
}

int32_t fd_fold(int32_t width, int32_t height, fd_resize *resize, fd_operation *operations,
                int32_t count) {
    int32_t done = 0, resizes = 0, flip;

    *resize = unchanged(width, height);
    for (; done < count; done++) {
        const fd_operation *operation = &operations[done];
        if (operation->kind == FD_CROP)
            crop(resize, operation->value);
        else if (operation->kind == FD_MIRROR)
            resize->flip = !resize->flip;
        else if (operation->kind == FD_RESIZE && !resizes && can_scale(resize, operation)) {
            flip = resize->flip;
            scale(resize, operation);
            resize->flip = flip;
            resizes = 1;
        } else
            break;
    }
    memmove(operations, operations + done, (size_t)(count - done) * sizeof *operations);
    return count - done;
}

/* The largest reduction after which the box is still `headroom` times the size of the canvas; only a
 * JPEG's decoder has less work then. */
static int32_t reduction(const fd_header *header, const fd_resize *of, double headroom) {
    double width = of->canvas_width * headroom, height = of->canvas_height * headroom;
    int may = headroom > 0 && header->sof != FD_PNG;
    for (int32_t reduce = 8; may && reduce > 1; reduce /= 2)
        if (of->bottom - of->top >= height * reduce && of->right - of->left >= width * reduce)
            return reduce;
    return 1;
}

/* Let a resize read an image that the decoder has reduced. */
static void reduce_box(fd_resize *resize, int32_t by) {
    resize->left /= by;
    resize->top /= by;
    resize->right /= by;
    resize->bottom /= by;
    resize->in_left /= by;
    resize->in_top /= by;
    resize->in_right = (resize->in_right + by - 1) / by;
    resize->in_bottom = (resize->in_bottom + by - 1) / by;
}

int fd_plan_sample(const fd_header *header, uint64_t *state, const fd_recipe *recipe,
                   fd_request *request, fd_resize *resize,
                   fd_operation operations[FD_MOST_OPERATIONS], int32_t *count) {
    int32_t width = header->width, height = header->height;
    fd_resize made;

    if (!is_known(header, recipe) ||
        fd_draw_operations(recipe->program, &width, &height, state, operations, count) != FD_OK ||
        width != recipe->width || height != recipe->height)
        return 0;
    *count = fd_fold(header->width, header->height, &made, operations, *count);
    request->reduce = reduction(header, &made, recipe->headroom);
    reduce_box(&made, request->reduce);
    if (!fd_is_possible(&made)) /* a whole that only a crop makes small enough */
        return 0;
    *resize = made;
    request->left = request->top = request->right = request->bottom = 0;
    request->layout = FD_RGB;
    return 1;
}
