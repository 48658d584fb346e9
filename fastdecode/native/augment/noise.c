/* noise.c: numbers of the normal distribution.
 *
 * Sums, products and square roots of floats, and nothing of a library: every processor gives the same.
 */
#include "operations.h"
#include "random.h"

#include <math.h>
#include <string.h>

enum { DRAWS = FD_NORMALS / 2 };

/* The natural logarithm of a number from 2^-31 to 1 (Cephes' logf). */
INLINE float log_of(float number) {
    const int32_t root_of_half = 0x3F3504F3;
    int32_t bits;

    memcpy(&bits, &number, sizeof bits);
    int32_t exponent = (bits - root_of_half) >> 23;
    bits -= exponent * (1 << 23);
    memcpy(&number, &bits, sizeof number);
    float x = number - 1.0F, square = x * x, sum = 7.0376836292E-2F;
    sum = sum * x - 1.1514610310E-1F;
    sum = sum * x + 1.1676998740E-1F;
    sum = sum * x - 1.2420140846E-1F;
    sum = sum * x + 1.4249322787E-1F;
    sum = sum * x - 1.6668057665E-1F;
    sum = sum * x + 2.0000714765E-1F;
    sum = sum * x - 2.4999993993E-1F;
    sum = sum * x + 3.3333331174E-1F;
    return x + square * (x * sum - 0.5F) + (float)exponent * 0.69314718056F;
}

/* Two numbers of each draw (Box and Muller): 31 bits are a length, 32 an angle. */
INLINE void transform(float *restrict numbers, const uint64_t *restrict draws) {
    for (size_t i = 0; i < DRAWS; i++) {
        uint32_t turn = (uint32_t)draws[i], quarter = (turn + (1U << 29)) >> 30;
        float share = ((float)(int32_t)(draws[i] >> 33) + 1.0F) * (1.0F / (1U << 31));
        float length = sqrtf(-2.0F * log_of(share));
        float angle = (float)(int32_t)(turn - (quarter << 30)) * (1.57079632679F / (1 << 30));
        float square = angle *
                       angle; /* of at most an eighth of the circle; Cephes' sinf and cosf */
        float sine = (-1.9515295891E-4F * square + 8.3321608736E-3F) * square - 1.6666654611E-1F;
        float cosine = (2.443315711809948E-5F * square - 1.388731625493765E-3F) * square +
                       4.166664568298827E-2F;
        sine = sine * square * angle + angle;
        cosine = cosine * square * square - 0.5F * square + 1.0F;
        length = quarter & 2 ? -length : length;
        numbers[i] = length * (quarter & 1 ? sine : cosine);
        numbers[DRAWS + i] = length * (quarter & 1 ? cosine : sine);
    }
}

VARIANTS(draw_normals, (uint64_t state, float *restrict numbers), (state, numbers)) {
    uint64_t draws[DRAWS];

    for (size_t i = 0; i < DRAWS; i++)
        draws[i] = fd_draw(&state);
    transform(numbers, draws);
}

void fd_draw_normals(uint64_t *state, float numbers[FD_NORMALS]) {
    draw_normals(*state, numbers);
    *state += DRAWS * FD_NEXT;
}
