// Move pages from one engine to another.

#include "rose/infer/kv_transfer.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "rose/core/error.h"
#include "rose/infer/engine_state.h"
#include "rose/model/files/config.h"
#include "rose/model/weights.h"

namespace rose::infer {

// What goes out, and what comes in.
struct KvTransfer::State final : StepWatcher {
  explicit State(Engine::State& e) : engine(e) {}
  // Going out. The mutex is held while a sink is called.
  struct Outgoing {
    std::int32_t next = 0, end = 0;  ///< pages that are neither sent nor part of a step on its way
    Sink sink;
  };
  struct Job {
    std::string id;
    std::int32_t page = 0, place = 0;  ///< in the text; in the pool
  };
  struct Step {
    std::vector<Job> jobs;
    std::int32_t layer = 0;  ///< below it all layers have been sent
  };
  void launching(std::span<const PlannedRow> rows) override;
  void layer(std::int32_t written);
  void completed() override;
  void send_block(const Job& job, std::int32_t layer);

  // Coming in.
  struct Incoming {
    std::vector<std::int32_t> tokens;  ///< of whole pages
    std::vector<std::int32_t> pages;   ///< of the pool; the known ones first
    std::int32_t first = 0;            ///< not known from here on
    PrefixLink link;                   ///< where the text stands after the known ones
    std::vector<bool> written;         ///< [pages to come, layers]
    std::size_t missing = 0;
  };

  Engine::State& engine;
  KvShape shape;
  mutable std::mutex mutex;
  std::unordered_map<std::string, Outgoing> outgoing;
  std::deque<Step> steps;
  std::unordered_map<Number, Incoming> incoming;
  std::vector<std::byte> buffer;
};

// Send what a step completes, layer by layer.
void KvTransfer::State::send_block(const Job& job, std::int32_t layer) {
  const auto to = outgoing.find(job.id);
  if (to == outgoing.end()) return;  // stopped
  engine.runner->read_block(job.place, layer, buffer);
  to->second.sink({.page = job.page, .layer = layer, .bytes = buffer});
}

void KvTransfer::State::launching(std::span<const PlannedRow> rows) {
  const std::scoped_lock lock(mutex);
  Step& step = steps.emplace_back();
  if (outgoing.empty()) return;
  for (const PlannedRow& row : rows) {
    const auto& choice = static_cast<const Choice&>(*row.sequence);
    const auto found = outgoing.find(choice.request->request.id);
    if (found == outgoing.end()) continue;
    Outgoing& out = found->second;
    const auto before = static_cast<std::int32_t>(row.first / shape.page_size);
    const auto after = static_cast<std::int32_t>((row.first + row.count) / shape.page_size);
    for (; out.next < std::min(out.end, after); ++out.next) {
      Job job{found->first, out.next, choice.pages.at(static_cast<std::size_t>(out.next))};
      if (out.next >= before)
        step.jobs.push_back(std::move(job));
      else
        for (std::int32_t l = 0; l < shape.layers; ++l) send_block(job, l);
    }
  }
}

void KvTransfer::State::layer(std::int32_t written) {
  const std::scoped_lock lock(mutex);
  if (steps.empty()) return;
  Step& step = steps.back();
  for (const Job& job : step.jobs) send_block(job, written);
  step.layer = written + 1;
}

void KvTransfer::State::completed() {
  const std::scoped_lock lock(mutex);
  if (steps.empty()) return;
  for (const Job& job : steps.front().jobs)
    for (std::int32_t l = steps.front().layer; l < shape.layers; ++l) send_block(job, l);
  steps.pop_front();
}

// Set pages aside, and fill them.
namespace {

/// Between two steps, as Control is.
class BetweenSteps {
 public:
  explicit BetweenSteps(Engine::State& state) : state_(state) {
    ++state_.controls;
    lock_ = std::unique_lock(state_.step_mutex);
  }
  BetweenSteps(const BetweenSteps&) = delete;
  BetweenSteps& operator=(const BetweenSteps&) = delete;
  ~BetweenSteps() { --state_.controls; }

 private:
  Engine::State& state_;
  std::unique_lock<std::mutex> lock_;
};

}  // namespace

KvTransfer::Room KvTransfer::reserve(Number number, std::span<const std::int32_t> tokens,
                                     std::string_view adapter, std::string_view salt) {
  State& s = *state_;
  Engine::State& e = s.engine;
  const auto size = static_cast<std::size_t>(s.shape.page_size);
  const std::size_t whole = tokens.empty() ? 0 : (tokens.size() - 1) / size;
  const BetweenSteps pause(e);
  std::string key;
  {
    const std::scoped_lock lock(e.inbox_mutex);
    if (const auto loaded = e.find_adapter(adapter)) key = loaded->key;
  }
  State::Incoming in;
  in.tokens.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(whole * size));
  in.link = e.cache.find(e.cache.root(s.shape.weights_version, key, salt), in.tokens, in.pages);
  in.first = static_cast<std::int32_t>(in.pages.size());
  for (const std::int32_t page : in.pages) e.pool.share(page);
  const auto fresh = static_cast<std::int64_t>(whole - in.pages.size());
  if (fresh == 0 || fresh > e.pool.available() ||
      reserved() + static_cast<std::int64_t>(whole) > e.pool.usable() / 2 ||
      e.runner->weights()->version() != s.shape.weights_version) {
    release_pages(e.pool, in.pages);
    return {};
  }
  while (in.pages.size() < whole) in.pages.push_back(e.pool.take());
  in.missing = static_cast<std::size_t>(fresh * s.shape.layers);
  in.written.resize(in.missing);
  const Room room{.first = in.first, .count = static_cast<std::int32_t>(fresh)};
  const std::scoped_lock lock(s.mutex);
  s.incoming.emplace(number, std::move(in));
  return room;
}

