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

/* The next operation, or NULL if there is no room. */
static fd_operation *next_operation(drawing *to, const fd_operation *operation) {
    if (to->count == to->most)
        return NULL;
    to->operations[to->count] = *operation;
    return &to->operations[to->count++];
}

static int add_operation(drawing *to, const fd_step *step) {
    fd_operation *operation = next_operation(to, &step->operation);

    if (operation == NULL)
        return FD_ARGUMENT;
    for (int32_t i = 0; i < step->drawn_count; i++) {
        const fd_drawn *drawn = &step->drawn[i];
        double part = drawn->range * draw_share(to->state, drawn);
        part = drawn->is_whole ? trunc(part) : part;
        if (drawn->either_sign && fd_draw_below(to->state, 2))
            part = -part;
        double *value = &operation->value[drawn->at];
        *value = drawn->start + part;
        *value = drawn->is_rounded ? rint(*value) : *value;
        if (drawn->copied >= 0)
            operation->value[drawn->copied] = *value;
    }
    return FD_OK;
}

/* Draw a box as torchvision's and timm's RandomErasing do: after ten that do not fit, none. */
static int add_erasure(drawing *to, const fd_step *step) {
    enum { ATTEMPTS = 10 };

    for (int i = 0; i < ATTEMPTS; i++) {
        double share = step->area[0] + (step->area[1] - step->area[0]) * fd_draw_share(to->state);
        double area = share * to->width * to->height;
        double spread = step->aspect[1] - step->aspect[0];
        double aspect = exp(step->aspect[0] + spread * fd_draw_share(to->state));
        double height = rint(sqrt(area * aspect)), width = rint(sqrt(area / aspect));
        if (!(height < to->height && width < to->width))
            continue;
        fd_operation *operation = next_operation(to, &step->operation);
        if (operation == NULL)
            return FD_ARGUMENT;
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

static int add_mixing(drawing *to, int32_t kind, double number) {
    const fd_operation mixing = {.kind = kind, .value = {number}};

    return next_operation(to, &mixing) == NULL ? FD_ARGUMENT : FD_OK;
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
    case FD_MIX:
        return draw_mix(to, step);
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

/* Whether all values of a step exist. */
static int is_good(const fd_step *step) {
    for (int32_t i = 0; i < step->drawn_count; i++)
        if (step->drawn[i].at < 0 || step->drawn[i].at > 5 || step->drawn[i].copied > 5)
            return 0;
    return 1;
}

/* Whether the steps form a tree: no step reaches beyond the one that it is in. */
static int is_tree(const fd_step *steps, int32_t count) {
    for (int32_t i = 0; i < count; i += 1 + steps[i].inner) {
        const fd_step *step = &steps[i];
        if (step->inner < 0 || step->inner >= count - i || !is_good(step))
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
