/* random.h: the random numbers of one sample. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define FD_NEXT 0x9E3779B97F4A7C15U /* from a state to the next one */

/* SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014; the
 * constants are those of Vigna's splitmix64.c): the n-th number is a function of seed and n. */
static inline uint64_t fd_draw(uint64_t *state) {
    uint64_t mixed = *state += FD_NEXT;
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

/* Numbers of the normal distribution, many at a time (noise.c). */
enum { FD_NORMALS = 256 };
void fd_draw_normals(uint64_t *state, float numbers[FD_NORMALS]);

/* One after another; begin with a state and nothing else. */
typedef struct {
    uint64_t state;
    size_t drawn;
    float numbers[FD_NORMALS];
} fd_normal;

static inline float fd_next_normal(fd_normal *from) {
    size_t at = from->drawn++ % FD_NORMALS;

    if (at == 0)
        fd_draw_normals(&from->state, from->numbers);
    return from->numbers[at];
}
