// Turn events into an answer.

#include "rose/serve/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "rose/core/hash.h"

namespace rose::serve {

// What an event adds to a choice.
ChoiceBuilder::ChoiceBuilder(const Ask& ask, const ModelCard& card, int index)
    : ask_(ask), card_(card), parser_(ask.parser) {
  sum_.index = index;
}

void ChoiceBuilder::take_logprobs(const infer::Event& event, ChoiceDelta& delta) const {
  if (event.logprobs.empty() || (event.of_prompt && !ask_.echo)) return;
  std::size_t n = event.tokens.size();
  const bool ends = event.finish == infer::Finish::stop && !event.of_prompt;
  if (ends && n > 0 && card_.tokenizer.is_special(event.tokens[n - 1])) --n;
  const auto width = static_cast<std::size_t>(event.top_count);
  for (std::size_t i = 0; i < n; ++i) {
    TokenLogprob one{event.tokens[i], event.logprobs[i], {}};
    for (std::size_t k = 0; k < width; ++k)
      if (event.top[i * width + k].token >= 0) one.top.push_back(event.top[i * width + k]);
    delta.logprobs.push_back(std::move(one));
  }
}

ChoiceDelta ChoiceBuilder::take(const infer::Event& event) {
  ChoiceDelta delta{.index = sum_.index};
  take_logprobs(event, delta);
  if (ask_.no_answer && !event.of_prompt) delta.logprobs.clear();
  if (event.of_prompt || (ask_.no_answer && !event.finish)) {
    sum_.add(delta);
    return delta;
  }
  const std::string_view text = ask_.no_answer ? std::string_view{} : event.text;
  if (ask_.style == Ask::Style::chat) {
    if (ask_.form == nullptr)
      delta.message = parser_.push(text);
    else  // a character at a time: what came first is told first
      for (const char& c : text) delta.add_part(parser_.push({&c, 1}));
    if (event.finish) {
      MessageDelta rest = parser_.finish();
      if (ask_.form != nullptr)
        delta.add_part(std::move(rest));
      else
        delta.message.add(std::move(rest));
    }
  } else {
    delta.message.content = text;
  }
  if (event.finish == infer::Finish::length || ask_.no_answer)
    delta.finish = event.finish ? "length" : "";
  else if (event.finish)
    delta.finish = parser_.calls() > 0 ? "tool_calls" : "stop";
  sum_.add(delta);
  return delta;
}

ChoiceDelta ChoiceBuilder::echo(const std::string& prompt) {
  ChoiceDelta delta{.index = sum_.index};
  delta.message.content = prompt;
  sum_.add(delta);
  return delta;
}

// Note when things happened.
void Passage::hear(const infer::Event& event, Clock::time_point now) {
  if (event.queued_us > 0) queued_us = event.queued_us;
  const bool answered = !event.of_prompt && !event.tokens.empty();
  if (!first_token && (answered || !event.embedding.empty())) first_token = now;
}

// Put the questions.
Answer::Answer(Kitchen kitchen, Ask ask, std::shared_ptr<Exchange> exchange, std::string request_id,
               Headers headers)
    : kitchen_(std::move(kitchen)),
      ask_(std::move(ask)),
      exchange_(std::move(exchange)),
      request_id_(std::move(request_id)),
      headers_(std::move(headers)) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const char* prefix = ask_.style == Ask::Style::chat ? "chatcmpl-" : "cmpl-";
  head_ = {.style = ask_.style,
           .id = (ask_.form ? ask_.form->prefix() : prefix) + request_id_,
           .model = ask_.model,
           .created = std::chrono::duration_cast<std::chrono::seconds>(now).count(),
           .tokenizer = &kitchen_.card.tokenizer,
           .logprobs = ask_.logprobs,
           .null_usage = ask_.include_usage};
  if (ask_.form) ask_.form->start(head_);
  const auto n = static_cast<std::size_t>(ask_.question.sampling.n);
  open_ = ask_.prompts.size() * n;
  for (std::size_t i = 0; i < open_; ++i)
    choices_.emplace_back(ask_, kitchen_.card, static_cast<int>(i));
  usage_.resize(open_), held_.resize(open_);
  last_.assign(open_, passage_.begin);
  passage_.model = ask_.model;
}

