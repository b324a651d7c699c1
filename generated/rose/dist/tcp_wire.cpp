// A wire of TCP connections.

#include "rose/dist/tcp_wire.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>

namespace rose::dist {

using core::Code;
using core::Error;

void Frame::say(std::string_view words) {
  text.fill('\0');
  std::copy_n(words.begin(), std::min(words.size(), text.size() - 1), text.begin());
}

// Set out what is to be moved, and turn until it is.
TcpWire::TcpWire(const World& world, TcpOptions options)
    : rank_(world.rank),
      options_(std::move(options)),
      peers_(static_cast<std::size_t>(world.size)) {
  meet(world);
}

void TcpWire::expect(const Call& call, std::span<const Outgoing> out,
                     std::span<const Incoming> in) {
  for (const Outgoing& o : out) {
    Peer& peer = peers_.at(static_cast<std::size_t>(o.to));
    if (peer.left) gone(call, o.to);
    peer.out_header = {.call = call.number, .bytes = o.bytes.size()};
    peer.out_header.say(call.what);
    peer.out = o.bytes;
    peer.written = 0, peer.to_write = sizeof(Frame) + o.bytes.size();
  }
  for (const Incoming& i : in) {
    Peer& peer = peers_.at(static_cast<std::size_t>(i.from));
    if (peer.left) gone(call, i.from);
    compare(call, i.from);
    peer.wanted = i.bytes;
    peer.expected = true, peer.read = 0;
    if (peer.header_read < sizeof(Frame)) continue;
    look_at(call, i.from);  // it came early
    if (peer.wanted.empty()) peer.expected = false, peer.header_read = 0;
  }
}

bool TcpWire::busy() const {
  return std::ranges::any_of(peers_,
                             [](const Peer& p) { return p.expected || p.written < p.to_write; });
}

void TcpWire::transfer(const Call& call, std::span<const Outgoing> out,
                       std::span<const Incoming> in) {
  if (broken_) throw Error(Code::internal, "the wire is broken").in(call.what);
  try {
    const Clock::time_point until = Clock::now() + options_.patience;
    expect(call, out, in);
    const Clock::time_point silence = Clock::now() + options_.silence;
    bool said = false;
    while (busy()) {
      if (Clock::now() >= until) late(call);
      if (!said && Clock::now() >= silence) say_that_it_waits(call), said = true;
      turn(call, said ? until : std::min(until, silence));
    }
  } catch (const Error& error) {
    abort(error);
    throw;
  }
}

// Wait for what can be done, and do it.
void TcpWire::turn(const Call& call, Clock::time_point until) {
  std::vector<pollfd> polled;
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r) {
    const Peer& peer = peers_[static_cast<std::size_t>(r)];
    if (!peer.socket.open() || peer.left) continue;
    const bool reads = peer.expected || peer.header_read < sizeof(Frame);
    const bool writes = peer.written < peer.to_write;
    if (!reads && !writes) continue;
    polled.push_back({peer.socket.descriptor(),
                      static_cast<short>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0)), 0});
    ranks.push_back(r);
  }
  const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
  constexpr std::int64_t most = 1000;
  ::poll(polled.data(), polled.size(),
         static_cast<int>(std::clamp<std::int64_t>(time.count() + 1, 0, most)));
  for (std::size_t i = 0; i < polled.size(); ++i) {
    if ((polled[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) read_some(call, ranks[i]);
    if ((polled[i].revents & POLLOUT) != 0) write_some(ranks[i]);
  }
}

void TcpWire::write_some(int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  while (peer.written < peer.to_write) {
    const bool in_header = peer.written < sizeof(Frame);
    const auto from = in_header
                          ? std::as_bytes(std::span(&peer.out_header, 1)).subspan(peer.written)
                          : peer.out.subspan(peer.written - sizeof(Frame));
    const std::ptrdiff_t n = peer.socket.write_some(from);
    if (n <= 0) return;  // one that has gone is found when it is read
    peer.written += static_cast<std::size_t>(n);
  }
}

void TcpWire::read_some(const Call& call, int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  for (;;) {
    if (peer.header_read < sizeof(Frame)) {
      const auto to = std::as_writable_bytes(std::span(&peer.header, 1)).subspan(peer.header_read);
      const std::ptrdiff_t n = peer.socket.read_some(to);
      if (n < 0) gone(call, rank);
      if (n == 0) return;
      peer.header_read += static_cast<std::size_t>(n);
      if (peer.header_read < sizeof(Frame)) return;
      look_at(call, rank);
      if (peer.left) return;
      continue;
    }
    if (!peer.expected) return;  // the beginning of what a later call wants
    if (peer.read < peer.wanted.size()) {
      const std::ptrdiff_t n = peer.socket.read_some(peer.wanted.subspan(peer.read));
      if (n < 0) gone(call, rank);
      if (n == 0) return;
      peer.read += static_cast<std::size_t>(n);
    }
    if (peer.read < peer.wanted.size()) continue;
    peer.expected = false, peer.header_read = 0;
  }
}

// Look at a header, and compare what it belongs to.
void TcpWire::look_at(const Call& call, int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  const Frame& frame = peer.header;
  if (frame.magic != Frame::magic_number)
    throw Error(Code::corrupt, fmt::format("rank {} sent bytes that are no message", rank))
        .in(call.what);
  switch (frame.kind) {
    case Frame::Kind::bye:
      peer.left = true;
      if (peer.expected) gone(call, rank);
      return;
    case Frame::Kind::waiting:
      peer.waits_in = frame.call, peer.waits_for = frame.words();
      peer.header_read = 0;
      return compare(call, rank);
    case Frame::Kind::abort: {
      std::string why(static_cast<std::size_t>(std::min<std::uint64_t>(frame.bytes, 4096)), ' ');
      peer.socket.read_all(std::as_writable_bytes(std::span(why)), std::chrono::seconds(1));
      throw Error(static_cast<Code>(frame.call), why).in(fmt::format("rank {}", rank));
    }
    case Frame::Kind::data: break;
  }
  if (!peer.expected) return;
  if (frame.call == call.number && frame.words() == call.what.substr(0, frame.text.size() - 1) &&
      frame.bytes == peer.wanted.size())
    return;
  differ(call, rank,
         fmt::format("{} (number {}, {} bytes)", frame.words(), frame.call, frame.bytes));
}

void TcpWire::differ(const Call& call, int rank, const std::string& theirs) const {
  throw Error(Code::internal, fmt::format("rank {} calls {} (number {}), rank {} calls {}", rank_,
                                          call.what, call.number, rank, theirs))
      .in("collective")
      .hint("all ranks must make the same calls in the same order");
}

void TcpWire::compare(const Call& call, int rank) const {
  const Peer& peer = peers_[static_cast<std::size_t>(rank)];
  const std::string ours = call.what.substr(0, Frame{}.text.size() - 1);
  if (peer.waits_in == call.number && peer.waits_for != ours)
    differ(call, rank, fmt::format("{} (number {})", peer.waits_for, peer.waits_in));
}

// Say who has gone, who is late, and that it cannot go on.
void TcpWire::gone(const Call& call, int rank) const {
  throw Error(Code::io,
              fmt::format("rank {} has gone during {} (number {})", rank, call.what, call.number))
      .in(fmt::format("rank {}", rank_));
}

void TcpWire::say_that_it_waits(const Call& call) noexcept {
  Frame frame{.kind = Frame::Kind::waiting, .call = call.number};
  frame.say(call.what);
  say_to_all(frame);
}

void TcpWire::late(const Call& call) {
  say_that_it_waits(call);
  constexpr std::chrono::seconds listen{2};
  const Clock::time_point until = Clock::now() + listen;
  while (busy() && Clock::now() < until) turn(call, until);
  if (!busy()) return;  // just in time
  std::vector<int> missing;
  for (int r = 0; r < size(); ++r) {
    const Peer& peer = peers_[static_cast<std::size_t>(r)];
    const bool heard = peer.waits_in == call.number || peer.left || peer.header_read > 0;
    if (r != rank_ && !heard) missing.push_back(r);
  }
  throw Error(
      Code::io,
      fmt::format("{} (number {}) has waited {} s; missing: rank {}", call.what, call.number,
                  static_cast<double>(options_.patience.count()) / 1e3,
                  missing.empty() ? "none, all wait" : fmt::format("{}", fmt::join(missing, ", "))))
      .in(fmt::format("rank {}", rank_));
}

/// As far as it goes at once: who is in the middle of a message cannot be told anything.
void TcpWire::say_to_all(const Frame& frame) noexcept {
  for (Peer& peer : peers_) {
    if (!peer.socket.open() || peer.left || (peer.written > 0 && peer.written < peer.to_write))
      continue;
    const std::ptrdiff_t n = peer.socket.write_some(std::as_bytes(std::span(&frame, 1)));
    if (n <= 0 || n == sizeof(Frame) || peer.written < peer.to_write) continue;
    peer.out_header = frame, peer.out = {};  // the rest follows
    peer.written = static_cast<std::size_t>(n), peer.to_write = sizeof(Frame);
  }
}

void TcpWire::abort(const Error& error) noexcept {
  if (std::exchange(broken_, true)) return;
  try {
    const std::string why = error.argument().starts_with("rank ")
                                ? fmt::format("{}: {}", error.argument(), error.message())
                                : error.message();
    Frame frame{.kind = Frame::Kind::abort,
                .call = static_cast<std::uint64_t>(error.code()),
                .bytes = why.size()};
    for (const Peer& peer : peers_) {
      if (!peer.socket.open() || peer.left || (peer.written > 0 && peer.written < peer.to_write))
        continue;
      peer.socket.write_some(std::as_bytes(std::span(&frame, 1)));
      peer.socket.write_some(std::as_bytes(std::span(why)));
    }
  } catch (...) {  // there is nobody left to tell
  }
}

TcpWire::~TcpWire() {
  if (!broken_) say_to_all({.kind = Frame::Kind::bye});
}

}  // namespace rose::dist
