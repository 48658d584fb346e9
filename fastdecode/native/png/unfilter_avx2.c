/* unfilter_avx2.c: the filters of PNG with AVX2's instructions, but vectors of 16 bytes: a pixel has no more. */
#include "png_decoder.h"

#ifdef FD_AVX2

#define SIMD_BYTES 16
#define SIMD_AVX2
#define SIMD_TARGET FD_AVX2
#define SIMD_SET(name) name##_avx2
#include "simd.h"

#include "unfilter_simd.h"

#endif
