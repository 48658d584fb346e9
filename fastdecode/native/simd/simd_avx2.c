/* simd_avx2.c: the kernels for AVX2, with vectors of 32 bytes. */
#include "kernels.h"

#ifdef FD_AVX2

#define SIMD_BYTES 32
#define SIMD_AVX2
#define SIMD_TARGET FD_AVX2
#define SIMD_NAME "avx2"
#define SIMD_SET(name) name##_avx2
#include "simd_set.h"

#endif
