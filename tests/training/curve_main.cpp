// Trains a small model for some steps, in double and in single precision, and writes down all that another program needs to do the same.
//
//   curve_tool FAMILY STEPS FOLDER
//
// FOLDER receives settings.json, weights.f32 (parameters in order), batches.i32 (for each micro-batch: ids, targets) and curves.json.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <numbers>
#include <string>
#include <vector>

#include "labs/training/double_model.h"
#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/json.h"
#include "rose/core/rng.h"
#include "rose/trainer/cpu_compute.h"
#include "rose/trainer/fresh_shape.h"
#include "rose/trainer/loop.h"

namespace {

using namespace rose;
using namespace rose::trainer;

constexpr std::int64_t vocabulary = 96, rows = 2, context = 24, micro_batches = 2;

model::Config shape(const std::string& family) {
  model::Config c;
  c.family = family == "gpt2" ? model::Family::gpt2 : model::Family::qwen3;
  c.vocab_size = vocabulary, c.layers = 2, c.heads = 4, c.kv_heads = family == "gpt2" ? 4 : 2,
  c.head_dim = 12, c.hidden = 48, c.ffn = 128;
  c.max_positions = 64, c.tied_head = true;
  return fresh_shape(c);
}

/// A language in which most tokens follow from the one before: there is something to learn. A fifth of the targets is masked.
void fill(core::Rng& rng, std::int64_t of_rows, std::int64_t length, MicroBatchBuffer& out) {
  out.clear();
  for (std::int64_t r = 0; r < of_rows; ++r) {
    auto token = static_cast<std::int32_t>(rng.below(vocabulary));
    for (std::int64_t t = 0; t < length; ++t) {
      const auto next = rng.below(10) < 7 ? (token * 7 + 3) % static_cast<std::int32_t>(vocabulary)
                                          : static_cast<std::int32_t>(rng.below(vocabulary));
      out.push(token, rng.below(5) == 0 ? -1 : next);
      token = next;
    }
    out.end_sequence();
  }
}

/// The same step in double: AdamW written out once more, with nothing of the kernels.
struct DoubleTrainer {
  labs::DoubleModel model;
  labs::Named first, second;
  std::vector<ParameterRule> rules;
  std::vector<std::string> names;

  DoubleTrainer(const model::WeightSet& weights, const OptimizerOptions& options)
      : model(weights), rules(parameter_rules(weights.parameters(), options)) {
    for (const model::Parameter& p : weights.parameters()) {
      names.push_back(p.name);
      first[p.name].assign(static_cast<std::size_t>(p.elements), 0.0);
      second[p.name] = first[p.name];
    }
  }

