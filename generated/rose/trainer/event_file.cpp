// Records of protocol buffers.

#include "rose/trainer/event_file.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>

#include "rose/core/error.h"

namespace rose::trainer {

namespace {

// Little-endian numbers, and fields with a tag.
template <class T>
std::string raw(T value) {
  static_assert(std::endian::native == std::endian::little);
  std::string out(sizeof(T), '\0');
  std::memcpy(out.data(), &value, sizeof(T));
  return out;
}

std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7F) | 0x80);
  return out + static_cast<char>(value);
}

constexpr int kVarint = 0, kDouble = 1, kBytes = 2, kFloat = 5;

std::string field(int number, int type, const std::string& value) {
  std::string out =
      varint(static_cast<std::uint64_t>(number) << 3 | static_cast<std::uint64_t>(type));
  if (type == kBytes) out += varint(value.size());
  return out + value;
}

std::uint32_t masked(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> t{};
    for (std::uint32_t i = 0; i < t.size(); ++i) {
      t[i] = i;
      for (int bit = 0; bit < 8; ++bit) t[i] = (t[i] >> 1) ^ ((t[i] & 1u) != 0 ? 0x82F63B78u : 0u);
    }
    return t;
  }();
  std::uint32_t crc = ~0u;
  for (const char c : bytes)
    crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(c)) & 0xFFu];
  return ~crc;
}

// Open the file with its version, then one record a number.
EventFile::EventFile(const std::filesystem::path& folder, std::int64_t step, double wall_time)
    : path_(folder / fmt::format("events.out.tfevents.{:010}.rose-{}",
                                 static_cast<std::int64_t>(wall_time), step)),
      file_(path_, std::ios::binary | std::ios::trunc) {
  record(field(1, kDouble, raw(wall_time)) + field(3, kBytes, "brain.Event:2"));
  flush();
}

void EventFile::scalar(std::string_view tag, std::int64_t step, double value, double wall_time) {
  const std::string entry =
      field(1, kBytes, std::string(tag)) + field(2, kFloat, raw(static_cast<float>(value)));
  record(field(1, kDouble, raw(wall_time)) +
         field(2, kVarint, varint(static_cast<std::uint64_t>(step))) +
         field(5, kBytes, field(1, kBytes, entry)));
}

void EventFile::record(const std::string& event) {
  const std::string length = raw(static_cast<std::uint64_t>(event.size()));
  file_ << length << raw(masked(length)) << event << raw(masked(event));
}

void EventFile::flush() {
  file_.flush();
  if (!file_) throw core::Error(core::Code::io, "cannot write the event file").in(path_.string());
}

}  // namespace rose::trainer
