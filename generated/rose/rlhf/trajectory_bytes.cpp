// Copy columns, and believe no length.

#include "rose/rlhf/trajectory_bytes.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "rose/core/error.h"
#include "rose/rlhf/trajectory_json.h"

namespace rose::rlhf {

static_assert(std::endian::native == std::endian::little);

namespace {

// Take values off the front.
template <class T>
void put(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

class Cursor {
 public:
  Cursor(std::string_view bytes, std::string_view where) : left_(bytes), where_(where) {}

  std::string_view take(std::size_t n, const char* what) {
    if (n > left_.size())
      throw core::Error(core::Code::corrupt,
                        fmt::format("{} needs {} bytes, {} are left", what, n, left_.size()))
          .in(std::string(where_));
    const std::string_view taken = left_.substr(0, n);
    left_.remove_prefix(n);
    return taken;
  }

  template <class T>
  T get(const char* what) {
    T value;
    std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
    return value;
  }

  std::vector<std::int32_t> ids(std::size_t n, const char* what) {
    const std::string_view bytes = take(n * sizeof(std::int32_t), what);
    std::vector<std::int32_t> result(n);
    if (n > 0) std::memcpy(result.data(), bytes.data(), bytes.size());
    return result;
  }

  std::size_t left() const { return left_.size(); }

 private:
  std::string_view left_, where_;
};

}  // namespace

// Write the header and the columns.
std::string to_bytes(const Trajectory& t) {
  const std::string header = core::json::serialize(header_json(t));
  std::string out;
  put(out, static_cast<std::uint32_t>(header.size()));
  out += header;
  put(out, static_cast<std::uint32_t>(t.tokens.size()));
  for (const std::int32_t id : t.tokens) put(out, id);
  for (const Turn& turn : t.turns) {
    if (turn.kind == Kind::observation) continue;
    for (std::size_t i = turn.begin; i < turn.end; ++i) {
      put(out, t.trained[i]);
      put(out, t.version[i]);
      put(out, t.raw[i]);
      put(out, t.behaviour[i]);
      put(out, static_cast<std::uint32_t>(t.support[i].size()));
      for (const std::int32_t id : t.support[i]) put(out, id);
    }
  }
  return out;
}

// Read them back.
Trajectory from_bytes(std::string_view bytes, std::string_view where) {
  Cursor in(bytes, where);
  const auto header = in.take(in.get<std::uint32_t>("the header's length"), "the header");
  const core::json::value value = core::parse_json(header, where);
  Trajectory t = header_from_json(core::as_object(value, where), where);
  t.tokens = in.ids(in.get<std::uint32_t>("the number of tokens"), "tokens");
  const std::size_t n = t.tokens.size();
  t.trained.resize(n, 0);
  t.version.resize(n, -1);
  t.raw.resize(n, 0);
  t.behaviour.resize(n, 0);
  t.support.resize(n);
  for (const Turn& turn : t.turns) {
    if (turn.kind == Kind::observation) continue;
    for (std::size_t i = turn.begin; i < std::min(turn.end, n); ++i) {
      t.trained[i] = in.get<std::uint8_t>("trained");
      t.version[i] = in.get<std::int64_t>("version");
      t.raw[i] = in.get<float>("raw");
      t.behaviour[i] = in.get<float>("behaviour");
      t.support[i] = in.ids(in.get<std::uint32_t>("a support's size"), "a support");
    }
  }
  if (in.left() != 0)
    throw core::Error(core::Code::corrupt, fmt::format("{} bytes follow the columns", in.left()))
        .in(std::string(where));
  validate(t);
  return t;
}

}  // namespace rose::rlhf
