// An exercise of the chapter "Preference optimisation".

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "labs/evidence/values.h"
#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/rng.h"
#include "rose/text/bpe_trainer.h"
#include "rose/trainer/cpu_compute.h"
#include "rose/trainer/preference.h"
#include "rose/trainer/preference_compute.h"
#include "rose/trainer/preference_task.h"
#include "rose/trainer/run.h"
#include "rose/trainer/task.h"

namespace rose::trainer {
namespace {

/// DPO with a price of `alpha` for each token more.
PreferenceValue priced(double beta, double alpha, const AnswerScore& chosen,
                       const AnswerScore& rejected) {
  PreferenceValue out;
  out.margin = beta * (chosen.ratio() - rejected.ratio()) -
               alpha * static_cast<double>(chosen.tokens - rejected.tokens);
  out.loss = std::log1p(std::exp(-out.margin));
  out.chosen = -beta / (1 + std::exp(out.margin));
  out.rejected = -out.chosen;
  return out;
}

TEST(Priced, ALongerAnswerMustBePreferredByMore) {
  const AnswerScore w{-10, -11, 5}, l{-12, -11.5, 4};
  const PreferenceValue plain = preference({.loss = PreferenceLoss::dpo, .beta = 0.5}, w, l),
                        free = priced(0.5, 0, w, l), dear = priced(0.5, 0.25, w, l);
  EXPECT_NEAR(free.loss, plain.loss, 1e-12);
  EXPECT_NEAR(free.chosen, plain.chosen, 1e-12);
  EXPECT_NEAR(dear.margin, 0.5, 1e-12);
  EXPECT_NEAR(dear.chosen, -0.5 / (1 + std::exp(0.5)), 1e-12);
  EXPECT_GT(dear.loss, free.loss);
}

}  // namespace
}  // namespace rose::trainer
