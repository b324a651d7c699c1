// Choose the source that is furthest behind.

#include "rose/trainer/data/stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "rose/core/error.h"
#include "rose/core/hash.h"
#include "rose/core/rng.h"

namespace rose::trainer {

void Document::read(std::int64_t begin, std::span<std::int32_t> inputs,
                    std::span<std::int32_t> targets) const {
  if (inputs.empty()) return;
  const auto separator = shard->info().separator;
  const auto n = std::ssize(inputs);
  // Cell j reads token j - 1 and predicts token j; without separators it reads j and predicts j + 1.
  const std::int64_t shift = separator ? 0 : 1;
  const bool last = separator && begin + n == cells;  // the last target is the separator
  const auto known = static_cast<std::size_t>(last ? n - 1 : n);
  shard->copy(range.begin + begin + shift, targets.first(known));
  if (last) targets.back() = *separator;
  if (separator && begin == 0) {
    inputs.front() = *separator;
  } else {
    shard->copy(range.begin + begin + shift - 1, inputs.first(1));
  }
  std::copy(targets.begin(), targets.end() - 1, inputs.begin() + 1);
}

// Open all sources.
DocumentStream::DocumentStream(std::vector<DataSource> sources, const ShardExpectation& expected,
                               std::uint64_t seed, bool shuffle)
    : seed_(seed), shuffle_(shuffle) {
  const auto refuse = [](std::string message, const std::string& name, std::string hint) {
    throw core::Error(core::Code::invalid_argument, std::move(message))
        .in(name)
        .hint(std::move(hint));
  };
  if (sources.empty()) refuse("there is no source of data", "sources", "name at least one shard");
  std::vector<std::uint64_t> prints;
  for (DataSource& from : sources) {
    if (!(from.weight > 0) || from.weight > std::numeric_limits<double>::max())
      refuse(fmt::format("a weight of {}", from.weight), from.name, "weights are above 0");
    Source source;
    source.name = from.name;
    source.weight = from.weight;
    source.first.push_back(0);
    for (const auto& path : from.files) {
      const Shard& shard = source.shards.emplace_back(Shard::open(path, expected));
      source.first.push_back(source.first.back() + shard.documents());
      prints.push_back(shard.fingerprint());
    }
    const std::int64_t count = source.first.back();
    if (count > std::numeric_limits<std::uint32_t>::max())
      refuse("more than 2^32 documents", from.name, "split the source");
    sources_.push_back(std::move(source));
    for (std::int64_t d = 0; d < count; ++d)
      sources_.back().cells += document(sources_.size() - 1, d).cells;
    if (sources_.back().cells == 0)
      refuse("there is nothing to learn from", from.name, "every document is empty");
  }
  places_.resize(sources_.size());
  fingerprint_ = core::xxh3(std::as_bytes(std::span(prints)));
}

// Take the next document.
std::int64_t DocumentStream::cells() const {
  return std::accumulate(sources_.begin(), sources_.end(), std::int64_t{0},
                         [](std::int64_t sum, const Source& s) { return sum + s.cells; });
}

std::int64_t DocumentStream::documents() const {
  return std::accumulate(sources_.begin(), sources_.end(), std::int64_t{0},
                         [](std::int64_t sum, const Source& s) { return sum + s.first.back(); });
}

void DocumentStream::arrange(std::size_t s) {
  Source& source = sources_[s];
  if (source.ordered_epoch == places_[s].epoch) return;
  source.ordered_epoch = places_[s].epoch;
  source.order.resize(static_cast<std::size_t>(source.first.back()));
  std::iota(source.order.begin(), source.order.end(), 0u);
  if (!shuffle_) return;
  constexpr std::uint64_t order_stream = std::uint64_t{1} << 40;  // apart from every other use
  const auto epoch = static_cast<std::uint64_t>(source.ordered_epoch);
  core::Rng rng(seed_, order_stream + (epoch << 8) + s);
  core::shuffle(std::span(source.order), rng);
}

Document DocumentStream::document(std::size_t s, std::int64_t number) const {
  const Source& source = sources_[s];
  const auto after = std::upper_bound(source.first.begin(), source.first.end(), number);
  const auto shard = static_cast<std::size_t>(after - source.first.begin() - 1);
  Document found{.source = static_cast<std::int64_t>(s),
                 .shard = &source.shards[shard],
                 .range = source.shards[shard].document(number - source.first[shard])};
  found.cells = found.range.size() + (found.shard->info().separator ? 1 : -1);
  return found;
}

// Choose a source, take its next document.
Document DocumentStream::next() {
  std::size_t s = 0;
  const auto behind = [&](std::size_t i) {
    return static_cast<double>(places_[i].cells) / sources_[i].weight;
  };
  for (std::size_t i = 1; i < sources_.size(); ++i)
    if (behind(i) < behind(s)) s = i;
  Place& place = places_[s];
  if (place.next == sources_[s].first.back()) {
    ++place.epoch;
    place.next = 0;
  }
  arrange(s);
  ++place.next;
  const Document found = last_of(static_cast<std::int64_t>(s));
  place.cells += found.cells;
  return found;
}

Document DocumentStream::last_of(std::int64_t source) const {
  const auto s = static_cast<std::size_t>(source);
  return document(s, sources_[s].order[static_cast<std::size_t>(places_[s].next - 1)]);
}

void DocumentStream::seek(const std::vector<Place>& places) {
  bool fits = places.size() == places_.size();
  for (std::size_t s = 0; fits && s < places.size(); ++s) {
    const Place& p = places[s];
    fits = p.epoch >= 0 && p.next >= 0 && p.next <= sources_[s].first.back() && p.cells >= 0;
  }
  if (!fits) throw core::Error(core::Code::corrupt, "a position that these sources do not have");
  places_ = places;
  for (std::size_t s = 0; s < places_.size(); ++s) arrange(s);
}

}  // namespace rose::trainer
