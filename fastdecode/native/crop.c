/* crop.c: plans the crop of an image, as fastdecode.torch does in Python.
 *
 * The rules are those of _random_crop.py and base.py in torch/transforms, plan.py and _resizing.py.
 * The numbers are bit-identical: the operations are the same, on doubles, in the same order (the core
 * is compiled without contraction). Change both sides together; a test compares them. */
#include "internal.h"
#include "random.h"

#include <math.h>

enum {
    ATTEMPTS = 10,       /* random boxes to try before the central one is used */
    LARGEST_SIDE = 65500 /* of a canvas, as in resample.c */
};

/* ---- boxes ---- */

/* The box to resize, in pixels of the image; the canvas size; the result's position on the canvas. */
typedef struct {
    int32_t left, top, right, bottom;
    int32_t canvas_width, canvas_height, x, y;
    int32_t flip;
} plan;

static void set_box(plan *to, int32_t left, int32_t top, int32_t width, int32_t height) {
    to->left = left;
    to->top = top;
    to->right = left + width;
    to->bottom = top + height;
}

/* The central box with the aspect ratio nearest to the allowed ones. */
static void nearest_box(int32_t width, int32_t height, const fd_crop *crop, plan *to) {
    int32_t across = width, down = height;
    double ratio = (double)width / height;
    if (ratio < crop->narrowest)
        down = (int32_t)fmax(1, rint(width / crop->narrowest));
    else if (ratio > crop->widest)
        across = (int32_t)fmax(1, rint(height * crop->widest));
    set_box(to, (width - across) / 2, (height - down) / 2, across, down);
}

static int random_box(int32_t width, int32_t height, uint64_t *state, const fd_crop *crop,
                      plan *to) {
    double whole = (double)height * width;
    if (crop->width > LARGEST_SIDE || crop->height > LARGEST_SIDE)
        return 0;
    to->canvas_width = crop->width;
    to->canvas_height = crop->height;
    for (int i = 0; i < ATTEMPTS; i++) {
        double area = whole * (crop->area + crop->area_range * fd_draw_share(state));
        double aspect = exp(crop->aspect + crop->aspect_range * fd_draw_share(state));
        double across = rint(sqrt(area * aspect)), down = rint(sqrt(area / aspect));
        if (across >= 1 && across <= width && down >= 1 && down <= height) {
            int32_t top = fd_draw_below(state, height - (int32_t)down + 1);
            int32_t left = fd_draw_below(state, width - (int32_t)across + 1);
            set_box(to, left, top, (int32_t)across, (int32_t)down);
            return 1;
        }
    }
    nearest_box(width, height, crop, to);
    return 1;
}

/* Half of the margin, rounded half to even. */
static int32_t margin(int32_t whole, int32_t part) {
    int32_t both = whole - part, half = both / 2;
    return both % 2 ? half + half % 2 : half;
}

static int central_crop(int32_t width, int32_t height, const fd_crop *crop, plan *to) {
    double across = crop->resize_width, down = crop->resize_height;
    if (crop->resize_height == 0 && width <= height)
        down = floor(across * height / width);
    else if (crop->resize_height == 0) {
        down = across;
        across = floor(down * width / height);
    }
    if (across < crop->width || down < crop->height) /* it would need padding */
        return 0;
    if (across > LARGEST_SIDE || down > LARGEST_SIDE)
        return 0;
    set_box(to, 0, 0, width, height);
    to->canvas_width = (int32_t)across;
    to->canvas_height = (int32_t)down;
    to->x = margin(to->canvas_width, crop->width);
    to->y = margin(to->canvas_height, crop->height);
    return 1;
}

/* ---- the plan ---- */

/* The rule of core_can_decode() in _resizing.py: images that all other backends decode to the same
 * pixels. */
static int is_known(const fd_header *header, const fd_crop *crop) {
    int sof = header->sof == 0xC0 || header->sof == 0xC1 || header->sof == 0xC2;
    int colours = header->components == 1 || header->components == 3;
    int is_jpeg = sof && colours && header->bits == 8;
    return (is_jpeg || header->sof == FD_PNG) && header->ended == 1 &&
           (int64_t)header->width * header->height <= crop->pixels &&
           !(crop->upright && header->may_turn);
}

/* The largest reduction after which the box is still `headroom` times the size of the canvas; only a
 * JPEG's decoder has less work then. */
static int32_t reduction(const fd_header *header, const plan *of, const fd_crop *crop) {
    double width = of->canvas_width * crop->headroom, height = of->canvas_height * crop->headroom;
    int may = crop->headroom > 0 && header->sof != FD_PNG;
    for (int32_t reduce = 8; may && reduce > 1; reduce /= 2)
        if (of->bottom - of->top >= height * reduce && of->right - of->left >= width * reduce)
            return reduce;
    return 1;
}

static fd_resize resize_of(const plan *of, int32_t reduce, const fd_crop *crop) {
    double by = reduce;
    return (fd_resize){.left = of->left / by,
                       .top = of->top / by,
                       .right = of->right / by,
                       .bottom = of->bottom / by,
                       .in_left = of->left / reduce,
                       .in_top = of->top / reduce,
                       .in_right = (of->right + reduce - 1) / reduce,
                       .in_bottom = (of->bottom + reduce - 1) / reduce,
                       .canvas_width = of->canvas_width,
                       .canvas_height = of->canvas_height,
                       .x = of->x,
                       .y = of->y,
                       .width = crop->width,
                       .height = crop->height,
                       .flip = of->flip,
                       .filter = crop->filter};
}

int fd_plan_crop(const fd_header *header, uint64_t *state, const fd_crop *crop, fd_request *request,
                 fd_resize *resize) {
    plan made = {.flip = 0};
    if (!is_known(header, crop) || header->width < 1 || header->height < 1)
        return 0;
    int fits = crop->kind == FD_RANDOM
                   ? random_box(header->width, header->height, state, crop, &made)
                   : central_crop(header->width, header->height, crop, &made);
    if (!fits)
        return 0;
    made.flip = crop->flip > 0 && fd_draw_share(state) < crop->flip;
    request->reduce = reduction(header, &made, crop);
    request->left = request->top = request->right = request->bottom = 0;
    request->layout = FD_RGB;
    *resize = resize_of(&made, request->reduce, crop);
    return 1;
}
