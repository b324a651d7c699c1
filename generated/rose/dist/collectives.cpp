// Send, receive, add: collectives.

#include "rose/dist/collectives.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace rose::dist {

namespace {

// Exchange with one or two others, and add.
template <class T>
void add(std::span<T> to, std::span<const T> from) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = to[i] + from[i];
}

template <class T>
std::span<T> piece(std::span<T> all, std::span<const std::size_t> offsets, int index) {
  const auto i = static_cast<std::size_t>(index);
  return all.subspan(offsets[i], offsets[i + 1] - offsets[i]);
}

void exchange(Wire& wire, const Call& call, int to, std::span<const std::byte> out, int from,
              std::span<std::byte> in) {
  const Outgoing outgoing{to, out};
  const Incoming incoming{from, in};
  wire.transfer(call, std::span(&outgoing, 1), std::span(&incoming, 1));
}

void send(Wire& wire, const Call& call, int to, std::span<const std::byte> bytes) {
  const Outgoing outgoing{to, bytes};
  wire.transfer(call, std::span(&outgoing, 1), {});
}

void receive(Wire& wire, const Call& call, int from, std::span<std::byte> bytes) {
  const Incoming incoming{from, bytes};
  wire.transfer(call, {}, std::span(&incoming, 1));
}

void need_power_of_two(const Wire& wire) {
  if (!std::has_single_bit(static_cast<unsigned>(wire.size())))
    throw core::Error(core::Code::invalid_argument, "a power of two of ranks is needed")
        .in("collective");
}

}  // namespace

// Cut a vector, and add by a tree.
std::vector<std::size_t> even_pieces(std::size_t n, int pieces) {
  std::vector<std::size_t> offsets{0};
  const auto p = static_cast<std::size_t>(pieces);
  offsets.reserve(p + 1);
  for (std::size_t i = 0; i < p; ++i)
    offsets.push_back(offsets.back() + n / p + (i < n % p ? 1 : 0));
  return offsets;
}

template <class T>
void tree_sum(std::vector<std::vector<T>>& parts) {
  for (std::size_t d = 1; d < parts.size(); d *= 2) {
    for (std::size_t i = 0; i + d < parts.size(); i += 2 * d)
      add<T>(std::span<T>(parts[i]), std::span<const T>(parts[i + d]));
  }
}

// Double the audience in each round; or halve it, and add.
void broadcast_tree(Wire& wire, const Call& call, std::span<std::byte> bytes, int root) {
  const int n = wire.size(), place = (wire.rank() - root + n) % n;  // the root's is 0
  const auto rank_at = [&](int p) { return (p + root) % n; };
  int step = 1;
  while (step < n && (place & step) == 0) step *= 2;
  if (place != 0) receive(wire, call, rank_at(place - step), bytes);
  for (step /= 2; step > 0; step /= 2)
    if (place + step < n) send(wire, call, rank_at(place + step), bytes);
}

template <class T>
void reduce_tree(Wire& wire, const Call& call, std::span<T> values) {
  const int n = wire.size(), rank = wire.rank();
  std::vector<T> other(values.size());
  for (int d = 1; d < n; d *= 2) {
    if (rank % (2 * d) == d) return send(wire, call, rank - d, std::as_bytes(values));
    if (rank + d >= n) continue;
    receive(wire, call, rank + d, std::as_writable_bytes(std::span(other)));
    add<T>(values, other);
  }
}

// Pass a piece to the right, in every round.
template <class T>
void reduce_scatter_ring(Wire& wire, const Call& call, std::span<T> values,
                         std::span<const std::size_t> offsets) {
  const int n = wire.size(), rank = wire.rank();
  std::vector<T> other;
  for (int round = 0; round + 1 < n; ++round) {
    const std::span<T> out = piece(values, offsets, (rank - round - 1 + n) % n),
                       mine = piece(values, offsets, (rank - round - 2 + 2 * n) % n);
    other.resize(mine.size());
    exchange(wire, call, (rank + 1) % n, std::as_bytes(out), (rank - 1 + n) % n,
             std::as_writable_bytes(std::span(other)));
    add<T>(mine, other);
  }
}

void all_gather_ring(Wire& wire, const Call& call, std::span<std::byte> bytes,
                     std::span<const std::size_t> offsets) {
  const int n = wire.size(), rank = wire.rank();
  for (int round = 0; round + 1 < n; ++round)
    exchange(wire, call, (rank + 1) % n, piece(bytes, offsets, (rank - round + n) % n),
             (rank - 1 + n) % n, piece(bytes, offsets, (rank - round - 1 + n) % n));
}

