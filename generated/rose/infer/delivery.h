// Turn records into events, on a thread of their own.

#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "rose/infer/request.h"
#include "rose/infer/text_stream.h"
#include "rose/text/tokenizer.h"

namespace rose::infer {

/// The delivery's half of a request: only its thread touches it after prepare().
class Listener {
 public:
  void prepare(std::uint64_t handle, const Request& request,
               const std::shared_ptr<const Sampling>& sampling,
               const std::optional<text::Tokenizer>& tokenizer, std::span<const std::int32_t> eos);
  /// Any thread: how long the request has waited for its first step.
  void begun(std::chrono::steady_clock::duration waited) {
    queued_us_ = std::chrono::duration_cast<std::chrono::microseconds>(waited).count();
  }

 private:
  friend class Delivery;
  struct Answer {
    std::optional<TextStream> stream;
    std::int64_t tokens = 0;
    bool finished = false;
  };
  std::uint64_t handle_ = 0;
  const Request* request_ = nullptr;
  std::atomic<std::int64_t> queued_us_{0};
  std::vector<Answer> answers_;
};

struct TokenRecord {
  std::int32_t token = -1;
  float logprob = 0.0f;
  std::uint64_t version = 0;
  std::int64_t cached = 0;
};

/// How a choice ended.
struct EndRecord {
  Finish finish = Finish::stop;
  std::int64_t cached = 0;
  std::shared_ptr<const core::Error> error{};
  std::shared_ptr<const std::vector<float>> embedding{};
  std::shared_ptr<void> last{};  ///< keeps the request alive until its last event
};

class Delivery {
 public:
  /// Told, on the delivery's thread, that an answer has ended there: a stop string, or a callback that threw (choice -1: all).
  using Ended = std::function<void(std::uint64_t handle, int choice, Finish finish)>;
  explicit Delivery(Ended ended);
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;
  ~Delivery();  ///< after everything that was sent

  // The step thread's side. Nothing is seen by the other thread before send().
  void token(Listener& to, int choice, const TokenRecord& token,
             std::span<const std::int32_t> top_ids, std::span<const float> top_logprobs);
  void prompt_token(Listener& to, const TokenRecord& token, std::span<const std::int32_t> top_ids,
                    std::span<const float> top_logprobs);
  void finish(Listener& to, int choice, EndRecord end);
  void send();

  void flush();  ///< any thread but the delivery's

 private:
  // Two batches that change places.
  struct Record {
    Listener* to = nullptr;
    int choice = 0;
    bool of_prompt = false, ends = false;
    TokenRecord token;
    std::size_t top_begin = 0, top_count = 0;
    EndRecord end;
  };
  struct Batch {
    std::vector<Record> records;
    std::vector<Alternative> top;
  };
  Record& append(Listener& to, int choice, const TokenRecord& token,
                 std::span<const std::int32_t> ids, std::span<const float> logprobs);
  void work();
  void deliver(const Record& record, const Batch& batch);
  void tell(Listener& to, const Event& event);

  Ended ended_;
  Batch filling_;  ///< the step thread's
  std::mutex mutex_;
  std::condition_variable filled_, emptied_;
  Batch sent_;  ///< between the two
  bool busy_ = false, stopping_ = false;
  Batch taken_;  ///< the delivery thread's
  std::thread thread_;
};

}  // namespace rose::infer
