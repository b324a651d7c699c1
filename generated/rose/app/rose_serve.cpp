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
#include "rose/serve/admin.h"
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
  serve::HttpOptions admin{.most_connections = 64, .body_bytes = 64 << 10};
  int admin_port = -1;
  std::string profiles = "profiles";
  std::vector<std::string> adapters;
  std::string otlp, request_log;
  double trace_share = 1.0;
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
serve::ApiKey read_key(std::string_view line) {
  constexpr std::string_view hashed = "sha256:";
  serve::ApiKey key;
  const std::string_view word = line.substr(0, line.find(' '));
  key.hash =
      word.starts_with(hashed) ? std::string(word.substr(hashed.size())) : core::sha256_hex(word);
  for (std::size_t at = line.find(' '); at != std::string_view::npos;) {
    const std::size_t begin = line.find_first_not_of(' ', at);
    at = line.find(' ', begin);
    const std::string_view field =
        line.substr(begin, at == std::string_view::npos ? at : at - begin);
    const std::size_t equals = std::min(field.find('='), field.size());
    const std::string value(field.substr(std::min(equals + 1, field.size())));
    const std::string_view name = field.substr(0, equals);
    char* end = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    const bool counts = !value.empty() && *end == '\0' && number > 0;
    if (name == "name")
      key.name = value;
    else if (name == "requests" && counts)
      key.requests = number;
    else if (name == "tokens" && counts)
      key.tokens = number;
    else
      throw core::Error(core::Code::invalid_argument,
                        fmt::format("'{}' is none of name=, requests=, tokens=", field))
          .in("a line of the key file")
          .hint("a line is KEY [name=WHO] [requests=PER_MINUTE] [tokens=PER_MINUTE]");
  }
  return key;
}

