// Arrange an epoch, hand out its rows.

#include "rose/trainer/packed_sequences.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "rose/core/error.h"
#include "rose/core/hash.h"
#include "rose/core/rng.h"
#include "rose/trainer/data/packing.h"

namespace rose::trainer {

void push_sequence(const ChatSequence& sequence, MicroBatchBuffer& out) {
  for (std::size_t i = 0; i + 1 < sequence.ids.size(); ++i)
    out.push(sequence.ids[i], sequence.learnt[i + 1] == 1 ? sequence.ids[i + 1] : -1);
  out.end_sequence();
}

// Take the sequences, and a fingerprint of them.
PackedSequences::PackedSequences(std::vector<ChatSequence> sequences, std::int64_t context,
                                 std::uint64_t seed, bool shuffle, std::size_t together)
    : together_(together),
      sequences_(std::move(sequences)),
      context_(context),
      seed_(seed),
      shuffle_(shuffle) {
  if (sequences_.empty())
    throw core::Error(core::Code::invalid_argument, "there is no conversation to learn from");
  std::vector<std::uint64_t> hashes;
  for (std::size_t i = 0; i < sequences_.size() / together_; ++i) {
    if (cells_of(i) > context_)
      throw core::Error(core::Code::invalid_argument,
                        fmt::format("{} of {} tokens, and a row has {}",
                                    together_ == 1 ? "a conversation" : "a pair of answers",
                                    cells_of(i), context_))
          .in(sequences_[i * together_].where)
          .hint("raise batch.context, or say what is done: chat.too_long");
  }
  for (const ChatSequence& s : sequences_) {
    cells_ += s.cells(), learnt_ += s.learnt_tokens();
    hashes.push_back(core::xxh3(std::as_bytes(std::span(s.ids))));
    hashes.push_back(core::xxh3(std::as_bytes(std::span(s.learnt))));
  }
  fingerprint_ = core::xxh3(std::as_bytes(std::span(std::as_const(hashes))));
  arrange();
}

// Shuffle, pack, shuffle the rows.
std::int64_t PackedSequences::cells_of(std::size_t item) const {
  std::int64_t cells = 0;
  for (std::size_t s = item * together_; s < (item + 1) * together_; ++s)
    cells += sequences_[s].cells();
  return cells;
}

void PackedSequences::arrange() {
  constexpr std::uint64_t stream = std::uint64_t{1} << 41;  // apart from every other use
  constexpr std::size_t window = 1024;
  core::Rng rng(seed_, stream + static_cast<std::uint64_t>(epoch_));
  std::vector<std::int64_t> order(sequences_.size() / together_);
  std::iota(order.begin(), order.end(), std::int64_t{0});
  if (shuffle_) core::shuffle(std::span(order), rng);
  order_.clear();
  for (std::size_t at = 0; at < order.size(); at += window) {
    const auto part = std::span(order).subspan(at, std::min(window, order.size() - at));
    std::vector<std::int64_t> lengths;
    for (const std::int64_t i : part) lengths.push_back(cells_of(static_cast<std::size_t>(i)));
    for (std::vector<std::int64_t>& row : pack_best_fit(lengths, context_)) {
      for (std::int64_t& piece : row) piece = part[static_cast<std::size_t>(piece)];
      order_.push_back(std::move(row));
    }
  }
  if (shuffle_) core::shuffle(std::span(order_), rng);
}

void PackedSequences::next(std::int64_t rows, MicroBatchBuffer& out) {
  out.clear();
  for (std::int64_t r = 0; r < rows; ++r) {
    if (row_ == this->rows()) ++epoch_, row_ = 0, arrange();
    for (const std::int64_t i : order_[static_cast<std::size_t>(row_)]) {
      for (std::size_t s = 0; s < together_; ++s)
        push_sequence(sequences_[static_cast<std::size_t>(i) * together_ + s], out);
    }
    ++row_;
  }
}

// Say where one is, and go there.
core::json::value PackedSequences::position() const {
  return core::json::object{
      {"epoch", epoch_}, {"row", row_}, {"sequences", fmt::format("{:016x}", fingerprint_)}};
}

void PackedSequences::restore(const core::json::value& position) {
  constexpr const char* where = "the position in the conversations";
  const core::json::object& object = core::as_object(position, where);
  if (core::get_string(object, "sequences", where) != fmt::format("{:016x}", fingerprint_))
    throw core::Error(core::Code::corrupt, "the conversations are not those of this checkpoint")
        .in("data.chat")
        .hint("data, template and tokenizer must be as they were when it was saved");
  epoch_ = core::get_int(object, "epoch", where);
  row_ = core::get_int(object, "row", where);
  if (epoch_ < 0) throw core::Error(core::Code::corrupt, "a negative epoch").in(where);
  arrange();
  if (row_ < 0 || row_ > rows())
    throw core::Error(core::Code::corrupt, "a row beyond the last").in(where);
}

}  // namespace rose::trainer
