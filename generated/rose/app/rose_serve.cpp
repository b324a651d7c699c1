// Serve a model.

#include <sys/resource.h>

#include <chrono>
#include <filesystem>
#include <memory>

#include "rose/app/models.h"
#include "rose/app/rose_commands.h"
#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/hash.h"
#include "rose/core/log.h"
#include "rose/core/parallel.h"
#include "rose/serve/api.h"
#include "rose/serve/remote_backend.h"
#include "rose/serve/replicas.h"

namespace rose::app {
namespace {

// What can be chosen.
struct ServeArguments {
  std::string model, name, site, key_file;
  serve::HttpOptions http;
  serve::ApiOptions api;
  std::int64_t max_model_len = 0;
  double drain_seconds = 30.0;
  std::vector<std::string> engine;  ///< passed on to it
  int threads = 0;                  ///< of the engine; 0: as many as there are processors
  int replicas = 1;
};

// Know the model without its weights.
serve::ModelCard make_card(const ServeArguments& a) {
  const model::Checkpoint checkpoint = model::describe_checkpoint(find_model(a.model));
  serve::ModelCard card{.name = a.name.empty() ? checkpoint.name : a.name,
                        .aliases = {},
                        .tokenizer = load_tokenizer(checkpoint)};
  if (!a.name.empty()) card.aliases.push_back(checkpoint.name);
  if (!checkpoint.chat_template.empty()) card.chat.emplace(checkpoint.chat_template);
  card.bos_token = checkpoint.bos_token, card.eos_token = checkpoint.eos_token;
  card.positions = a.max_model_len > 0 ? std::min(a.max_model_len, checkpoint.config.max_positions)
                                       : checkpoint.config.max_positions;
  card.vocab = checkpoint.config.vocab_size;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  card.created = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  return card;
}

// Read keys, keep hashes.
std::vector<std::string> read_keys(const std::string& file) {
  std::string text = file.empty() ? "" : core::read_file(file);
  if (const char* key = std::getenv("ROSE_API_KEY"); key != nullptr)
    text += std::string("\n") + key;
  std::vector<std::string> hashes;
  constexpr std::string_view hashed = "sha256:";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    hashes.push_back(line.starts_with(hashed) ? std::string(line.substr(hashed.size()))
                                              : core::sha256_hex(line));
  }
  return hashes;
}

// Start the engines.

/// Of the devices that this process may see, the one of a replica.
std::string device_of(int replica) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::string_view names = visible == nullptr ? "" : visible;
  if (names.empty()) return std::to_string(replica);
  for (; replica > 0 && names.find(',') != std::string_view::npos; --replica)
    names.remove_prefix(names.find(',') + 1);
  return replica > 0 ? "none" : std::string(names.substr(0, names.find(',')));
}

std::unique_ptr<serve::Backend> start_engines(const ServeArguments& a,
                                              const serve::RemoteOptions& options) {
  const int share = std::max(1, core::available_processors() / a.replicas);
  const int threads = a.threads > 0 ? a.threads : a.replicas > 1 ? share : 0;
  std::vector<std::unique_ptr<serve::Backend>> engines;
  for (int i = 0; i < a.replicas; ++i) {
    serve::RemoteOptions one = options;
    std::vector<std::string> before{"/usr/bin/env"};
    if (threads > 0) before.push_back("ROSE_THREADS=" + std::to_string(threads));
    if (a.replicas > 1) before.push_back("CUDA_VISIBLE_DEVICES=" + device_of(i));
    if (before.size() > 1) one.command.insert(one.command.begin(), before.begin(), before.end());
    engines.push_back(std::make_unique<serve::RemoteBackend>(std::move(one)));
  }
  if (a.replicas == 1) return std::move(engines.front());
  return std::make_unique<serve::ReplicaBackend>(std::move(engines));
}

