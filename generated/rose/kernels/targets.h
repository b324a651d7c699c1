// Include first in every file that is compiled once per instruction set.
// AVX2 and AVX-512 with fused multiply-add, and a portable fallback; what lies between differs in speed alone.
#pragma once

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
