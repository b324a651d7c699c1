// Operate an engine.

#include <fmt/format.h>

#include "rose/core/error.h"
#include "rose/infer/engine_state.h"
#include "rose/model/weights.h"

namespace rose::infer {
namespace {

/// Holds the next step back.
class Pause {
 public:
  explicit Pause(Engine::State& state) : said_(state), lock_(state.step_mutex) {}

 private:
  struct Said {
    explicit Said(Engine::State& state) : state(&state) { ++state.controls; }
    Said(const Said&) = delete;
    Said& operator=(const Said&) = delete;
    ~Said() { --state->controls; }
    Engine::State* state;
  };
  Said said_;
  std::unique_lock<std::mutex> lock_;
};

}  // namespace

// Look, drain.
Statistics Control::statistics() const {
  Engine::State& s = *engine_->state_;
  const Pause pause(s);
  Statistics out = s.statistics;
  out.running = static_cast<std::int64_t>(s.scheduler.running().size());
  out.waiting = static_cast<std::int64_t>(s.scheduler.waiting().size());
  out.pages = s.pool.counts();
  out.prefix = s.cache.statistics();
  return out;
}

const MemoryPlan& Control::memory() const {
  return engine_->state_->runner->memory();
}

std::string_view Control::runner() const {
  return engine_->state_->runner->name();
}

bool Control::healthy() const {
  return !engine_->state_->failed;
}

void Control::drain() {
  Engine::State& s = *engine_->state_;
  {
    const std::scoped_lock lock(s.inbox_mutex);
    s.draining = true;
  }
  while (!s.idle()) {
    if (s.loop.joinable())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    else
      engine_->step();
    if (s.failed) break;
  }
  engine_->flush();
}

void Control::resume() {
  const std::scoped_lock lock(engine_->state_->inbox_mutex);
  engine_->state_->draining = false;
}

void Control::forget_cache() {
  const Pause pause(*engine_->state_);
  engine_->state_->cache.forget_all();
}

// Exchange the weights between two steps.
void Control::update_weights(std::shared_ptr<const model::WeightSet> weights) {
  Engine::State& s = *engine_->state_;
  const Pause pause(s);
  s.settle();
  s.delivery.send();
  s.runner->set_weights(std::move(weights));
  s.scheduler.restart_all();
  s.cache.forget_all();
  const std::uint64_t version = s.runner->weights()->version();
  for (Sequence* sequence : s.scheduler.waiting()) {
    const Request& request = static_cast<Choice*>(sequence)->request->request;
    sequence->root = s.cache.root(version, request.adapter, request.salt);
  }
}

// Take a prefix out, put one in.
KvExport Control::export_prefix(std::span<const std::int32_t> tokens, std::string_view adapter,
                                std::string_view salt) {
  Engine::State& s = *engine_->state_;
  const Pause pause(s);
  s.settle();
  KvExport out{.weights_version = s.runner->weights()->version(),
               .adapter = std::string(adapter),
               .salt = std::string(salt),
               .page_size = s.limits.page_size,
               .page_bytes = s.runner->memory().page_bytes};
  std::vector<std::int32_t> pages;
  s.cache.find(s.cache.root(out.weights_version, adapter, salt), tokens, pages);
  const auto n = pages.size() * static_cast<std::size_t>(out.page_size);
  out.tokens.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n));
  out.bytes.resize(pages.size() * static_cast<std::size_t>(out.page_bytes));
  s.runner->read_pages(pages, out.bytes);
  return out;
}

std::int64_t Control::import_prefix(const KvExport& in) {
  Engine::State& s = *engine_->state_;
  const Pause pause(s);
  s.settle();
  const auto size = static_cast<std::size_t>(s.limits.page_size),
             bytes = static_cast<std::size_t>(s.runner->memory().page_bytes);
  const std::size_t n = in.tokens.size() / size;
  if (in.page_size != s.limits.page_size || in.page_bytes != s.runner->memory().page_bytes ||
      in.tokens.size() % size != 0 || in.bytes.size() != n * bytes ||
      in.weights_version != s.runner->weights()->version()) {
    throw core::Error(
        core::Code::invalid_argument,
        fmt::format("pages of {} positions and {} bytes under weights {} do not fit pages of {} "
                    "and {} under {}",
                    in.page_size, in.page_bytes, in.weights_version, s.limits.page_size,
                    s.runner->memory().page_bytes, s.runner->weights()->version()))
        .in("prefix");
  }
  std::vector<std::int32_t> pages;
  PrefixLink at =
      s.cache.find(s.cache.root(in.weights_version, in.adapter, in.salt), in.tokens, pages);
  for (const std::int32_t page : pages) s.pool.share(page);
  const std::size_t known = pages.size();
  while (pages.size() < n && s.pool.available() > 0) {
    const std::size_t i = pages.size();
    pages.push_back(s.pool.take());
    s.runner->write_pages(std::span(pages).last(1), std::span(in.bytes).subspan(i * bytes, bytes));
    at = s.cache.publish(at, std::span(in.tokens).subspan(i * size, size), pages.back());
  }
  const std::size_t all = pages.size();
  release_pages(s.pool, pages);
  return static_cast<std::int64_t>(all - known);
}

}  // namespace rose::infer
