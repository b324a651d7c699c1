// Write fields as bytes, and read them with suspicion.

#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace rose::serve {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

template <class T>
concept Plain = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

class WireWriter {
 public:
  explicit WireWriter(std::string& out) : out_(&out) {}
  template <Plain T>
  void put(T value) {
    std::array<char, sizeof(T)> bytes;
    std::memcpy(bytes.data(), &value, sizeof value);
    out_->append(bytes.data(), bytes.size());
  }
  void put(bool value) { put(static_cast<std::uint8_t>(value)); }
  void put(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    out_->append(text);
  }
  template <Plain T>
  void put(std::span<const T> values) {
    put(static_cast<std::uint32_t>(values.size()));
    if (!values.empty())
      out_->append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  }

 private:
  std::string* out_;
};

/// Every call throws core::Error (corrupt) when the bytes are not there or not what they must be.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes), size_(bytes.size()) {}
  template <Plain T>
  T get(const char* field) {
    T value;
    std::memcpy(&value, take(sizeof(T), field).data(), sizeof(T));
    return value;
  }
  bool flag(const char* field);
  /// Below `limit`.
  std::uint8_t choice(std::uint8_t limit, const char* field);
  std::string_view text(const char* field);
  template <Plain T>
  std::vector<T> list(const char* field) {
    const std::size_t n = count(sizeof(T), field);
    std::vector<T> out(n);
    const std::string_view bytes = take(n * sizeof(T), field);
    if (n > 0) std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
  /// How many elements follow; so many of `size` bytes each are there.
  std::size_t count(std::size_t size, const char* field);
  void finish() const;  ///< nothing may be left

 private:
  std::string_view take(std::size_t n, const char* field);
  [[noreturn]] void fail(const char* field, const char* what) const;
  std::string_view rest_;
  std::size_t size_;
};

/// A frame is a u32 length of what follows, a u8 type, and the payload.
void begin_frame(std::string& out, std::uint8_t type, std::size_t& mark);
void end_frame(std::string& out, std::size_t mark);

struct Frame {
  std::uint8_t type = 0;
  std::string_view payload;  ///< valid until the next call
};

/// Cuts a stream of bytes into frames.
class FrameReader {
 public:
  static constexpr std::size_t most = std::size_t{64} << 20;
  void push(std::string_view bytes) { buffer_.append(bytes); }
  std::optional<Frame> next();  ///< throws core::Error (corrupt) for an impossible length

 private:
  std::string buffer_;
  std::size_t at_ = 0;
};

}  // namespace rose::serve
