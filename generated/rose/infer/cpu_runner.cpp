// Compute steps on the CPU.

#include "rose/infer/cpu_runner.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <limits>
#include <vector>

#include "rose/core/error.h"
#include "rose/infer/choose.h"
#include "rose/kernels/kv_cache.h"
#include "rose/model/adapter.h"
#include "rose/model/forward.h"

namespace rose::infer {
namespace {

std::size_t count(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

// Own pages, buffers and three sets of results.
class CpuRunner final : public Runner {
 public:
  CpuRunner(std::shared_ptr<const model::WeightSet> weights, const CpuRunnerOptions& options,
            core::ThreadPool& pool);

  const RunnerLimits& limits() const override { return limits_; }
  const MemoryPlan& memory() const override { return plan_; }
  std::string_view name() const override { return name_; }
  void launch(const StepInput& step) override;
  void choose(std::span<const RowSampling> sampling) override;
  StepOutput wait() override;
  std::shared_ptr<const model::WeightSet> weights() const override { return weights_; }
  void set_weights(std::shared_ptr<const model::WeightSet> weights) override;
  std::uint64_t set_adapter(std::int64_t slot,
                            std::shared_ptr<const model::Adapter> adapter) override {
    if (adapter != nullptr) model::check_adapter(weights_->config(), *adapter);
    adapters_.at(count(slot)) = std::move(adapter);
    return adapters_[count(slot)] == nullptr ? 0 : model::hash(*adapters_[count(slot)]);
  }
  void read_pages(std::span<const std::int32_t> pages, std::span<std::byte> out) const override;
  void write_pages(std::span<const std::int32_t> pages, std::span<const std::byte> in) override;
  void read_block(std::int32_t page, int layer, std::span<std::byte> out) const override {
    for (std::size_t half = 0; half < halves_.size(); ++half)
      std::memcpy(out.subspan(half * layer_page_bytes_, layer_page_bytes_).data(),
                  page_at(half, layer, page), layer_page_bytes_);
  }
  void write_block(std::int32_t page, int layer, std::span<const std::byte> in) override {
    for (std::size_t half = 0; half < halves_.size(); ++half)
      std::memcpy(page_at(half, layer, page),
                  in.subspan(half * layer_page_bytes_, layer_page_bytes_).data(),
                  layer_page_bytes_);
  }
  bool tell_layers(const std::function<void(int)>& told) override {
    workspace_.on_keys = told;
    return true;
  }

 private:
  struct Results {
    std::vector<std::int32_t> tokens, top_ids;
    std::vector<float> logprobs, top_logprobs, hidden;
    std::int64_t stride = 0;
  };
  static constexpr std::size_t sets = 3;
  void choose_rows(std::span<const RowSampling> sampling, Results& out);
  std::byte* page_at(std::size_t half, std::int64_t layer, std::int64_t page) const;

  std::shared_ptr<const model::WeightSet> weights_;
  RunnerLimits limits_;
  MemoryPlan plan_;
  model::Workspace workspace_;
  std::array<std::unique_ptr<std::byte[]>, 2> halves_;  // keys, values; not cleared
  std::size_t layer_page_bytes_ = 0;
  kernels::KvView view_;
  KvScales scales_;
  std::string name_;
  std::vector<std::int32_t> ids_;
  std::vector<std::shared_ptr<const model::Adapter>> adapters_;  // by slot
  std::vector<const model::Adapter*> of_rows_;
  std::vector<float> hidden_, rows_, logits_;
  std::vector<ChooseScratch> scratch_;  // one for each thread
  std::array<Results, sets> results_;
  std::size_t launched_ = 0, waited_ = 0;
};

// Plan the memory, then take it.
CpuRunner::CpuRunner(std::shared_ptr<const model::WeightSet> weights,
                     const CpuRunnerOptions& options, core::ThreadPool& pool)
    : weights_(std::move(weights)), workspace_(weights_->config(), pool) {
  const model::Config& c = weights_->config();
  const std::int64_t positions =
      options.positions > 0 ? std::min(options.positions, c.max_positions) : c.max_positions;
  const std::int64_t most = std::max(options.max_tokens, std::int64_t{1}),
                     rows = options.max_sequences;
  constexpr std::int64_t f = sizeof(float);
  const std::int64_t wide = 3 * c.hidden + 2 * c.heads * c.head_dim + 2 * c.kv_heads * c.head_dim +
                            2 * c.ffn + c.head_dim;
  std::vector<MemoryTerm> terms{
      {"weights", weights_->bytes()},
      {fmt::format("activations of {} tokens", most), most * (wide + c.hidden) * f},
      {fmt::format("logits of {} rows", rows), rows * (c.vocab_size + c.hidden) * f}};
  const std::int64_t machine =
      static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  const std::int64_t budget = options.budget > 0 ? options.budget : machine / 2;
  const std::int64_t each = (positions + options.page_size - 1) / options.page_size;
  plan_ =
      plan_pages(budget, std::move(terms), kv_page_bytes(c, options.page_size, options.kv_dtype),
                 options.page_size, options.pages > 0 ? options.pages : rows * each);
  limits_ = {.tokens = most,
             .sequences = rows,
             .rows = rows,
             .page_size = options.page_size,
             .pages = plan_.pages,
             .positions = positions,
             .vocab = c.vocab_size,
             .hidden = c.hidden,
             .adapters = options.max_loras,
             .adapter_rank = std::numeric_limits<std::int64_t>::max(),
             .late_choices = true};
  adapters_.resize(count(options.max_loras));

  layer_page_bytes_ = count(plan_.page_bytes / 2 / c.layers);
  for (auto& half : halves_) {
    const std::size_t bytes = count(plan_.page_bytes / 2 * plan_.pages);
    half.reset(new std::byte[bytes]);
    if (options.poison) std::memset(half.get(), 0xff, bytes);  // NaN in every type
  }
  view_ = {.k = halves_[0].get(),
           .v = halves_[1].get(),
           .dtype = options.kv_dtype,
           .layers = static_cast<int>(c.layers),
           .kv_heads = static_cast<int>(c.kv_heads),
           .head_dim = static_cast<int>(c.head_dim),
           .page_size = options.page_size,
           .pages = plan_.pages};
  scales_ = options.kv_scales;
  for (const auto& [values, at] :
       {std::pair{&scales_.k, &view_.k_scale}, {&scales_.v, &view_.v_scale}}) {
    if (values->empty()) continue;
    if (values->size() != count(c.layers * c.kv_heads))
      throw core::Error(core::Code::invalid_argument, "a scale for every layer and head is needed")
          .in("kv_scales");
    *at = values->data();
  }
  limits_.kv_key = kv_key(options.kv_dtype, scales_);
  name_ = fmt::format("cpu{}{}", weights_->quantization().empty() ? "" : ", weights ",
                      weights_->quantization());
  if (options.kv_dtype == kernels::DType::u8) name_ += ", keys and values fp8";
  workspace_.reserve(most);
  hidden_.resize(count(most * c.hidden));
  rows_.resize(count(rows * c.hidden));
  logits_.resize(count(rows * c.vocab_size));
  scratch_.resize(count(pool.size()));
}

// Resolve promises, copy pages, run forward, choose.
void CpuRunner::launch(const StepInput& step) {
  const Results& before = results_[(launched_ + sets - 1) % sets];
  ids_.assign(step.ids.begin(), step.ids.end());
  for (std::int32_t& id : ids_) {
    if (id < 0) id = std::max(before.tokens.at(count(-id - 1)), 0);  // -1: that sequence has failed
  }
  kernels::KvView view = view_;
  view.page_table = step.page_table.data();
  view.table_stride = step.table_stride;
  kernels::kv_copy_pages(view, step.copies);
  const auto width = count(weights_->config().hidden);
  const std::span<float> hidden = std::span(hidden_).first(ids_.size() * width);
  of_rows_.clear();
  for (const std::int32_t slot : step.adapters)
    of_rows_.push_back(slot < 0 ? nullptr : adapters_.at(count(slot)).get());
  model::forward(*weights_, {ids_, step.positions, step.row_offsets, of_rows_}, &view, nullptr,
                 workspace_, hidden);
  const auto gather = [&](std::span<const std::int32_t> tokens, std::vector<float>& to) {
    for (std::size_t r = 0; r < tokens.size(); ++r) {
      const auto from = hidden.subspan(count(tokens[r]) * width, width);
      std::ranges::copy(from, to.begin() + static_cast<std::ptrdiff_t>(r * width));
    }
  };
  gather(step.logit_tokens, rows_);
  Results& results = results_[launched_ % sets];
  results.hidden.resize(step.hidden_tokens.size() * width);
  gather(step.hidden_tokens, results.hidden);
  if (!step.choose_later) choose_rows(step.sampling, results);
  ++launched_;
}

void CpuRunner::choose(std::span<const RowSampling> sampling) {
  choose_rows(sampling, results_[(launched_ + sets - 1) % sets]);
}

void CpuRunner::choose_rows(std::span<const RowSampling> sampling, Results& out) {
  const std::size_t n = sampling.size();
  const auto width = count(weights_->config().hidden), vocab = count(limits_.vocab);
  out.stride = 0;
  for (const RowSampling& row : sampling)
    out.stride = std::max<std::int64_t>(out.stride, row.logprobs);
  const std::size_t stride = count(out.stride);
  out.tokens.assign(n, -1), out.logprobs.assign(n, 0.0f);
  out.top_ids.assign(n * stride, -1);
  out.top_logprobs.assign(n * stride, -std::numeric_limits<float>::infinity());
  if (n == 0) return;
  const auto logits = std::span(logits_).first(n * vocab);
  model::logits(*weights_, std::span(rows_).first(n * width), static_cast<std::int64_t>(n),
                workspace_, logits);
  workspace_.pool().for_range(
      static_cast<std::int64_t>(n), 1, [&](std::int64_t begin, std::int64_t end, int range) {
        for (auto r = count(begin); r < count(end); ++r) {
          const RowChoice choice =
              infer::choose(logits.subspan(r * vocab, vocab), sampling[r],
                            scratch_[static_cast<std::size_t>(range)], workspace_.pool());
          out.tokens[r] = choice.token;
          out.logprobs[r] = choice.logprob;
          std::ranges::copy(choice.top_ids,
                            out.top_ids.begin() + static_cast<std::ptrdiff_t>(r * stride));
          std::ranges::copy(choice.top_logprobs,
                            out.top_logprobs.begin() + static_cast<std::ptrdiff_t>(r * stride));
        }
      });
}

StepOutput CpuRunner::wait() {
  const Results& r = results_[waited_++ % sets];
  return {r.tokens, r.logprobs, r.top_ids, r.top_logprobs, r.stride, r.hidden};
}

// Exchange weights, and pages as bytes.
void CpuRunner::set_weights(std::shared_ptr<const model::WeightSet> weights) {
  const model::Config &a = weights_->config(), &b = weights->config();
  if (a.layers != b.layers || a.hidden != b.hidden || a.vocab_size != b.vocab_size ||
      a.ffn != b.ffn || a.heads != b.heads || a.kv_heads != b.kv_heads ||
      a.head_dim != b.head_dim) {
    throw core::Error(core::Code::invalid_argument, "the new weights are of another shape")
        .in("weights");
  }
  model::require_same_packing(*weights_, *weights);
  weights_ = std::move(weights);
}

std::byte* CpuRunner::page_at(std::size_t half, std::int64_t layer, std::int64_t page) const {
  return halves_[half].get() + count(layer * plan_.pages + page) * layer_page_bytes_;
}

void CpuRunner::read_pages(std::span<const std::int32_t> pages, std::span<std::byte> out) const {
  std::byte* to = out.data();
  for (const std::int32_t page : pages)
    for (std::size_t half = 0; half < halves_.size(); ++half)
      for (int layer = 0; layer < view_.layers; ++layer, to += layer_page_bytes_)
        std::memcpy(to, page_at(half, layer, page), layer_page_bytes_);
}

void CpuRunner::write_pages(std::span<const std::int32_t> pages, std::span<const std::byte> in) {
  const std::byte* from = in.data();
  for (const std::int32_t page : pages)
    for (std::size_t half = 0; half < halves_.size(); ++half)
      for (int layer = 0; layer < view_.layers; ++layer, from += layer_page_bytes_)
        std::memcpy(page_at(half, layer, page), from, layer_page_bytes_);
}

}  // namespace

std::unique_ptr<Runner> make_cpu_runner(std::shared_ptr<const model::WeightSet> weights,
                                        const CpuRunnerOptions& options, core::ThreadPool& pool) {
  return std::make_unique<CpuRunner>(std::move(weights), options, pool);
}

}  // namespace rose::infer
