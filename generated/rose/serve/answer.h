// Turn events into an answer.

#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "rose/serve/answer_json.h"
#include "rose/serve/api_error.h"
#include "rose/serve/ask.h"
#include "rose/serve/metrics.h"
#include "rose/serve/work_pool.h"

namespace rose::serve {

/// A request, from its arrival to the end of its answer.
struct Passage {
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin = Clock::now();
  std::optional<Clock::time_point> accepted{}, first_token{};
  std::int64_t queued_us = 0;  ///< between accepted and its first step
  int status = 200;
  std::string finish{};  ///< of the first choice
  std::string code{};    ///< of the error
  std::string model{};
  UsageSum usage{};

  void hear(const infer::Event& event, Clock::time_point now);
};

/// What the answers of a server share, and what is to be done at the end of this one.
struct Kitchen {
  const ModelCard& card;
  Backend& backend;
  Metrics& metrics;
  WorkPool& pool;
  std::int64_t stream_interval = 1;  ///< tokens of a choice that share a chunk, the first one apart
  std::function<void(const Passage&)> passed{};
};

/// The questions of one request. What is put after they were cancelled is cancelled at once.
class Questions {
 public:
  explicit Questions(Backend& backend) : backend_(backend) {}
  void put(Question question, Backend::Listener listener);
  void cancel();  ///< not from a listener, which must not call the backend

 private:
  Backend& backend_;
  std::mutex mutex_;
  std::vector<Backend::Number> numbers_;
  bool cancelled_ = false;
};

/// Adds up the events of one choice.
class ChoiceBuilder {
 public:
  ChoiceBuilder(const Ask& ask, const ModelCard& card, int index);
  ChoiceDelta take(const infer::Event& event);
  ChoiceDelta echo(const std::string& prompt);  ///< before everything else
  const ChoiceSum& sum() const { return sum_; }

 private:
  void take_logprobs(const infer::Event& event, ChoiceDelta& delta) const;
  const Ask& ask_;
  const ModelCard& card_;
  ToolParser parser_;
  ChoiceSum sum_;
};

/// One request on its way to an answer. It keeps itself alive until every choice has ended.
class Answer : public std::enable_shared_from_this<Answer> {
 public:
  Answer(Kitchen kitchen, Ask ask, std::shared_ptr<Exchange> exchange, std::string request_id,
         Headers headers);
  void start();  ///< not on the I/O thread: it submits

 private:
  void notice(std::size_t prompt, const Notice& notice);
  void take(std::size_t prompt, const infer::Event& event);
  void accept();
  void fail(const ApiError& error);
  void finish();
  void cancel();
  void write(const json::object& chunk);
  void write_delta(std::size_t i, ChoiceDelta delta, std::size_t tokens);
  std::vector<const ChoiceSum*> best() const;
  UsageSum usage() const;

  void end(int status);

  using Clock = std::chrono::steady_clock;
  Kitchen kitchen_;
  Ask ask_;
  std::shared_ptr<Exchange> exchange_;
  std::string request_id_;
  Headers headers_;
  AnswerHead head_;
  std::mutex mutex_;
  std::vector<ChoiceBuilder> choices_;  // [prompts * question.n]
  std::vector<infer::Usage> usage_;     // of each choice
  struct Held {
    ChoiceDelta delta;
    std::int64_t tokens = 0;
    bool begun = false;
  };
  std::vector<Held> held_;  // of each choice: what shares the next chunk
  Questions questions_{kitchen_.backend};
  std::size_t accepted_ = 0, open_ = 0;
  bool begun_ = false, over_ = false;
  Passage passage_;
  std::vector<Clock::time_point> last_;
};

}  // namespace rose::serve
