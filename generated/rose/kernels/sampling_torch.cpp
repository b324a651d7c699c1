// Bring what is asked to the device.

#include "rose/kernels/sampling_torch.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "rose/kernels/autograd_torch.h"
#include "rose/kernels/cross_entropy_torch.h"
#include "rose/kernels/gpu/sampling.h"
#include "rose/kernels/tensor_torch.h"

namespace rose::kernels::autograd {
namespace {

void check_logits(const char* name, const at::Tensor& logits, std::size_t asked) {
  refuse_gradient(name, {logits});
  if (logits.dim() != 2 || static_cast<std::size_t>(logits.size(0)) != asked) {
    gpu::bad_argument("logits", "[R, V] is needed, with an entry for each row");
  }
}

/// Lists of rows one behind the other, and where each begins.
template <class Value>
struct Lists {
  std::vector<std::int32_t> offsets{0}, ids;
  std::vector<Value> values;
  void add(std::span<const std::pair<std::int32_t, Value>> row) {
    for (const auto& [id, value] : row) {
      ids.push_back(id);
      values.push_back(value);
    }
    offsets.push_back(static_cast<std::int32_t>(ids.size()));
  }
};

// Lay the lists out for the kernel.
void adjust_on_gpu(const Site& site, const at::Tensor& logits,
                   std::span<const LogitAdjustment> rows) {
  constexpr std::int64_t bits = 32;
  const std::int64_t words = (logits.size(1) + bits - 1) / bits;
  Lists<float> bias;
  Lists<std::int32_t> context;
  std::vector<float> repetition, frequency, presence;
  std::vector<std::int32_t> mask;
  bool masked = false;
  for (const LogitAdjustment& row : rows) {
    bias.add(row.bias);
    context.add(row.context);
    repetition.push_back(row.repetition);
    frequency.push_back(row.frequency);
    presence.push_back(row.presence);
    masked = masked || !row.mask.empty();
    if (!row.mask.empty() && static_cast<std::int64_t>(row.mask.size()) < words) {
      gpu::bad_argument("mask", "a bit for each token is needed");
    }
    for (std::int64_t w = 0; w < words; ++w) {
      const std::uint32_t word = row.mask.empty() ? ~0u : row.mask[static_cast<std::size_t>(w)];
      mask.push_back(static_cast<std::int32_t>(word));
    }
  }
  const auto there = [&](const auto& list) { return at::tensor(list).to(logits.device()); };
  const at::Tensor bo = there(bias.offsets), bi = there(bias.ids), bv = there(bias.values),
                   co = there(context.offsets), ci = there(context.ids), cv = there(context.values),
                   m = there(mask), r = there(repetition), f = there(frequency),
                   p = there(presence);
  const auto whole = [&](const at::Tensor& t) { return site.integers(t, "lists").data(); };
  const auto real = [&](const at::Tensor& t) { return site.floats(t, "values").data(); };
  gpu::LogitAdjustments all{
      .bias_offsets = whole(bo), .bias_ids = whole(bi), .bias_values = real(bv)};
  if (masked) {
    all.mask = reinterpret_cast<const std::uint32_t*>(whole(m));
    all.mask_words = words;
  }
  all.context_offsets = whole(co), all.context_ids = whole(ci), all.context_counts = whole(cv);
  all.repetition = real(r), all.frequency = real(f), all.presence = real(p);
  gpu::adjust_logits(site.matrix(logits, "logits"), all, site.stream());
}

}  // namespace

// Adjust each row.
void adjust_logits(const at::Tensor& logits, std::span<const LogitAdjustment> rows) {
  check_logits("adjust_logits", logits, rows.size());
  const Site site(logits, "logits");
  if (site.on_gpu()) return adjust_on_gpu(site, logits, rows);
  const std::span<float> all = site.floats(logits, "logits");
  const std::size_t width = rows.empty() ? 0 : all.size() / rows.size();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    kernels::adjust_logits(all.subspan(r * width, width), rows[r]);
  }
}

// Choose in each row.
std::pair<at::Tensor, at::Tensor> sample(const at::Tensor& logits,
                                         std::span<const SamplingParams> rows) {
  check_logits("sample", logits, rows.size());
  for (const SamplingParams& row : rows) validate(row);
  const Site site(logits, "logits");
  at::Tensor tokens = logits.new_empty({logits.size(0)}, logits.options().dtype(at::kInt)),
             logprobs = logits.new_empty({logits.size(0)});
  if (site.on_gpu()) {
    at::Tensor asked = at::empty({static_cast<std::int64_t>(rows.size_bytes())}, at::kByte);
    std::memcpy(asked.mutable_data_ptr(), rows.data(), rows.size_bytes());
    const at::Tensor there = asked.to(logits.device());
    gpu::sample(site.matrix(logits, "logits"),
                static_cast<const SamplingParams*>(there.const_data_ptr()),
                static_cast<std::int32_t*>(tokens.mutable_data_ptr()),
                site.floats(logprobs, "logprobs").data(), site.stream());
    return {tokens, logprobs};
  }
  const std::span<const float> all = site.floats(logits, "logits");
  const std::size_t width = rows.empty() ? 0 : all.size() / rows.size();
  std::vector<std::pair<float, std::int32_t>> scratch;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const Choice choice = kernels::sample(all.subspan(r * width, width), rows[r], scratch);
    tokens.mutable_data_ptr<std::int32_t>()[r] = choice.token;
    logprobs.mutable_data_ptr<float>()[r] = choice.logprob;
  }
  return {tokens, logprobs};
}

// The most likely of each row.
std::pair<at::Tensor, at::Tensor> top_logprobs(const at::Tensor& logits, int count) {
  refuse_gradient("top_logprobs", {logits});
  if (logits.dim() != 2) gpu::bad_argument("logits", "[R, V] is needed");
  if (count < 1 || count > gpu::most_top_logprobs) gpu::bad_argument("count", "1 to 64");
  const Site site(logits, "logits");
  const std::int64_t rows = logits.size(0), width = logits.size(1);
  at::Tensor ids = logits.new_full({rows, count}, -1, logits.options().dtype(at::kInt)),
             values = logits.new_full({rows, count}, -std::numeric_limits<double>::infinity());
  const at::Tensor none = logits.new_zeros({rows}, logits.options().dtype(at::kInt));
  const at::Tensor lse = token_logprob(logits, none).second;
  if (site.on_gpu()) {
    gpu::top_logprobs(site.matrix(logits, "logits"), site.floats(lse, "lse").data(), count,
                      static_cast<std::int32_t*>(ids.mutable_data_ptr()),
                      site.floats(values, "logprobs").data(), site.stream());
    return {ids, values};
  }
  const std::span<const float> all = site.floats(logits, "logits");
  const auto kept = static_cast<std::ptrdiff_t>(std::min<std::int64_t>(count, width));
  std::vector<std::int32_t> order(static_cast<std::size_t>(width));
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* z = all.data() + r * width;
    if (std::any_of(z, z + width, [](float x) { return std::isnan(x); })) continue;
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(
        order.begin(), order.begin() + kept, order.end(),
        [&](std::int32_t a, std::int32_t b) { return z[a] != z[b] ? z[a] > z[b] : a < b; });
    for (std::ptrdiff_t i = 0; i < kept; ++i) {
      const std::int32_t id = order[static_cast<std::size_t>(i)];
      ids.mutable_data_ptr<std::int32_t>()[r * count + i] = id;
      values.mutable_data_ptr<float>()[r * count + i] = z[id] - lse.const_data_ptr<float>()[r];
    }
  }
  return {ids, values};
}

}  // namespace rose::kernels::autograd
