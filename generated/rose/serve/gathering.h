// Answer when every question is answered.

#pragma once

#include "rose/serve/answer.h"

namespace rose::serve {

/// A request whose answer needs every one of its questions. It keeps itself alive until every one has ended.
class Gathering : public std::enable_shared_from_this<Gathering> {
 public:
  Gathering(Kitchen kitchen, std::vector<Question> questions, std::string prompt_field,
            std::shared_ptr<Exchange> exchange, Headers headers);
  Gathering(const Gathering&) = delete;
  Gathering& operator=(const Gathering&) = delete;
  virtual ~Gathering() = default;
  void start();  ///< not on the I/O thread: it submits

 protected:
  /// One at a time. Throws ApiError: the request is refused.
  virtual void take(std::size_t question, const infer::Event& event) = 0;
  virtual json::object whole() = 0;  ///< the answer's body, after the last event
  const Kitchen& kitchen() const { return kitchen_; }
  const UsageSum& usage() const { return usage_; }

 private:
  void notice(std::size_t question, const Notice& notice);
  void fail(const ApiError& error);
  void cancel();
  void respond(int status, HttpResponse response);

  Kitchen kitchen_;
  std::vector<Question> questions_;
  std::string prompt_field_;
  std::shared_ptr<Exchange> exchange_;
  Headers headers_;
  std::mutex mutex_;
  Questions put_{kitchen_.backend};
  std::vector<std::size_t> lengths_;  // of the prompts
  UsageSum usage_;
  std::size_t open_ = 0, accepted_ = 0;
  bool over_ = false;
  Passage passage_;
};

}  // namespace rose::serve
