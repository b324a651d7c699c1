// Cut, pack, copy.

#include "rose/trainer/data/loader.h"

#include <fmt/format.h>

#include <algorithm>

#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/trainer/data/packing.h"

namespace rose::trainer {

namespace {

std::string_view name(Packing packing) {
  return packing == Packing::concatenate ? "concatenate" : "best_fit";
}

}  // namespace

Loader::Loader(const LoaderOptions& options)
    : options_(options),
      stream_(options.sources, {.vocab_size = options.vocab_size, .separator = options.separator},
              options.seed, options.shuffle),
      window_start_(stream_.places()) {
  if (options_.window < 1)
    throw core::Error(core::Code::invalid_argument, "a window of no documents").in("window");
}

// Fill rows.
void Loader::next(std::int64_t rows, std::int64_t context, MicroBatchBuffer& out) {
  out.clear();
  advance(rows, context, &out);
}

void Loader::skip(std::int64_t rows, std::int64_t context) {
  advance(rows, context, nullptr);
}

void Loader::advance(std::int64_t rows, std::int64_t context, MicroBatchBuffer* out) {
  if (rows < 1 || context < 1) {
    throw core::Error(core::Code::invalid_argument,
                      fmt::format("{} rows of {} tokens", rows, context))
        .in("batch");
  }
  if (stream_.cells() < context) {
    throw core::Error(
        core::Code::invalid_argument,
        fmt::format("the data gives {} predictions, one window takes {}", stream_.cells(), context))
        .in("training data")
        .hint("train on more text, or with a shorter context");
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    if (options_.packing == Packing::concatenate) {
      concatenate(context, out);
    } else {
      take_packed_row(context, out);
    }
  }
}

void Loader::concatenate(std::int64_t context, MicroBatchBuffer* out) {
  for (std::int64_t filled = 0; filled < context;) {
    if (!current_ || cell_ == current_->cells) {
      current_ = stream_.next();
      cell_ = 0;
    }
    const std::int64_t n = std::min(current_->cells - cell_, context - filled);
    copy(*current_, cell_, n, out);
    cell_ += n;
    filled += n;
  }
}

void Loader::copy(const Document& document, std::int64_t begin, std::int64_t n,
                  MicroBatchBuffer* out) {
  if (out == nullptr || n < 1) return;
  inputs_.resize(static_cast<std::size_t>(n));
  targets_.resize(static_cast<std::size_t>(n));
  document.read(begin, inputs_, targets_);
  for (std::size_t i = 0; i < inputs_.size(); ++i) out->push(inputs_[i], targets_[i]);
  out->end_sequence();
}

// Pack a window of documents, hand out its rows.
void Loader::pack_window(std::int64_t context) {
  window_start_ = stream_.places();
  pieces_.clear();
  std::vector<std::int64_t> lengths;
  for (std::int64_t d = 0; d < options_.window; ++d) {
    const Document document = stream_.next();
    for (std::int64_t at = 0; at < document.cells; at += context) {
      pieces_.emplace_back(document, at);
      lengths.push_back(std::min(context, document.cells - at));
    }
  }
  packed_ = pack_best_fit(lengths, context);
  std::uint64_t cells = 0;  // tells this window from every other
  for (const auto& place : window_start_) cells += static_cast<std::uint64_t>(place.cells);
  constexpr std::uint64_t window_stream = std::uint64_t{1} << 41;
  if (options_.shuffle) {
    core::Rng rng(options_.seed, window_stream + cells);
    core::shuffle(std::span(packed_), rng);
  }
  row_ = 0;
  packed_context_ = context;
}

void Loader::take_packed_row(std::int64_t context, MicroBatchBuffer* out) {
  if (row_ == std::ssize(packed_)) pack_window(context);
  if (context != packed_context_) {
    throw core::Error(core::Code::invalid_argument,
                      fmt::format("rows of {} in a window packed for {}", context, packed_context_))
        .in("context");
  }
  std::int64_t filled = 0;
  for (const std::int64_t i : packed_[static_cast<std::size_t>(row_)]) {
    const auto& [document, begin] = pieces_[static_cast<std::size_t>(i)];
    const std::int64_t n = std::min(context, document.cells - begin);
    copy(document, begin, n, out);
    filled += n;
  }
  ++row_;
  if (out == nullptr) return;
  for (; filled < context; ++filled) out->push(options_.separator.value_or(0), -1);
  out->end_sequence();
}

// Say where, and go there.
std::int64_t Loader::epoch() const {
  std::int64_t furthest = 0;
  for (const auto& place : stream_.places()) furthest = std::max(furthest, place.epoch);
  return furthest;
}

core::json::value Loader::position() const {
  const bool whole = options_.packing == Packing::concatenate;
  core::json::array places;
  for (const auto& place : whole ? stream_.places() : window_start_)
    places.push_back(core::json::array{place.epoch, place.next, place.cells});
  core::json::object out{{"data", fmt::format("{:016x}", stream_.fingerprint())},
                         {"seed", options_.seed},
                         {"shuffle", options_.shuffle},
                         {"packing", name(options_.packing)},
                         {"places", std::move(places)}};
  if (whole) {
    out["source"] = current_ ? current_->source : -1;
    out["cell"] = cell_;
  } else {
    out["window"] = options_.window;
    out["context"] = packed_context_;
    out["row"] = row_;
  }
  return out;
}

// Go to a saved place.
void Loader::restore(const core::json::value& position) {
  constexpr std::string_view where = "the loader's position";
  const core::json::object& from = core::as_object(position, where);
  const core::json::value now = this->position();
  for (const char* key : {"data", "seed", "shuffle", "packing", "window"}) {
    const core::json::value* was = core::find(from, key);
    const core::json::value* is = core::find(now.as_object(), key);
    if ((was == nullptr) == (is == nullptr) &&
        (was == nullptr || core::json::serialize(*was) == core::json::serialize(*is)))
      continue;
    throw core::Error(core::Code::corrupt,
                      fmt::format("it was saved with {} {}, and this run has {}", key,
                                  was == nullptr ? "none" : core::json::serialize(*was),
                                  is == nullptr ? "none" : core::json::serialize(*is)))
        .in(std::string(where))
        .hint("resume with the data and the options of the run that was saved");
  }
  std::vector<DocumentStream::Place> places;
  for (const core::json::value& entry : core::get_array(from, "places", where)) {
    const core::json::array* triple = entry.if_array();
    if (triple == nullptr || triple->size() != 3)
      throw core::Error(core::Code::corrupt, "a place has three numbers").in(std::string(where));
    const auto number = [&](std::size_t i) {
      return core::get_int({{"place", triple->at(i)}}, "place", where);
    };
    places.push_back({number(0), number(1), number(2)});
  }
  stream_.seek(places);
  window_start_ = places;
  current_.reset();
  packed_.clear();
  cell_ = row_ = packed_context_ = 0;
  // Compute again what was not saved.
  const auto wrong = [&] {
    return core::Error(core::Code::corrupt, "a place that the data does not have")
        .in(std::string(where));
  };
  if (options_.packing == Packing::concatenate) {
    const std::int64_t source = core::get_int(from, "source", where);
    cell_ = core::get_int(from, "cell", where);
    if (source >= std::ssize(places)) throw wrong();
    if (source >= 0) {
      if (places[static_cast<std::size_t>(source)].next < 1) throw wrong();
      current_ = stream_.last_of(source);
      if (cell_ < 0 || cell_ > current_->cells) throw wrong();
    }
  } else {
    const std::int64_t context = core::get_int(from, "context", where);
    if (context > 0) pack_window(context);
    row_ = core::get_int(from, "row", where);
    if (context < 0 || row_ < 0 || row_ > std::ssize(packed_)) throw wrong();
  }
}

}  // namespace rose::trainer
