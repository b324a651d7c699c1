// Draft with a runner of a smaller model.

#include "rose/infer/runner_drafter.h"

#include <fmt/format.h>

#include <algorithm>

#include "rose/core/error.h"

namespace rose::infer {

// Take the runner's pages.
RunnerDrafter::RunnerDrafter(std::unique_ptr<Runner> runner, std::int64_t vocab)
    : runner_(std::move(runner)) {
  if (runner_->limits().vocab != vocab)
    throw core::Error(core::Code::invalid_argument,
                      fmt::format("a draft model of {} tokens beside a model of {}",
                                  runner_->limits().vocab, vocab))
        .in("speculative-model")
        .hint("both must have the same vocabulary");
  for (auto page = static_cast<std::int32_t>(runner_->limits().pages) - 1; page > 0; --page)
    free_.push_back(page);
}

void RunnerDrafter::forget(std::uint64_t key) {
  const auto at = texts_.find(key);
  if (at == texts_.end()) return;
  free_.insert(free_.end(), at->second.pages.begin(), at->second.pages.end());
  texts_.erase(at);
}

// Find pages for a text.
bool RunnerDrafter::make_room(Text& text, std::size_t pages) {
  while (text.pages.size() < pages) {
    if (!free_.empty()) {
      text.pages.push_back(free_.back());
      free_.pop_back();
      continue;
    }
    auto oldest = texts_.end();
    for (auto at = texts_.begin(); at != texts_.end(); ++at) {
      const bool idle = at->second.used != clock_ && !at->second.pages.empty();
      if (idle && (oldest == texts_.end() || at->second.used < oldest->second.used)) oldest = at;
    }
    if (oldest == texts_.end()) return false;
    free_ = std::move(oldest->second.pages);
    texts_.erase(oldest);
  }
  return true;
}

// Read what is new, guess one token each.
void RunnerDrafter::add_row(Work& w) {
  const auto known = static_cast<std::int64_t>(w.task->text.size() + w.task->out->size());
  const auto first = static_cast<std::int64_t>(w.text->written.size());
  const std::int64_t left = runner_->limits().tokens - static_cast<std::int64_t>(ids_.size());
  w.taken = static_cast<std::int32_t>(std::min(known - first, left));
  w.chooses = w.taken > 0 && first + w.taken == known;
  for (std::int64_t p = first; p < first + w.taken; ++p) {
    const auto at = static_cast<std::size_t>(p);
    const std::size_t old = w.task->text.size();
    ids_.push_back(at < old ? w.task->text[at] : (*w.task->out)[at - old]);
    positions_.push_back(static_cast<std::int32_t>(p));
    w.text->written.push_back(ids_.back());
  }
  if (w.taken > 0) offsets_.push_back(static_cast<std::int32_t>(ids_.size()));
  if (!w.chooses) return;
  logit_tokens_.push_back(offsets_.back() - 1);
  sampling_.push_back(w.task->sampler == nullptr ? RowSampling{}
                                                 : w.task->sampler->row(known, *w.task->out));
  sampling_.back().logprobs = -1;
}

void RunnerDrafter::step(std::vector<Work>& work) {
  ids_.clear(), positions_.clear(), logit_tokens_.clear(), sampling_.clear();
  offsets_.assign(1, 0);
  std::size_t stride = 1;
  for (const Work& w : work) stride = std::max(stride, w.text->pages.size());
  table_.clear();
  for (Work& w : work) {
    add_row(w);
    if (w.taken == 0) continue;
    table_.insert(table_.end(), w.text->pages.begin(), w.text->pages.end());
    table_.resize((offsets_.size() - 1) * stride, 0);
  }
  computed_ += static_cast<std::int64_t>(ids_.size());
  runner_->launch({.ids = ids_,
                   .positions = positions_,
                   .row_offsets = offsets_,
                   .page_table = table_,
                   .table_stride = static_cast<std::int64_t>(stride),
                   .copies = {},
                   .logit_tokens = logit_tokens_,
                   .sampling = sampling_});
  const StepOutput out = runner_->wait();
  std::size_t row = 0;
  std::erase_if(work, [&](const Work& w) {
    if (!w.chooses) return false;
    const std::int32_t token = out.tokens[row++];
    if (token < 0) return true;
    w.task->out->push_back(token);
    return std::ssize(*w.task->out) >= w.most;
  });
}

// Draft for all texts together.
void RunnerDrafter::draft_some(std::span<const DraftTask> tasks) {
  ++clock_;
  const RunnerLimits& limits = runner_->limits();
  for (const DraftTask& task : tasks) texts_[task.key].used = clock_;
  std::vector<Work> work;
  for (const DraftTask& task : tasks) {
    task.out->clear();
    Text& text = texts_.at(task.key);
    const auto length = static_cast<std::int64_t>(task.text.size());
    const int most = static_cast<int>(std::min<std::int64_t>(task.most, limits.positions - length));
    if (most <= 0 || length == 0) continue;
    const auto same = std::ranges::mismatch(text.written, task.text).in1 - text.written.begin();
    text.written.resize(static_cast<std::size_t>(std::min<std::int64_t>(same, length - 1)));
    const std::int64_t pages = (length + most + limits.page_size - 1) / limits.page_size;
    if (make_room(text, static_cast<std::size_t>(pages))) work.push_back({&task, &text, most});
  }
  while (!work.empty()) step(work);
}

void RunnerDrafter::draft_all(std::span<const DraftTask> tasks) {
  const RunnerLimits& limits = runner_->limits();
  const auto most =
      static_cast<std::size_t>(std::min({limits.sequences, limits.rows, limits.tokens}));
  for (; !tasks.empty(); tasks = tasks.subspan(std::min(most, tasks.size())))
    draft_some(tasks.first(std::min(most, tasks.size())));
}

void RunnerDrafter::draft(std::span<const std::int32_t> text, int most,
                          std::vector<std::int32_t>& out) {
  const DraftTask task{.text = text, .most = most, .sampler = nullptr, .out = &out};
  draft_all({&task, 1});
}

}  // namespace rose::infer