bool KvTransfer::write(Number number, const KvBlock& block) {
  State& s = *state_;
  const std::scoped_lock lock(s.mutex);
  const auto found = s.incoming.find(number);
  if (found == s.incoming.end()) return false;
  State::Incoming& in = found->second;
  const auto pages = static_cast<std::int32_t>(in.pages.size());
  if (block.page < in.first || block.page >= pages || block.layer < 0 ||
      block.layer >= s.shape.layers ||
      block.bytes.size() != static_cast<std::size_t>(s.shape.block_bytes))
    return false;
  const std::int32_t index = (block.page - in.first) * s.shape.layers + block.layer;
  const auto at = static_cast<std::size_t>(index);
  if (in.written[at]) return false;
  s.engine.runner->write_block(in.pages[static_cast<std::size_t>(block.page)], block.layer,
                               block.bytes);
  in.written[at] = true;
  --in.missing;
  return true;
}

bool KvTransfer::complete(Number number) const {
  const std::scoped_lock lock(state_->mutex);
  const auto found = state_->incoming.find(number);
  return found != state_->incoming.end() && found->second.missing == 0;
}

bool KvTransfer::publish(Number number) {
  State& s = *state_;
  const BetweenSteps pause(s.engine);
  const std::scoped_lock lock(s.mutex);
  const auto found = s.incoming.find(number);
  if (found == s.incoming.end() || found->second.missing > 0) return false;
  State::Incoming& in = found->second;
  const auto size = static_cast<std::size_t>(s.shape.page_size);
  for (auto i = static_cast<std::size_t>(in.first); i < in.pages.size(); ++i)
    in.link =
        s.engine.cache.publish(in.link, std::span(in.tokens).subspan(i * size, size), in.pages[i]);
  in.first = static_cast<std::int32_t>(in.pages.size());  // nothing is written any more
  return true;
}

void KvTransfer::release(Number number) {
  State& s = *state_;
  const BetweenSteps pause(s.engine);
  const std::scoped_lock lock(s.mutex);
  const auto found = s.incoming.find(number);
  if (found == s.incoming.end()) return;
  release_pages(s.engine.pool, found->second.pages);
  s.incoming.erase(found);
}

std::int64_t KvTransfer::reserved() const {
  const std::scoped_lock lock(state_->mutex);
  std::int64_t pages = 0;
  for (const auto& [number, in] : state_->incoming)
    pages += static_cast<std::int64_t>(in.pages.size());
  return pages;
}

// Begin and end.
KvTransfer::KvTransfer(Engine& engine) : state_(std::make_unique<State>(*engine.state_)) {
  State& s = *state_;
  Engine::State& e = s.engine;
  const BetweenSteps pause(e);
  e.settle();  // a step that began unwatched must not end watched
  e.delivery.send();
  if (!e.runner->tell_layers([&s](int layer) { s.layer(layer); }))
    throw core::Error(core::Code::unsupported, "this runner cannot send keys layer by layer")
        .in(std::string(e.runner->name()));
  s.shape = {.weights_version = e.runner->weights()->version(),
             .page_size = e.limits.page_size,
             .layers = static_cast<std::int32_t>(e.runner->weights()->config().layers)};
  s.shape.block_bytes = e.runner->memory().page_bytes / s.shape.layers;
  s.shape.kv_key = e.runner->limits().kv_key;
  s.buffer.resize(static_cast<std::size_t>(s.shape.block_bytes));
  e.watcher = &s;
}

KvTransfer::~KvTransfer() {
  std::vector<Number> numbers;
  for (const auto& [number, in] : state_->incoming) numbers.push_back(number);
  for (const Number number : numbers) release(number);
  const BetweenSteps pause(state_->engine);
  state_->engine.watcher = nullptr;
  state_->engine.runner->tell_layers(nullptr);
}

KvShape KvTransfer::shape() const {
  return state_->shape;
}

void KvTransfer::send(std::string id, std::int32_t first, std::int32_t count, Sink sink) {
  const std::scoped_lock lock(state_->mutex);
  state_->outgoing[std::move(id)] = {.next = first, .end = first + count, .sink = std::move(sink)};
}

void KvTransfer::stop(const std::string& id) {
  const std::scoped_lock lock(state_->mutex);
  state_->outgoing.erase(id);
}

}  // namespace rose::infer
