// Meet at rank 0, then connect to each other.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "rose/core/hash.h"
#include "rose/dist/tcp_wire.h"

namespace rose::dist {

namespace {

using core::Code;
using core::Error;
using Milliseconds = std::chrono::milliseconds;

/// What a process says of itself. Of rank 0's answer: `code` not 0 is a refusal, `text` why.
struct Introduction {
  std::uint32_t magic = Frame::magic_number;
  std::int32_t rank = 0, size = 0, port = 0, code = 0;
  std::uint64_t agreement = 0;
  std::array<char, 160> text{};
};

std::span<const std::byte> bytes_of(const auto& value) {
  return std::as_bytes(std::span(&value, 1));
}
std::span<std::byte> writable(auto& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

template <std::size_t N>
void put(std::array<char, N>& to, std::string_view words) {
  to.fill('\0');
  std::copy_n(words.begin(), std::min(words.size(), N - 1), to.begin());
}

std::string words(const Introduction& of) {
  return {of.text.data(), strnlen(of.text.data(), of.text.size())};
}

std::uint64_t hash(const std::string& text) {
  return core::xxh3(std::as_bytes(std::span(text)));
}

constexpr Milliseconds moment{5000};  // for an introduction, once connected

// Refuse who cannot be meant.

/// Why this process may not join; empty: it may.
std::string objection(const Introduction& who, const Introduction& us,
                      const std::vector<std::uint16_t>& ports) {
  if (who.magic != us.magic) return "it does not speak our language";
  if (who.size != us.size)
    return fmt::format("rank {} counts {} processes, rank 0 counts {}", who.rank, who.size,
                       us.size);
  if (who.rank < 1 || who.rank >= us.size) return fmt::format("there is no rank {}", who.rank);
  if (ports[static_cast<std::size_t>(who.rank)] != 0)
    return fmt::format("rank {} came twice", who.rank);
  if (who.agreement != us.agreement)
    return fmt::format("rank {} runs \"{}\", rank 0 runs \"{}\"", who.rank, words(who), words(us));
  return "";
}

[[noreturn]] void missing(const std::vector<std::uint16_t>& ports, Milliseconds time) {
  std::vector<std::size_t> ranks;
  for (std::size_t r = 1; r < ports.size(); ++r)
    if (ports[r] == 0) ranks.push_back(r);
  throw Error(Code::io, fmt::format("rank {} did not come within {} s", fmt::join(ranks, ", "),
                                    static_cast<double>(time.count()) / 1e3))
      .in("rendezvous");
}

}  // namespace

// Come together.
void TcpWire::meet(const World& world) {
  if (world.size == 1) return;
  const auto n = static_cast<std::size_t>(world.size), me = static_cast<std::size_t>(world.rank);
  const Clock::time_point until = Clock::now() + options_.meeting;
  const auto time_left = [&] {
    return std::max(Milliseconds(0),
                    std::chrono::duration_cast<Milliseconds>(until - Clock::now()));
  };
  const Socket listener = listen_at(me == 0 ? world.master_port : std::uint16_t{0});
  Introduction us{.rank = world.rank,
                  .size = world.size,
                  .port = listener.port(),
                  .agreement = hash(options_.agreement)};
  put(us.text, options_.agreement);
  std::vector<std::uint16_t> ports(n);
  std::vector<std::array<char, 16>> hosts(n);  // as rank 0 sees them
  if (me == 0) {
    // Gather everybody, then tell everybody.
    std::string refused;
    for (std::size_t come = 1; come < n && refused.empty();) {
      Socket socket = accept_from(listener, time_left());
      if (!socket.open()) {
        refused = "another rank did not come in time";
        for (std::size_t r = 1; r < n; ++r)
          if (ports[r] == 0) refused = fmt::format("rank {} did not come in time", r);
        break;
      }
      Introduction who;
      if (!socket.read_all(writable(who), moment)) continue;  // a stranger
      refused = objection(who, us, ports);
      if (!refused.empty()) {
        Introduction answer{.code = 1};
        put(answer.text, refused);
        socket.write_all(bytes_of(answer), moment);
        break;
      }
      const auto r = static_cast<std::size_t>(who.rank);
      ports[r] = static_cast<std::uint16_t>(who.port);
      put(hosts[r], socket.peer_address());
      peers_[r].socket = std::move(socket);
      ++come;
    }
    Introduction answer{.code = refused.empty() ? 0 : 1};
    put(answer.text, refused);
    for (std::size_t r = 1; r < n; ++r) {
      if (!peers_[r].socket.open()) continue;
      peers_[r].socket.write_all(bytes_of(answer), moment);
      if (!refused.empty()) continue;
      peers_[r].socket.write_all(std::as_bytes(std::span(ports)), moment);
      peers_[r].socket.write_all(std::as_bytes(std::span(hosts)), moment);
    }
    const bool late = refused.find("did not come") != std::string::npos;
    while (!refused.empty() && !late) {
      constexpr Milliseconds second{1000};
      const Socket socket = accept_from(listener, second);
      Introduction who;
      if (!socket.open()) break;
      if (socket.read_all(writable(who), second)) socket.write_all(bytes_of(answer), second);
    }
    if (late) missing(ports, options_.meeting);
    if (!refused.empty()) throw Error(Code::invalid_argument, refused).in("rendezvous");
  } else {
    // Introduce yourself, and connect to those below.
    peers_[0].socket = connect_to(world.master_addr, world.master_port, time_left());
    const Socket& first = peers_[0].socket;
    Introduction answer;
    if (!first.write_all(bytes_of(us), moment) ||
        !first.read_all(writable(answer), time_left() + moment))
      throw Error(Code::io, "rank 0 has gone before all had come").in("rendezvous");
    if (answer.code != 0)
      throw Error(words(answer).find("did not come") != std::string::npos ? Code::io
                                                                          : Code::invalid_argument,
                  words(answer))
          .in("rendezvous");
    if (!first.read_all(std::as_writable_bytes(std::span(ports)), moment) ||
        !first.read_all(std::as_writable_bytes(std::span(hosts)), moment))
      throw Error(Code::io, "rank 0 has gone before all had come").in("rendezvous");
    for (std::size_t r = 1; r < me; ++r) {
      const std::string seen(hosts[r].data());
      peers_[r].socket =
          connect_to(seen.starts_with("127.") ? world.master_addr : seen, ports[r], time_left());
      peers_[r].socket.write_all(bytes_of(us), moment);
    }
    for (std::size_t come = me + 1; come < n; ++come) {
      Socket socket = accept_from(listener, time_left());
      Introduction who;
      if (!socket.open() || !socket.read_all(writable(who), moment) || who.rank <= world.rank ||
          who.rank >= world.size)
        throw Error(Code::io, "a process above this one did not come").in("rendezvous");
      peers_[static_cast<std::size_t>(who.rank)].socket = std::move(socket);
    }
  }
}

}  // namespace rose::dist
