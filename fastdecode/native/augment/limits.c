/* limits.c: the numbers that operations, and the steps that draw them, may have. */
#include "operations.h"

#include <math.h>

enum {
    ABOVE = 1,     /* not the least number itself */
    BELOW = 2,     /* nor the most */
    ODD = 4,       /* truncated */
    OR_ZERO = 8,   /* which has a meaning of its own */
    OF_OPENCV = 16 /* of that library alone */
};

/* The limits of `count` numbers of a kind, from the one at `first` on. */
typedef struct {
    int32_t kind;
    size_t first, count;
    double least, most;
    int flags;
} limit;

/* The places of the numbers with this name; of all numbers. */
#define OF(name)                                                                                   \
    (offsetof(fd_operation, name) - offsetof(fd_operation, value)) / sizeof(double),               \
        sizeof((fd_operation *)0)->name / sizeof(double)
#define ALL 0, FD_VALUES
#define ANY FD_LARGEST_NUMBER /* which is itself too large */

static const limit OF_OPERATIONS[] = {
    {FD_HUE, OF(amount), -0.5, 0.5, 0},
    {FD_SOLARIZE_ADD, OF(lift), 0, 255, 0},
    {FD_POSTERIZE, OF(bits), 0, 8, 0},
    {FD_BLUR, OF(blur.width), 1, 255, ODD | OR_ZERO},
    {FD_BLUR, OF(blur.sigma_across), 0, ANY, ABOVE},
    {FD_BLUR, OF(blur.sigma_down), 0, ANY, ABOVE},
    {FD_BLUR, OF(blur.height), 1, 255, ODD | OR_ZERO},
    {FD_BOX_BLUR, OF(sigma), 0, 1000, 0},
    {FD_WARP, OF(outside.padding), FD_PAD_CONSTANT, FD_PAD_SYMMETRIC, OF_OPENCV},
    {FD_AFFINE, OF(outside.padding), FD_PAD_CONSTANT, FD_PAD_SYMMETRIC, OF_OPENCV},
    {FD_PERMUTE, OF(channels), 0, 3, BELOW},
    {FD_MEAN_BLUR, OF(mean_blur.side), 3, 63, ODD},
    {FD_CLAHE, OF(clahe.limit), 0, ANY, 0},
    {FD_CLAHE, OF(clahe.columns), 1, 64, 0},
    {FD_CLAHE, OF(clahe.rows), 1, 64, 0},
    {FD_MEDIAN, OF(side), 3, 15, ODD},
    {FD_DOWNSCALE, OF(scale), 0, 1, ABOVE},
    {FD_LENS, OF(outside.padding), FD_PAD_CONSTANT, FD_PAD_SYMMETRIC, OF_OPENCV},
    {FD_GRID, OF(grid.steps), 1, FD_MOST_CELLS, 0},
    {FD_GRID, OF(outside.padding), FD_PAD_CONSTANT, FD_PAD_SYMMETRIC, OF_OPENCV},
    {FD_ELASTIC, OF(elastic.sigma), 0, ANY, ABOVE},
    {FD_ELASTIC, OF(elastic.reach), 0, 4000, 0},
    {FD_ELASTIC, OF(outside.padding), FD_PAD_CONSTANT, FD_PAD_SYMMETRIC, OF_OPENCV},
};

/* Of steps with sizes, which can then be converted to integers. */
static const limit OF_STEPS[] = {
    {FD_SCALE, ALL, 0, ANY, 0},        {FD_BOX, ALL, 0, ANY, 0},
    {FD_RANDOM_CROP, ALL, 0, ANY, 0},  {FD_SCALE_BY, ALL, 0, ANY, 0},
    {FD_CENTRAL_CROP, ALL, 0, ANY, 0}, {FD_FIT, ALL, 0, ANY, 0},
    {FD_PAD_TO, ALL, -1, ANY, 0},      {FD_MULTIPLES, ALL, 0, ANY, 0},
    {FD_HOLE, ALL, 0, ANY, 0},         {FD_PERSPECTIVE_CHANGE, OF(reach), 0, 1, 0},
};

static int is_within(double number, const limit *in) {
    if (number == 0 && in->flags & OR_ZERO)
        return 1;
    return number >= in->least && number <= in->most && fabs(number) < FD_LARGEST_NUMBER &&
           !(in->flags & ABOVE && number == in->least) &&
           !(in->flags & BELOW && number == in->most) &&
           !(in->flags & ODD && (int32_t)number % 2 == 0);
}

/* Whether the numbers of such a kind are in the `count` limits. */
static int are_within(const limit *limits, size_t count, int32_t kind, const fd_operation *of) {
    for (size_t i = 0; i < count; i++) {
        const limit *in = &limits[i];
        int counts = in->kind == kind && !(in->flags & OF_OPENCV && of->library != FD_OPENCV);
        for (size_t k = 0; counts && k < in->count; k++)
            if (!is_within(of->value[in->first + k], in))
                return 0;
    }
    return 1;
}

static int has_filter(const fd_operation *of) {
    int32_t last = of->library == FD_PILLOW ? FD_BICUBIC : FD_BILINEAR;

    if (of->kind == FD_RESIZE)
        last = FD_FILTER_NEAREST;
    else if (of->kind == FD_PAD || of->kind == FD_CROP)
        last = FD_PAD_SYMMETRIC;
    return of->filter >= 0 && of->filter <= last;
}

int fd_is_good(const fd_operation *operation) {
    for (int i = 0; i < FD_VALUES; i++)
        if (!(fabs(operation->value[i]) < FD_LARGEST_NUMBER)) /* NaN, too */
            return 0;
    if (operation->kind == FD_BLUR && operation->blur.width == 0 &&
        !(operation->blur.sigma_across < 36)) /* the kernel would be too wide */
        return 0;
    return has_filter(operation) &&
           are_within(OF_OPERATIONS, sizeof OF_OPERATIONS / sizeof *OF_OPERATIONS, operation->kind,
                      operation);
}

int fd_is_good_step(const fd_step *step) {
    for (int32_t i = 0; i < step->drawn_count; i++)
        if (step->drawn[i].at < 0 || step->drawn[i].at >= FD_VALUES ||
            step->drawn[i].copied >= FD_VALUES)
            return 0;
    return step->kind >= FD_OPERATION && step->kind <= FD_PERSPECTIVE_CHANGE &&
           are_within(OF_STEPS, sizeof OF_STEPS / sizeof *OF_STEPS, step->kind, &step->operation);
}
