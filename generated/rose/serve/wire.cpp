// Write fields as bytes, and read them with suspicion.

#include "rose/serve/wire.h"

#include <fmt/format.h>

#include "rose/core/error.h"

namespace rose::serve {

void WireReader::fail(const char* field, const char* what) const {
  throw core::Error(core::Code::corrupt, fmt::format("{} at byte {}", what, size_ - rest_.size()))
      .in(fmt::format("message field '{}'", field));
}

std::string_view WireReader::take(std::size_t n, const char* field) {
  if (n > rest_.size()) fail(field, "the message ends");
  const std::string_view out = rest_.substr(0, n);
  rest_.remove_prefix(n);
  return out;
}

std::size_t WireReader::count(std::size_t size, const char* field) {
  const std::size_t n = get<std::uint32_t>(field);
  if (n > rest_.size() / size) fail(field, "a length beyond the end");
  return n;
}

bool WireReader::flag(const char* field) {
  return choice(2, field) == 1;
}

std::uint8_t WireReader::choice(std::uint8_t limit, const char* field) {
  const auto value = get<std::uint8_t>(field);
  if (value >= limit) fail(field, "a value that has no meaning");
  return value;
}

std::string_view WireReader::text(const char* field) {
  return take(count(1, field), field);
}

void WireReader::finish() const {
  if (!rest_.empty()) fail("end", "bytes are left over");
}

void begin_frame(std::string& out, std::uint8_t type, std::size_t& mark) {
  mark = out.size();
  WireWriter w(out);
  w.put(std::uint32_t{0});
  w.put(type);
}

void end_frame(std::string& out, std::size_t mark) {
  const auto length = static_cast<std::uint32_t>(out.size() - mark - sizeof(std::uint32_t));
  std::memcpy(out.data() + mark, &length, sizeof length);
}

std::optional<Frame> FrameReader::next() {
  constexpr std::size_t head = sizeof(std::uint32_t) + 1;
  if (buffer_.size() - at_ < head) {
    buffer_.erase(0, at_);
    at_ = 0;
    return std::nullopt;
  }
  std::uint32_t length = 0;
  std::memcpy(&length, buffer_.data() + at_, sizeof length);
  if (length == 0 || length > most)
    throw core::Error(core::Code::corrupt, fmt::format("a frame of {} bytes", length))
        .in("message");
  if (buffer_.size() - at_ < sizeof length + length) return std::nullopt;
  const Frame frame{static_cast<std::uint8_t>(buffer_[at_ + sizeof length]),
                    std::string_view(buffer_).substr(at_ + head, length - 1)};
  at_ += sizeof length + length;
  return frame;
}

}  // namespace rose::serve
