// Use an engine of this process.

#pragma once

#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "rose/infer/structured.h"
#include "rose/serve/backend.h"

namespace rose::serve {

class LocalBackend : public Backend {
 public:
  /// The tokenizer must be the one that the engine has. The engine is started.
  LocalBackend(infer::Engine& engine, const text::Tokenizer& tokenizer, EngineFacts facts);
  LocalBackend(const LocalBackend&) = delete;
  LocalBackend& operator=(const LocalBackend&) = delete;
  ~LocalBackend() override;

  Number submit(Question question, Listener listener) override;
  virtual void submit_as(Number number, Question question,
                         Listener listener);  ///< a number that is not in use
  void cancel(Number number) override;
  virtual void cancel_all();
  std::optional<EngineFacts> facts() const override { return facts_; }
  infer::Statistics statistics() const override { return engine_.control().statistics(); }
  void look(Looker told) override { told({engine_.control().view()}); }
  void operate(const Operation& operation, Told told) override;
  /// Reading an adapter needs the model's code, which this library does without.
  std::function<void(const std::string& name, const std::string& folder)> read_adapter;

 private:
  struct Ticket {
    std::mutex mutex;
    Listener listener;
    std::optional<infer::Engine::Handle> handle{};
    bool accepted = false, cancelled = false;
    int open = 1;  ///< choices
  };
  struct Job {
    Number number = 0;
    Question question{};
    std::shared_ptr<Ticket> ticket{};
    std::function<void()> work{};  ///< set: this, and no question
  };
  using Compiled = std::shared_ptr<const infer::Grammar>;
  void hand_over(Number number, Question question, const std::shared_ptr<Ticket>& ticket,
                 Compiled grammar);
  void hear(Number number, Ticket& ticket, const infer::Event& event);
  static void accept(Ticket& ticket);
  void refuse(Number number, Ticket& ticket, const core::Error& error);
  void forget(Number number);
  Compiled compile(const Shape& shape);
  std::string obey(const Operation& operation);
  void compile_all();

  infer::Engine& engine_;
  text::Tokenizer tokenizer_;
  EngineFacts facts_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::unordered_map<Number, std::shared_ptr<Ticket>> tickets_;
  Number numbers_ = 0;
  std::deque<Job> jobs_;
  bool stopping_ = false;
  infer::TriePtr trie_;  // the compiling thread's, as is the cache
  std::list<std::pair<Shape, Compiled>> cache_;
  std::thread compiler_;
};

}  // namespace rose::serve
