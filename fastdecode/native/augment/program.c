/* program.c: draws the operations of one sample from a random program. */
#include "operations.h"
#include "random.h"

#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

enum { ATTEMPTS = 10 /* random boxes to try */ };

/* The operations drawn so far. */
typedef struct {
    fd_operation *operations;
    int32_t count, most;
    int32_t width, height; /* of the image after them */
    uint64_t *state;
} drawing;

static int draw_steps(drawing *to, const fd_step *steps, int32_t count);

/* Draw from the normal distribution (Box and Muller), beginning with a share that is drawn already. */
static double normal_of(uint64_t *state, double share) {
    double length = sqrt(-2.0 * log(1.0 - share));

    return length * cos(2.0 * PI * fd_draw_share(state));
}

/* Draw a number between 0 and 1: uniform, or from a normal distribution and then limited. */
static double draw_share(uint64_t *state, const fd_drawn *drawn) {
    double share = fd_draw_share(state);

    if (drawn->deviation < 0.0)
        return share;
    if (drawn->deviation > 0.0)
        share = drawn->mean + drawn->deviation * normal_of(state, share);
    else
        share = drawn->mean;
    return share < 0.0 ? 0.0 : share > 1.0 ? 1.0 : share;
}

/* Add an operation, which may change the size of the image. */
static int add(drawing *to, const fd_operation *operation) {
    fd_operation *added = &to->operations[to->count];

    if (to->count == to->most)
        return FD_ARGUMENT;
    *added = *operation;
    if (added->kind == FD_RESIZE && added->resize.by_area == 1.0 &&
        (added->resize.width < to->width || added->resize.height < to->height))
        added->filter = FD_FILTER_AREA;
    to->count++;
    return fd_resized_by(added, &to->width, &to->height) ? FD_OK : FD_ARGUMENT;
}

static int add_operation(drawing *to, const fd_step *step) {
    fd_operation operation = step->operation;

    for (int32_t i = 0; i < step->drawn_count; i++) {
        const fd_drawn *drawn = &step->drawn[i];
        double unit = drawn->of == 1 ? to->width : drawn->of == 2 ? to->height : 1;
        double part = drawn->range * unit * draw_share(to->state, drawn);
        part = drawn->is_whole ? trunc(part) : part;
        if (drawn->either_sign && fd_draw_below(to->state, 2))
            part = -part;
        double *value = &operation.value[drawn->at];
        *value = drawn->start * unit + part;
        *value = drawn->is_rounded ? rint(*value) : drawn->is_cut ? trunc(*value) : *value;
        if (drawn->copied >= 0)
            operation.value[drawn->copied] = *value;
    }
    int is_random = operation.kind == FD_NOISE || operation.kind == FD_GRID ||
                    operation.kind == FD_ELASTIC; /* while it runs */
    operation.seed = is_random ? fd_draw(to->state) : 0;
    return add(to, &operation);
}

/* Draw a box as torchvision's and timm's RandomErasing do: after ten that do not fit, none. */
static int add_erasure(drawing *to, const fd_step *step) {
    for (int i = 0; i < ATTEMPTS; i++) {
        double share = step->area[0] + (step->area[1] - step->area[0]) * fd_draw_share(to->state);
        double area = share * to->width * to->height;
        double spread = step->aspect[1] - step->aspect[0];
        double aspect = exp(step->aspect[0] + spread * fd_draw_share(to->state));
        double height = rint(sqrt(area * aspect)), width = rint(sqrt(area / aspect));
        if (!(height < to->height && width < to->width))
            continue;
        fd_operation operation = step->operation;
        operation.box.top = fd_draw_below(to->state, to->height - (int32_t)height + 1);
        operation.box.left = fd_draw_below(to->state, to->width - (int32_t)width + 1);
        operation.box.width = width;
        operation.box.height = height;
        operation.seed = operation.noise == FD_NOISE_NONE ? 0 : fd_draw(to->state);
        return add(to, &operation);
    }
    return FD_OK;
}

