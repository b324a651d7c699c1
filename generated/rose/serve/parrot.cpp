// A model that repeats, to test what is around it.

#include "rose/serve/parrot.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/infer/choose.h"

namespace rose::serve {
namespace {

std::size_t count(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

// Pages of tokens.
class Parrot final : public infer::Runner {
 public:
  Parrot(const text::Tokenizer& tokenizer, std::shared_ptr<const model::WeightSet> weights,
         const ParrotOptions& o);
  const infer::RunnerLimits& limits() const override { return limits_; }
  const infer::MemoryPlan& memory() const override { return plan_; }
  std::string_view name() const override { return "parrot"; }
  void launch(const infer::StepInput& step) override;
  infer::StepOutput wait() override;
  std::shared_ptr<const model::WeightSet> weights() const override { return weights_; }
  void set_weights(std::shared_ptr<const model::WeightSet> weights) override {
    weights_ = std::move(weights);
  }
  std::uint64_t set_adapter(std::int64_t, std::shared_ptr<const model::Adapter>) override {
    throw core::Error(core::Code::unsupported, "a parrot has no weights to adapt").in("adapter");
  }
  void read_pages(std::span<const std::int32_t> pages, std::span<std::byte> out) const override;
  void write_pages(std::span<const std::int32_t> pages, std::span<const std::byte> in) override;

 private:
  struct Results {
    std::vector<std::int32_t> tokens, top_ids;
    std::vector<float> logprobs, top_logprobs, hidden;
    std::int64_t stride = 0;
  };
  static constexpr std::size_t sets = 3, noises = 1 << 16, width = 8;
  std::int32_t& slot(std::span<const std::int32_t> table, std::int64_t position);
  void speak(std::span<const std::int32_t> text, std::span<float> logits) const;
  void choose_row(const infer::StepInput& step, std::size_t r, std::size_t row, Results& out);

  std::shared_ptr<const model::WeightSet> weights_;
  infer::RunnerLimits limits_;
  infer::MemoryPlan plan_;
  std::chrono::microseconds step_;
  std::int32_t turn_ = -1, turn_end_ = -1, line_ = -1;
  std::vector<std::int32_t> pages_, text_;  // pages_ [pages, page_size]
  std::vector<float> noise_, logits_;
  infer::ChooseScratch scratch_;
  core::ThreadPool pool_{1};
  std::array<Results, sets> results_;
  std::size_t launched_ = 0, waited_ = 0;
};

// Write the tokens where keys would go, and read them back.
Parrot::Parrot(const text::Tokenizer& tokenizer, std::shared_ptr<const model::WeightSet> weights,
               const ParrotOptions& o)
    : weights_(std::move(weights)), step_(o.step) {
  const std::int64_t vocab = tokenizer.vocab_size();
  limits_ = {o.tokens, o.sequences, o.sequences, o.page_size, o.pages, o.positions, vocab, false};
  limits_.hidden = width;
  plan_ = {.budget = 0,
           .terms = {},
           .page_bytes = o.page_size * 4,
           .page_size = o.page_size,
           .pages = o.pages};
  turn_ = tokenizer.find("<|im_start|>").value_or(-1);
  turn_end_ = tokenizer.find("<|im_end|>").value_or(-1);
  line_ = tokenizer.find("\n").value_or(-1);
  pages_.assign(count(o.pages * o.page_size), -1);
  logits_.resize(count(vocab));
  core::Rng rng(1);
  for (std::size_t i = 0; i < noises; ++i) noise_.push_back(rng.normal());
}

std::int32_t& Parrot::slot(std::span<const std::int32_t> table, std::int64_t position) {
  const std::int64_t page = table[count(position / limits_.page_size)];
  return pages_.at(count(page * limits_.page_size + position % limits_.page_size));
}

void Parrot::launch(const infer::StepInput& step) {
  const auto start = std::chrono::steady_clock::now();
  const Results& before = results_[(launched_ + sets - 1) % sets];
  Results& out = results_[launched_++ % sets];
  const auto size = static_cast<std::ptrdiff_t>(limits_.page_size);
  for (const auto& copy : step.copies)
    std::copy_n(pages_.begin() + copy.from * size, size, pages_.begin() + copy.to * size);
  const std::size_t rows = step.row_offsets.size() - 1, n = step.sampling.size();
  const auto table = [&](std::size_t row) {
    return step.page_table.subspan(row * count(step.table_stride), count(step.table_stride));
  };
  for (std::size_t row = 0; row < rows; ++row)
    for (auto t = count(step.row_offsets[row]); t < count(step.row_offsets[row + 1]); ++t) {
      const std::int32_t id = step.ids[t];
      slot(table(row), step.positions[t]) = id < 0 ? before.tokens.at(count(-id - 1)) : id;
    }
  out.stride = 0;
  for (const auto& row : step.sampling)
    out.stride = std::max<std::int64_t>(out.stride, row.logprobs);
  out.tokens.assign(n, -1), out.logprobs.assign(n, 0.0f);
  out.top_ids.assign(n * count(out.stride), -1),
      out.top_logprobs.assign(n * count(out.stride), 0.0f);
  for (std::size_t r = 0; r < n; ++r) {
    const auto t = step.logit_tokens[r];
    const auto after = std::ranges::upper_bound(step.row_offsets, t);
    const auto row = static_cast<std::size_t>(after - step.row_offsets.begin()) - 1;
    text_.clear();
    for (std::int64_t p = 0; p <= step.positions[count(t)]; ++p)
      text_.push_back(slot(table(row), p));
    choose_row(step, r, row, out);
  }
  out.hidden.clear();  // of a token: some numbers that are its own
  for (const std::int32_t t : step.hidden_tokens)
    for (std::size_t k = 0; k < width; ++k)
      out.hidden.push_back(noise_[(count(step.ids[count(t)]) * width + k) % noises]);
  std::this_thread::sleep_until(start + step_);
}

// Say what was said before.
void Parrot::speak(std::span<const std::int32_t> text, std::span<float> logits) const {
  constexpr std::uint32_t spread = 2654435761U;
  const std::size_t shift = static_cast<std::uint32_t>(text.back()) * spread >> 16;
  for (std::size_t v = 0; v < logits.size(); ++v) logits[v] = noise_[(v + shift) % noises];
  constexpr float sure = 30.0f;
  // Where the text begins that the mark before `end` opens, and that mark; nothing when there is none.
  const auto turn_before =
      [&](std::size_t end) -> std::optional<std::pair<std::size_t, std::size_t>> {
    for (std::size_t mark = end; mark-- > 0;) {
      if (text[mark] != turn_) continue;
      const auto line = std::ranges::find(text.subspan(mark), line_);
      const auto begin = mark + static_cast<std::size_t>(line - text.subspan(mark).begin()) + 1;
      return std::pair(mark, begin);
    }
    return std::nullopt;
  };
  const auto answer = turn_before(text.size());
  const auto said = answer ? turn_before(answer->first) : std::nullopt;
  if (!said || turn_ < 0 || text.size() < answer->second) return;
  const std::size_t next = said->second + (text.size() - answer->second);
  const auto rest = text.subspan(said->second);
  const auto end = static_cast<std::ptrdiff_t>(said->second) +
                   (std::ranges::find(rest, turn_end_) - rest.begin());
  const bool within = static_cast<std::ptrdiff_t>(next) < end && next < answer->first;
  const std::int32_t token = within ? text[next] : turn_end_;
  if (token >= 0) logits[count(token)] = sure;
}

void Parrot::choose_row(const infer::StepInput& step, std::size_t r, std::size_t, Results& out) {
  speak(text_, logits_);
  const infer::RowChoice choice = infer::choose(logits_, step.sampling[r], scratch_, pool_);
  out.tokens[r] = choice.token;
  out.logprobs[r] = choice.logprob;
  const auto at = static_cast<std::ptrdiff_t>(r * count(out.stride));
  std::ranges::copy(choice.top_ids, out.top_ids.begin() + at);
  std::ranges::copy(choice.top_logprobs, out.top_logprobs.begin() + at);
}

infer::StepOutput Parrot::wait() {
  const Results& r = results_[waited_++ % sets];
  return {r.tokens, r.logprobs, r.top_ids, r.top_logprobs, r.stride, r.hidden};
}

void Parrot::read_pages(std::span<const std::int32_t> pages, std::span<std::byte> out) const {
  const auto bytes = count(plan_.page_bytes);
  for (std::size_t i = 0; i < pages.size(); ++i)
    std::memcpy(out.data() + i * bytes, pages_.data() + count(pages[i] * limits_.page_size), bytes);
}

void Parrot::write_pages(std::span<const std::int32_t> pages, std::span<const std::byte> in) {
  const auto bytes = count(plan_.page_bytes);
  for (std::size_t i = 0; i < pages.size(); ++i)
    std::memcpy(pages_.data() + count(pages[i] * limits_.page_size), in.data() + i * bytes, bytes);
}

}  // namespace

std::unique_ptr<infer::Runner> make_parrot(const text::Tokenizer& tokenizer,
                                           std::shared_ptr<const model::WeightSet> weights,
                                           const ParrotOptions& options) {
  return std::make_unique<Parrot>(tokenizer, std::move(weights), options);
}

}  // namespace rose::serve
