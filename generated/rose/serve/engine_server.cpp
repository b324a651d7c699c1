// Answer a front over a socket.

#include "rose/serve/engine_server.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <utility>

#include "rose/serve/messages.h"
#include "rose/serve/outbox.h"

namespace rose::serve {
namespace {

// Read commands, write reports.
class Session {
 public:
  Session(int socket, LocalBackend& backend)
      : socket_(socket),
        backend_(backend),
        outbox_(std::make_shared<Outbox>(socket)),
        pulse_([this] { beat(); }) {}
  ~Session() {
    {
      const std::scoped_lock lock(mutex_);
      ended_ = true;
      stop_.notify_one();
    }
    pulse_.join();
    backend_.cancel_all();
  }

  void run() {
    outbox_->put([&](std::string& out) {
      encode(Report(Ready{wire_version, *backend_.facts()}), out);
    });
    FrameReader frames;
    for (std::string piece; read_some(socket_, piece) > 0;) {
      frames.push(piece);
      while (const auto frame = frames.next()) obey(decode_command(*frame));
    }
  }

 private:
  void obey(Command command) {
    if (const auto* hello = std::get_if<Hello>(&command)) {
      if (hello->version != wire_version)
        throw core::Error(core::Code::unsupported,
                          fmt::format("the front speaks version {}, this engine {}", hello->version,
                                      wire_version));
    } else if (auto* submit = std::get_if<Submit>(&command)) {
      start(std::move(*submit));
    } else if (const auto* cancel = std::get_if<Cancel>(&command)) {
      backend_.cancel(cancel->number);
    } else if (const auto* operate = std::get_if<Operate>(&command)) {
      backend_.operate(operate->operation, [out = outbox_, n = operate->number](
                                               const std::vector<Outcome>& outcomes) {
        const Outcome& one = outcomes.front();
        Operated report{.number = n, .failed = one.error.has_value(), .said = one.said};
        if (one.error)
          report.code = one.error->code(), report.message = one.error->message(),
          report.argument = one.error->argument(), report.hint = one.error->hint();
        out->put([&](std::string& bytes) { encode(Report(report), bytes); });
      });
    } else {  // a view waits for a step, and this thread does not
      const std::scoped_lock lock(mutex_);
      ++looks_;
      stop_.notify_one();
    }
  }

  void start(Submit submit) {
    backend_.submit_as(submit.number, std::move(submit.question),
                       [out = outbox_, n = submit.number](const Notice& notice) {
                         out->put([&](std::string& bytes) { report(n, notice, bytes); });
                       });
  }

  static void report(std::uint64_t theirs, const Notice& notice, std::string& bytes) {
    switch (notice.kind) {
      case Notice::Kind::accepted: return encode(Report(Accepted{theirs}), bytes);
      case Notice::Kind::event: return encode(Report(owned(theirs, *notice.event)), bytes);
      default:
        return encode(Report(Refused{theirs, notice.error->code(), notice.error->message(),
                                     notice.error->argument(), notice.error->hint()}),
                      bytes);
    }
  }

  void beat() {
    std::unique_lock lock(mutex_);
    while (true) {
      stop_.wait_for(lock, std::chrono::milliseconds(250), [&] { return ended_ || looks_ > 0; });
      if (ended_) return;
      const int looks = std::exchange(looks_, 0);
      lock.unlock();
      if (looks > 0)
        backend_.look([&](const std::vector<infer::EngineView>& views) {
          for (int i = 0; i < looks; ++i)
            outbox_->put([&](std::string& out) { encode(Report(Seen{views.front()}), out); });
        });
      const Counts counts{backend_.statistics()};
      outbox_->put([&](std::string& out) { encode(Report(counts), out); });
      lock.lock();
    }
  }

  int socket_;
  LocalBackend& backend_;
  std::shared_ptr<Outbox> outbox_;  // shared: a listener may outlive the session
  std::mutex mutex_;
  std::condition_variable stop_;
  bool ended_ = false;
  int looks_ = 0;
  std::thread pulse_;
};

}  // namespace

void serve_engine(int socket, LocalBackend& backend) {
  Session session(socket, backend);
  session.run();
}

}  // namespace rose::serve
