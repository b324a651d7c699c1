// Put a load on a server, and write down what comes back.

#include "rose/serve/bench_client.h"

#include <fmt/format.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <ctime>
#include <deque>
#include <memory>
#include <optional>

#include "rose/core/error.h"
#include "rose/serve/bench_reading.h"

namespace rose::serve {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;

// Write a request in the server's dialect.
std::string request_body(const Target& target, const PlannedTurn& turn,
                         const std::vector<std::string>& history) {
  json::object body{
      {"model", target.model},
      {"max_tokens", turn.answer},
      {"temperature", 0},
      {"ignore_eos", true},
      {"stream", true},
      {"stream_options", json::object{{"include_usage", true}, {"continuous_usage_stats", true}}}};
  if (target.chat) {
    json::array messages;
    for (std::size_t i = 0; i < history.size(); ++i)
      messages.push_back(
          json::object{{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", history[i]}});
    messages.push_back(json::object{{"role", "user"}, {"content", words_of(turn.tokens)}});
    body["messages"] = std::move(messages);
  } else if (target.words || !history.empty()) {
    std::string text;
    for (const std::string& said : history) text += said + "\n";
    body["prompt"] = text + words_of(turn.tokens);
  } else {
    body["prompt"] = json::array(turn.tokens.begin(), turn.tokens.end());
  }
  for (const auto& [key, value] : target.extra) {
    if (value.is_null())
      body.erase(key);
    else
      body[key] = value;
  }
  return json::serialize(body);
}

namespace {

std::string head_of(const Target& target, std::string_view method, std::string_view path,
                    std::size_t length) {
  return fmt::format(
      "{} {} HTTP/1.1\r\nhost: {}:{}\r\ncontent-type: application/json\r\naccept: */*\r\n"
      "{}content-length: {}\r\n\r\n",
      method, path, target.host, target.port,
      target.key.empty() ? "" : fmt::format("authorization: Bearer {}\r\n", target.key), length);
}

}  // namespace

namespace {

// One connection.
using Clock = std::chrono::steady_clock;

class Loader;

class Line : public std::enable_shared_from_this<Line> {
 public:
  explicit Line(Loader& loader);
  void ask(Observation& observation, std::string request);

 private:
  void connect();
  void write();
  void read();
  void on_read(error_code error, std::size_t bytes);
  void fail(const std::string& what);
  void finish();

  Loader& loader_;
  tcp::socket socket_;
  asio::steady_timer limit_;
  beast::flat_buffer buffer_;
  std::optional<http::response_parser<http::string_body>> parser_;
  Observation* observation_ = nullptr;
  std::string request_;
  bool used_ = false;  ///< it has carried an answer before
  bool timed_out_ = false;
  std::uint64_t number_ = 0;  ///< of the request
};

// All connections, and the plan.
class Loader {
 public:
  Loader(const Target& target, const Workload& workload, const std::vector<PlannedTalk>& plan);
  LoadRun run();

  // For its lines.
  double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  void over(const std::shared_ptr<Line>& line, Observation& observation, bool reusable);
  asio::io_context& context() { return context_; }
  const tcp::endpoint& server() const { return server_; }
  const Target& target() const { return target_; }

 private:
  void next_moment();
  void due(std::size_t talk, double moment);
  void start(std::size_t talk, std::size_t turn, double moment);

  const Target& target_;
  const Workload& workload_;
  const std::vector<PlannedTalk>& plan_;
  asio::io_context context_{1};
  tcp::endpoint server_;
  asio::steady_timer moment_{context_};
  Clock::time_point start_;
  std::vector<std::string> bodies_;                ///< of first turns, made before the start
  std::vector<std::size_t> first_;                 ///< observation of each talk's first turn
  std::vector<std::vector<std::string>> history_;  ///< of each talk that has further turns
  std::vector<Observation> observations_;
  std::vector<std::shared_ptr<Line>> idle_;
  std::deque<std::pair<std::size_t, double>> held_;  ///< due, but as many run as may
  std::size_t next_ = 0;
  int running_ = 0;
};

// Send a request, and collect its answer.
Line::Line(Loader& loader) : loader_(loader), socket_(loader.context()), limit_(loader.context()) {}

void Line::ask(Observation& observation, std::string request) {
  observation_ = &observation;
  request_ = std::move(request);
  timed_out_ = false;
  limit_.expires_after(std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(loader_.target().timeout)));
  limit_.async_wait([self = shared_from_this(), n = ++number_](error_code error) {
    if (error || n != self->number_) return;
    self->timed_out_ = true;
    error_code ignored;
    self->socket_.close(ignored);
  });
  observation.sent = loader_.now();
  if (used_)
    write();
  else
    connect();
}

void Line::connect() {
  socket_.async_connect(loader_.server(), [self = shared_from_this()](error_code error) {
    if (error) return self->fail("connect: " + error.message());
    error_code ignored;
    self->socket_.set_option(tcp::no_delay(true), ignored);
    self->write();
  });
}

void Line::write() {
  parser_.emplace();
  parser_->body_limit(boost::none);
  parser_->eager(true);
  asio::async_write(socket_, asio::buffer(request_),
                    [self = shared_from_this()](error_code error, std::size_t) {
                      if (error) return self->fail("write: " + error.message());
                      self->read();
                    });
}

void Line::read() {
  constexpr std::size_t piece = 65536;
  socket_.async_read_some(buffer_.prepare(piece),
                          [self = shared_from_this()](error_code error, std::size_t bytes) {
                            self->on_read(error, bytes);
                          });
}

void Line::on_read(error_code error, std::size_t bytes) {
  const double now = loader_.now();
  Observation& o = *observation_;
  buffer_.commit(bytes);
  error_code wrong;
  while (buffer_.size() > 0 && !parser_->is_done() && !wrong)
    buffer_.consume(parser_->put(buffer_.data(), wrong));
  if (wrong == http::error::need_more) wrong = {};
  if (error == asio::error::eof && parser_->is_header_done()) parser_->put_eof(wrong);
  if (parser_->is_header_done()) {
    o.status = static_cast<int>(parser_->get().result_int());
    std::string& body = parser_->get().body();
    if (!body.empty()) {
      o.body += body;
      body.clear();
      o.pieces.push_back({now, o.body.size()});
    }
  }
  o.end = now;
  if (parser_->is_done()) return finish();
  if (wrong) return fail("read: " + wrong.message());
  if (error) return fail("read: " + error.message());
  read();
}

void Line::fail(const std::string& what) {
  Observation& o = *observation_;
  if (used_ && o.status == 0 && !timed_out_) {  // the server closed it while it was idle
    used_ = false;
    error_code ignored;
    socket_.close(ignored);
    socket_ = tcp::socket(loader_.context());
    buffer_.clear();
    return connect();
  }
  o.error = timed_out_ ? "timeout" : what;
  o.end = loader_.now();
  ++number_, limit_.cancel();
  loader_.over(shared_from_this(), o, false);
}

void Line::finish() {
  ++number_, limit_.cancel();
  used_ = true;
  const bool keep = parser_->keep_alive() && socket_.is_open();
  loader_.over(shared_from_this(), *observation_, keep);
}

// Start what is due.
Loader::Loader(const Target& target, const Workload& workload, const std::vector<PlannedTalk>& plan)
    : target_(target), workload_(workload), plan_(plan), history_(plan.size()) {
  error_code error;
  tcp::resolver resolver(context_);
  const auto found = resolver.resolve(target.host, std::to_string(target.port), error);
  if (error || found.empty())
    throw core::Error(core::Code::not_found, "no such address: " + error.message()).in(target.host);
  server_ = found.begin()->endpoint();
  for (std::size_t i = 0; i < plan.size(); ++i) {
    first_.push_back(observations_.size());
    bodies_.push_back(request_body(target, plan[i].turns.front(), {}));
    for (std::size_t t = 0; t < plan[i].turns.size(); ++t) {
      observations_.emplace_back();
      observations_.back().talk = i, observations_.back().turn = t;
      observations_.back().wanted = plan[i].turns[t].answer;
    }
  }
}

void Loader::next_moment() {
  while (next_ < plan_.size() && plan_[next_].due <= now()) {
    const std::size_t talk = next_++;
    due(talk, plan_[talk].due);
  }
  if (next_ == plan_.size()) return;
  moment_.expires_at(start_ + std::chrono::duration_cast<Clock::duration>(
                                  std::chrono::duration<double>(plan_[next_].due)));
  moment_.async_wait([this](error_code error) {
    if (!error) next_moment();
  });
}

void Loader::due(std::size_t talk, double moment) {
  if (workload_.arrivals != Arrivals::closed && workload_.concurrency > 0 &&
      running_ >= workload_.concurrency)
    return held_.emplace_back(talk, moment), void();
  ++running_;
  start(talk, 0, moment);
}

void Loader::start(std::size_t talk, std::size_t turn, double moment) {
  Observation& o = observations_[first_[talk] + turn];
  o.due = moment;
  std::string body = turn == 0 ? std::move(bodies_[talk])
                               : request_body(target_, plan_[talk].turns[turn], history_[talk]);
  const char* path = target_.chat ? "/v1/chat/completions" : "/v1/completions";
  std::shared_ptr<Line> line;
  if (idle_.empty()) {
    line = std::make_shared<Line>(*this);
  } else {
    line = std::move(idle_.back());
    idle_.pop_back();
  }
  line->ask(o, head_of(target_, "POST", path, body.size()) + body);
}

void Loader::over(const std::shared_ptr<Line>& line, Observation& o, bool reusable) {
  if (reusable) idle_.push_back(line);
  const PlannedTalk& talk = plan_[o.talk];
  const bool well = o.error.empty() && o.status == 200;
  if (well && o.turn + 1 < talk.turns.size()) {
    auto& history = history_[o.talk];
    history.push_back(words_of(talk.turns[o.turn].tokens));
    history.push_back(read_answer(o).text);
    const std::size_t turn = o.turn + 1;
    const double moment = o.end + talk.turns[turn].think;
    auto wait = std::make_shared<asio::steady_timer>(
        context_, start_ + std::chrono::duration_cast<Clock::duration>(
                               std::chrono::duration<double>(moment)));
    wait->async_wait(
        [this, wait, number = o.talk, turn, moment](error_code) { start(number, turn, moment); });
    return;
  }
  for (std::size_t t = o.turn + 1; t < talk.turns.size(); ++t) {
    Observation& later = observations_[first_[o.talk] + t];
    later.error = "an earlier turn failed", later.due = later.sent = later.end = o.end;
  }
  --running_;
  if (!held_.empty()) {
    const auto [next, moment] = held_.front();
    held_.pop_front();
    due(next, moment);
  } else if (workload_.arrivals == Arrivals::closed && next_ < plan_.size()) {
    due(next_++, now());
  }
}

double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  constexpr double nano = 1e-9;
  return static_cast<double>(t.tv_sec) + nano * static_cast<double>(t.tv_nsec);
}

LoadRun Loader::run() {
  start_ = Clock::now();
  const double cpu = thread_seconds();
  if (workload_.arrivals == Arrivals::closed) {
    const auto users =
        std::min<std::size_t>(static_cast<std::size_t>(workload_.concurrency), plan_.size());
    while (next_ < users) due(next_++, 0.0);
  } else {
    next_moment();
  }
  context_.run();
  LoadRun out;
  out.cpu_seconds = thread_seconds() - cpu;
  for (const Observation& o : observations_) out.seconds = std::max(out.seconds, o.end);
  out.observations = std::move(observations_);
  return out;
}

}  // namespace

// Run the whole load; ask a single thing.
LoadRun run_load(const Target& target, const Workload& workload,
                 const std::vector<PlannedTalk>& plan) {
  return Loader(target, workload, plan).run();
}

Reply ask_once(const Target& target, const std::string& method, const std::string& path,
               const std::string& body) {
  asio::io_context context;
  error_code error;
  tcp::socket socket(context);
  const auto found =
      tcp::resolver(context).resolve(target.host, std::to_string(target.port), error);
  if (!error) asio::connect(socket, found, error);
  if (!error)
    asio::write(socket, asio::buffer(head_of(target, method, path, body.size()) + body), error);
  if (error) return {};
  beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(boost::none);
  http::read(socket, buffer, parser, error);
  if (!parser.is_done()) return {};
  return {static_cast<int>(parser.get().result_int()), parser.get().body()};
}

}  // namespace rose::serve
