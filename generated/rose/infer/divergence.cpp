// Compare what two models expect, token by token.

#include "rose/infer/divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

#include "rose/core/error.h"
#include "rose/model/forward.h"

namespace rose::infer {
namespace {

// Read a window as a variant does.
class Reader {
 public:
  Reader(const Variant& variant, std::int64_t window, core::ThreadPool& pool)
      : weights_(*variant.weights), workspace_(weights_.config(), pool) {
    const model::Config& c = weights_.config();
    const std::int64_t bytes = kv_page_bytes(c, static_cast<int>(window), variant.kv_dtype) / 2;
    for (auto& half : halves_) half.resize(static_cast<std::size_t>(bytes));
    view_ = {.k = halves_[0].data(),
             .v = halves_[1].data(),
             .dtype = variant.kv_dtype,
             .layers = static_cast<int>(c.layers),
             .kv_heads = static_cast<int>(c.kv_heads),
             .head_dim = static_cast<int>(c.head_dim),
             .page_size = static_cast<int>(window),
             .pages = 1,
             .page_table = &page_,
             .table_stride = 1};
    if (!variant.kv_scales.k.empty()) view_.k_scale = variant.kv_scales.k.data();
    if (!variant.kv_scales.v.empty()) view_.v_scale = variant.kv_scales.v.data();
  }

  void read(std::span<const std::int32_t> ids) {
    const auto width = static_cast<std::size_t>(weights_.config().hidden);
    hidden_.resize(ids.size() * width);
    std::vector<std::int32_t> positions(ids.size());
    std::iota(positions.begin(), positions.end(), 0);
    const std::vector<std::int32_t> offsets{0, static_cast<std::int32_t>(ids.size())};
    model::forward(weights_, {ids, positions, offsets}, &view_, nullptr, workspace_, hidden_);
  }

  /// Logits of `rows` places from `first` on.
  std::span<const float> logits(std::size_t first, std::size_t rows) {
    const auto width = static_cast<std::size_t>(weights_.config().hidden);
    logits_.resize(rows * static_cast<std::size_t>(weights_.config().vocab_size));
    model::logits(weights_, std::span(hidden_).subspan(first * width, rows * width),
                  static_cast<std::int64_t>(rows), workspace_, logits_);
    return logits_;
  }

