/* random.h: the random numbers of one sample. */
#ifndef FASTDECODE_RANDOM_H
#define FASTDECODE_RANDOM_H

#include <math.h>
#include <stdint.h>

/* SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014; the
 * constants are those of Vigna's splitmix64.c): the n-th number is a function of seed and n. */
static inline uint64_t fd_draw(uint64_t *state) {
    uint64_t mixed = *state += 0x9E3779B97F4A7C15U;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
    return mixed ^ (mixed >> 31);
}

/* Draw a number in [0, 1). */
static inline double fd_draw_share(uint64_t *state) {
    return (double)(fd_draw(state) >> 11) / (1LL << 53);
}

/* Draw an integer from 0 to limit - 1. */
static inline int32_t fd_draw_below(uint64_t *state, int32_t limit) {
    return (int32_t)(((fd_draw(state) >> 32) * (uint32_t)limit) >> 32);
}

/* Normal numbers, two at a time (Marsaglia's polar method). */
typedef struct {
    uint64_t state;
    double spare;
    int has_spare;
} fd_normal;

static inline float fd_next_normal(fd_normal *numbers) {
    double x, y, square;

    if (numbers->has_spare) {
        numbers->has_spare = 0;
        return (float)numbers->spare;
    }
    do {
        x = 2.0 * fd_draw_share(&numbers->state) - 1.0;
        y = 2.0 * fd_draw_share(&numbers->state) - 1.0;
        square = x * x + y * y;
    } while (square >= 1.0 || square == 0.0);
    double scale = sqrt(-2.0 * log(square) / square);
    numbers->spare = y * scale;
    numbers->has_spare = 1;
    return (float)(x * scale);
}

#endif