void Questions::put(Question question, Backend::Listener listener) {
  const auto number = backend_.submit(std::move(question), std::move(listener));
  {
    const std::scoped_lock lock(mutex_);
    numbers_.push_back(number);
    if (!cancelled_) return;
  }
  backend_.cancel(number);
}

void Questions::cancel() {
  std::vector<Backend::Number> numbers;
  {
    const std::scoped_lock lock(mutex_);
    cancelled_ = true;
    numbers = numbers_;
  }
  for (const auto number : numbers) backend_.cancel(number);
}

void Answer::start() {
  exchange_->when_gone([self = weak_from_this()] {
    if (const auto answer = self.lock()) answer->cancel();
  });
  for (std::size_t p = 0; p < ask_.prompts.size(); ++p) {
    Question question = ask_.question;
    question.prompt = ask_.prompts[p];
    if (question.sampling.seed)
      *question.sampling.seed += p;  // or equal prompts would have equal answers
    questions_.put(std::move(question),
                   [self = shared_from_this(), p](const Notice& n) { self->notice(p, n); });
  }
}

// The client has gone, or one prompt of several was refused. A listener must not call the backend, so somebody else does.
void Answer::cancel() {
  kitchen_.pool.post([self = shared_from_this()] {
    {
      const std::scoped_lock lock(self->mutex_);
      self->over_ = true;
    }
    self->questions_.cancel();
  });
}

// Hear what became of them.
void Answer::notice(std::size_t prompt, const Notice& notice) {
  const std::scoped_lock lock(mutex_);
  if (over_) return;
  switch (notice.kind) {
    case Notice::Kind::accepted:
      if (++accepted_ == ask_.prompts.size()) accept();
      return;
    case Notice::Kind::refused: {
      ApiError error = api_error(*notice.error, ask_.prompt_field);
      if (error.param == "response_format") error.param = ask_.format_field;
      return fail(error);
    }
    case Notice::Kind::lost: return fail(no_engine(notice.error->message()));
    case Notice::Kind::event: return take(prompt, *notice.event);
  }
}

void Answer::accept() {
  begun_ = true;
  passage_.accepted = Clock::now();
  if (!ask_.stream) return;
  Headers headers = headers_;
  headers.insert(headers.end(), {{"content-type", "text/event-stream; charset=utf-8"},
                                 {"cache-control", "no-cache"},
                                 {"x-accel-buffering", "no"}});
  exchange_->begin({200, std::move(headers), ""}, ": still here\n\n");
  if (ask_.form) return exchange_->send(ask_.form->opening());
  for (std::size_t i = 0; i < choices_.size(); ++i)
    if (ask_.style == Ask::Style::chat) write(role_chunk(head_, static_cast<int>(i)));
}

void Answer::take(std::size_t prompt, const infer::Event& event) {
  const std::size_t i = prompt * static_cast<std::size_t>(ask_.question.sampling.n) +
                        static_cast<std::size_t>(event.choice);
  if (i >= choices_.size()) return;
  if (event.finish == infer::Finish::error || event.finish == infer::Finish::cancelled)
    return fail(ApiError(500,
                         event.error != nullptr ? event.error->what() : "The answer was cancelled.",
                         "server_error"));
  ChoiceBuilder& choice = choices_[i];
  passage_.hear(event, Clock::now());
  const bool first = usage_[i].prompt == 0;
  if (first && ask_.echo) {
    const ChoiceDelta echo =
        choice.echo(kitchen_.card.tokenizer.decode(ask_.prompts[prompt], true));
    if (ask_.stream) write(delta_chunk(head_, echo, choice.sum()));
  }
  usage_[i] = event.usage;
  if (!event.of_prompt && !event.tokens.empty()) {
    const auto now = Clock::now();
    const double gap = std::chrono::duration<double>(now - std::exchange(last_[i], now)).count();
    kitchen_.metrics.token(gap,
                           event.usage.completion <= static_cast<std::int64_t>(event.tokens.size()),
                           event.tokens.size());
  }
  ChoiceDelta delta = choice.take(event);
  if (ask_.stream)
    write_delta(i, std::move(delta), event.tokens.size());
  else if (ask_.form)
    ask_.form->add(delta);
  if (event.finish && --open_ == 0) finish();
}

