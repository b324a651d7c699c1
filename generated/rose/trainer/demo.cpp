// The demonstration.

#include "rose/trainer/demo.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "rose/core/files.h"
#include "rose/core/progress.h"
#include "rose/core/rng.h"
#include "rose/model/kv_cache.h"
#include "rose/text/bpe_trainer.h"
#include "rose/text/tokenizer.h"

namespace rose::trainer {

// The recipe: a model of about a million weights, and small steps of 1,024 tokens.
model::Config demo_config(std::int64_t vocab_size) {
  model::Config config;
  config.family = model::Family::llama;
  config.vocab_size = vocab_size;
  config.layers = 4;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 32;
  config.hidden = 128;
  config.ffn = 352;
  config.max_positions = 256;
  config.tied_head = true;
  return config;
}

TrainerOptions demo_trainer_options(std::int64_t steps, std::uint64_t seed) {
  TrainerOptions options;
  options.batch = 8;
  options.context = 128;
  options.schedule = {.steps = steps,
                      .warmup = std::min<std::int64_t>(40, steps / 10 + 1),
                      .peak = 4e-3,
                      .last = 2e-4};
  options.seed = seed;
  return options;
}

namespace {

// Let the model continue a text.
std::int32_t choose(std::span<const float> logits, float temperature, core::Rng& rng) {
  const float top = *std::max_element(logits.begin(), logits.end());
  std::vector<double> mass;
  for (const float z : logits)
    mass.push_back(std::exp(static_cast<double>((z - top) / temperature)));
  double left = rng.uniform64() * std::accumulate(mass.begin(), mass.end(), 0.0);
  for (std::size_t i = 0; i + 1 < mass.size(); ++i) {
    left -= mass[i];
    if (left < 0.0) return static_cast<std::int32_t>(i);
  }
  return static_cast<std::int32_t>(mass.size() - 1);
}

std::string sample(const model::WeightSet& weights, const text::Tokenizer& tokenizer,
                   std::string_view prompt, std::int64_t length, std::uint64_t seed,
                   core::ThreadPool& pool) {
  std::vector<std::int32_t> ids = tokenizer.encode(prompt, false);
  model::KvCache cache(weights.config(), 1, length);
  model::Workspace work(weights.config(), pool);
  const auto width = static_cast<std::size_t>(weights.config().hidden);
  std::vector<float> hidden, scores(static_cast<std::size_t>(weights.config().vocab_size));
  for (std::size_t done = 0; static_cast<std::int64_t>(ids.size()) < length;) {
    const std::span<const std::int32_t> fresh = std::span(ids).subspan(done);
    std::vector<std::int32_t> positions(fresh.size());
    std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(done));
    const std::array<std::int32_t, 2> rows{0, static_cast<std::int32_t>(fresh.size())};
    hidden.resize(fresh.size() * width);
    model::forward(weights, {fresh, positions, rows}, &cache.view(), nullptr, work, hidden);
    done = ids.size();
    model::logits(weights, std::span<const float>(hidden).last(width), 1, work, scores);
    core::Rng rng(seed, static_cast<std::uint64_t>(Stream::samples), done * 8);
    ids.push_back(choose(scores, 0.8f, rng));
  }
  return tokenizer.decode(ids);
}

// Draw the curve and quote the samples.
std::string curve(std::span<const double> losses) {
  constexpr std::array<std::string_view, 8> blocks{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const std::size_t columns = std::min<std::size_t>(60, losses.size());
  const auto [low, high] = std::minmax_element(losses.begin(), losses.end());
  std::string line;
  for (std::size_t i = 0; i < columns; ++i) {
    const auto part = losses.subspan(i * losses.size() / columns,
                                     std::max<std::size_t>(1, losses.size() / columns));
    const double mean =
        std::accumulate(part.begin(), part.end(), 0.0) / static_cast<double>(part.size());
    const double height = (mean - *low) / std::max(1e-9, *high - *low) * 7.999;
    line += blocks[static_cast<std::size_t>(std::clamp(height, 0.0, 7.0))];
  }
  return line;
}

std::string indented(std::string_view text) {
  std::string out = "    ";
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "    ";
  }
  return out + "\n";
}

}  // namespace

