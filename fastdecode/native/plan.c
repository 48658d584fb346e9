/* plan.c: decides what of an image is decoded for a sample.
 *
 * A sample is a program from the whole image to the result. What its first operations leave out of the
 * image is not decoded, and what they resize or mirror is done as the rows come.
 */
#include "internal.h"

#include <math.h>
#include <string.h>

/* The rule of core_can_decode() in _decode/resizing.py: images that all other backends decode to the same
 * pixels; and pixels as they are. */
static int is_known(const fd_header *header, const fd_recipe *recipe) {
    int sof = header->sof == 0xC0 || header->sof == 0xC1 || header->sof == 0xC2;
    int colours = header->components == 1 || header->components == 3;
    int is_jpeg = sof && colours && header->bits == 8;
    int is_other = header->sof == FD_PNG || header->sof == FD_PPM;
    return (is_jpeg || is_other) && header->ended == 1 && header->width >= 1 &&
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

static void crop(fd_resize *resize, const fd_operation *operation) {
    int32_t left = (int32_t)operation->box.left, width = (int32_t)operation->box.width;

    resize->x += resize->flip ? resize->width - left - width : left;
    resize->y += (int32_t)operation->box.top;
    resize->width = width;
    resize->height = (int32_t)operation->box.height;
}

/* Resize the part that is kept. As the operation would, read no pixels beyond it. */
static void scale(fd_resize *resize, const fd_operation *operation) {
    int32_t left = (int32_t)resize->left + resize->x, top = (int32_t)resize->top + resize->y;
    int32_t right = left + resize->width, bottom = top + resize->height;

    *resize = unchanged((int32_t)operation->resize.width, (int32_t)operation->resize.height);
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

/* Let an image of this size be cropped before its border is made, of which the rest is made then. Returns 0
 * where that shows pixels that the crop leaves out. */
static int crop_border(fd_operation *pad, fd_operation *crop, int32_t width, int32_t height) {
    const int mirrors = pad->filter == FD_PAD_REFLECT || pad->filter == FD_PAD_SYMMETRIC;
    double *border = pad->value, *box = crop->value, rest[4], part[4]; /* across, down, twice */

    for (int i = 0; i < 2; i++) {
        double side = i ? height : width, from = box[i] - border[i], end = from + box[2 + i];
        part[i] = fmax(from, 0);
        part[2 + i] = fmin(end, side) - part[i];
        rest[i] = part[i] - from;
        rest[2 + i] = fmax(end - side, 0);
        if (part[2 + i] <= (mirrors ? fmax(rest[i], rest[2 + i]) : 0))
            return 0;
    }
    memcpy(box, part, sizeof part);
    memcpy(border, rest, sizeof rest);
    return 1;
}

/* Let a crop come before the operation on an image of this size that it follows, if the result stays the
 * same. */
static int comes_before(fd_operation *crop, fd_operation *operation, int32_t width,
                        int32_t height) {
    switch (operation->kind) {
    case FD_BRIGHTNESS: /* this and the next ones change each pixel by itself */
    case FD_SATURATION:
    case FD_HUE:
    case FD_GREY:
    case FD_INVERT:
    case FD_SOLARIZE:
    case FD_SOLARIZE_ADD:
    case FD_POSTERIZE:
    case FD_PERMUTE:
    case FD_SHIFT_COLOURS:
        return 1;
    case FD_LEVELS:
        return operation->levels.of_mean == 0 && operation->levels.of_grey_mean == 0;
    case FD_MIRROR:
        crop->box.left = width - crop->box.left - crop->box.width;
        return 1;
    case FD_TURN_OVER:
        crop->box.top = height - crop->box.top - crop->box.height;
        return 1;
    case FD_PAD:
        return crop_border(operation, crop, width, height);
    default:
        return 0;
    }
}

/* Let crops come as early as they can: what they leave out is no work. */
static void bring_crops_forward(int32_t width, int32_t height, fd_operation *operations,
                                int32_t count) {
    for (int32_t i = 1; i < count; i++)
        for (int32_t at = i; at > 0 && operations[at].kind == FD_CROP; at--) {
            fd_operation crop = operations[at];
            int32_t across = width, down = height;
            for (int32_t k = 0; k < at - 1; k++)
                fd_resized_by(&operations[k], &across, &down);
            if (!comes_before(&crop, &operations[at - 1], across, down))
                break;
            operations[at] = operations[at - 1];
            operations[at - 1] = crop;
        }
}

static int is_idle(const fd_operation *operation) {
    return operation->kind == FD_PAD && operation->pad.left + operation->pad.top +
                                                operation->pad.right + operation->pad.bottom ==
                                            0;
}

/* First crops sink to the front, past what gives the same after them. Then the operations in front become one
 * resize of a rectangle, as far as that goes: before a resize a crop narrows the source (x, y, width, height of
 * an unchanged canvas), the resize makes that the box, and after it a crop narrows the result. */
int32_t fd_fold(int32_t width, int32_t height, fd_resize *resize, fd_operation *operations,
                int32_t count) {
    int32_t done = 0, resizes = 0, flip;

    bring_crops_forward(width, height, operations, count);
    *resize = unchanged(width, height);
    for (; done < count; done++) {
        const fd_operation *operation = &operations[done];
        if (operation->kind == FD_CROP)
            crop(resize, operation);
        else if (operation->kind == FD_MIRROR)
            resize->flip = !resize->flip;
        else if (operation->kind == FD_RESIZE && !resizes && can_scale(resize, operation)) {
            flip = resize->flip;
            scale(resize, operation);
            resize->flip = flip;
            resizes = 1;
        } else if (!is_idle(operation))
            break;
    }
    memmove(operations, operations + done, (size_t)(count - done) * sizeof *operations);
    return count - done;
}

/* The largest reduction after which the box is still `headroom` times the size of the canvas; only a
 * JPEG's decoder has less work then. */
static int32_t reduction(const fd_header *header, const fd_resize *of, double headroom) {
    double width = of->canvas_width * headroom, height = of->canvas_height * headroom;
    int may = headroom > 0 && header->sof != FD_PNG && header->sof != FD_PPM;
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

/* Plan what is decoded for operations on an image of the header's size. */
static int plan(const fd_header *header, const fd_recipe *recipe, fd_request *request,
                fd_resize *resize, fd_operation *operations, int32_t *count) {
    fd_resize made;

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

int fd_plan_sample(const fd_header *header, uint64_t *state, const fd_recipe *recipe,
                   fd_request *request, fd_resize *resize,
                   fd_operation operations[FD_MOST_OPERATIONS], int32_t *count) {
    int32_t width = header->width, height = header->height;

    return is_known(header, recipe) &&
           fd_draw_operations(recipe->program, &width, &height, state, operations, count) ==
               FD_OK &&
           width == recipe->width && height == recipe->height &&
           plan(header, recipe, request, resize, operations, count);
}

int fd_plan_recorded(const fd_header *header, const fd_recorded *recorded, const fd_recipe *recipe,
                     fd_request *request, fd_resize *resize,
                     fd_operation operations[FD_MOST_OPERATIONS], int32_t *count) {
    int32_t width = header->width, height = header->height, has_own = recorded->out != NULL;
    int32_t wanted[2] = {has_own ? recorded->out_width : recipe->width,
                         has_own ? recorded->out_height : recipe->height};

    if (!is_known(header, recipe) || width != recorded->width || height != recorded->height ||
        recorded->count < 0 || recorded->count > FD_MOST_OPERATIONS)
        return 0;
    *count = recorded->count;
    for (int32_t i = 0; i < *count; i++) {
        operations[i] = recorded->operations[i];
        if (!fd_resized_by(&operations[i], &width, &height))
            return 0;
    }
    return width == wanted[0] && height == wanted[1] &&
           plan(header, recipe, request, resize, operations, count);
}
