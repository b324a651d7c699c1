// Answer a file of prompts.

#include "rose/app/engine_batch.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <vector>

#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/json.h"
#include "rose/core/progress.h"
#include "rose/infer/cpu_runner.h"
#include "rose/infer/divergence.h"
#include "rose/infer/engine.h"
#include "rose/infer/gpu_runner.h"
#include "rose/infer/lookup_drafter.h"
#include "rose/infer/runner_drafter.h"
#include "rose/kernels/gpu/stream.h"
#include "rose/model/files/checkpoint.h"

namespace rose::app {
namespace {

// Make a request of a line.
void read_sampling(const core::json::object& line, infer::Sampling& s, std::string_view where) {
  s.max_tokens = core::get_int_or(line, "max_tokens", s.max_tokens, where);
  s.min_tokens = core::get_int_or(line, "min_tokens", s.min_tokens, where);
  s.temperature =
      static_cast<float>(core::get_double_or(line, "temperature", s.temperature, where));
  s.top_p = static_cast<float>(core::get_double_or(line, "top_p", s.top_p, where));
  s.min_p = static_cast<float>(core::get_double_or(line, "min_p", s.min_p, where));
  s.top_k = static_cast<int>(core::get_int_or(line, "top_k", s.top_k, where));
  s.n = static_cast<int>(core::get_int_or(line, "n", s.n, where));
  s.logprobs = static_cast<int>(core::get_int_or(line, "logprobs", s.logprobs, where));
  if (core::find(line, "seed") != nullptr)
    s.seed = static_cast<std::uint64_t>(core::get_int(line, "seed", where));
  if (const core::json::value* stop = core::find(line, "stop")) {
    if (stop->is_string())
      s.stop.emplace_back(stop->as_string());
    else
      for (const core::json::value& text : core::get_array(line, "stop", where))
        s.stop.emplace_back(text.as_string());
  }
}

infer::Request read_request(std::string_view text, const std::string& where,
                            const infer::Sampling& all, const text::Tokenizer& tokenizer) {
  const core::json::value parsed = core::parse_json(text, where);
  const core::json::object& line = core::as_object(parsed, where);
  infer::Request request;
  request.sampling = all;
  read_sampling(line, request.sampling, where);
  request.priority = static_cast<int>(core::get_int_or(line, "priority", 0, where));
  if (core::find(line, "id") != nullptr) request.id = core::get_string(line, "id", where);
  if (core::find(line, "prompt_token_ids") != nullptr) {
    for (const core::json::value& id : core::get_array(line, "prompt_token_ids", where))
      request.prompt.push_back(id.to_number<std::int32_t>());
    return request;
  }
  const std::string_view prompt = core::get_string(line, "prompt", where);
  if (prompt.empty()) return request;  // the engine refuses it by name
  const auto prefix = tokenizer.prefix();
  request.prompt.assign(prefix.begin(), prefix.end());
  tokenizer.encode(prompt, true, request.prompt);
  return request;
}

// Write answers in the order of the questions.
struct Answer {
  std::string id;
  std::vector<std::string> texts, reasons;
  std::vector<std::vector<float>> logprobs;
  std::size_t open = 1;  ///< choices that are not finished
  infer::Usage usage;
  std::int64_t tokens = 0;
  std::string error;
};

class Answers {
 public:
  explicit Answers(const std::string& path)
      : path_(path), file_(path.empty() ? stdout : std::fopen(path.c_str(), "w")) {
    if (file_ == nullptr) throw core::Error(core::Code::io, "cannot be written").in(path);
  }
  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;
  ~Answers() {
    if (file_ != stdout) std::fclose(file_);
  }
  std::vector<Answer> all;
  std::size_t written() const { return next_; }

  /// Writes what is complete, up to the first that is not.
  void write() {
    for (; next_ < all.size() && all[next_].open == 0; ++next_) {
      const std::string line = core::json::serialize(to_json(all[next_])) + "\n";
      if (std::fwrite(line.data(), 1, line.size(), file_) != line.size() || std::fflush(file_) != 0)
        throw core::Error(core::Code::io, "cannot write the answers")
            .in(path_.empty() ? "standard output" : path_);
      all[next_].texts.clear();
    }
  }