/* The steps of the n-th child of a step; `size` is set to their number. */
static const fd_step *child(const fd_step *step, int32_t n, int32_t *size) {
    const fd_step *at = step + 1;

    while (n-- > 0)
        at += 1 + at->inner;
    *size = 1 + at->inner;
    return at;
}

static int32_t count_children(const fd_step *step) {
    int32_t count = 0;

    for (int32_t i = 1; i <= step->inner; i += 1 + step[i].inner)
        count++;
    return count;
}

/* Add up the weights of the children without those already picked, until the sum exceeds `limit`; set
 * `at` to the last one of them. */
static double add_weights(const fd_step *step, const int32_t *picked, int32_t picks, double limit,
                          int32_t *at) {
    double sum = 0.0;

    for (int32_t i = 1; i <= step->inner && sum <= limit; i += 1 + step[i].inner) {
        int is_free = 1;
        for (int32_t k = 0; k < picks; k++)
            is_free &= picked[k] != i;
        if (is_free) {
            sum += step[i].weight;
            *at = i;
        }
    }
    return sum;
}

/* Draw different children in turn, each with a probability in proportion to its weight. */
static int draw_choice(drawing *to, const fd_step *step) {
    int32_t picked[FD_MOST_OPERATIONS], most = count_children(step);

    if (step->picks > FD_MOST_OPERATIONS || (step->picks > most && most > 0))
        return FD_ARGUMENT;
    for (int32_t i = 0; i < step->picks && most > 0; i++) {
        int32_t at = 1;
        double all = add_weights(step, picked, i, HUGE_VAL, &at);
        add_weights(step, picked, i, all * fd_draw_share(to->state), &at);
        picked[i] = at;
        int status = draw_steps(to, step + at, 1 + step[at].inner);
        if (status != FD_OK)
            return status;
    }
    return FD_OK;
}

/* Draw from the gamma distribution (Marsaglia and Tsang, "A simple method for generating gamma
 * variables", 2000). */
static double draw_gamma(uint64_t *state, double shape) {
    double raised = shape < 1.0 ? shape + 1.0 : shape;
    double d = raised - 1.0 / 3.0, c = 1.0 / sqrt(9.0 * d), x, v;

    do {
        do {
            x = normal_of(state, fd_draw_share(state));
            v = 1.0 + c * x;
        } while (v <= 0.0);
        v = v * v * v;
    } while (log(1.0 - fd_draw_share(state)) > 0.5 * x * x + d - d * v + d * log(v));
    double scale = shape < 1.0 ? pow(1.0 - fd_draw_share(state), 1.0 / shape) : 1.0;
    return d * v * scale;
}

/* Draw numbers from the Dirichlet distribution whose parameters are all the same. */
static void draw_dirichlet(uint64_t *state, double alpha, double *numbers, int32_t count) {
    double sum = 0.0;

    for (int32_t i = 0; i < count; i++)
        sum += numbers[i] = draw_gamma(state, alpha);
    for (int32_t i = 0; i < count; i++)
        numbers[i] /= sum;
}

static int add_mixing(drawing *to, int32_t kind, double share) {
    const fd_operation mixing = {.kind = kind, .value = {share}};

    return add(to, &mixing);
}

/* AugMix. timm rounds the mix of the chains to bytes, and blends it with the image as Pillow blends;
 * torchvision mixes the image with the chains, and rounds once. */
