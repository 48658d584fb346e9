/* kernels.c: the sets of kernels, and which of them is in use. */
#include "kernels.h"

#include "png_decoder.h"
#include "progressive.h"
#include "twopass.h"
#include "warp.h"

#include <stdatomic.h>
#include <string.h>

/* What the others are compared with. */
static const fd_kernels plain = {.name = "plain",
                                 .steps = &fd_steps_plain,
                                 .row_decoders = &fd_row_decoders_16,
                                 .unfilters = &fd_unfilters_plain,
                                 .crc = fd_crc_plain,
                                 .adler = fd_adler_plain,
                                 .squeeze = fd_squeeze_plain,
                                 .to_rgbx = fd_to_rgbx_plain,
                                 .resize_row = fd_resize_row_plain,
                                 .blend_rows = fd_blend_rows_plain,
                                 .warp_smooth = fd_warp_smooth_plain,
                                 .blend_run = fd_blend_run_plain};

#ifdef FD_AVX2

#include <cpuid.h>

/* Whether processor and operating system have what the target FD_AVX2 says. Not by
 * __builtin_cpu_supports, which needs a runtime that some compilers lack. */
static int has_avx2(void) {
    const uint32_t needed = bit_PCLMUL | bit_POPCNT | bit_OSXSAVE | bit_AVX, avx_state = 6;
    const uint32_t needed_too = bit_AVX2 | bit_BMI | bit_BMI2;
    uint32_t a, b, c, d, low, high;

    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & needed) != needed)
        return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & avx_state) == avx_state && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
           (b & needed_too) == needed_too && __get_cpuid(0x80000001, &a, &b, &c, &d) &&
           (c & bit_LZCNT) != 0;
}

#endif

/* Those that can run here, best first, with their names. */
typedef struct {
    const fd_kernels *sets[4];
    const char *names;
} choice;

static choice possible(void) {
#ifdef FD_AVX2
    if (has_avx2())
        return (choice){{&fd_kernels_avx2, &fd_kernels_16, &plain}, "avx2 " FD_SIMD_16 " plain"};
#endif
    return (choice){{&fd_kernels_16, &plain}, FD_SIMD_16 " plain"};
}

static _Atomic(const fd_kernels *) chosen; /* NULL: not yet */

const fd_kernels *fd_kernels_now(void) {
    const fd_kernels *kernels = atomic_load_explicit(&chosen, memory_order_acquire);

    if (kernels == NULL) { /* threads that come at the same time find the same */
        kernels = possible().sets[0];
        atomic_store(&chosen, kernels);
    }
    return kernels;
}

const char *fd_instructions(void) { return possible().names; }

int fd_use_instructions(const char *name) {
    choice found = possible();

    for (int i = 0; name != NULL && found.sets[i] != NULL; i++)
        if (name[0] == '\0' || strcmp(name, found.sets[i]->name) == 0) {
            atomic_store(&chosen, found.sets[i]);
            return FD_OK;
        }
    return FD_ARGUMENT;
}
