// Answer when every question is answered.

#include "rose/serve/gathering.h"

#include <utility>

namespace rose::serve {

// Put the questions, collect the answers.
Gathering::Gathering(Kitchen kitchen, std::vector<Question> questions, std::string prompt_field,
                     std::shared_ptr<Exchange> exchange, Headers headers)
    : kitchen_(std::move(kitchen)),
      questions_(std::move(questions)),
      prompt_field_(std::move(prompt_field)),
      exchange_(std::move(exchange)),
      headers_(std::move(headers)),
      open_(questions_.size()) {
  for (const Question& question : questions_) lengths_.push_back(question.prompt.size());
}

void Gathering::start() {
  exchange_->when_gone([self = weak_from_this()] {
    if (const auto it = self.lock()) it->cancel();
  });
  std::vector<Question> questions = std::exchange(questions_, {});
  for (std::size_t q = 0; q < questions.size(); ++q) {
    put_.put(std::move(questions[q]),
             [self = shared_from_this(), q](const Notice& n) { self->notice(q, n); });
  }
}

void Gathering::notice(std::size_t question, const Notice& notice) {
  const std::scoped_lock lock(mutex_);
  if (over_) return;
  if (notice.kind == Notice::Kind::refused) return fail(api_error(*notice.error, prompt_field_));
  if (notice.kind == Notice::Kind::lost) return fail(no_engine(notice.error->message()));
  const auto now = Passage::Clock::now();
  if (notice.kind == Notice::Kind::accepted) {
    if (++accepted_ == lengths_.size()) passage_.accepted = now;
    return;
  }
  const infer::Event& event = *notice.event;
  passage_.hear(event, now);
  if (event.finish == infer::Finish::error || event.finish == infer::Finish::cancelled)
    return fail(
        ApiError(500, event.error != nullptr ? event.error->what() : "The request was cancelled.",
                 "server_error"));
  try {
    take(question, event);
    if (!event.finish) return;
    usage_.prompt += static_cast<std::int64_t>(lengths_[question]);
    usage_.cached += event.usage.cached;
    if (--open_ == 0)
      respond(200, {200, {{"content-type", "application/json"}}, json::serialize(whole())});
  } catch (const ApiError& error) {
    fail(error);
  }
}

// A listener must not call the backend, so somebody else does.
void Gathering::cancel() {
  kitchen_.pool.post([self = shared_from_this()] {
    {
      const std::scoped_lock lock(self->mutex_);
      self->over_ = true;
    }
    self->put_.cancel();
  });
}

void Gathering::respond(int status, HttpResponse response) {
  over_ = true;
  response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
  exchange_->respond(std::move(response));
  passage_.status = status;
  passage_.usage = usage_;
  passage_.finish = "stop";
  if (kitchen_.passed) kitchen_.passed(passage_);
}

void Gathering::fail(const ApiError& error) {
  passage_.code = error.code;
  respond(error.status, error.response());
  if (lengths_.size() > 1) cancel();
}

}  // namespace rose::serve