void Answer::write_delta(std::size_t i, ChoiceDelta delta, std::size_t tokens) {
  Held& held = held_[i];
  held.delta.index = delta.index;
  held.delta.add(std::move(delta));
  held.tokens += static_cast<std::int64_t>(tokens);
  const bool due =
      !held.begun || held.tokens >= kitchen_.stream_interval || !held.delta.finish.empty();
  if (!due || (held.delta.empty() && !ask_.usage_each)) return;
  if (ask_.form) {
    exchange_->send(ask_.form->add(held.delta));
  } else {
    json::object chunk = delta_chunk(head_, held.delta, choices_[i].sum());
    if (ask_.usage_each) chunk["usage"] = usage_chunk(head_, usage()).at("usage");
    write(chunk);
  }
  held = {.delta = {}, .tokens = 0, .begun = true};
}

void Answer::write(const json::object& chunk) {
  exchange_->send("data: " + json::serialize(chunk) + "\n\n");
}

// End well, or badly.
void Answer::fail(const ApiError& error) {
  over_ = true;
  passage_.code = error.code;
  if (begun_ && ask_.stream) {
    if (ask_.form)
      exchange_->send(ask_.form->failure(error));
    else
      write(error.body());
    exchange_->end();
  } else {
    HttpResponse response = error.response();
    response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
    exchange_->respond(std::move(response));
  }
  end(error.status);
  if (ask_.prompts.size() > 1 || begun_) cancel();
}

void Answer::end(int status) {
  passage_.status = status;
  passage_.usage = usage();
  passage_.finish = choices_.front().sum().finish;
  if (kitchen_.passed) kitchen_.passed(passage_);
}

UsageSum Answer::usage() const {
  UsageSum sum;
  const auto n = static_cast<std::size_t>(ask_.question.sampling.n);
  for (std::size_t i = 0; i < usage_.size(); ++i) {
    if (i % n == 0)
      sum.prompt += static_cast<std::int64_t>(ask_.prompts[i / n].size()),
          sum.cached += usage_[i].cached;
    if (!ask_.no_answer) sum.completion += usage_[i].completion;
  }
  return sum;
}

// Of best_of answers to each prompt the n with the highest mean log-probability.
std::vector<const ChoiceSum*> Answer::best() const {
  std::vector<const ChoiceSum*> out;
  const auto n = static_cast<std::size_t>(ask_.question.sampling.n),
             wanted = static_cast<std::size_t>(ask_.n);
  for (std::size_t p = 0; p < ask_.prompts.size(); ++p) {
    std::vector<const ChoiceSum*> all;
    for (std::size_t c = 0; c < n; ++c) all.push_back(&choices_[p * n + c].sum());
    if (wanted < n) std::ranges::stable_sort(all, std::greater<>(), &ChoiceSum::mean_logprob);
    out.insert(out.end(), all.begin(), all.begin() + static_cast<std::ptrdiff_t>(wanted));
  }
  return out;
}

void Answer::finish() {
  over_ = true;
  const UsageSum used = usage();
  if (ask_.stream) {
    if (ask_.include_usage) write(usage_chunk(head_, used));
    exchange_->send(ask_.form ? ask_.form->closing(used) : "data: [DONE]\n\n");
    exchange_->end();
  } else {
    Headers headers = headers_;
    headers.emplace_back("content-type", "application/json");
    const json::object whole =
        ask_.form ? ask_.form->whole(used) : whole_answer(head_, best(), used);
    exchange_->respond({200, std::move(headers), json::serialize(whole)});
  }
  end(200);
}

}  // namespace rose::serve
