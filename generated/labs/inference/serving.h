// Serve random weights from real processes, for benches.

#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <semaphore>
#include <thread>

#include "labs/inference/requests.h"
#include "rose/serve/api.h"
#include "rose/serve/bench_report.h"
#include "rose/serve/bench_servers.h"
#include "rose/serve/engine_server.h"
#include "rose/serve/parrot.h"
#include "rose/serve/remote_backend.h"

namespace rose::labs {

// A vocabulary of the real size.
inline text::Tokenizer made_up_tokenizer() {
  text::Vocab vocab;
  for (int byte = 0; byte < 256; ++byte) vocab.tokens.emplace_back(1, static_cast<char>(byte));
  const auto size = static_cast<std::size_t>(qwen3_600m().vocab_size);
  for (std::size_t i = vocab.tokens.size(); i + 2 < size; ++i) {
    std::string word = " ";
    for (std::size_t n = i; n > 0; n /= 26) word += static_cast<char>('a' + n % 26);
    vocab.tokens.push_back(std::move(word));
  }
  for (const char* mark : {"<|im_start|>", "<|im_end|>"}) {
    vocab.added.push_back(
        {.content = mark, .id = static_cast<std::int32_t>(vocab.tokens.size()), .special = true});
    vocab.tokens.emplace_back(mark);
  }
  return text::Tokenizer(std::move(vocab));
}

// The engine that is served.
constexpr int users = 256, prompt_tokens = 512, answer_tokens = 256, step_tokens = 1024;

inline std::unique_ptr<infer::Engine> make_served_engine(const text::Tokenizer& tokenizer) {
  constexpr std::int64_t positions = 2048;
  std::unique_ptr<infer::Runner> runner;
  if (kernels::gpu::available()) {
    runner = qwen3_runner({.tokens = 8192, .sequences = users, .positions = positions});
  } else {
    model::Config small = qwen3_600m();
    small.layers = small.heads = small.kv_heads = 1, small.head_dim = small.hidden = small.ffn = 2;
    small.qk_norm = false;
    runner = serve::make_parrot(tokenizer, model::random_weights(small, 1),
                                {.sequences = users,
                                 .positions = positions,
                                 .pages = 30'000,
                                 .step = std::chrono::milliseconds(4)});
  }
  return std::make_unique<infer::Engine>(
      std::move(runner), infer::EngineOptions{.max_num_batched_tokens = step_tokens, .seed = 1},
      tokenizer);
}

// Let users ask the engine directly.

/// Output tokens per second, of `requests` requests by 256 users.
inline double ask_directly(infer::Engine& engine, int requests, std::uint64_t seed) {
  serve::Workload w{.concurrency = users, .requests = requests};
  w.prompt = serve::LengthLaw(prompt_tokens), w.answer = serve::LengthLaw(answer_tokens);
  w.seed = seed;
  const auto plan = serve::plan_load(w);
  std::atomic<int> next{0}, left{requests};
  std::atomic<std::int64_t> tokens{0};
  std::binary_semaphore over{0};
  const std::function<void()> ask = [&] {
    const int i = next++;
    if (i >= requests) return;
    infer::Request r;
    r.prompt = plan[static_cast<std::size_t>(i)].turns[0].tokens;
    r.sampling.max_tokens = answer_tokens;
    r.sampling.temperature = 0.0f;
    r.sampling.ignore_eos = true;
    r.text = false;
    r.on_event = [&](const infer::Event& e) {
      tokens += static_cast<std::int64_t>(e.tokens.size());
      if (!e.finish) return;
      ask();
      if (--left == 0) over.release();
    };
    engine.submit(std::move(r));
  };
  const double seconds = bench::seconds([&] {
    for (int u = 0; u < users; ++u) ask();
    over.acquire();
  });
  return static_cast<double>(tokens.load()) / seconds;
}

// The process of the engine, and that of the front.

/// Serves on the socket; before, measures itself and writes tokens per second, one a line, to `bare`, unless that is "-".
inline int engine_process(int socket, const std::string& bare, int requests, int samples) {
  const text::Tokenizer tokenizer = made_up_tokenizer();
  const auto engine = make_served_engine(tokenizer);
  engine->start();
  if (bare != "-") {
    ask_directly(*engine, users, 1000);
    std::ofstream out(bare);
    for (int i = 0; i < samples; ++i)
      out << ask_directly(*engine, requests, static_cast<std::uint64_t>(2000 + i)) << std::endl;
  }
  serve::EngineFacts facts{.runner = std::string(engine->control().runner()),
                           .vocab = qwen3_600m().vocab_size,
                           .positions = 2048};
  serve::LocalBackend backend(*engine, tokenizer, std::move(facts));
  serve::serve_engine(socket, backend);
  std::_Exit(0);
}

inline int front_process(const std::vector<std::string>& engine, const std::string& port_file) {
  serve::RemoteOptions remote;
  remote.command = engine;
  serve::RemoteBackend backend(remote);
  serve::ModelCard card{.name = "bench", .aliases = {}, .tokenizer = made_up_tokenizer()};
  card.positions = 2048, card.vocab = qwen3_600m().vocab_size;
  serve::Api api(std::move(card), backend, {});
  serve::HttpServer http({}, [&](serve::HttpRequest r, std::shared_ptr<serve::Exchange> e) {
    api.handle(std::move(r), std::move(e));
  });
  api.http_counts = [&] { return http.counts(); };
  http.on_terminate([&] { http.drain(std::chrono::milliseconds(500)); });
  std::ofstream(port_file + ".new") << http.port() << " " << getpid() << std::endl;
  std::filesystem::rename(port_file + ".new", port_file);
  http.run();
  backend.stop();
  api.stop();
  return 0;
}

// Start them, and end them.
class ServedEngine {
 public:
  explicit ServedEngine(const char* self, int requests, int samples)
      : folder_(std::filesystem::temp_directory_path() / fmt::format("rose-bench-{}", getpid())) {
    std::filesystem::create_directories(folder_);
    const std::string port = folder_ / "port";
    command_ = fmt::format("exec '{}' --front '{}' '{}' {} {}", self, port,
                           samples > 0 ? (folder_ / "bare").string() : "-", requests, samples);
    thread_ = std::thread([this] { status_ = std::system(command_.c_str()); });
    while (!std::filesystem::exists(port))
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::ifstream(port) >> target_.port >> process_;
    target_.model = "bench";
    while (ask_once(target_, "GET", "/health").status != 200)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::ifstream bare(folder_ / "bare");
    for (double rate = 0; bare >> rate;) bare_.push_back(rate);
  }
  ServedEngine(const ServedEngine&) = delete;
  ServedEngine& operator=(const ServedEngine&) = delete;
  ~ServedEngine() {
    ::kill(process_, SIGTERM);
    thread_.join();
    std::filesystem::remove_all(folder_);
  }
  const serve::Target& target() const { return target_; }
  const std::vector<double>& bare() const { return bare_; }  ///< tokens per second

