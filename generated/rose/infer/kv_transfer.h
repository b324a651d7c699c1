// Move pages from one engine to another.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rose/infer/engine.h"

namespace rose::infer {

/// What two engines must agree on before pages can move between them.
struct KvShape {
  std::uint64_t weights_version = 0;
  std::int32_t page_size = 0, layers = 0;
  std::int64_t block_bytes = 0;  ///< of one layer of one page, keys and values
  std::uint64_t kv_key = 0;      ///< what the bytes mean: RunnerLimits'
  bool operator==(const KvShape&) const = default;
};

/// Keys and values of one layer of one page of a text.
struct KvBlock {
  std::int32_t page = 0;  ///< of the text: its tokens begin at page * page_size
  std::int32_t layer = 0;
  std::span<const std::byte> bytes;
};

class KvTransfer {
 public:
  /// Throws core::Error (unsupported) for a runner that cannot tell its layers.
  explicit KvTransfer(Engine& engine);
  KvTransfer(const KvTransfer&) = delete;
  KvTransfer& operator=(const KvTransfer&) = delete;
  ~KvTransfer();  ///< gives back what is reserved; the engine must still be there
  KvShape shape() const;

  // The side that computes.
  using Sink = std::function<void(const KvBlock&)>;
  /// Pages [first, first + count) of the request with this id, to be submitted afterwards, go to the sink while they are computed,
  /// each block once. The sink is called on the engine's thread, and must not wait.
  void send(std::string id, std::int32_t first, std::int32_t count, Sink sink);
  void stop(const std::string& id);  ///< the sink is not called after this has returned

  // The side that receives.
  using Number = std::uint64_t;
  struct Room {
    std::int32_t first = 0, count = 0;  ///< pages of the text that are wanted
  };
  /// Sets pages aside for the whole pages of a prompt that are not known here, and holds those that are. Count 0: there are none, or
  /// no room for them; nothing is held then.
  Room reserve(Number number, std::span<const std::int32_t> tokens, std::string_view adapter,
               std::string_view salt);
  /// False: the block is not one that is waited for.
  bool write(Number number, const KvBlock& block);
  bool complete(Number number) const;  ///< all blocks have been written
  /// Makes the pages known, if all blocks have been written; else returns false. They stay held.
  bool publish(Number number);
  void release(Number number);    ///< unknown numbers are ignored
  std::int64_t reserved() const;  ///< pages held, known ones included

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace rose::infer
