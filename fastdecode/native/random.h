/* random.h: the random numbers of one sample. */
#ifndef FASTDECODE_RANDOM_H
#define FASTDECODE_RANDOM_H

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

#endif