 private:
  core::json::object to_json(const Answer& a) const {
    core::json::object out{{"index", next_}};
    if (!a.id.empty()) out["id"] = a.id;
    if (!a.error.empty()) out["error"] = a.error;
    core::json::array choices;
    for (std::size_t c = 0; c < a.texts.size() && a.error.empty(); ++c) {
      core::json::object choice{
          {"index", c}, {"text", a.texts[c]}, {"finish_reason", a.reasons[c]}};
      if (!a.logprobs[c].empty()) choice["logprobs"] = core::json::value_from(a.logprobs[c]);
      choices.emplace_back(std::move(choice));
    }
    if (a.error.empty()) out["choices"] = std::move(choices);
    out["usage"] = {{"prompt_tokens", a.usage.prompt},
                    {"cached_tokens", a.usage.cached},
                    {"completion_tokens", a.tokens}};
    return out;
  }
  std::string path_;
  std::FILE* file_;
  std::size_t next_ = 0;
};

// Say what it took.
void report(infer::Engine& engine, const infer::Statistics& s, std::size_t prompts,
            double seconds) {
  const auto share = [](std::int64_t part, std::int64_t whole) {
    return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0;
  };
  fmt::print(stderr,
             "{} prompts in {}: {} tokens read, {} written, {:.1f} written per second; {:.1f} % of "
             "the prompts' tokens were cached; {} steps, {} preemptions; on {}\n",
             prompts, core::short_time(seconds), s.prompt_tokens, s.answer_tokens,
             static_cast<double>(s.answer_tokens) / seconds,
             share(s.prefix.tokens_found, s.prefix.tokens_asked), s.steps, s.preemptions,
             engine.control().runner());
  if (s.drafted > 0)
    fmt::print(stderr, "{} of {} guesses were right ({:.1f} %)\n", s.drafts_right, s.drafted,
               share(s.drafts_right, s.drafted));
}

}  // namespace

// Choose a runner.

/// What a pass on a GPU is computed in.
kernels::DType pass_dtype(std::string_view name, const model::WeightSet& weights) {
  using kernels::DType;
  if (name == "bfloat16" || name == "bf16") return DType::bf16;
  if (name == "float16" || name == "half" || name == "fp16") return DType::f16;
  if (name == "float32" || name == "float" || name == "fp32") return DType::f32;
  if (name != "auto")
    throw core::Error(core::Code::invalid_argument, fmt::format("'{}' is no type of a pass", name))
        .in("dtype")
        .hint("auto, bfloat16, float16 or float32");
  const DType stored = weights.embed().dtype;
  if (stored == DType::f16 && weights.quantization().empty()) return DType::f16;
  if (stored == DType::f32)
    fmt::print(stderr,
               "rose: weights in float32 are rounded to bfloat16; --dtype float32 keeps "
               "them\n");
  return DType::bf16;
}

std::unique_ptr<infer::Runner> make_runner(const EngineOptions& engine, const BatchOptions& batch,
                                           std::shared_ptr<const model::WeightSet> weights,
                                           const text::Tokenizer& tokenizer) {
  const auto or_else = [](std::int64_t asked, std::int64_t usual) {
    return asked > 0 ? asked : usual;
  };
  constexpr std::int64_t gpu_tokens = 8192, gpu_sequences = 256, cpu_tokens = 512,
                         cpu_sequences = 32;
  const bool on_gpu =
      batch.device == "cuda" || (batch.device == "auto" && kernels::gpu::available());
  const kernels::DType dtype = on_gpu ? pass_dtype(batch.dtype, *weights) : kernels::DType::f32;
  if (!on_gpu && batch.dtype != "auto" && batch.dtype != "float32" && batch.dtype != "float")
    throw core::Error(core::Code::unsupported, fmt::format("a pass on a CPU in {}", batch.dtype))
        .in("dtype")
        .hint("a CPU computes in float32, whatever the weights are kept in");
  const kernels::DType kv = infer::parse_kv_dtype(batch.kv_cache_dtype, dtype);
  infer::KvScales scales;
  if (batch.calculate_kv_scales && kv == kernels::DType::u8)
    scales = infer::measure_kv_scales(*weights, sample_ids(tokenizer));
  if (on_gpu) {
    try {
      return infer::make_gpu_runner(weights,
                                    {.tokens = or_else(batch.max_num_batched_tokens, gpu_tokens),
                                     .sequences = or_else(batch.max_num_seqs, gpu_sequences),
                                     .positions = engine.max_model_len,
                                     .page_size = batch.block_size,
                                     .memory_utilization = batch.gpu_memory_utilization,
                                     .dtype = dtype,
                                     .kv_dtype = kv,
                                     .kv_scales = scales});
    } catch (const core::Error& error) {
      if (batch.device == "cuda" || error.code() != core::Code::unsupported) throw;
      fmt::print(stderr, "rose: on the CPU: {}\n", error.what());
    }
  }
  return infer::make_cpu_runner(std::move(weights),
                                {.max_tokens = or_else(batch.max_num_batched_tokens, cpu_tokens),
                                 .max_sequences = or_else(batch.max_num_seqs, cpu_sequences),
                                 .positions = engine.max_model_len,
                                 .page_size = batch.block_size,
                                 .kv_dtype = kv,
                                 .kv_scales = scales});
}

// Load what the device needs.
std::shared_ptr<const model::WeightSet> load_weights(const EngineOptions& engine,
                                                     const BatchOptions& batch,
                                                     const model::Checkpoint& checkpoint) {
  return load_weights(engine.quantization, checkpoint,
                      batch.device != "cuda" || batch.calculate_kv_scales);
}

// Choose who guesses.
Speculation read_speculation(const BatchOptions& batch) {
  Speculation s = batch.speculation;
  if (!s.config.empty()) {
    constexpr std::string_view where = "speculative-config";
    const core::json::value parsed = core::parse_json(s.config, std::string(where));
    const core::json::object& given = core::as_object(parsed, std::string(where));
    if (core::find(given, "method") != nullptr) s.model = core::get_string(given, "method", where);
    if (core::find(given, "model") != nullptr) s.model = core::get_string(given, "model", where);
    const auto number = [&](const char* name, int& value) {
      value = static_cast<int>(core::get_int_or(given, name, value, where));
    };
    number("num_speculative_tokens", s.tokens);
    number("prompt_lookup_min", s.least);
    number("prompt_lookup_max", s.longest);
  }
  if (s.model == "ngram" || s.model == "[ngram]") {
    s.model.clear();
    if (s.tokens < 0) s.tokens = 4;
  }
  if (s.tokens < 0) s.tokens = s.model.empty() ? 0 : 4;
  if (s.tokens > 64 || s.least < 1 || s.longest < s.least)
    throw core::Error(
        core::Code::out_of_range,
        fmt::format("{} guesses, with {} to {} tokens in common", s.tokens, s.least, s.longest))
        .in("num-speculative-tokens")
        .hint("at most 64 guesses, at least 1 token in common, and the minimum below the maximum");
  return s;
}

void add_drafter(const EngineOptions& engine, const BatchOptions& batch,
                 const model::Config& config, infer::EngineOptions& options) {
  const Speculation s = read_speculation(batch);
  if (s.tokens == 0) return;
  options.drafts = s.tokens;
  if (s.model.empty()) {
    options.drafter = std::make_shared<infer::LookupDrafter>(s.least, s.longest);
    return;
  }
  constexpr double share = 0.2;  // of the memory
  EngineOptions small = engine;
  small.model = s.model, small.quantization = {}, small.adapter.clear();
  BatchOptions its = batch;
  its.gpu_memory_utilization *= share, its.calculate_kv_scales = false;
  const model::Checkpoint checkpoint = model::open_checkpoint(find_model(s.model));
  options.drafter = std::make_shared<infer::RunnerDrafter>(
      make_runner(small, its, load_weights(small, its, checkpoint), load_tokenizer(checkpoint)),
      config.vocab_size);
}

// Name the options as people know them.
void add_batch_options(CLI::App& command, BatchOptions& o) {
  CLI::App* many = command.add_option_group("many prompts");
  many->add_option(
          "--prompts", o.prompts,
          "A file with one JSON object per line: prompt or prompt_token_ids, and what differs")
      ->check(CLI::ExistingFile);
  many->add_option("--out", o.out,
                   "Where the answers go, one JSON object per line; standard output when absent");
  many->add_option("--device", o.device, "auto, cpu or cuda")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  many->add_option("--max-num-seqs", o.max_num_seqs,
                   "Answers that run at once; 0 is what suits the device")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  many->add_option("--max-num-batched-tokens", o.max_num_batched_tokens,
                   "Tokens of one step; 0 is what suits the device")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  many->add_option("--gpu-memory-utilization", o.gpu_memory_utilization,
                   "Share of the device's memory")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 1.0));
  many->add_option("--dtype", o.dtype,
                   "What a GPU computes in: auto (float16 for weights in it, else bfloat16), "
                   "bfloat16, float16 or float32; a CPU computes in float32")
      ->capture_default_str();
  many->add_option("--kv-cache-dtype", o.kv_cache_dtype, "auto, float32, bfloat16, float16 or fp8")
      ->capture_default_str();
  many->add_flag("--calculate-kv-scales", o.calculate_kv_scales,
                 "Measure the scales of an fp8 cache on a text; else they are 1");
  many->add_option("--block-size", o.block_size, "Positions of a page of keys and values")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  many->add_option("--scheduling-policy", o.policy, "fifo, pack, priority or shortest")
      ->capture_default_str();
  Speculation& guesses = o.speculation;
  many->add_option("--num-speculative-tokens", guesses.tokens,
                   "Guess so many tokens ahead; the answers stay the same")
      ->check(CLI::Range(0, 64));
  many->add_option("--speculative-model", guesses.model,
                   "Who guesses: a smaller model with the same vocabulary; or ngram: what followed "
                   "the last words before");
  many->add_option("--ngram-prompt-lookup-min", guesses.least,
                   "Tokens in common with an earlier place, at least")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  many->add_option("--ngram-prompt-lookup-max", guesses.longest, "So many are good enough")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  many->add_option("--speculative-config", guesses.config,
                   "All of this as a JSON object: model or method, num_speculative_tokens, "
                   "prompt_lookup_min, prompt_lookup_max");
  many->add_option("--profile", o.profile, "Write what took time to this file (Chrome's format)");
}

