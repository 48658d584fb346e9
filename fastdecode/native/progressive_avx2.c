/* progressive_avx2.c: progressive_rows.h for processors with AVX2 and BMI2, which also have the others. */
#include "progressive.h"

#ifdef FD_AVX2

#include <immintrin.h>

#define FD_TARGET __attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt")))
#ifdef __x86_64__
#define FD_PDEP(bits, mask) _pdep_u64(bits, mask)
#endif
#include "progressive_rows.h"

fd_row_decoder *const fd_row_decoders_avx2[2][2] = FD_ROW_DECODERS;

#endif