 private:
  std::filesystem::path folder_;
  std::string command_;
  std::thread thread_;
  std::atomic<int> status_{0};
  serve::Target target_;
  pid_t process_ = 0;
  std::vector<double> bare_;
};

/// Whether this process was started as a part of a server; it has then been one.
inline bool was_part(int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  if (argc == 6 && words[1] == "--engine")
    return engine_process(std::stoi(words[2]), words[3], std::stoi(words[4]), std::stoi(words[5])),
           true;
  if (argc == 6 && words[1] == "--front")
    return front_process({std::filesystem::read_symlink("/proc/self/exe"), "--engine", "{socket}",
                          words[3], words[4], words[5]},
                         words[2]),
           true;
  return false;
}

// Put a load on them.
inline serve::BenchSummary load_once(const serve::Target& target, const serve::Workload& w,
                                     bool quiet = false) {
  const serve::LoadRun run = serve::run_load(target, w, serve::plan_load(w));
  serve::BenchResult result{.label = "rose", .workload = describe(w), .environment = {}};
  result.seconds = run.seconds, result.cpu_seconds = run.cpu_seconds;
  for (const serve::Observation& o : run.observations) result.requests.push_back(read_answer(o));
  serve::BenchSummary s = summarize(result, {});
  if (!quiet) std::fprintf(stderr, "%s\n", markdown(result, s).c_str());
  if (s.answered != s.asked || s.early > 0 || !s.exact)
    throw core::Error(core::Code::internal, "not every request was answered whole").in("bench");
  return s;
}

inline serve::Workload users_load(int requests, std::uint64_t seed) {
  serve::Workload w{.concurrency = users, .requests = requests};
  w.prompt = serve::LengthLaw(prompt_tokens), w.answer = serve::LengthLaw(answer_tokens);
  w.seed = seed;
  return w;
}

}  // namespace rose::labs
