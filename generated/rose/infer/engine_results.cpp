// Take in what a step has computed.

#include <algorithm>

#include "rose/core/error.h"
#include "rose/infer/engine_state.h"

namespace rose::infer {

// Wait for the oldest launch, and go through its rows.
void Engine::State::complete() {
  const auto start = std::chrono::steady_clock::now();
  StepOutput out;
  {
    const Stretch waiting(profile, "wait");
    out = in_runner([&] { return runner->wait(); });
  }
  const Stretch taking(profile, "take in");
  statistics.runner_seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  Launch done = std::move(in_flight.front());
  in_flight.erase(in_flight.begin());
  scheduler.complete(done.rows);
  if (watcher != nullptr) watcher->completed();
  for (std::size_t r = 0; r < done.rows.size(); ++r)
    take_row(done.rows[r], done.first_logit[r], done.first_hidden[r], out, done.weights_version);
  spare.push_back(std::move(done));
}

void Engine::State::settle() {
  while (!in_flight.empty()) complete();
}

void Engine::State::take_row(const PlannedRow& row, std::int32_t logit, std::int32_t hidden,
                             const StepOutput& out, std::uint64_t version) {
  auto& choice = static_cast<Choice&>(*row.sequence);
  if (choice.done) return;  // cancelled, or its end was known only after the next step had begun
  if (choice.request->request.pooling) return take_hidden(choice, row, hidden, out);
  take_prompt(choice, row, logit, out, version);
  if (row.choices == 0) return;
  logit += row.logits - row.choices;
  const auto chosen =
      out.tokens.subspan(static_cast<std::size_t>(logit), static_cast<std::size_t>(row.choices));
  if (choice.seats == 1) {
    const std::int64_t stand = scheduler.extend(row, chosen);
    statistics.drafts_right += stand - 1;
    take_tokens(choice, chosen.first(static_cast<std::size_t>(stand)), logit, out, version);
    return;
  }
  Active& request = *choice.request;
  scheduler.extend(row, chosen.first(1));
  for (std::size_t i = 1; i < chosen.size(); ++i)
    scheduler.fork(choice, *request.choices[i], chosen[i]);
  for (std::size_t i = 0; i < chosen.size(); ++i)
    take_tokens(*request.choices[i], chosen.subspan(i, 1), logit + static_cast<std::int32_t>(i),
                out, version);
}

// Pass tokens on, and see whether the answer is over.
std::optional<Finish> Engine::State::reason(const Choice& c, std::int32_t token,
                                            std::int64_t length) const {
  const Sampling& s = c.sampler.sampling();
  if (length - c.prompt > s.min_tokens) {
    const bool ends = !s.ignore_eos && std::ranges::find(eos, token) != eos.end();
    if (ends || std::ranges::find(s.stop_token_ids, token) != s.stop_token_ids.end())
      return Finish::stop;
  }
  if (c.sampler.grammar() != nullptr && c.sampler.grammar()->must_end()) return Finish::stop;
  if (length >= c.limit) return Finish::length;
  return std::nullopt;
}

void Engine::State::take_tokens(Choice& c, std::span<const std::int32_t> chosen, std::int32_t logit,
                                const StepOutput& out, std::uint64_t version) {
  const std::size_t before = c.tokens.size() - chosen.size();
  const int wanted = c.sampler.sampling().logprobs;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (chosen[i] < 0) {
      end(c, Finish::error,
          std::make_shared<const core::Error>(
              core::Error(
                  core::Code::internal,
                  "no token could be chosen: the logits are not numbers, or all are excluded")
                  .in("logits")));
      return;
    }
    if (!c.sampler.failure()) c.sampler.accept(chosen[i]);
    if (const auto& failure = c.sampler.failure()) return end(c, Finish::error, failure);
    const std::size_t row = static_cast<std::size_t>(logit) + i,
                      stride = static_cast<std::size_t>(out.top_stride);
    const auto top = static_cast<std::size_t>(std::max(wanted, 0));
    delivery.token(
        c.request->listener, c.index,
        {.token = chosen[i], .logprob = out.logprobs[row], .version = version, .cached = c.found},
        out.top_ids.subspan(row * stride, std::min(top, stride)),
        out.top_logprobs.subspan(row * stride, std::min(top, stride)));
    ++statistics.answer_tokens;
    const std::size_t length = before + i + 1;
    if (const auto finish = reason(c, chosen[i], static_cast<std::int64_t>(length))) {
      c.tokens.resize(length);  // right guesses beyond the end do not count
      return end(c, *finish);
    }
  }
}

void Engine::State::take_prompt(Choice& c, const PlannedRow& row, std::int32_t logit,
                                const StepOutput& out, std::uint64_t version) {
  if (row.logits == row.choices) return;
  const std::size_t stride = static_cast<std::size_t>(out.top_stride);
  const auto top =
      std::min(static_cast<std::size_t>(std::max(c.request->sampling->prompt_logprobs, 0)), stride);
  if (c.told == 0)
    delivery.prompt_token(c.request->listener, {.token = c.tokens[0], .version = version}, {}, {});
  for (std::int32_t i = 0; i < row.logits - row.choices; ++i) {
    const std::size_t at = static_cast<std::size_t>(std::int64_t{logit} + i);
    const std::int64_t position = row.first + i + 1;
    if (position <= c.told) continue;  // computed again after preemption
    c.told = position;
    delivery.prompt_token(c.request->listener,
                          {.token = c.tokens[static_cast<std::size_t>(position)],
                           .logprob = out.logprobs[at],
                           .version = version},
                          out.top_ids.subspan(at * stride, top),
                          out.top_logprobs.subspan(at * stride, top));
  }
}

// End a choice, a request, everything.
void Engine::State::end(Choice& c, Finish finish, std::shared_ptr<const core::Error> error,
                        std::shared_ptr<const std::vector<float>> embedding) {
  if (c.done) return;
  c.done = true;
  scheduler.remove(c);
  if (options.drafter != nullptr) options.drafter->forget(c.number);
  Active& request = *c.request;
  switch (finish) {
    case Finish::stop: ++statistics.finished_stop; break;
    case Finish::length: ++statistics.finished_length; break;
    case Finish::cancelled: ++statistics.cancelled; break;
    case Finish::error: ++statistics.failed; break;
  }
  std::shared_ptr<void> last;
  if (--request.open == 0) {
    const auto at = active.find(request.handle);
    last = at->second;
    leaving.push_back(std::move(at->second));
    active.erase(at);
  }
  delivery.finish(request.listener, c.index,
                  {.finish = finish,
                   .cached = c.found,
                   .error = std::move(error),
                   .embedding = std::move(embedding),
                   .last = std::move(last)});
}

void Engine::State::end_all(Active& request, Finish finish,
                            const std::shared_ptr<const core::Error>& error) {
  const std::shared_ptr<Active> keep = active.at(request.handle);
  for (const auto& choice : keep->choices) end(*choice, finish, error);
}

void Engine::State::fail_engine(const std::exception& error) {
  failed = true;
  const auto* typed = dynamic_cast<const core::Error*>(&error);
  const auto shared = std::make_shared<const core::Error>(
      typed != nullptr ? *typed : core::Error(core::Code::internal, error.what()));
  in_flight.clear();
  while (!active.empty()) end_all(*active.begin()->second, Finish::error, shared);
}

}  // namespace rose::infer
