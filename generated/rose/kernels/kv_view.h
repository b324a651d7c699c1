// Say where keys and values live.

#pragma once

#include <cstdint>

#include "rose/kernels/dtype.h"

namespace rose::kernels {

/// Keys and values of many sequences, in pages. k and v are [layers, pages, kv_heads, page_size, head_dim].
/// page_table is [sequences, table_stride] page ids; the key of position p of sequence s is in page
/// page_table[s * table_stride + p / page_size] at slot p % page_size.
/// A contiguous cache is the special case page_size = capacity, page_table = {0, 1, ...}.
struct KvView {
  void* k = nullptr;
  void* v = nullptr;
  DType dtype = DType::f32;  ///< f32, f16 or bf16; or u8: e4m3 numbers times a scale
  int layers = 0, kv_heads = 0, head_dim = 0, page_size = 0;
  std::int64_t pages = 0;
  const std::int32_t* page_table = nullptr;
  std::int64_t table_stride = 0;
  const float* k_scale = nullptr;  ///< [layers, kv_heads], for a cache of u8; null: all 1
  const float* v_scale = nullptr;

  /// How many positions of one sequence the table can address.
  std::int64_t capacity() const { return table_stride * page_size; }

  /// Element offset of one key (and of its value) from the base pointer.
  std::int64_t offset(int layer, std::int64_t sequence, int kv_head, std::int64_t position) const {
    const std::int64_t page = page_table[sequence * table_stride + position / page_size];
    return (((layer * pages + page) * kv_heads + kv_head) * page_size + position % page_size) *
           head_dim;
  }
};

}  // namespace rose::kernels
