// Ask for answers, wherever they are computed.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rose/infer/engine.h"
#include "rose/infer/request.h"

namespace rose::serve {

/// What an answer must look like, as text: the backend compiles it.
struct Shape {
  enum class Kind : std::uint8_t { free, json_object, json_schema, regex, ebnf };
  Kind kind = Kind::free;
  std::string text;
  bool operator==(const Shape&) const = default;
};

struct Question {
  std::vector<std::int32_t> prompt;
  infer::Sampling sampling;                 ///< without a grammar: that is the shape
  std::optional<infer::Pooling> pooling{};  ///< a vector is wanted, and no answer
  Shape shape;
  int priority = 0;
  std::string salt, adapter;
};

/// What became of a question.
struct Notice {
  enum class Kind : std::uint8_t {
    accepted,  ///< it waits or runs; comes first, once
    refused,   ///< it cannot be answered, `error` says why; nothing follows
    event,     ///< the last one of each choice has its finish set
    lost       ///< the engine is not there (any more); nothing follows
  };
  Kind kind = Kind::accepted;
  const core::Error* error = nullptr;
  const infer::Event* event = nullptr;
};

struct EngineFacts {
  std::string runner;  ///< device and kernels
  std::int64_t vocab = 0, positions = 0, pages = 0, sequences = 0;
  std::int32_t page_size = 0;
  std::uint64_t weights_version = 0;
  bool operator==(const EngineFacts&) const = default;
};

/// What whoever runs a server may do to its engines while they run.
struct Operation {
  enum class Kind : std::uint8_t { load_adapter, unload_adapter, start_profile, stop_profile };
  Kind kind = Kind::start_profile;
  std::string name;  ///< of the adapter
  std::string path;  ///< the adapter's folder; the folder for what was recorded
  bool operator==(const Operation&) const = default;
};

/// What came of it.
struct Outcome {
  std::optional<core::Error> error{};
  std::string said{};  ///< stop_profile: the file
};

/// Whoever answers questions.
class Backend {
 public:
  using Listener = std::function<void(const Notice&)>;
  using Number = std::uint64_t;
  virtual ~Backend() = default;
  /// Never throws for what is in the question. The listener is called by one thread at a time, perhaps before submit returns.
  virtual Number submit(Question question, Listener listener) = 0;
  virtual void cancel(Number number) = 0;                ///< unknown and finished ones are ignored
  virtual std::optional<EngineFacts> facts() const = 0;  ///< nothing while no engine is ready
  virtual infer::Statistics statistics() const = 0;      ///< a fraction of a second old at most
  /// What each engine is doing; none: there is no engine. Told once, perhaps later, perhaps on another thread.
  using Looker = std::function<void(std::vector<infer::EngineView>)>;
  virtual void look(Looker told) = 0;
  /// Told once, as look is: an outcome for each engine.
  using Told = std::function<void(std::vector<Outcome>)>;
  virtual void operate(const Operation& operation, Told told);
  virtual std::uint64_t restarts() const { return 0; }
  virtual std::size_t ready() const { return facts() ? 1 : 0; }  ///< engines
  virtual void stop() {}  ///< whoever waits is told, and nobody is called afterwards
};

inline void Backend::operate(const Operation& /*operation*/, Told told) {
  const Told once = std::move(told);
  once({{.error = core::Error(core::Code::unsupported, "this engine cannot be operated")}});
}

}  // namespace rose::serve
