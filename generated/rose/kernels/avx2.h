// Ask for AVX2 where Highway has no word for an instruction.

#pragma once

#include <hwy/base.h>

#if HWY_ARCH_X86
#include <immintrin.h>

#define ROSE_KERNELS_AVX2 1
#define ROSE_BEGIN_AVX2 HWY_PUSH_ATTRIBUTES("avx,avx2,fma,f16c") static_assert(true)
#define ROSE_END_AVX2 HWY_POP_ATTRIBUTES static_assert(true)
#else
#define ROSE_KERNELS_AVX2 0
#endif

namespace rose::kernels {

/// Whether Highway would choose AVX2 or better here: then AVX2, FMA and F16C may be used.
bool have_avx2();

}  // namespace rose::kernels
