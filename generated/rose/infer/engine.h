// Answer requests.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rose/infer/admission.h"
#include "rose/infer/drafter.h"
#include "rose/infer/kv_pool.h"
#include "rose/infer/prefix_cache.h"
#include "rose/infer/request.h"
#include "rose/infer/step.h"
#include "rose/text/tokenizer.h"

namespace rose::infer {

struct EngineOptions {
  std::int64_t max_num_seqs = 0;  ///< running at once; 0: as many as a step of the runner holds
  std::int64_t max_num_batched_tokens = 0;  ///< of one step; 0: likewise
  std::int64_t max_chunk = 0;               ///< prompt tokens of one request in a step; 0: no limit
  std::size_t max_waiting = 1 << 20;        ///< a request beyond that is refused
  AdmissionPolicy policy = AdmissionPolicy::fifo;
  std::size_t look_ahead = 64;
  std::int64_t patience = 100;
  bool prefix_caching = true;
  std::optional<bool>
      overlap{};  ///< plan a step while the one before runs; absent: where the runner gains by it
  std::uint64_t seed = 0;  ///< for requests that bring none
  std::shared_ptr<Drafter> drafter{};
  int drafts = 4;  ///< guesses per step
  /// While at most so many requests run, the text that a grammar forces is guessed; it needs the tokenizer.
  std::size_t forced_streams = 4;
  int forced_drafts = 16;  ///< tokens of it per step
  double stall_seconds =
      600.0;  ///< a runner that is busy with a step for longer has failed; 0: never
};

// What an engine has done and has.
struct Statistics {
  std::int64_t steps = 0, running = 0, waiting = 0;
  std::int64_t prompt_tokens = 0;  ///< computed, again after preemption too
  std::int64_t answer_tokens = 0;  ///< that stand
  std::int64_t drafted = 0, drafts_right = 0;
  std::int64_t preemptions = 0;
  std::int64_t finished_stop = 0, finished_length = 0, cancelled = 0, failed = 0;  ///< choices
  double runner_seconds = 0.0;  ///< in launch and wait
  double step_seconds = 0.0;    ///< in all of step
  PageCounts pages;
  PrefixStatistics prefix;
};

// What the engine is doing now.
struct SequenceView {
  std::uint64_t request = 0;  ///< the engine's number for it
  std::int32_t choice = 0;
  bool running = false;
  std::int64_t prompt = 0, known = 0;  ///< tokens: of the prompt, and in all
  std::int64_t computed = 0;           ///< keys written, or about to be
  std::int64_t found = 0;              ///< prompt tokens that the prefix cache had
  std::int64_t preemptions = 0;
  std::vector<std::int32_t> pages;  ///< in the order of their positions; others may have them, too
};

struct EngineView {
  static constexpr std::size_t most_waiting = 256;
  Statistics statistics;
  std::vector<SequenceView> sequences;  ///< who runs, as admitted; then who waits, the first ones
  std::vector<std::uint8_t> pages;      ///< the PageState of each; page 0 is scratch
};

// Operate an engine.

/// A beginning of a text with its keys and values, to be moved to another engine with the same model.
struct KvExport {
  std::uint64_t weights_version = 0;
  std::string adapter, adapter_key, salt;  ///< the key stands for the adapter's contents
  int page_size = 0;
  std::int64_t page_bytes = 0;
  std::uint64_t kv_key = 0;            ///< RunnerLimits'
  std::vector<std::int32_t> tokens{};  ///< whole pages of them
  std::vector<std::byte> bytes{};      ///< [pages, page_bytes], as Runner::read_pages
};

class Engine;

/// Each call waits for the step that is being taken, and is done before the next one.
class Control {
 public:
  explicit Control(Engine& engine) : engine_(&engine) {}

  Statistics statistics() const;
  EngineView view() const;
  const MemoryPlan& memory() const;
  std::string_view runner() const;
  bool healthy() const;  ///< false once the device has failed

  /// Requests that run go on with the new weights from their next token, after their text was computed again; nothing cached under
  /// the old ones is found any more. Every event says which version computed its tokens.
  void update_weights(std::shared_ptr<const model::WeightSet> weights);
  void drain();         ///< from now on submit refuses; returns when everyone has been answered
  void resume();        ///< ends that
  void forget_cache();  ///< unpublishes all prefixes

  /// The longest known beginning of the tokens; empty when there is none.
  KvExport export_prefix(std::span<const std::int32_t> tokens, std::string_view adapter = {},
                         std::string_view salt = {});
  /// Returns how many pages are known now that were not. Throws core::Error for another model, layout or version.
  std::int64_t import_prefix(const KvExport& prefix);

  /// Requests may name the adapter from now on. Throws core::Error: invalid_argument for one of another model or a name that is taken,
  /// out_of_range for too great a rank, resource_exhausted when no slot is free.
  void load_adapter(std::string name, std::shared_ptr<const model::Adapter> adapter);
  /// Nobody finds it any more; requests that have it finish with it. Throws core::Error (not_found).
  void unload_adapter(std::string_view name);
  std::vector<std::string> adapters() const;  ///< sorted

  /// Records what every step consists of, and what the device does, until it is stopped. Throws core::Error when it is recorded already.
  void start_profile();
  /// Chrome's trace format: https://ui.perfetto.dev opens it. Throws core::Error when nothing is recorded.
  std::string stop_profile();

 private:
  Engine* engine_;
};

/// Any thread may submit and cancel. One thread at a time takes steps. Events arrive on a thread of the engine's.
class Engine {
 public:
  using Handle = std::uint64_t;

  /// Without a tokenizer events carry tokens only.
  explicit Engine(std::unique_ptr<Runner> runner, const EngineOptions& options = {},
                  std::optional<text::Tokenizer> tokenizer = {});
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();  ///< what still runs is cancelled, and told so

  /// Throws core::Error, and nothing has changed, when the request cannot be answered.
  Handle submit(Request request);
  void cancel(Handle handle);  ///< at any moment; unknown and finished ones are ignored

  bool step();   ///< takes one step; false when there was nothing to do
  void run();    ///< steps until nobody is left, and all events are delivered
  void start();  ///< takes steps on a thread of its own from now on
  void stop();   ///< until now
  void flush();  ///< returns when every event so far has been delivered

  Control control();

  struct State;

 private:
  friend class Control;
  friend class KvTransfer;
  std::unique_ptr<State> state_;
};

}  // namespace rose::infer
