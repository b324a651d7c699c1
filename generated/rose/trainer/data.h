// Cut text into windows of tokens.

#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rose::trainer {

/// Markdown without its front matter and without fenced blocks.
std::string prose_of(std::string_view markdown);

/// The text of one file, or the prose of all .md files under a folder in path order.
/// Throws core::Error (not_found) when there is none.
std::string read_corpus(const std::filesystem::path& path);

/// Windows of one step: ids and targets are [batch, context], targets shifted by one.
struct Windows {
  std::vector<std::int32_t> ids, targets;
};

/// Fills `out` with `batch` windows at random starts, a function of (seed, step) alone.
/// Throws core::Error (invalid_argument) unless tokens holds at least context + 1.
void draw_windows(std::span<const std::int32_t> tokens, std::int64_t batch, std::int64_t context,
                  std::uint64_t seed, std::uint64_t step, Windows& out);

/// Random numbers are drawn from numbered streams, so that no two uses share any.
enum class Stream : std::uint64_t { windows = 1, samples = 2 };

}  // namespace rose::trainer
