// Encode long texts in pieces.

#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

#include "rose/core/parallel.h"
#include "rose/text/tokenizer.h"

namespace rose::trainer {

/// Cuts of about `size` bytes at places where no token can lie across; together they are the text.
std::vector<std::string_view> pieces_of(std::string_view text, std::size_t size);

/// The ids of each text, special tokens' spellings taken as text. The same for any pool.
std::vector<std::vector<std::int32_t>> encode_all(const text::Tokenizer& tokenizer,
                                                  std::span<const std::string_view> texts,
                                                  core::ThreadPool& pool);

/// Calls f(i) for i in [0, n), each thread taking the next one when it is free.
template <class F>
void for_each_taken(core::ThreadPool& pool, std::size_t n, F&& f) {
  std::atomic<std::size_t> next{0};
  pool.for_range(pool.size(), 1, [&](std::int64_t, std::int64_t) {
    for (std::size_t i = next++; i < n; i = next++) f(i);
  });
}

}  // namespace rose::trainer