std::vector<serve::ApiKey> read_keys(const std::string& file) {
  std::string text = file.empty() ? "" : core::read_file(file);
  if (const char* key = std::getenv("ROSE_API_KEY"); key != nullptr)
    text += std::string("\n") + key;
  std::vector<serve::ApiKey> keys;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    keys.push_back(read_key(line));
  }
  return keys;
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
  a.api.keys = read_keys(a.key_file);
  if (!a.site.empty()) a.api.site.emplace(a.site);
  const std::filesystem::path model = find_model(a.model);
  serve::ModelCard card = make_card(a);
  const std::string name = card.name;
  serve::RemoteOptions remote;
  remote.command = {engine_path().string(), "serve-engine", "--socket", "{socket}", "--model",
                    model.string()};
  remote.command.insert(remote.command.end(), a.engine.begin(), a.engine.end());
  const auto adapters = card.adapters;
  for (const std::string& one : a.adapters) {
    const std::size_t equals = one.find('=');
    if (equals == std::string::npos || equals == 0)
      throw core::Error(core::Code::invalid_argument, fmt::format("'{}' is not NAME=FOLDER", one))
          .in("--lora-modules");
    const std::filesystem::path folder = one.substr(equals + 1);
    if (!std::filesystem::exists(folder))
      throw core::Error(core::Code::not_found, fmt::format("there is no {}", folder.string()))
          .in("--lora-modules");
    remote.first.push_back({serve::Operation::Kind::load_adapter, one.substr(0, equals),
                            std::filesystem::absolute(folder).string()});
    card.adapters->add(one.substr(0, equals));
  }
  const std::unique_ptr<serve::Backend> backend = start_engines(a, remote);
  serve::Api api(std::move(card), *backend, a.api);
  serve::HttpServer http(
      a.http, [&](serve::HttpRequest request, std::shared_ptr<serve::Exchange> exchange) {
        api.handle(std::move(request), std::move(exchange));
      });
  http.on_terminate([&] {
    api.drain();
    http.drain(std::chrono::milliseconds(static_cast<std::int64_t>(a.drain_seconds * 1000.0)));
  });
  api.http_counts = [&] { return http.counts(); };
  std::unique_ptr<serve::HttpServer> operators;
  std::jthread operated;
  const char* admin_key = std::getenv("ROSE_ADMIN_KEY");
  const bool keyed = admin_key != nullptr && *admin_key != '\0';
  serve::Admin admin(api, adapters, *backend,
                     {keyed ? core::sha256_hex(admin_key) : "", a.admin.host, a.profiles});
  if (a.admin_port >= 0) {
    const bool near = a.admin.host.starts_with("127.") || a.admin.host == "::1";
    if (!near && !keyed)
      throw core::Error(core::Code::invalid_argument,
                        fmt::format("{} is not this machine alone", a.admin.host))
          .in("--admin-host")
          .hint("set ROSE_ADMIN_KEY to a key that operators must send");
    a.admin.port = static_cast<std::uint16_t>(a.admin_port);
    operators = std::make_unique<serve::HttpServer>(
        a.admin, [&](serve::HttpRequest request, const std::shared_ptr<serve::Exchange>& exchange) {
          admin.handle(std::move(request), exchange);
        });
    fmt::print(stderr, "operators at http://{}:{}/\n", a.admin.host, operators->port());
    operated = std::jthread([&] { operators->run(); });
  }
  if (auto otlp = serve::exporter_options(a.otlp))
    api.spans = std::make_shared<serve::SpanExporter>(std::move(*otlp));
  if (!a.request_log.empty()) api.request_log = std::make_shared<serve::RequestLog>(a.request_log);
  api.trace_share = a.trace_share;
  fmt::print(stderr, "{} at {}://{}:{}/ ({}; the API is under /v1; ctrl-c ends it)\n", name,
             a.http.tls_certificate.empty() ? "http" : "https", a.http.host, http.port(),
             a.site.empty() ? "no pages" : "the book is at /");
  http.run();
  backend->stop();  // first whoever may still answer, then whoever may still ask
  if (operators) operators->drain(std::chrono::milliseconds(0));
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
  command
      ->add_option("--tls-cert", a->http.tls_certificate,
                   "A certificate and its chain (PEM): HTTPS")
      ->check(CLI::ExistingFile);
  command->add_option("--tls-key", a->http.tls_key, "The certificate's key (PEM)")
      ->check(CLI::ExistingFile)
      ->needs("--tls-cert");
  command->get_option("--tls-cert")->needs("--tls-key");
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
  command->add_option("--requests-per-minute", a->api.requests,
                      "Of each client, unless its key says otherwise; 0 is any number");
  command->add_option("--tokens-per-minute", a->api.tokens,
                      "Of prompts and answers of each client; 0 is any number");
  command->add_option("--admin-port", a->admin_port, "Listen for an operator, too; 0 takes any")
      ->check(CLI::Range(0, 65535));
  command
      ->add_option("--admin-host", a->admin.host,
                   "Where to listen for one; beyond this machine ROSE_ADMIN_KEY is needed")
      ->capture_default_str();
  command->add_option("--profile-dir", a->profiles, "Folder for what /stop_profile writes")
      ->capture_default_str();
  command->add_option("--lora-modules", a->adapters, "NAME=FOLDER: adapters, each a model's name");
  command->add_option("--otlp-endpoint", a->otlp,
                      "Send traces there (OTLP, HTTP with JSON): a URL with its path; else what "
                      "OTEL_EXPORTER_OTLP_ENDPOINT says");
  command
      ->add_option("--trace-share", a->trace_share,
                   "Of the requests that bring no trace of their own")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--request-log", a->request_log, "Append a line of JSON for each request");
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
  pass("--speculative-model", "Who guesses: a smaller model of the same vocabulary, or ngram");
  pass("--num-speculative-tokens", "Tokens guessed ahead; the answers stay the same");
  pass("--ngram-prompt-lookup-min", "Tokens in common with an earlier place, at least");
  pass("--ngram-prompt-lookup-max", "So many are good enough");
  pass("--speculative-config", "The same as a JSON object");
  pass("--dtype", "What a GPU computes in: auto, bfloat16, float16 or float32");
  pass("--kv-cache-dtype", "auto, float32, bfloat16, float16 or fp8");
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