 private:
  const model::WeightSet& weights_;
  model::Workspace workspace_;
  std::vector<std::byte> halves_[2];
  std::int32_t page_ = 0;
  kernels::KvView view_;
  std::vector<float> hidden_, logits_;
};

// Compare two rows of logits.
double log_sum_exp(std::span<const float> row) {
  const float most = *std::ranges::max_element(row);
  double sum = 0.0;
  for (const float x : row) sum += std::exp(static_cast<double>(x) - most);
  return most + std::log(sum);
}

struct Row {
  double base_nll = 0, nll = 0, kl = 0, logit = 0;
  bool same = false;
};

Row compare_rows(std::span<const float> base, std::span<const float> other, std::int32_t next) {
  const double a = log_sum_exp(base), b = log_sum_exp(other);
  double shift = 0.0;
  for (std::size_t v = 0; v < base.size(); ++v)
    shift += static_cast<double>(other[v]) - static_cast<double>(base[v]);
  shift /= static_cast<double>(base.size());
  Row row;
  for (std::size_t v = 0; v < base.size(); ++v) {
    const double p = base[v] - a, q = other[v] - b;
    row.kl += std::exp(p) * (p - q);
    row.logit = std::max(row.logit, std::fabs(static_cast<double>(other[v]) - base[v] - shift));
  }
  const auto at = static_cast<std::size_t>(next);
  row.base_nll = a - base[at];
  row.nll = b - other[at];
  row.same = std::ranges::max_element(base) - base.begin() ==
             std::ranges::max_element(other) - other.begin();
  return row;
}

}  // namespace

// Read a text as both, and add up.
Divergence diverge(const Variant& base, const Variant& other, std::span<const std::int32_t> ids,
                   std::int64_t window, core::ThreadPool& pool) {
  const model::Config &c = base.weights->config(), &d = other.weights->config();
  if (ids.size() < 2 || c.vocab_size != d.vocab_size) {
    throw core::Error(
        core::Code::invalid_argument,
        fmt::format("{} tokens, vocabularies of {} and {}", ids.size(), c.vocab_size, d.vocab_size))
        .in("diverge");
  }
  window = std::clamp<std::int64_t>(window, 2, std::min(c.max_positions, d.max_positions));
  Reader reads_base(base, window, pool), reads_other(other, window, pool);
  constexpr std::size_t block = 32;  // rows of logits at once
  const auto vocab = static_cast<std::size_t>(c.vocab_size);
  Divergence out;
  double base_nll = 0.0, nll = 0.0;
  std::int64_t same = 0;
  for (std::size_t at = 0; at + 1 < ids.size(); at += static_cast<std::size_t>(window)) {
    const auto part = ids.subspan(at, std::min(static_cast<std::size_t>(window), ids.size() - at));
    if (part.size() < 2) break;
    reads_base.read(part);
    reads_other.read(part);
    for (std::size_t first = 0; first + 1 < part.size(); first += block) {
      const std::size_t rows = std::min(block, part.size() - 1 - first);
      const auto p = reads_base.logits(first, rows), q = reads_other.logits(first, rows);
      std::vector<Row> found(rows);
      pool.for_range(static_cast<std::int64_t>(rows), 1, [&](std::int64_t begin, std::int64_t end) {
        for (auto r = static_cast<std::size_t>(begin); r < static_cast<std::size_t>(end); ++r)
          found[r] = compare_rows(p.subspan(r * vocab, vocab), q.subspan(r * vocab, vocab),
                                  part[first + r + 1]);
      });
      for (const Row& row : found) {
        base_nll += row.base_nll, nll += row.nll, out.mean_kl += row.kl;
        out.max_kl = std::max(out.max_kl, row.kl);
        out.max_logit = std::max(out.max_logit, row.logit);
        same += row.same ? 1 : 0;
        ++out.tokens;
      }
    }
  }
  const auto n = static_cast<double>(out.tokens);
  out.base_perplexity = std::exp(base_nll / n), out.perplexity = std::exp(nll / n);
  out.mean_kl /= n;
  out.same_choice = static_cast<double>(same) / n;
  return out;
}

std::string Divergence::describe() const {
  return fmt::format(
      "perplexity {:.3f} (unquantised {:.3f}), KL {:.5f} nat (largest {:.3f}), "
      "logits within {:.2f}, same choice {:.1f} %, over {} tokens",
      perplexity, base_perplexity, mean_kl, max_kl, max_logit, 100.0 * same_choice, tokens);
}

// Measure how large keys and values get.
KvScales measure_kv_scales(const model::WeightSet& weights, std::span<const std::int32_t> ids,
                           core::ThreadPool& pool) {
  constexpr float target = 448.0f / 4.0f;
  const model::Config& c = weights.config();
  const auto heads = static_cast<std::size_t>(c.kv_heads), d = static_cast<std::size_t>(c.head_dim);
  std::vector<std::int32_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<std::int32_t> offsets{0, static_cast<std::int32_t>(ids.size())};
  model::Workspace workspace(c, pool);
  model::Saved saved;
  std::vector<float> hidden(ids.size() * static_cast<std::size_t>(c.hidden));
  model::forward(weights, {ids, positions, offsets}, nullptr, &saved, workspace, hidden);
  KvScales scales;
  const auto measure = [&](std::span<const float> rows, std::vector<float>& to) {
    for (std::size_t h = 0; h < heads; ++h) {
      float largest = 0.0f;
      for (std::size_t t = 0; t < ids.size(); ++t)
        for (const float x : rows.subspan((t * heads + h) * d, d))
          largest = std::max(largest, std::fabs(x));
      to.push_back(largest > 0.0f ? largest / target : 1.0f);
    }
  };
  for (const model::SavedLayer& layer : saved.layers) {
    measure(layer.k, scales.k);
    measure(layer.v, scales.v);
  }
  return scales;
}

}  // namespace rose::infer
