// Put a load on a server, and say how it bore it.

#include <sys/utsname.h>

#include <charconv>
#include <chrono>
#include <ctime>
#include <memory>
#include <thread>

#include "rose/app/rose_commands.h"
#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/serve/bench_plot.h"
#include "rose/serve/bench_report.h"
#include "rose/serve/bench_servers.h"

namespace rose::app {
namespace {

// What can be chosen.
struct BenchArguments {
  serve::Target target;
  serve::Workload load;
  std::string arrivals = "closed", prompt = "512", answer = "128", turns = "1", extra, objective;
  std::vector<double> rates;
  std::vector<int> concurrency;
  std::vector<std::uint64_t> seeds{0};
  std::vector<std::string> start, server_arguments;
  std::string model, label, server_cpus, client_cpus, server_log;
  std::string out, table, picture;
  std::string profile_url;
  int warmup = 8, profile_requests = 8;
  bool offline = false, profile = false;
};

/// The loads of one server: each rate or each number of users, with each seed.
std::vector<serve::Workload> loads_of(const BenchArguments& a) {
  std::vector<serve::Workload> out;
  serve::Workload w = a.load;
  w.arrivals = serve::parse_arrivals(a.arrivals);
  if (!a.rates.empty() && w.arrivals == serve::Arrivals::closed)
    w.arrivals = serve::Arrivals::poisson;
  w.prompt = serve::LengthLaw::parse(a.prompt), w.answer = serve::LengthLaw::parse(a.answer);
  w.turns = serve::LengthLaw::parse(a.turns);
  const bool closed = w.arrivals == serve::Arrivals::closed;
  w.concurrency = closed ? 1 : 0;
  for (const std::uint64_t seed : a.seeds) {
    w.seed = seed;
    if (a.offline) {
      serve::Workload all = w;
      all.arrivals = serve::Arrivals::all, all.concurrency = 0;
      out.push_back(all);
    }
    if (closed || a.rates.empty()) {
      for (const int users : a.concurrency.empty() ? std::vector{w.concurrency} : a.concurrency)
        w.concurrency = users, out.push_back(w);
    } else {
      if (!a.concurrency.empty()) w.concurrency = a.concurrency.front();
      for (const double rate : a.rates) w.rate = rate, out.push_back(w);
    }
  }
  return out;
}

// Say where it ran.
core::json::object environment(const BenchArguments& a, const std::string& command) {
  utsname machine{};
  uname(&machine);
  std::string cpu = "unknown";
  const std::string info = core::read_file("/proc/cpuinfo");
  if (const std::size_t at = info.find("model name"); at != std::string::npos) {
    const std::size_t colon = info.find(':', at), end = info.find('\n', at);
    cpu = info.substr(colon + 2, end - colon - 2);
  }
  std::array<char, 32> now{};
  const std::time_t t = std::time(nullptr);
  std::tm utc{};
  std::strftime(now.data(), now.size(), "%FT%TZ", gmtime_r(&t, &utc));
  return {{"machine", machine.nodename},
          {"system", fmt::format("{} {}", machine.sysname, machine.release)},
          {"processor", cpu},
          {"processors", std::thread::hardware_concurrency()},
          {"server", command},
          {"server_processors", a.server_cpus},
          {"client_processors", a.client_cpus},
          {"started", now.data()},
          {"request", a.target.chat ? "chat" : "completions"}};
}

// Warm up, measure, profile.
void warm_up(const serve::Target& target, serve::Workload w, int requests) {
  if (requests < 1) return;
  w.arrivals = serve::Arrivals::closed;
  w.requests = requests;
  w.concurrency = std::max(1, requests / 2);
  w.salt = ~w.salt;  // other prompts: a warm cache must not know those that count
  run_load(target, w, plan_load(w));
}

serve::BenchResult measure(const serve::Target& target, const serve::Workload& w,
                           const std::string& label) {
  const auto plan = serve::plan_load(w);
  serve::LoadRun run = serve::run_load(target, w, plan);
  serve::BenchResult out{.label = label, .workload = describe(w), .environment = {}};
  out.seeds = {w.seed};
  out.seconds = run.seconds, out.cpu_seconds = run.cpu_seconds;
  for (serve::Observation& o : run.observations) {
    serve::Measured m = read_answer(o);
    o.body = {}, m.text = {};
    out.requests.push_back(std::move(m));
  }
  return out;
}

void profile(const BenchArguments& a, const serve::Target& target, const serve::Workload& load) {
  serve::Target admin = target;
  if (const std::size_t colon = a.profile_url.rfind(':'); colon != std::string::npos) {
    admin.host = a.profile_url.substr(0, colon);
    std::from_chars(a.profile_url.data() + colon + 1, a.profile_url.data() + a.profile_url.size(),
                    admin.port);
  }
  const auto tell = [&](const char* path) {
    const serve::Reply reply = ask_once(admin, "POST", path, "{}");
    if (reply.status != 200)
      throw core::Error(core::Code::io,
                        fmt::format("{} gave status {}: {}", path, reply.status, reply.body))
          .in(fmt::format("{}:{}", admin.host, admin.port))
          .hint("--profile-address names the server's admin address");
  };
  tell("/start_profile");
  warm_up(target, load, a.profile_requests);
  tell("/stop_profile");
}

void measure_all(const BenchArguments& a, const serve::Target& target, const std::string& label,
                 const std::string& command, std::vector<serve::BenchResult>& results) {
  const std::size_t before = results.size();
  const auto objective = serve::Objective::parse(a.objective);
  const auto loads = loads_of(a);
  warm_up(target, loads.front(), a.warmup);
  for (serve::Workload w : loads) {
    w.salt = results.size() - before;  // nothing of the load before is cached
    results.push_back(measure(target, w, label));
    results.back().environment = environment(a, command);
    print(markdown(results.back(), summarize(results.back(), objective)) + "\n");
  }
  if (a.profile) profile(a, target, loads.back());
}

int most_streams(const BenchArguments& a) {
  int most = a.rates.empty() && !a.offline ? 1 : 64;
  for (const int users : a.concurrency) most = std::max(most, users);
  return most;
}

/// Of the longest conversation, rounded up; a chat template adds some.
std::int64_t most_tokens(const BenchArguments& a) {
  constexpr std::int64_t round = 256;
  std::int64_t most = 0;
  for (const serve::Workload& w : loads_of(a))
    for (const serve::PlannedTalk& talk : serve::plan_load(w)) {
      std::int64_t tokens = 0;
      for (const serve::PlannedTurn& turn : talk.turns)
        tokens += static_cast<std::int64_t>(turn.tokens.size()) + turn.answer;
      most = std::max(most, tokens);
    }
  return (most / round + 2) * round;
}

std::vector<serve::BenchResult> bench_servers(BenchArguments& a) {
  std::vector<serve::BenchResult> results;
  serve::pin_thread(serve::parse_processors(a.client_cpus));
  core::json::object extra;
  if (!a.extra.empty()) extra = core::as_object(core::parse_json(a.extra, "--extra"), "--extra");
  if (a.start.empty()) {
    for (auto& [key, value] : extra) a.target.extra[key] = value;
    measure_all(a, a.target, a.label.empty() ? "server" : a.label, "was running", results);
  }
  for (const std::string& name : a.start) {
    const serve::ServerKind& kind = serve::server_kind(name);
    const serve::StartedServer server(kind, {.model = a.model,
                                             .arguments = a.server_arguments,
                                             .processors = serve::parse_processors(a.server_cpus),
                                             .streams = most_streams(a),
                                             .context = most_tokens(a),
                                             .log = a.server_log});
    serve::Target target = server.target();
    target.chat = a.target.chat, target.words |= a.target.words, target.timeout = a.target.timeout;
    for (auto& [key, value] : extra) target.extra[key] = value;
    measure_all(a, target, name, server.command(), results);
  }
  return results;
}

// Write what was asked for.
void write_results(const BenchArguments& a, const std::vector<serve::BenchResult>& results) {
  const auto objective = serve::Objective::parse(a.objective);
  const std::string overview = serve::markdown_overview(results, objective);
  if (!a.out.empty()) core::write_file_atomic(a.out, serve::results_file(results, objective));
  if (!a.picture.empty())
    core::write_file_atomic(a.picture, serve::plot_results(results, objective));
  if (!a.table.empty()) {
    std::string text = overview;
    for (const serve::BenchResult& r : results) text += "\n" + markdown(r, summarize(r, objective));
    core::write_file_atomic(a.table, text);
  }
  print(overview);
}

void merge_files(const BenchArguments& a, const std::vector<std::string>& files) {
  std::vector<serve::BenchResult> all;
  for (const std::string& file : files)
    for (serve::BenchResult& r : serve::read_results(file)) all.push_back(std::move(r));
  write_results(a, serve::merge(std::move(all)));
}

void list_servers() {
  for (const serve::ServerKind& kind : serve::server_kinds()) {
    const auto program = serve::find_server(kind);
    print(fmt::format("{:13} {}\n", kind.name, program ? *program : "not installed"));
  }
}

}  // namespace

// Declare the command.
void add_bench_serve(CLI::App& app) {
  auto a = std::make_shared<BenchArguments>();
  CLI::App* c = app.get_subcommand("bench")->add_subcommand(
      "serve", "A server's latencies and throughput under load");
  const auto outputs = [a](CLI::App* to) {
    to->add_option("--out", a->out, "File for the results, with every request");
    to->add_option("--markdown", a->table, "File for the tables");
    to->add_option("--svg", a->picture, "File for the picture");
    to->add_option("--slo", a->objective,
                   "What a good request reaches, in ms: ttft:500,tpot:50,e2e:10000");
  };
  outputs(c);
  c->add_option("--host", a->target.host, "Address of a server that runs")->capture_default_str();
  c->add_option("--port", a->target.port, "Its port")->capture_default_str();
  c->add_option("--served-model-name", a->target.model, "The model's name in requests");
  c->add_option("--api-key", a->target.key, "Bearer key")->envname("OPENAI_API_KEY");
  c->add_option("--label", a->label, "The server's name in the results");
  c->add_option("--start", a->start, "Start these instead, one after the other: rose, llama.cpp, …")
      ->delimiter(',');
  c->add_option("-m,--model", a->model, "The model that they load");
  c->add_option("--server-arguments", a->server_arguments, "Further arguments for them, after --")
      ->take_all();
  c->add_option("--server-cpus", a->server_cpus, "Processors for them: 0-3,8");
  c->add_option("--client-cpus", a->client_cpus, "Processors for this client");
  c->add_option("--server-log", a->server_log, "File for what they print");
  c->add_flag("--chat", a->target.chat, "Chat completions; else completions");
  c->add_flag("--words", a->target.words, "Prompts as text; else token ids");
  c->add_option("--extra", a->extra, "Further fields of each request, as a JSON object");
  c->add_option("--timeout", a->target.timeout, "Seconds for one answer")->capture_default_str();
  c->add_option("--arrivals", a->arrivals, "closed, all, constant, poisson, trace")
      ->capture_default_str();
  c->add_option("--rates", a->rates, "Requests a second, several for a sweep")->delimiter(',');
  c->add_option("--concurrency", a->concurrency,
                "Users of a closed load, several for a sweep; of an open one, the most at once")
      ->delimiter(',');
  c->add_option("--requests", a->load.requests, "Conversations of each load")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  c->add_option("--prompt-tokens", a->prompt, "512, 100:1024 or lognormal:MEDIAN:SIGMA:MOST")
      ->capture_default_str();
  c->add_option("--answer-tokens", a->answer, "Likewise")->capture_default_str();
  c->add_option("--turns", a->turns, "Turns of a conversation, likewise")->capture_default_str();
  c->add_option("--think-seconds", a->load.think_seconds, "Mean wait between turns");
  c->add_option("--prefix-groups", a->load.prefix_groups,
                "Conversations share one of so many beginnings");
  c->add_option("--prefix-tokens", a->load.prefix_tokens, "of so many tokens");
  c->add_option("--vocab", a->load.vocab, "Token ids are below this")->capture_default_str();
  c->add_option("--trace", a->load.trace,
                "JSON lines: timestamp, input_length, output_length, hash_ids");
  c->add_option("--trace-speed", a->load.trace_speed, "2 plays it twice as fast")
      ->check(CLI::PositiveNumber);
  c->add_option("--trace-block", a->load.trace_block, "Tokens that a hash id stands for")
      ->capture_default_str();
  c->add_option("--seeds", a->seeds, "One run for each")->delimiter(',');
  c->add_option("--warmup", a->warmup, "Requests before, which do not count")
      ->capture_default_str();
  c->add_flag("--offline", a->offline, "Also all requests at once, before the other loads");
  c->add_flag("--profile", a->profile, "At the end some requests under the server's profiler");
  c->add_option("--profile-address", a->profile_url,
                "host:port of the profiler's switch, if it is another");
  c->callback([c, a] {
    if (c->get_subcommands().empty()) write_results(*a, bench_servers(*a));
  });
  auto files = std::make_shared<std::vector<std::string>>();
  CLI::App* m = c->add_subcommand("merge", "Make one result of several runs; draw their pictures");
  m->add_option("files", *files, "Results of --out")->required()->check(CLI::ExistingFile);
  outputs(m);
  m->callback([a, files] { merge_files(*a, *files); });
  c->add_subcommand("servers", "Which servers are installed")->callback(list_servers);
}

}  // namespace rose::app