  double step(const std::vector<MicroBatchBuffer>& batches, const OptimizerOptions& o,
              std::int64_t t, double rate, double clip) {
    double weight = 0.0, square = 0.0;
    for (const MicroBatchBuffer& b : batches) weight += total_weight(b.view());
    model.zero_gradients();
    LossSum sum;
    for (const MicroBatchBuffer& b : batches) sum += model.accumulate(b.view(), 1.0 / weight);
    for (const auto& [name, g] : model.gradient) {
      for (const double x : g) square += x * x;
    }
    const double norm = std::sqrt(square), scale = norm > clip ? clip / norm : 1.0;
    const double beta1 = double{o.beta1}, beta2 = double{o.beta2};
    const double c1 = 1 / (1 - std::pow(beta1, static_cast<double>(t))),
                 c2 = 1 / (1 - std::pow(beta2, static_cast<double>(t)));
    for (std::size_t p = 0; p < names.size(); ++p) {
      labs::Doubles &w = model.weight[names[p]], &m = first[names[p]], &v = second[names[p]];
      const labs::Doubles& g = model.gradient[names[p]];
      for (std::size_t i = 0; i < w.size(); ++i) {
        const double gradient = g[i] * scale;
        m[i] = beta1 * m[i] + (1 - beta1) * gradient;
        v[i] = beta2 * v[i] + (1 - beta2) * gradient * gradient;
        w[i] -= rate * (m[i] * c1 / (std::sqrt(v[i] * c2) + double{o.epsilon}) +
                        double{rules[p].decay} * w[i]);
      }
    }
    return sum.mean();
  }
};

void run(const std::string& family, std::int64_t steps, const std::filesystem::path& folder) {
  const model::Config config = shape(family);
  const auto weights = model::random_weights(config, 17);
  LoopOptions options{.rows = rows, .context = context, .micro_batches = micro_batches};
  options.rate = {
      .shape = RateShape::cosine, .steps = steps, .warmup = steps / 10, .peak = 1e-2, .last = 1e-3};
  ComputeOptions compute_options;
  const OptimizerOptions& o = compute_options.optimizer;

  std::ofstream raw(folder / "weights.f32", std::ios::binary),
      batches(folder / "batches.i32", std::ios::binary);
  core::json::array parameters;
  const auto rules = parameter_rules(weights->parameters(), o);
  for (std::size_t p = 0; p < rules.size(); ++p) {
    const model::Parameter& parameter = weights->parameters()[p];
    raw.write(static_cast<const char*>(parameter.data),
              static_cast<std::streamsize>(parameter.elements * 4));
    core::json::array dims(parameter.shape.begin(), parameter.shape.end());
    parameters.push_back(
        {{"name", parameter.name}, {"shape", dims}, {"decay", double{rules[p].decay}}});
  }
  DoubleTrainer in_double(*weights, o);
  core::ThreadPool pool(2);
  CpuCompute compute(weights, compute_options, pool);
  std::vector<MicroBatchBuffer> kept;
  core::Rng rng(23);
  Loop loop(
      compute,
      [&](std::int64_t r, std::int64_t t, MicroBatchBuffer& out) {
        fill(rng, r, t, out), kept.push_back(out);
      },
      options);
  core::json::array fp32, fp64, rates;
  for (std::int64_t s = 0; s < steps; ++s) {
    kept.clear();
    const StepReport report = loop.step();
    fp32.push_back(report.sum.mean());
    rates.push_back(report.rate);
    fp64.push_back(in_double.step(kept, o, s + 1, report.rate, options.clip));
    for (const MicroBatchBuffer& b : kept) {
      batches.write(reinterpret_cast<const char*>(b.ids.data()),
                    static_cast<std::streamsize>(b.ids.size() * 4));
      batches.write(reinterpret_cast<const char*>(b.targets.data()),
                    static_cast<std::streamsize>(b.targets.size() * 4));
    }
  }
  const model::RopeSetup rope = model::rope_setup(config);
  core::json::array frequencies;
  for (const float f : rope.inv_freq) frequencies.push_back(double{f});
  const core::json::object settings{{"family", family},
                                    {"layers", config.layers},
                                    {"heads", config.heads},
                                    {"kv_heads", config.kv_heads},
                                    {"head_dim", config.head_dim},
                                    {"hidden", config.hidden},
                                    {"norm_eps", double{config.norm_eps}},
                                    {"frequencies", frequencies},
                                    {"parameters", parameters},
                                    {"rows", rows},
                                    {"context", context},
                                    {"micro_batches", micro_batches},
                                    {"steps", steps},
                                    {"clip", options.clip},
                                    {"rates", rates},
                                    {"beta1", double{o.beta1}},
                                    {"beta2", double{o.beta2}},
                                    {"epsilon", double{o.epsilon}}};
  core::write_file_atomic(folder / "settings.json", core::json::serialize(settings));
  core::write_file_atomic(folder / "curves.json", core::json::serialize(core::json::object{
                                                      {"fp32", fp32}, {"fp64", fp64}}));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: curve_tool gpt2|qwen3 STEPS FOLDER\n");
    return 2;
  }
  try {
    run(argv[1], std::stoll(argv[2]), argv[3]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", rose::core::describe(error).c_str());
    return rose::core::exit_code(error);
  }
}