// Send every piece to its owner, who adds.
template <class T>
void reduce_scatter_direct(Wire& wire, const Call& call, std::span<T> values,
                           std::span<const std::size_t> offsets) {
  const int n = wire.size(), rank = wire.rank();
  const std::span<T> mine = piece(values, offsets, rank);
  std::vector<std::vector<T>> parts(static_cast<std::size_t>(n), std::vector<T>(mine.size()));
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  for (int k = 1; k < n; ++k) {
    const int to = (rank + k) % n, from = (rank - k + n) % n;
    out.push_back({to, std::as_bytes(piece(values, offsets, to))});
    in.push_back({from, std::as_writable_bytes(std::span(parts[static_cast<std::size_t>(from)]))});
  }
  std::ranges::copy(mine, parts[static_cast<std::size_t>(rank)].begin());
  wire.transfer(call, out, in);
  tree_sum(parts);
  std::ranges::copy(parts.front(), mine.begin());
}

void all_to_all_direct(Wire& wire, const Call& call, std::span<const std::byte> out,
                       std::span<const std::size_t> out_offsets, std::span<std::byte> in,
                       std::span<const std::size_t> in_offsets) {
  const int n = wire.size(), rank = wire.rank();
  std::vector<Outgoing> sent;
  std::vector<Incoming> received;
  for (int k = 1; k < n; ++k) {
    const int to = (rank + k) % n, from = (rank - k + n) % n;
    sent.push_back({to, piece(out, out_offsets, to)});
    received.push_back({from, piece(in, in_offsets, from)});
  }
  std::ranges::copy(piece(out, out_offsets, rank), piece(in, in_offsets, rank).begin());
  wire.transfer(call, sent, received);
}

// Exchange with whoever differs in one bit.
template <class T>
void all_reduce_doubling(Wire& wire, const Call& call, std::span<T> values) {
  need_power_of_two(wire);
  std::vector<T> other(values.size());
  for (int d = 1; d < wire.size(); d *= 2) {
    const int with = wire.rank() ^ d;
    exchange(wire, call, with, std::as_bytes(values), with,
             std::as_writable_bytes(std::span(other)));
    add<T>(values, other);
  }
}

template <class T>
void reduce_scatter_halving(Wire& wire, const Call& call, std::span<T> values,
                            std::span<const std::size_t> offsets) {
  need_power_of_two(wire);
  std::size_t first = 0;  // of the pieces that are still this rank's
  std::vector<T> other;
  for (int d = wire.size() / 2; d > 0; d /= 2) {
    const auto half = static_cast<std::size_t>(d);
    const bool upper = (wire.rank() & d) != 0;
    const auto range = [&](std::size_t from) {
      return values.subspan(offsets[from], offsets[from + half] - offsets[from]);
    };
    const std::span<T> keep = range(upper ? first + half : first),
                       give = range(upper ? first : first + half);
    if (upper) first += half;
    other.resize(keep.size());
    exchange(wire, call, wire.rank() ^ d, std::as_bytes(give), wire.rank() ^ d,
             std::as_writable_bytes(std::span(other)));
    add<T>(keep, other);
  }
}

void all_gather_doubling(Wire& wire, const Call& call, std::span<std::byte> bytes,
                         std::span<const std::size_t> offsets) {
  need_power_of_two(wire);
  for (int d = 1; d < wire.size(); d *= 2) {
    const auto range = [&](int rank) {
      const auto from = static_cast<std::size_t>(rank & ~(d - 1)),
                 half = static_cast<std::size_t>(d);
      return bytes.subspan(offsets[from], offsets[from + half] - offsets[from]);
    };
    const int with = wire.rank() ^ d;
    exchange(wire, call, with, range(wire.rank()), with, range(with));
  }
}

// NOLINTBEGIN(bugprone-macro-parentheses): T is a type
#define ROSE_COLLECTIVES(T)                                              \
  template void tree_sum(std::vector<std::vector<T>>&);                  \
  template void reduce_tree(Wire&, const Call&, std::span<T>);           \
  template void reduce_scatter_ring(Wire&, const Call&, std::span<T>,    \
                                    std::span<const std::size_t>);       \
  template void reduce_scatter_direct(Wire&, const Call&, std::span<T>,  \
                                      std::span<const std::size_t>);     \
  template void reduce_scatter_halving(Wire&, const Call&, std::span<T>, \
                                       std::span<const std::size_t>);    \
  template void all_reduce_doubling(Wire&, const Call&, std::span<T>)
ROSE_COLLECTIVES(float);
ROSE_COLLECTIVES(double);
ROSE_COLLECTIVES(std::int32_t);
ROSE_COLLECTIVES(std::int64_t);
#undef ROSE_COLLECTIVES
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace rose::dist
