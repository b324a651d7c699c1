// Make one vector of a text.

#include <algorithm>
#include <cmath>
#include <span>

#include "rose/core/error.h"
#include "rose/infer/engine_state.h"

namespace rose::infer {

// Say which hidden states are wanted.
void Engine::State::add_hidden(const PlannedRow& row, std::int32_t begin) {
  const auto& choice = static_cast<const Choice&>(*row.sequence);
  const auto count = static_cast<std::int32_t>(row.count);
  if (choice.request->request.pooling->kind == Pooling::Kind::mean) {
    for (std::int32_t i = 0; i < count; ++i) hidden_tokens.push_back(begin + i);
  } else if (row.choices > 0) {
    hidden_tokens.push_back(begin + count - 1);
  }
}

// Add hidden states up, and end with their mean or the last.
void Engine::State::take_hidden(Choice& c, const PlannedRow& row, std::int32_t hidden,
                                const StepOutput& out) {
  const Pooling& pooling = *c.request->request.pooling;
  const auto width = static_cast<std::size_t>(runner->limits().hidden);
  const bool mean = pooling.kind == Pooling::Kind::mean;
  c.pooled.resize(width, 0.0);
  const std::int64_t n = mean ? row.count : row.choices > 0 ? 1 : 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t position = mean ? row.first + i : row.first + row.count - 1;
    if (position < c.pooled_to) continue;  // computed again after a preemption
    c.pooled_to = position + 1;
    const auto from = out.hidden.subspan(
        (static_cast<std::size_t>(hidden) + static_cast<std::size_t>(i)) * width, width);
    for (std::size_t k = 0; k < width; ++k) c.pooled[k] += double{from[k]};
  }
  if (row.choices == 0) return;
  double scale = mean ? 1.0 / static_cast<double>(c.prompt) : 1.0;
  double squares = 0.0;
  for (const double x : c.pooled) squares += x * x;
  if (!std::isfinite(squares)) {
    return end(c, Finish::error,
               std::make_shared<const core::Error>(
                   core::Error(core::Code::internal, "the hidden states are not numbers")
                       .in("embedding")));
  }
  if (pooling.normalize && squares > 0.0) scale = 1.0 / std::sqrt(squares);
  auto vector = std::make_shared<std::vector<float>>();
  for (const double x : c.pooled) vector->push_back(static_cast<float>(x * scale));
  end(c, Finish::stop, nullptr, std::move(vector));
}

}  // namespace rose::infer