static int draw_mix(drawing *to, const fd_step *step) {
    double both[2], weights[FD_MOST_OPERATIONS];
    int32_t count = count_children(step), size;
    int as_bytes = step->operation.library == FD_PILLOW;

    if (count > FD_MOST_OPERATIONS || !(step->alpha > 0.0))
        return FD_ARGUMENT;
    draw_dirichlet(to->state, step->alpha, both, 2);
    draw_dirichlet(to->state, step->alpha, weights, count);
    int status = add_mixing(to, FD_MIX_BEGIN, as_bytes ? 0.0 : both[0]);
    for (int32_t i = 0; i < count && status == FD_OK; i++) {
        const fd_step *at = child(step, i, &size);
        status = draw_steps(to, at, size);
        if (status == FD_OK)
            status = add_mixing(to, FD_MIX_ADD, as_bytes ? weights[i] : weights[i] * both[1]);
    }
    return status == FD_OK ? add_mixing(to, FD_MIX_END, as_bytes ? both[1] : 1.0) : status;
}

static int draw_shuffled(drawing *to, const fd_step *step) {
    int32_t order[FD_MOST_OPERATIONS], count = count_children(step), size;

    if (count > FD_MOST_OPERATIONS)
        return FD_ARGUMENT;
    for (int32_t i = 0; i < count; i++)
        order[i] = i;
    for (int32_t left = count; left > 0; left--) {
        int32_t k = fd_draw_below(to->state, left);
        const fd_step *at = child(step, order[k], &size);
        int status = draw_steps(to, at, size);
        if (status != FD_OK)
            return status;
        order[k] = order[left - 1];
    }
    return FD_OK;
}

/* ---- steps that depend on the size ---- */

/* Add an operation with other numbers than its step: in the order of their struct, and then 0. */
static int add_with(drawing *to, const fd_step *step, fd_operation_kind kind, double a, double b,
                    double c, double d) {
    fd_operation operation = step->operation;
    const double value[FD_VALUES] = {a, b, c, d};

    operation.kind = (int32_t)kind;
    memcpy(operation.value, value, sizeof value);
    return add(to, &operation);
}

static int add_scale(drawing *to, const fd_step *step) {
    double across = step->operation.scale_to.width, down = step->operation.scale_to.height;
    double longest = step->operation.scale_to.longest;
    int is_upright = to->width <= to->height;

    if (down == 0.0) {
        double shorter = is_upright ? to->width : to->height;
        double longer = is_upright ? to->height : to->width;
        double new_shorter = across == 0.0 ? shorter : across;
        double new_longer = across == 0.0 ? longer : floor(across * longer / shorter);
        if (longest > 0.0 && (across == 0.0 || new_longer > longest)) {
            new_shorter = fmax(1.0, floor(longest * new_shorter / new_longer));
            new_longer = longest;
        }
        across = is_upright ? new_shorter : new_longer;
        down = is_upright ? new_longer : new_shorter;
    }
    return add_with(to, step, FD_RESIZE, across, down, 0, 0);
}

/* The central box with the aspect ratio nearest to the allowed ones. */
static int add_nearest_box(drawing *to, const fd_step *step) {
    double narrowest = step->operation.box_limits.narrowest;
    double widest = step->operation.box_limits.widest;
    double across = to->width, down = to->height, ratio = across / down;

    if (ratio < narrowest)
        down = fmax(1, rint(across / narrowest));
    else if (ratio > widest)
        across = fmax(1, rint(down * widest));
    return add_with(to, step, FD_CROP, floor((to->width - across) / 2),
                    floor((to->height - down) / 2), across, down);
}

/* Crop a box of this size at a random place. */
static int add_anywhere(drawing *to, const fd_step *step, double across, double down) {
    int32_t top = fd_draw_below(to->state, to->height - (int32_t)down + 1);
    int32_t left = fd_draw_below(to->state, to->width - (int32_t)across + 1);

    return add_with(to, step, FD_CROP, left, top, across, down);
}

/* As torchvision's RandomResizedCrop. */
static int add_box(drawing *to, const fd_step *step) {
    double whole = (double)to->height * to->width;

    for (int i = 0; i < ATTEMPTS; i++) {
        double share = fd_draw_share(to->state);
        double area = whole * (step->area[0] + (step->area[1] - step->area[0]) * share);
        double spread = step->aspect[1] - step->aspect[0];
        double aspect = exp(step->aspect[0] + spread * fd_draw_share(to->state));
        double across = rint(sqrt(area * aspect)), down = rint(sqrt(area / aspect));
        if (across >= 1 && across <= to->width && down >= 1 && down <= to->height)
            return add_anywhere(to, step, across, down);
    }
    return add_nearest_box(to, step);
}

