/* simd_16.c: the kernels for every processor, with vectors of 16 bytes: SSE2, NEON, or what the compiler
 * makes of them. */
#define SIMD_BYTES 16
#define SIMD_TARGET
#define SIMD_NAME FD_SIMD_16
#define SIMD_SET(name) name##_16
#include "simd_set.h"
