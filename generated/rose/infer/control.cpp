// Operate an engine.

#include <fmt/format.h>

#include <ranges>

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

EngineView Control::view() const {
  Engine::State& s = *engine_->state_;
  EngineView out{.statistics = statistics(), .sequences = {}, .pages = {}};
  const Pause pause(s);
  const auto add = [&](const Sequence& sequence, bool running) {
    const auto& choice = static_cast<const Choice&>(sequence);
    out.sequences.push_back({choice.request->handle, choice.index, running, choice.prompt,
                             choice.known(), choice.computed, choice.found, choice.preemptions,
                             choice.pages});
  };
  for (const Sequence* sequence : s.scheduler.running()) add(*sequence, true);
  for (const Sequence* sequence : s.scheduler.waiting() | std::views::take(out.most_waiting))
    add(*sequence, false);
  for (std::int64_t page = 0; page <= s.pool.usable(); ++page)
    out.pages.push_back(static_cast<std::uint8_t>(s.pool.state(static_cast<std::int32_t>(page))));
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
  while (s.prepares() || !s.idle()) {
    if (s.loop.joinable() || s.idle())
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
  for (Sequence* sequence : s.scheduler.waiting()) {
    auto& choice = static_cast<Choice&>(*sequence);
    choice.root = s.root_of(*choice.request);
    choice.pooled.clear(), choice.pooled_to = 0;
  }
}

// Take a prefix out, put one in.
namespace {

/// What the prefixes of an adapter are known by.
std::string adapter_key(Engine::State& state, std::string_view name) {
  const std::scoped_lock lock(state.inbox_mutex);
  const auto found = state.find_adapter(name);
  return found == nullptr ? std::string() : found->key;
}

}  // namespace

KvExport Control::export_prefix(std::span<const std::int32_t> tokens, std::string_view adapter,
                                std::string_view salt) {
  Engine::State& s = *engine_->state_;
  const Pause pause(s);
  s.settle();
  KvExport out{.weights_version = s.runner->weights()->version(),
               .adapter = std::string(adapter),
               .adapter_key = adapter_key(s, adapter),
               .salt = std::string(salt),
               .page_size = s.limits.page_size,
               .page_bytes = s.runner->memory().page_bytes,
               .kv_key = s.runner->limits().kv_key};
  std::vector<std::int32_t> pages;
  s.cache.find(s.cache.root(out.weights_version, out.adapter_key, salt), tokens, pages);
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
      in.weights_version != s.runner->weights()->version() ||
      in.kv_key != s.runner->limits().kv_key || in.adapter_key != adapter_key(s, in.adapter)) {
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
      s.cache.find(s.cache.root(in.weights_version, in.adapter_key, in.salt), in.tokens, pages);
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

// Load adapters, and unload them.

void Control::load_adapter(std::string name, std::shared_ptr<const model::Adapter> adapter) {
  Engine::State& s = *engine_->state_;
  const auto refuse = [&](core::Code code, std::string message) {
    throw core::Error(code, std::move(message)).in("adapter");
  };
  if (name.empty() || adapter == nullptr)
    refuse(core::Code::invalid_argument, "it needs a name and numbers");
  const Pause pause(s);
  s.settle();
  s.delivery.send();
  {
    const std::scoped_lock lock(s.inbox_mutex);
    if (s.adapters.contains(name))
      refuse(core::Code::invalid_argument, fmt::format("'{}' is loaded already", name));
  }
  s.slots.resize(static_cast<std::size_t>(s.runner->limits().adapters));
  const auto free = std::ranges::find_if(
      s.slots, [](const auto& slot) { return slot == nullptr || slot.use_count() == 1; });
  if (free == s.slots.end())
    refuse(core::Code::resource_exhausted,
           fmt::format("all {} slots hold adapters that are loaded or in use", s.slots.size()));
  auto made = std::make_shared<LoadedAdapter>();
  made->slot = static_cast<std::int32_t>(free - s.slots.begin());
  made->key = fmt::format("{:016x}", s.runner->set_adapter(made->slot, std::move(adapter)));
  *free = made;
  const std::scoped_lock lock(s.inbox_mutex);
  s.adapters.emplace(std::move(name), std::move(made));
}

void Control::unload_adapter(std::string_view name) {
  Engine::State& s = *engine_->state_;
  const std::scoped_lock lock(s.inbox_mutex);
  static_cast<void>(s.find_adapter(name));  // throws when there is none
  const auto at = s.adapters.find(name);
  if (at != s.adapters.end()) s.adapters.erase(at);
}

std::vector<std::string> Control::adapters() const {
  Engine::State& s = *engine_->state_;
  const std::scoped_lock lock(s.inbox_mutex);
  std::vector<std::string> names;
  names.reserve(s.adapters.size());
  for (const auto& [name, adapter] : s.adapters) names.push_back(name);
  return names;
}

// Record, and write it down.
void Control::start_profile() {
  Engine::State& s = *engine_->state_;
  const Pause pause(s);
  if (s.profile)
    throw core::Error(core::Code::invalid_argument, "a profile is being recorded").in("profile");
  s.settle();
  s.delivery.send();
  s.runner->start_profile();
  s.profile.emplace();
}

std::string Control::stop_profile() {
  Engine::State& s = *engine_->state_;
  const Pause pause(s);
  if (!s.profile)
    throw core::Error(core::Code::invalid_argument, "no profile is being recorded").in("profile");
  s.settle();
  s.delivery.send();
  std::vector<ProfileSpan> spans = std::move(*s.profile);
  s.profile.reset();
  s.runner->stop_profile(spans);
  return chrome_trace(spans);
}

}  // namespace rose::infer