/* As albumentations' RandomSizedCrop. */
static int add_sized_crop(drawing *to, const fd_step *step) {
    double lowest = step->operation.sized_crop.lowest;
    int32_t range = (int32_t)(step->operation.sized_crop.highest - lowest) + 1;

    if (range < 1)
        return FD_ARGUMENT;
    double side = lowest + fd_draw_below(to->state, range);
    double across = fmin(trunc(side * step->operation.sized_crop.aspect), to->width);
    double down = fmin(side, to->height);
    return across < 1 || down < 1 ? FD_ARGUMENT : add_anywhere(to, step, across, down);
}

/* As torchvision's RandomCrop: its two versions pad differently. */
static int add_random_crop(drawing *to, const fd_step *step) {
    const double *side = step->operation.random_crop.side;
    int status = FD_OK;
    double border[4];

    if (step->picks == 3)
        return add_sized_crop(to, step);
    memcpy(border, step->operation.random_crop.border, sizeof border);

    for (int axis = 0; axis < 2; axis++) { /* across, down */
        double own = axis ? to->height : to->width;
        double missing = side[axis] - own - border[axis] - border[axis + 2];
        if (step->picks == 0 || missing <= 0)
            continue;
        border[axis] += missing;
        border[axis + 2] += missing;
        if (step->picks == 1) {
            status = add_with(to, step, FD_PAD, border[0], border[1], border[2], border[3]);
            border[0] = border[1] = border[2] = border[3] = 0;
        }
        if (status != FD_OK)
            return status;
    }
    if (border[0] + border[1] + border[2] + border[3] > 0)
        status = add_with(to, step, FD_PAD, border[0], border[1], border[2], border[3]);
    if (status != FD_OK || side[0] > to->width || side[1] > to->height)
        return FD_ARGUMENT;
    int32_t width = (int32_t)side[0], height = (int32_t)side[1];
    int32_t top = height < to->height ? fd_draw_below(to->state, to->height - height + 1) : 0;
    int32_t left = width < to->width ? fd_draw_below(to->state, to->width - width + 1) : 0;
    return add_with(to, step, FD_CROP, left, top, width, height);
}

/* As torchvision's RandomShortestSize, or ScaleJitter, which computes in float32; or albumentations'
 * RandomScale. */
static int add_scale_by(drawing *to, const fd_step *step) {
    double width = step->operation.scale_by.width, height = step->operation.scale_by.height;
    double longer = step->operation.scale_by.longer, across = to->width, down = to->height;

    if (step->picks == 0) {
        double scale = step->area[0] + (step->area[1] - step->area[0]) * fd_draw_share(to->state);
        across = trunc(across * scale);
        down = trunc(down * scale);
        if (across < 1 || down < 1)
            return FD_ARGUMENT;
        return add_with(to, step, FD_RESIZE, across, down, step->operation.resize.by_area, 0);
    }
    if (width > 0.0) {
        float share = (float)fd_draw_share(to->state), low = (float)step->area[0];
        float factor = low + share * (float)(step->area[1] - step->area[0]);
        float scale = (float)fmin(width / across, height / down) * factor;
        across = floorf((float)across * scale);
        down = floorf((float)down * scale);
    } else {
        double scale = step->operation.scale_by.shorter / fmin(across, down);
        scale = longer > 0.0 ? fmin(scale, longer / fmax(across, down)) : scale;
        across = floor(across * scale);
        down = floor(down * scale);
    }
    return add_with(to, step, FD_RESIZE, fmax(1, across), fmax(1, down), 0, 0);
}

