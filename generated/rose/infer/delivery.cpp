// Turn records into events, on a thread of their own.

#include "rose/infer/delivery.h"

#include <utility>

#include "rose/core/log.h"

namespace rose::infer {

// Prepare to listen.
void Listener::prepare(std::uint64_t handle, const Request& request,
                       const std::shared_ptr<const Sampling>& sampling,
                       const std::optional<text::Tokenizer>& tokenizer,
                       std::span<const std::int32_t> eos) {
  handle_ = handle;
  request_ = &request;
  answers_.resize(static_cast<std::size_t>(sampling->n));
  if (!tokenizer || !request.text) return;
  for (Answer& answer : answers_) answer.stream.emplace(*tokenizer, sampling, eos);
}

// Append records, hand them over.
Delivery::Delivery(Ended ended) : ended_(std::move(ended)), thread_([this] { work(); }) {}

Delivery::~Delivery() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    filled_.notify_one();
  }
  thread_.join();
}

Delivery::Record& Delivery::append(Listener& to, int choice, const TokenRecord& token,
                                   std::span<const std::int32_t> ids,
                                   std::span<const float> logprobs) {
  Record& record = filling_.records.emplace_back();
  record.to = &to;
  record.choice = choice;
  record.token = token;
  record.top_begin = filling_.top.size();
  record.top_count = ids.size();
  for (std::size_t i = 0; i < ids.size(); ++i) filling_.top.push_back({ids[i], logprobs[i]});
  return record;
}

void Delivery::token(Listener& to, int choice, const TokenRecord& token,
                     std::span<const std::int32_t> top_ids, std::span<const float> top_logprobs) {
  append(to, choice, token, top_ids, top_logprobs);
}

void Delivery::prompt_token(Listener& to, const TokenRecord& token,
                            std::span<const std::int32_t> top_ids,
                            std::span<const float> top_logprobs) {
  append(to, 0, token, top_ids, top_logprobs).of_prompt = true;
}

void Delivery::finish(Listener& to, int choice, EndRecord end) {
  Record& record = append(to, choice, {.cached = end.cached}, {}, {});
  record.ends = true;
  record.end = std::move(end);
}

// Take what was sent, in order.
void Delivery::send() {
  if (filling_.records.empty()) return;
  const std::scoped_lock lock(mutex_);
  if (sent_.records.empty()) {
    std::swap(sent_, filling_);
  } else {  // the other thread is behind
    const std::size_t shift = sent_.top.size();
    for (Record& record : filling_.records) {
      record.top_begin += shift;
      sent_.records.push_back(std::move(record));
    }
    sent_.top.insert(sent_.top.end(), filling_.top.begin(), filling_.top.end());
    filling_.records.clear();
  }
  filling_.top.clear();
  filled_.notify_one();
}

void Delivery::flush() {
  std::unique_lock lock(mutex_);
  emptied_.wait(lock, [&] { return sent_.records.empty() && !busy_; });
}

void Delivery::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    filled_.wait(lock, [&] { return stopping_ || !sent_.records.empty(); });
    if (sent_.records.empty()) return;
    std::swap(taken_, sent_);
    busy_ = true;
    lock.unlock();
    for (const Record& record : taken_.records) deliver(record, taken_);
    taken_.records.clear();  // requests whose last event this was end here
    taken_.top.clear();
    lock.lock();
    busy_ = false;
    emptied_.notify_all();
  }
}

// Make an event of a record.
void Delivery::deliver(const Record& record, const Batch& batch) {
  Listener& to = *record.to;
  Listener::Answer& answer = to.answers_[static_cast<std::size_t>(record.choice)];
  if (answer.finished) return;
  const Request& request = *to.request_;
  Event event{.request = to.handle_, .id = request.id, .choice = record.choice};
  Delta delta;
  if (record.ends) {
    if (answer.stream) delta = answer.stream->finish();
    event.finish = record.end.finish;
    event.error = record.end.error.get();
    if (record.end.embedding != nullptr) event.embedding = *record.end.embedding;
  } else {
    event.tokens = {&record.token.token, 1};
    event.of_prompt = record.of_prompt;
    const int wanted =
        record.of_prompt ? request.sampling.prompt_logprobs : request.sampling.logprobs;
    if (wanted >= 0) event.logprobs = {&record.token.logprob, 1};
    event.top = std::span(batch.top).subspan(record.top_begin, record.top_count);
    event.top_count = static_cast<int>(record.top_count);
    event.weights_version = record.token.version;
    if (!record.of_prompt) {
      ++answer.tokens;
      if (answer.stream) delta = answer.stream->push(record.token.token);
    }
  }
  event.text = delta.text;
  if (delta.stop) {
    event.finish = Finish::stop;
    if (delta.stop->text >= 0) ended_(to.handle_, record.choice, Finish::stop);
  }
  event.usage = {static_cast<std::int64_t>(request.prompt.size()), record.token.cached,
                 answer.tokens};
  event.queued_us = to.queued_us_;
  answer.finished = event.finish.has_value();
  tell(to, event);
}

void Delivery::tell(Listener& to, const Event& event) {
  if (!to.request_->on_event) return;
  try {
    to.request_->on_event(event);
  } catch (const std::exception& error) {
    for (Listener::Answer& answer : to.answers_) answer.finished = true;
    ended_(to.handle_, -1, Finish::cancelled);
  }
}

}  // namespace rose::infer
