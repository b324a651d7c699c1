// What a launch of the cache's kernels is given.

#pragma once

#include <cstdint>

#include "rose/kernels/gpu/kv_cache.h"

namespace rose::kernels::gpu {

struct KvCall {
  KvView kv;
  int layer = 0, heads = 0;
  void *q = nullptr, *k = nullptr, *v = nullptr;
  std::int64_t q_stride = 0, k_stride = 0, v_stride = 0, tokens = 0;
  const KvPlace* places = nullptr;
  const float *cos = nullptr, *sin = nullptr;
  HeadNorm norm;
  DType dtype = DType::bf16;                                 // of k and v
  const float *key_scale = nullptr, *value_scale = nullptr;  // [kv_heads], where the cache is bytes
  const KvPageCopy* copies = nullptr;
  std::int64_t count = 0;
  std::int32_t* fault = nullptr;
};

void launch_kv_append(const KvCall& call, void* stream);
void launch_kv_gather(const KvCall& call, void* stream);
void launch_kv_copy_pages(const KvCall& call, void* stream);
void launch_kv_rollover(const KvCall& call, const KvGrowth* growths, std::int32_t* page_table,
                        std::int32_t* taken, void* stream);

}  // namespace rose::kernels::gpu