// Submit all, step, write, report.
namespace {

/// What is asked of every request, before its own line is read.
infer::Sampling sampling_of(const EngineOptions& options) {
  const model::Sampling& given = options.generate.sampling;
  return {.temperature = given.temperature,
          .top_p = given.top_p,
          .min_p = given.min_p,
          .top_k = given.top_k,
          .max_tokens = options.generate.max_tokens,
          .ignore_eos = options.generate.ignore_stop};
}

}  // namespace

void generate_batch(const EngineOptions& engine_options, const BatchOptions& batch) {
  const infer::Sampling all = sampling_of(engine_options);
  const model::Checkpoint checkpoint = model::open_checkpoint(find_model(engine_options.model));
  const text::Tokenizer tokenizer = load_tokenizer(checkpoint);
  infer::EngineOptions options;
  options.policy = infer::parse_admission_policy(batch.policy);
  options.seed = engine_options.generate.sampling.seed;
  add_drafter(engine_options, batch, checkpoint.config, options);
  infer::Engine engine(make_runner(engine_options, batch,
                                   load_weights(engine_options, batch, checkpoint), tokenizer),
                       options, tokenizer);

  Answers answers(batch.out);
  std::mutex mutex;
  const std::string file = core::read_file(batch.prompts);
  std::vector<infer::Engine::Handle> handles;
  std::vector<std::pair<std::size_t, infer::Request>> requests;
  // Read the lines and submit them.
  std::size_t number = 0;
  for (std::size_t at = 0; at < file.size(); ++number) {
    const std::size_t end = std::min(file.find('\n', at), file.size());
    const std::string_view text = std::string_view(file).substr(at, end - at);
    at = end + 1;
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::size_t index = answers.all.size();
    answers.all.emplace_back();
    try {
      infer::Request request =
          read_request(text, fmt::format("{}:{}", batch.prompts, number + 1), all, tokenizer);
      answers.all[index].id = request.id;
      requests.emplace_back(index, std::move(request));
    } catch (const std::exception& error) {
      answers.all[index].error = error.what();
      answers.all[index].open = 0;
    }
  }
  for (auto& [index, request] : requests) {
    Answer& answer = answers.all[index];
    const auto n = static_cast<std::size_t>(std::max(request.sampling.n, 1));
    answer.texts.resize(n), answer.reasons.resize(n), answer.logprobs.resize(n), answer.open = n;
    request.on_event = [&mutex, &answer](const infer::Event& e) {
      const std::scoped_lock lock(mutex);
      const auto c = static_cast<std::size_t>(e.choice);
      answer.texts[c] += e.text;
      answer.tokens += static_cast<std::int64_t>(e.tokens.size());
      answer.logprobs[c].insert(answer.logprobs[c].end(), e.logprobs.begin(), e.logprobs.end());
      answer.usage = e.usage;
      if (e.error != nullptr) answer.error = e.error->what();
      if (!e.finish) return;
      answer.reasons[c] = infer::name(*e.finish);
      --answer.open;
    };
    try {
      handles.push_back(engine.submit(std::move(request)));
    } catch (const core::Error& error) {
      answer.error = error.what();
      answer.open = 0;
    }
  }
  requests.clear();
  if (!batch.profile.empty()) engine.control().start_profile();
  catch_interrupts();
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  core::Progress progress("generate", static_cast<std::int64_t>(answers.all.size()), "prompts");
  bool interrupted = false;
  for (bool more = true; more;) {
    more = engine.step();
    if (!more) engine.run();
    if (!interrupted && take_interrupt()) {
      interrupted = true;
      for (const auto handle : handles) engine.cancel(handle);
      more = true;
    }
    const std::scoped_lock lock(mutex);
    answers.write();
    progress.update(static_cast<std::int64_t>(answers.written()),
                    fmt::format("{:.0f} tokens/s",
                                static_cast<double>(engine.control().statistics().answer_tokens) /
                                    std::max(seconds(), 1e-3)));
  }
  progress.finish();
  report(engine, engine.control().statistics(), answers.all.size(), seconds());
  if (!batch.profile.empty())
    core::write_file_atomic(batch.profile, engine.control().stop_profile());
  if (interrupted) throw core::Error(core::Code::cancelled, "interrupted");
}

