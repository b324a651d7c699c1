// What the two engines say.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "rose/infer/kv_transfer.h"
#include "rose/serve/wire.h"

namespace rose::serve {

// To the engine that reads prompts.
struct ReadPrompt {
  std::uint64_t number = 0;
  infer::KvShape shape{};
  std::int32_t first = 0, count = 0;  ///< pages wanted
  std::uint32_t deadline_ms = 0;      ///< nobody waits after it
  std::vector<std::int32_t> prompt{};
  std::string adapter{}, salt{};
};
struct StopReading {
  std::uint64_t number = 0;
};
using PrefillCommand = std::variant<ReadPrompt, StopReading>;

// Back.
struct PrefillReady {
  infer::KvShape shape;
};
struct PageBlock {
  std::uint64_t number = 0;
  std::int32_t page = 0, layer = 0;
  std::string bytes{};
};
struct PromptRead {
  std::uint64_t number = 0;  ///< all its blocks came before
};
struct PromptNotRead {
  std::uint64_t number = 0;  ///< nothing more comes
  std::string why{};
};
using PrefillReport = std::variant<PrefillReady, PageBlock, PromptRead, PromptNotRead>;

// One frame each, appended. Decoding throws core::Error (corrupt).
void encode(const PrefillCommand& command, std::string& out);
void encode(const PrefillReport& report, std::string& out);
/// A block without a copy in between.
void encode_block(std::uint64_t number, const infer::KvBlock& block, std::string& out);
PrefillCommand decode_prefill_command(const Frame& frame);
PrefillReport decode_prefill_report(const Frame& frame);

}  // namespace rose::serve