// Read, tokenize, sample, train, sample again.
DemoResult run_demo(const DemoOptions& options, std::FILE* out, core::ThreadPool& pool) {
  const auto say = [&](const std::string& line) {
    if (!options.quiet) fmt::print(out, "{}", line), std::fflush(out);
  };
  const std::string corpus = read_corpus(options.text);
  text::BpeTrainerOptions vocabulary_options;
  vocabulary_options.vocab_size = 1024;
  vocabulary_options.max_token_bytes = 16;
  text::BpeTrainer vocabulary(vocabulary_options);
  vocabulary.feed(corpus);
  const text::Tokenizer tokenizer(vocabulary.train());
  const std::vector<std::int32_t> all = tokenizer.encode(corpus, false);
  const auto tokens = std::span<const std::int32_t>(all).first(all.size() - all.size() / 20);
  const auto held_out = std::span<const std::int32_t>(all).subspan(tokens.size());

  DemoResult result;
  result.bytes_per_token = static_cast<double>(corpus.size()) / static_cast<double>(all.size());
  const model::Config config = demo_config(tokenizer.vocab_size());
  const auto weights = model::random_weights(config, options.seed);
  result.parameters = weights->parameter_count();
  const std::int64_t steps = options.steps > 0 ? options.steps : 800;
  const TrainerOptions recipe = demo_trainer_options(steps, options.seed);
  say(fmt::format(
      "Text: {}, {:.2f} MB. A vocabulary of {} tokens learnt from it makes {} tokens of it, "
      "{:.1f} bytes each; the last twentieth is held out.\n"
      "Model: {} blocks of width {}, {:.2f} million random weights. Asked to go on, it writes:\n\n",
      options.text.string(), static_cast<double>(corpus.size()) / 1e6, config.vocab_size,
      all.size(), result.bytes_per_token, config.layers, config.hidden,
      static_cast<double>(result.parameters) / 1e6));
  constexpr std::string_view prompt = "The model";
  result.before = sample(*weights, tokenizer, prompt, recipe.context, options.seed, pool);
  say(indented(result.before) + "\n");

  // Train, show the progress, keep the losses.
  Trainer trainer(weights, recipe, pool);
  const std::int64_t per_step = recipe.batch * recipe.context;
  std::vector<double> losses;
  std::string log;
  const auto start = std::chrono::steady_clock::now();
  {
    core::Progress progress(
        "training", steps * per_step, "tokens", stderr,
        options.quiet ? core::Progress::Style::none : core::Progress::Style::detect);
    for (std::int64_t s = 0; s < steps; ++s) {
      const StepResult step = trainer.step(tokens);
      losses.push_back(step.loss);
      log += fmt::format(
          "{{\"step\":{},\"tokens\":{},\"loss\":{:.9g},\"rate\":{:.6g},\"gradient_norm\":{:.9g}}}"
          "\n",
          step.step, step.step * per_step, step.loss, step.rate, step.gradient_norm);
      progress.update((s + 1) * per_step, fmt::format("loss {:.2f}", step.loss));
    }
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.tokens = steps * per_step;
  if (!options.log.empty()) core::write_file_atomic(options.log, log);

  // Say what was learnt.
  const std::size_t last = std::min<std::size_t>(20, losses.size());
  result.first_loss = losses.front();
  result.last_loss =
      std::accumulate(losses.end() - static_cast<std::ptrdiff_t>(last), losses.end(), 0.0) /
      static_cast<double>(last);
  result.held_out_loss = trainer.evaluate(held_out, 32);
  result.after = sample(*weights, tokenizer, prompt, recipe.context, options.seed, pool);
  say(fmt::format(
      "After {} steps ({}, {:.0f} tokens/s) the same request gives:\n\n{}\n"
      "Loss: {:.2f} nats per token at first (a uniform guess is ln {} = {:.2f}), {:.2f} at the "
      "end, "
      "{:.2f} on held-out text,\nwhich is {:.2f} bits per byte.\n\n    {}\n\n",
      steps, core::short_time(result.seconds), static_cast<double>(result.tokens) / result.seconds,
      indented(result.after), result.first_loss, config.vocab_size,
      std::log(static_cast<double>(config.vocab_size)), result.last_loss, result.held_out_loss,
      result.held_out_loss / std::log(2.0) / result.bytes_per_token, curve(losses)));
  return result;
}

}  // namespace rose::trainer
