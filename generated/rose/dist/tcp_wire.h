// A wire of TCP connections.

#pragma once

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "rose/dist/socket.h"
#include "rose/dist/wire.h"
#include "rose/dist/world.h"

namespace rose::dist {

struct TcpOptions {
  std::chrono::milliseconds meeting{60'000};    ///< until all processes have come
  std::chrono::milliseconds patience{600'000};  ///< of one transfer
  std::chrono::milliseconds silence{1'000};  ///< after which it tells the others what it waits for
  /// What must be the same in all processes, such as a version and a configuration: compared when they meet.
  std::string agreement{};
};

/// What precedes every message. All processes have the same byte order.
struct Frame {
  enum class Kind : std::uint32_t { data, bye, abort, waiting };
  static constexpr std::uint32_t magic_number = 0x65736f72;

  std::uint32_t magic = magic_number;
  Kind kind = Kind::data;
  std::uint64_t call = 0, bytes = 0;
  std::array<char, 104> text{};

  void say(std::string_view words);
  std::string words() const { return {text.data(), strnlen(text.data(), text.size())}; }
};
static_assert(sizeof(Frame) == 128);

class TcpWire final : public Wire {
 public:
  /// Meets the others: rank 0 listens at the master's address. Throws core::Error: io for a port in use and for
  /// processes that do not come (named), invalid_argument for a rank that came twice, another size, another agreement.
  explicit TcpWire(const World& world, TcpOptions options = {});
  TcpWire(const TcpWire&) = delete;
  TcpWire& operator=(const TcpWire&) = delete;
  ~TcpWire() override;  ///< says goodbye

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  void transfer(const Call& call, std::span<const Outgoing> out,
                std::span<const Incoming> in) override;
  void abort(const core::Error& error) noexcept override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer {
    Socket socket{};
    // What comes in.
    Frame header{};
    std::size_t header_read = 0;
    std::span<std::byte> wanted{};  // of this transfer
    bool expected = false;          // and it is not complete
    std::size_t read = 0;
    // What goes out.
    Frame out_header{};
    std::span<const std::byte> out{};
    std::size_t written = 0, to_write = 0;  // header included
    bool left = false;                      // it has said goodbye
    std::uint64_t waits_in = 0;             // the call in which it has said that it waits
    std::string waits_for{};                // and what that is
  };

  void meet(const World& world);
  void expect(const Call& call, std::span<const Outgoing> out, std::span<const Incoming> in);
  bool busy() const;
  /// One round: waits until something can be done or the time has come, and does it.
  void turn(const Call& call, Clock::time_point until);
  void write_some(int rank);
  void read_some(const Call& call, int rank);
  void look_at(const Call& call, int rank);  ///< a header is complete
  /// Throws when a process waits in the same call for something else.
  void compare(const Call& call, int rank) const;
  [[noreturn]] void differ(const Call& call, int rank, const std::string& theirs) const;
  void say_that_it_waits(const Call& call) noexcept;
  [[noreturn]] void gone(const Call& call, int rank) const;
  void late(const Call& call);
  void say_to_all(const Frame& frame) noexcept;

  int rank_;
  TcpOptions options_;
  std::vector<Peer> peers_;
  bool broken_ = false;
};

}  // namespace rose::dist