/* The border at the left or top, rounded down. */
static double border(double whole, double part) { return fmax(0, floor((part - whole) / 2)); }

/* Crop before padding, so that this may be done while decoding: the result is the same. */
static int add_central_crop(drawing *to, const fd_step *step) {
    double width = step->operation.central_crop.width;
    double height = step->operation.central_crop.height;
    double x = (to->width - width) / 2, y = (to->height - height) / 2;
    double across = fmin(width, to->width), down = fmin(height, to->height);
    int is_down = step->operation.central_crop.rounds_down == 1.0;

    if (step->picks == 0 && (across < width || down < height))
        return FD_ARGUMENT;
    x = x < 0 ? 0 : is_down ? floor(x) : rint(x);
    y = y < 0 ? 0 : is_down ? floor(y) : rint(y);
    int status = add_with(to, step, FD_CROP, x, y, across, down);
    if (status != FD_OK || (across == width && down == height))
        return status;
    double left = border(across, width), top = border(down, height);
    return add_with(to, step, FD_PAD, left, top, width - across - left, height - down - top);
}

/* As albumentations' LongestMaxSize and SmallestMaxSize, and ultralytics' LetterBox. */
static int add_fit(drawing *to, const fd_step *step) {
    double across = step->operation.fit.width / to->width, most = step->operation.fit.most;
    double down = step->operation.fit.height / to->height;
    double factor = step->picks ? fmax(across, down) : fmin(across, down);

    factor = across == 0.0 ? down : down == 0.0 ? across : factor;
    factor = most > 0.0 ? fmin(factor, most) : factor;
    return add_with(to, step, FD_RESIZE, fmax(1, rint(to->width * factor)),
                    fmax(1, rint(to->height * factor)), step->operation.fit.by_area, 0);
}

/* As Qwen2-VL's smart_resize. */
static int add_multiples(drawing *to, const fd_step *step) {
    double unit = step->operation.unit, whole = (double)to->width * to->height, sides[2];
    const double own[2] = {to->width, to->height}, *limits = step->area;

    if (fmax(own[0], own[1]) / fmin(own[0], own[1]) > 200 || unit < 1.0)
        return FD_ARGUMENT;
    for (int axis = 0; axis < 2; axis++)
        sides[axis] = rint(own[axis] / unit) * unit;
    double area = sides[0] * sides[1], by = sqrt(whole / limits[1]);
    if (area > limits[1])
        for (int axis = 0; axis < 2; axis++)
            sides[axis] = fmax(unit, floor(own[axis] / by / unit) * unit);
    by = sqrt(limits[0] / whole);
    if (area <= limits[1] && area < limits[0])
        for (int axis = 0; axis < 2; axis++)
            sides[axis] = ceil(own[axis] * by / unit) * unit;
    return add_with(to, step, FD_RESIZE, sides[0], sides[1], 0, 0);
}

/* As albumentations' PadIfNeeded, and LLaVA's expand2square. */
static int add_padding(drawing *to, const fd_step *step) {
    const double *side = step->operation.pad_to.side, *share = step->operation.pad_to.before;
    double before[2], after[2];

    for (int axis = 0; axis < 2; axis++) { /* across, down */
        double own = axis ? to->height : to->width, by = step->operation.pad_to.multiple[axis];
        double least = step->picks ? fmax(to->width, to->height) : side[axis];
        double missing = (by > 0.0 ? ceil(own / by) * by : least) - own;
        missing = fmax(0.0, missing);
        if (missing >= FD_LARGEST_NUMBER)
            return FD_ARGUMENT;
        before[axis] = share[axis] < 0.0 ? fd_draw_below(to->state, (int32_t)missing + 1)
                                         : floor(missing * share[axis]);
        after[axis] = missing - before[axis];
    }
    if (before[0] + before[1] + after[0] + after[1] == 0.0)
        return FD_OK;
    return add_with(to, step, FD_PAD, before[0], before[1], after[0], after[1]);
}