// Answer one prompt.
void generate_one(const EngineOptions& engine_options, const BatchOptions& batch,
                  std::string_view prompt) {
  const model::Checkpoint checkpoint = model::open_checkpoint(find_model(engine_options.model));
  const text::Tokenizer tokenizer = load_tokenizer(checkpoint);
  infer::EngineOptions options;
  options.seed = engine_options.generate.sampling.seed;
  add_drafter(engine_options, batch, checkpoint.config, options);
  infer::Engine engine(make_runner(engine_options, batch,
                                   load_weights(engine_options, batch, checkpoint), tokenizer),
                       options, tokenizer);
  infer::Request request;
  request.sampling = sampling_of(engine_options);
  request.prompt.assign(tokenizer.prefix().begin(), tokenizer.prefix().end());
  tokenizer.encode(prompt, true, request.prompt);
  request.on_event = [](const infer::Event& e) { print(e.text); };
  const auto start = std::chrono::steady_clock::now();
  catch_interrupts();
  const auto handle = engine.submit(std::move(request));
  bool interrupted = false;
  while (engine.step()) {
    if (!take_interrupt()) continue;
    interrupted = true;
    engine.cancel(handle);
  }
  engine.run();
  print("\n");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  report(engine, engine.control().statistics(), 1, took.count());
  if (interrupted) throw core::Error(core::Code::cancelled, "interrupted");
}

}  // namespace rose::app