// Start the engine, listen, drain when told to.
void serve_model(ServeArguments& a) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  a.api.key_hashes = read_keys(a.key_file);
  if (!a.site.empty()) a.api.site.emplace(a.site);
  const std::filesystem::path model = find_model(a.model);
  serve::ModelCard card = make_card(a);
  serve::RemoteOptions remote;
  remote.command = {engine_path().string(), "serve-engine", "--socket", "{socket}", "--model",
                    model.string()};
  remote.command.insert(remote.command.end(), a.engine.begin(), a.engine.end());
  const std::unique_ptr<serve::Backend> backend = start_engines(a, remote);
  const std::string name = card.name;
  serve::Api api(std::move(card), *backend, a.api);
  serve::HttpServer http(
      a.http, [&](serve::HttpRequest request, std::shared_ptr<serve::Exchange> exchange) {
        api.handle(std::move(request), std::move(exchange));
      });
  api.http_counts = [&] { return http.counts(); };
  http.on_terminate([&] {
    api.drain();
    http.drain(std::chrono::milliseconds(static_cast<std::int64_t>(a.drain_seconds * 1000.0)));
  });
  fmt::print(stderr, "{} at http://{}:{}/ ({}; the API is under /v1; ctrl-c ends it)\n", name,
             a.http.host, http.port(), a.site.empty() ? "no pages" : "the book is at /");
  http.run();
  backend->stop();  // first whoever may still answer, then whoever may still ask
  api.stop();
}

}  // namespace

// Declare the command.
void add_serve(CLI::App& app) {
  auto a = std::make_shared<ServeArguments>();
  a->http.port = 8888;
  CLI::App* command =
      app.add_subcommand("serve", "Serve a model by the OpenAI API, and the book beside it");
  command->add_option("-m,--model", a->model, "Path, org/name or a name that `rose models` lists");
  command->add_option("--served-model-name", a->name,
                      "What clients call it; its own name when absent");
  command->add_option("--host", a->http.host, "Address to listen on; 0.0.0.0 is all")
      ->capture_default_str();
  command->add_option("--port", a->http.port, "0 takes any that is free")->capture_default_str();
  command->add_option("--site", a->site, "Folder of pages to serve at /")
      ->check(CLI::ExistingDirectory);
  command
      ->add_option("--api-key-file", a->key_file,
                   "Keys, one a line, or sha256:HASH; ROSE_API_KEY adds one")
      ->check(CLI::ExistingFile);
  command->add_option("--cors-origin", a->api.origins, "Sites whose pages may call; * is all");
  command->add_option("--max-body-bytes", a->http.body_bytes, "Longest request")
      ->capture_default_str();
  command->add_option("--max-connections", a->http.most_connections, "Connections at once")
      ->capture_default_str();
  command
      ->add_option("--workers", a->api.workers,
                   "Threads that read requests and cut texts into tokens")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  command
      ->add_option("--stream-interval", a->api.stream_interval,
                   "Tokens of a stream that share an event; the first is sent at once")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--drain-seconds", a->drain_seconds,
                   "What runs may take so long to end after SIGTERM")
      ->capture_default_str();
  command->add_option("--max-model-len", a->max_model_len,
                      "Context, in tokens; 0 is what the model allows");
  command->add_option("--threads", a->threads, "Of an engine on the CPU; 0: all processors")
      ->check(CLI::Range(0, 1024));
  command
      ->add_option("--data-parallel-size", a->replicas,
                   "Engines, each with all of the weights and a device, or a share of the CPUs")
      ->check(CLI::Range(1, 64));
  auto pass = [&](const char* option, const char* words) {
    command->add_option_function<std::string>(
        option,
        [a, option](const std::string& value) {
          a->engine.insert(a->engine.end(), {option, value});
        },
        words);
  };
  pass("--device", "auto, cpu or cuda");
  pass("--max-num-seqs", "Answers that run at once");
  pass("--max-num-batched-tokens", "Tokens of one step");
  pass("--max-waiting", "Requests that may wait; more are told to come back");
  pass("--prefill-engines", "Processes that read long prompts for the engine, on a CPU");
  pass("--gpu-memory-utilization", "Share of the device's memory");
  pass("--kv-cache-dtype", "auto, float32, bfloat16 or float16");
  pass("--block-size", "Positions of a page of keys and values");
  pass("--scheduling-policy", "fifo, pack, priority or shortest");
  pass("--parrot-step-us", "A step of the parrot takes so many microseconds");
  command->add_flag_callback(
      "--parrot", [a] { a->engine.emplace_back("--parrot"); },
      "Repeat what the user says, without weights: to test clients");
  command->callback([a] {
    if (a->max_model_len > 0)
      a->engine.insert(a->engine.end(), {"--max-model-len", std::to_string(a->max_model_len)});
    serve_model(*a);
  });
}

}  // namespace rose::app