/* As albumentations' CoarseDropout. */
static int add_hole(drawing *to, const fd_step *step) {
    double sides[2];

    for (int axis = 0; axis < 2; axis++) { /* across, down */
        double low = step->operation.hole[axis].least, high = step->operation.hole[axis].most;
        double whole = axis ? to->height : to->width, share = fd_draw_share(to->state);
        if (step->picks)
            sides[axis] = trunc(whole * (low + (high - low) * share));
        else
            sides[axis] = low + floor((fmin(high, whole) + 1 - low) * share);
        if (!(sides[axis] >= 0.0 && sides[axis] <= whole))
            return FD_ARGUMENT;
    }
    int32_t top = fd_draw_below(to->state, to->height - (int32_t)sides[1] + 1);
    int32_t left = fd_draw_below(to->state, to->width - (int32_t)sides[0] + 1);
    return add_with(to, step, FD_FILL, left, top, sides[0], sides[1]);
}

/* Solve eight linear equations, which are overwritten; 0 if they have no single solution. */
static int solve(double rows[8][9]) {
    for (int i = 0; i < 8; i++) {
        int best = i;
        for (int k = i + 1; k < 8; k++)
            best = fabs(rows[k][i]) > fabs(rows[best][i]) ? k : best;
        if (fabs(rows[best][i]) < 1e-9)
            return 0;
        for (int k = 0; k < 9; k++) {
            double kept = rows[i][k];
            rows[i][k] = rows[best][k];
            rows[best][k] = kept;
        }
        for (int k = 0; k < 8; k++) {
            double factor = k == i ? 0.0 : rows[k][i] / rows[i][i];
            for (int j = i; j < 9; j++)
                rows[k][j] -= factor * rows[i][j];
        }
    }
    for (int i = 0; i < 8; i++)
        rows[i][8] /= rows[i][i];
    return 1;
}

/* Whether a corner is at the right (axis 0) or below; they go clockwise from the left top. */
static int is_far(int corner, int axis) { return axis ? corner >= 2 : corner == 1 || corner == 2; }

/* As torchvision's RandomPerspective. */
static void draw_corners(drawing *to, double by, double corners[4][2], double sources[4][2]) {
    const int32_t sides[2] = {to->width, to->height};

    for (int i = 0; i < 4; i++)
        for (int axis = 0; axis < 2; axis++) {
            int32_t side = sides[axis], reach = (int32_t)(by * (side / 2)) + 1;
            sources[i][axis] = is_far(i, axis) ? side - 1 : 0;
            corners[i][axis] = (is_far(i, axis) ? side - reach : 0) +
                               fd_draw_below(to->state, reach);
        }
}

static double distance(const double *a, const double *b) { return hypot(a[0] - b[0], a[1] - b[1]); }

/* As albumentations' Perspective: the sources of the corners of an image whose sides are those of the
 * result, times that over the source's. */
static int draw_sources(drawing *to, const fd_step *step, double corners[4][2],
                        double sources[4][2]) {
    const double sides[2] = {to->width, to->height};
    double deviation = step->area[0] + (step->area[1] - step->area[0]) * fd_draw_share(to->state);

    for (int i = 0; i < 4; i++)
        for (int axis = 0; axis < 2; axis++) {
            double share = fmod(fabs(deviation * normal_of(to->state, fd_draw_share(to->state))),
                                0.32);
            sources[i][axis] = (is_far(i, axis) ? 1.0 - share : share) * sides[axis];
        }
    double top = distance(sources[0], sources[1]), low = distance(sources[2], sources[3]);
    double right = distance(sources[1], sources[2]), left = distance(sources[3], sources[0]);
    if (fmin(fmin(top, low), fmin(right, left)) < 2) /* albumentations then moves its corners */
        return 0;
    const double longest[2] = {trunc(fmax(top, low)), trunc(fmax(right, left))};
    for (int i = 0; i < 4; i++)
        for (int axis = 0; axis < 2; axis++)
            corners[i][axis] = is_far(i, axis) ? sides[axis] * sides[axis] / longest[axis] : 0.0;
    return 1;
}

