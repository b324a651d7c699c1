// Say which parameter gets which update.

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rose/core/parallel.h"
#include "rose/kernels/adamw.h"
#include "rose/kernels/muon.h"
#include "rose/model/backward.h"
#include "rose/model/weights.h"

namespace rose::trainer {

enum class Method : std::uint8_t { adamw, muon };

/// What a parameter is, by its name: layers.*.weight of two dimensions, a table or the head, a norm, a bias.
enum class ParameterKind : std::uint8_t { matrix, embedding, norm, bias };
ParameterKind kind_of(std::string_view name);

struct OptimizerOptions {
  Method method = Method::adamw;  ///< muon: matrices only, all else by AdamW
  float beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f;
  float weight_decay = 0.1f;
  bool decay_embeddings = true, decay_norms = false, decay_biases = false;
  float muon_momentum = 0.95f;
  bool muon_nesterov = true;
  int muon_iterations = 5;
  kernels::MuonScale muon_scale = kernels::MuonScale::like_adamw;
  double muon_rate = 1.0;       ///< the matrices' rate, as a multiple of the schedule's
  double embedding_rate = 1.0;  ///< the embeddings', likewise
  std::vector<std::string>
      frozen{};  ///< parameters whose name starts with one of these stay as they are
};

/// What an update needs to know of one parameter beyond its gradient.
struct ParameterRule {
  Method method = Method::adamw;
  bool trained = true;
  float decay = 0.0f;
  double rate = 1.0;  ///< multiple of the schedule's rate
  float muon_scale = 1.0f;
  std::int64_t rows = 1, cols = 1;
};

/// One rule for each parameter, in their order. Throws core::Error (invalid_argument) naming an option out of its range.
std::vector<ParameterRule> parameter_rules(std::span<const model::Parameter> parameters,
                                           const OptimizerOptions& options);

/// The constants of update `t`, counted from 1, for a parameter.
kernels::AdamWStep adamw_step(const OptimizerOptions& options, const ParameterRule& rule,
                              std::int64_t t, double rate);
kernels::MuonStep muon_step(const OptimizerOptions& options, const ParameterRule& rule,
                            double rate);

// Keep the moments of a model in the CPU's memory.
class HostOptimizer {
 public:
  HostOptimizer(const model::WeightSet& weights, OptimizerOptions options);

  /// Update `t` (from 1) of every trained parameter, in place, from gradients times `scale`.
  void step(const model::WeightSet& weights, const model::Gradients& gradients, std::int64_t t,
            double rate, float scale, core::ThreadPool& pool);

  std::span<const ParameterRule> rules() const { return rules_; }
  const OptimizerOptions& options() const { return options_; }
  /// The moments of parameter p; empty where its rule has none. Muon's momentum is the first.
  std::span<float> first(std::size_t p) { return moments_[p].first; }
  std::span<float> second(std::size_t p) { return moments_[p].second; }

 private:
  struct Moments {
    std::vector<float> first, second;
  };
  OptimizerOptions options_;
  std::vector<ParameterRule> rules_;
  std::vector<Moments> moments_;
  kernels::MuonScratch scratch_;
};

}  // namespace rose::trainer
