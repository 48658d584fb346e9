/* program.c: draws the operations of one sample from a random program. */
#include "internal.h"
#include "random.h"

#include <math.h>

#define PI 3.14159265358979323846

/* The operations drawn so far. */
typedef struct {
    fd_operation *operations;
    int32_t count, most;
    int32_t width, height; /* of the image */
    uint64_t *state;
} drawing;

static int draw_steps(drawing *to, const fd_step *steps, int32_t count);

/* Draw a number between 0 and 1: uniform, or from a normal distribution and then limited. */
static double draw_share(uint64_t *state, const fd_step *step) {
    double share = fd_draw_share(state);

    if (step->deviation < 0.0)
        return share;
    if (step->deviation > 0.0) { /* Box and Muller */
        double length = sqrt(-2.0 * log(1.0 - share));
        share = step->mean + step->deviation * length * cos(2.0 * PI * fd_draw_share(state));
    } else
        share = step->mean;
    return share < 0.0 ? 0.0 : share > 1.0 ? 1.0 : share;
}

static int add_operation(drawing *to, const fd_step *step) {
    if (to->count == to->most)
        return FD_ARGUMENT;
    fd_operation *operation = &to->operations[to->count++];
    *operation = step->operation;
    if (step->drawn < 0)
        return FD_OK;
    double part = step->range * draw_share(to->state, step);
    part = step->is_whole ? trunc(part) : part;
    if (step->either_sign && fd_draw_below(to->state, 2))
        part = -part;
    operation->value[step->drawn] = step->start + part;
    if (step->copied >= 0)
        operation->value[step->copied] = operation->value[step->drawn];
    return FD_OK;
}

/* Draw a box as torchvision's and timm's RandomErasing do: after ten that do not fit, none. */
static int add_erasure(drawing *to, const fd_step *step) {
    enum { ATTEMPTS = 10 };

    if (to->count == to->most)
        return FD_ARGUMENT;
    for (int i = 0; i < ATTEMPTS; i++) {
        double share = step->area[0] + (step->area[1] - step->area[0]) * fd_draw_share(to->state);
        double area = share * to->width * to->height;
        double spread = step->aspect[1] - step->aspect[0];
        double aspect = exp(step->aspect[0] + spread * fd_draw_share(to->state));
        double height = rint(sqrt(area * aspect)), width = rint(sqrt(area / aspect));
        if (!(height < to->height && width < to->width))
            continue;
        fd_operation *operation = &to->operations[to->count++];
        *operation = step->operation;
        operation->value[1] = fd_draw_below(to->state, to->height - (int32_t)height + 1);
        operation->value[0] = fd_draw_below(to->state, to->width - (int32_t)width + 1);
        operation->value[2] = width;
        operation->value[3] = height;
        operation->seed = operation->noise == FD_NOISE_NONE ? 0 : fd_draw(to->state);
        return FD_OK;
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

/* Draw one child, with a probability in proportion to its weight. */
static int draw_choice(drawing *to, const fd_step *step) {
    double all = 0.0;
    int32_t i, end = step->inner + 1, last = 1;

    for (i = 1; i < end; i += 1 + step[i].inner)
        all += step[i].weight;
    double left = all * fd_draw_share(to->state);
    for (i = 1; i < end && left >= 0.0; i += 1 + step[i].inner) {
        left -= step[i].weight;
        last = i;
    }
    return end > 1 ? draw_steps(to, step + last, 1 + step[last].inner) : FD_OK;
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

static int draw_step(drawing *to, const fd_step *step) {
    if (step->probability < 1.0 && fd_draw_share(to->state) >= step->probability)
        return FD_OK;
    switch (step->kind) {
    case FD_OPERATION:
        return add_operation(to, step);
    case FD_SEQUENCE:
        return draw_steps(to, step + 1, step->inner);
    case FD_SHUFFLE:
        return draw_shuffled(to, step);
    case FD_CHOICE:
        return draw_choice(to, step);
    case FD_ERASURE:
        return add_erasure(to, step);
    default:
        return FD_ARGUMENT;
    }
}

/* Draw steps in order; `count` includes the steps inside them. */
static int draw_steps(drawing *to, const fd_step *steps, int32_t count) {
    for (int32_t i = 0; i < count; i += 1 + steps[i].inner) {
        int status = draw_step(to, &steps[i]);
        if (status != FD_OK)
            return status;
    }
    return FD_OK;
}

/* Whether the steps form a tree: no step reaches beyond the one that it is in. */
static int is_tree(const fd_step *steps, int32_t count) {
    for (int32_t i = 0; i < count; i += 1 + steps[i].inner) {
        const fd_step *step = &steps[i];
        if (step->inner < 0 || step->inner >= count - i || step->drawn > 5 || step->copied > 5)
            return 0;
        if (!is_tree(step + 1, step->inner))
            return 0;
    }
    return 1;
}

int fd_draw_operations(const fd_program *program, int32_t width, int32_t height, uint64_t *state,
                       fd_operation operations[FD_MOST_OPERATIONS], int32_t *count) {
    drawing to = {.operations = operations,
                  .most = FD_MOST_OPERATIONS,
                  .width = width,
                  .height = height,
                  .state = state};

    if (program->count < 0 || !is_tree(program->steps, program->count))
        return FD_ARGUMENT;
    int status = draw_steps(&to, program->steps, program->count);
    *count = to.count;
    return status;
}