static int add_perspective(drawing *to, const fd_step *step) {
    double corners[4][2], sources[4][2], rows[8][9];
    fd_operation operation = step->operation;

    if (operation.library == FD_OPENCV) {
        if (!draw_sources(to, step, corners, sources))
            return FD_ARGUMENT;
    } else
        draw_corners(to, operation.reach, corners, sources);
    for (int i = 0; i < 4; i++) {
        double x = corners[i][0], y = corners[i][1];
        double from_x = sources[i][0], from_y = sources[i][1];
        const double first[9] = {x, y, 1, 0, 0, 0, -from_x * x, -from_x * y, from_x};
        const double second[9] = {0, 0, 0, x, y, 1, -from_y * x, -from_y * y, from_y};
        memcpy(rows[2 * i], first, sizeof first);
        memcpy(rows[2 * i + 1], second, sizeof second);
    }
    if (!solve(rows))
        return FD_ARGUMENT;
    operation.kind = FD_PERSPECTIVE;
    for (int i = 0; i < 8; i++)
        operation.matrix[i] = (float)rows[i][8]; /* so does torchvision */
    return add(to, &operation);
}

static int draw_sequence(drawing *to, const fd_step *step) {
    return draw_steps(to, step + 1, step->inner);
}

/* What draws a step of each kind. */
static int (*const DRAW[])(drawing *to, const fd_step *step) = {
    [FD_OPERATION] = add_operation,
    [FD_SEQUENCE] = draw_sequence,
    [FD_SHUFFLE] = draw_shuffled,
    [FD_CHOICE] = draw_choice,
    [FD_MIX] = draw_mix,
    [FD_ERASURE] = add_erasure,
    [FD_SCALE] = add_scale,
    [FD_BOX] = add_box,
    [FD_SCALE_BY] = add_scale_by,
    [FD_RANDOM_CROP] = add_random_crop,
    [FD_CENTRAL_CROP] = add_central_crop,
    [FD_FIT] = add_fit,
    [FD_PAD_TO] = add_padding,
    [FD_MULTIPLES] = add_multiples,
    [FD_HOLE] = add_hole,
    [FD_PERSPECTIVE_CHANGE] = add_perspective,
};

/* Draw steps in order; `count` includes the steps inside them. */
static int draw_steps(drawing *to, const fd_step *steps, int32_t count) {
    for (int32_t i = 0; i < count; i += 1 + steps[i].inner) {
        const fd_step *step = &steps[i];
        if (step->probability < 1.0 && fd_draw_share(to->state) >= step->probability)
            continue;
        int status = DRAW[step->kind](to, step);
        if (status != FD_OK)
            return status;
    }
    return FD_OK;
}

/* Whether the steps form a tree: no step reaches beyond the one that it is in. */
static int is_tree(const fd_step *steps, int32_t count) {
    for (int32_t i = 0; i < count; i += 1 + steps[i].inner) {
        const fd_step *step = &steps[i];
        if (step->inner < 0 || step->inner >= count - i || !fd_is_good_step(step))
            return 0;
        if (!is_tree(step + 1, step->inner))
            return 0;
    }
    return 1;
}

int fd_draw_operations(const fd_program *program, int32_t *width, int32_t *height, uint64_t *state,
                       fd_operation operations[FD_MOST_OPERATIONS], int32_t *count) {
    drawing to = {.operations = operations,
                  .most = FD_MOST_OPERATIONS,
                  .width = *width,
                  .height = *height,
                  .state = state};

    if (program->count < 0 || !is_tree(program->steps, program->count))
        return FD_ARGUMENT;
    int status = draw_steps(&to, program->steps, program->count);
    *count = to.count;
    *width = to.width;
    *height = to.height;
    return status;
}
