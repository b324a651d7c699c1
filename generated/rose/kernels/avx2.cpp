// Ask Highway which instructions it would choose.

#include "rose/kernels/avx2.h"

#include "rose/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rose/kernels/avx2.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace rose::kernels::HWY_NAMESPACE {

bool at_least_avx2() {
  return HWY_ARCH_X86 != 0 && HWY_TARGET <= HWY_AVX2;
}

}  // namespace rose::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rose::kernels {

HWY_EXPORT(at_least_avx2);

bool have_avx2() {
  return HWY_DYNAMIC_DISPATCH(at_least_avx2)();
}

}  // namespace rose::kernels
#endif  // HWY_ONCE
