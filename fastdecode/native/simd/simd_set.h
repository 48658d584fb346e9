/* simd_set.h: all kernels in vectors, for the set that simd_16.c or simd_avx2.c defines. */
#include "png_decoder.h"
#include "progressive.h"
#include "twopass.h"
#include "warp.h"

#include "simd.h"

#include "checksum_simd.h"
#include "colours_simd.h"
#include "idct_simd.h"
#include "squeeze_simd.h"
#include "twopass_simd.h"
#include "warp_simd.h"
#if SIMD_BYTES == 16
#include "unfilter_simd.h" /* that of AVX2 is in unfilter_avx2.c */
#endif

#define FD_TARGET SIMD_TARGET
#include "progressive_rows.h"

static const fd_steps steps = {idct_8x8,      idct_4x4, idct_2x2, widen,
                               widen_between, between,  rgb,      rgbx};

const fd_row_decoders SIMD_SET(fd_row_decoders) = {FD_ROW_DECODERS};

const fd_kernels SIMD_SET(fd_kernels) = {.name = SIMD_NAME,
                                         .is_avx2 = SIMD_BYTES == 32,
                                         .steps = &steps,
                                         .row_decoders = &SIMD_SET(fd_row_decoders),
                                         .unfilters = &SIMD_SET(fd_unfilters),
                                         .crc = crc,
                                         .adler = adler,
                                         .squeeze = squeeze,
                                         .to_rgbx = to_rgbx,
                                         .resize_row = resize_row,
                                         .blend_rows = blend_rows,
                                         .warp_smooth = warp_smooth,
                                         .blend_run = blend_run};
