// Prepare grammars, and watch over the runner.

#include <fmt/format.h>

#include "rose/core/error.h"
#include "rose/infer/engine_state.h"

namespace rose::infer {

// Make grammars, one after the other.
namespace {

/// Makes the grammar of the request; returns why there is none.
std::shared_ptr<const core::Error> make_grammar(Request& request) {
  try {
    request.sampling.grammar = request.prepare();
    request.sampling.grammar->start();  // what fails at once fails here
    return nullptr;
  } catch (const core::Error& error) {
    request.sampling.grammar = nullptr;
    return std::make_shared<const core::Error>(error);
  } catch (const std::exception& error) {
    request.sampling.grammar = nullptr;
    return std::make_shared<const core::Error>(
        core::Error(core::Code::internal, error.what()).in("prepare"));
  }
}

}  // namespace

void Engine::State::prepare_all() {
  std::unique_lock lock(inbox_mutex);
  while (true) {
    prepare_filled.wait(lock, [&] { return nothing_to_prepare || !to_prepare.empty(); });
    if (to_prepare.empty()) return;
    const std::shared_ptr<Preparing> job = std::move(to_prepare.front());
    to_prepare.pop_front();
    const bool wanted = !job->cancelled && !nothing_to_prepare;
    lock.unlock();
    const auto error = wanted ? make_grammar(job->request) : nullptr;
    auto made = accept(std::move(job->request), job->handle, job->adapter);
    lock.lock();
    preparing.erase(job->handle);
    inbox.push_back({std::move(made), job->handle, -1, Finish::error, error});
    if (!wanted || job->cancelled) inbox.push_back({nullptr, job->handle, -1, Finish::cancelled});
    inbox_filled.notify_all();
  }
}

bool Engine::State::prepares() {
  const std::scoped_lock lock(inbox_mutex);
  return !preparing.empty();
}

// Give up a step that does not end.
void Engine::State::watch() {
  const std::chrono::duration<double> limit(options.stall_seconds);
  constexpr int looks = 8;  // in that time
  std::unique_lock lock(watch_mutex);
  while (!watch_ends.wait_for(lock, limit / looks, [&] { return nothing_to_watch; })) {
    if (!inside || std::chrono::steady_clock::now() - entered < limit) continue;
    given_up = true;
    take_mail();
    fail_engine(core::Error(core::Code::internal,
                            fmt::format("a step has not ended after {} s", options.stall_seconds))
                    .in("runner")
                    .hint("the device hangs; the engine must be restarted"));
    delivery.send();
  }
}

}  // namespace rose::infer
