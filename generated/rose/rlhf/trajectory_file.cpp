// Write at once, read to the first damage.

#include "rose/rlhf/trajectory_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/hash.h"
#include "rose/core/json.h"
#include "rose/rlhf/trajectory_bytes.h"
#include "rose/rlhf/trajectory_json.h"

namespace rose::rlhf {

namespace {

constexpr std::string_view magic = "ROSETRJ1";
constexpr std::string_view first_line = R"({"format":"rose-trajectories","version":1})";
constexpr std::uint32_t end_mark = 0xffffffff;

}  // namespace

// Write a record, whole.
struct TrajectoryWriter::File {
  std::filesystem::path path;
  std::FILE* stream = nullptr;
  explicit File(const std::filesystem::path& p) : path(p), stream(std::fopen(p.c_str(), "wb")) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (stream != nullptr) std::fclose(stream);
  }
};

Form form_of(const std::filesystem::path& path) {
  return path.extension() == ".bin" ? Form::binary : Form::json_lines;
}

TrajectoryWriter::TrajectoryWriter(const std::filesystem::path& path, Form form)
    : file_(std::make_unique<File>(path)), form_(form) {
  if (file_->stream == nullptr)
    throw core::Error(core::Code::io, fmt::format("cannot write: {}", std::strerror(errno)))
        .in(path.string());
  put(form == Form::binary ? std::string(magic) : std::string(first_line) + "\n");
}

TrajectoryWriter::~TrajectoryWriter() = default;

void TrajectoryWriter::put(const std::string& bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_->stream) != bytes.size() ||
      std::fflush(file_->stream) != 0)
    throw core::Error(core::Code::io, fmt::format("cannot write: {}", std::strerror(errno)))
        .in(file_->path.string());
}

void TrajectoryWriter::write(const Trajectory& t, std::int64_t newest) {
  validate(t, newest);
  if (form_ == Form::json_lines) {
    put(to_json_line(t) + "\n");
  } else {
    const std::string payload = to_bytes(t);
    const auto size = static_cast<std::uint32_t>(payload.size());
    const std::uint64_t hash = core::xxh3(payload);
    std::string record(reinterpret_cast<const char*>(&size), sizeof size);
    record.append(reinterpret_cast<const char*>(&hash), sizeof hash);
    put(record + payload);
  }
  ++count_;
}

void TrajectoryWriter::finish() {
  if (form_ == Form::json_lines) {
    put(fmt::format("{{\"end\":{}}}\n", count_));
  } else {
    std::string record(reinterpret_cast<const char*>(&end_mark), sizeof end_mark);
    record.append(reinterpret_cast<const char*>(&count_), sizeof count_);
    put(record);
  }
  file_.reset();
}

// Read JSON lines to the first damage.
namespace {

std::string counted(std::uint64_t said, std::size_t found) {
  return said == found ? ""
                       : fmt::format("the end says {} trajectories, there are {}", said, found);
}

void read_lines(std::string_view text, const std::string& name, TrajectoryFile& file) {
  std::size_t number = 1;
  text.remove_prefix(first_line.size() + 1);
  while (!text.empty()) {
    const std::size_t length = text.find('\n');
    const std::string where = fmt::format("{}:{}", name, ++number);
    if (length == text.npos) {
      file.damage = fmt::format("{}: the line is cut short", where);
      return;
    }
    const std::string_view line = text.substr(0, length);
    text.remove_prefix(length + 1);
    if (line.starts_with(R"({"end":)")) {
      const core::json::value end = core::parse_json(line, where);
      const auto said = core::get_int(end.as_object(), "end", where);
      file.damage = counted(static_cast<std::uint64_t>(said), file.trajectories.size());
      if (file.damage.empty() && !text.empty()) file.damage = where + ": text follows the end";
      return;
    }
    file.trajectories.push_back(from_json_line(line, where));
  }
  file.damage = "the end is missing: the writer did not finish";
}

void read_binary(std::string_view bytes, const std::string& name, TrajectoryFile& file) {
  std::size_t at = magic.size();
  for (;;) {
    const std::string where = fmt::format("{}, byte {}", name, at);
    std::uint32_t size = 0;
    std::uint64_t hash = 0;
    if (at == bytes.size()) {
      file.damage = "the end is missing: the writer did not finish";
      return;
    }
    if (bytes.size() - at < sizeof size + sizeof hash) {
      file.damage = where + ": the record is cut short";
      return;
    }
    std::memcpy(&size, bytes.data() + at, sizeof size);
    std::memcpy(&hash, bytes.data() + at + sizeof size, sizeof hash);
    at += sizeof size + sizeof hash;
    if (size == end_mark) {
      file.damage = counted(hash, file.trajectories.size());
      if (file.damage.empty() && at != bytes.size()) file.damage = where + ": bytes follow the end";
      return;
    }
    if (size > bytes.size() - at) {
      file.damage = fmt::format("{}: the record is cut short: {} of {} bytes", where,
                                bytes.size() - at, size);
      return;
    }
    const std::string_view payload = bytes.substr(at, size);
    if (core::xxh3(payload) != hash) {
      file.damage = where + ": the record does not have its hash";
      return;
    }
    file.trajectories.push_back(from_bytes(payload, where));
    at += size;
  }
}

}  // namespace

TrajectoryFile salvage_trajectories(const std::filesystem::path& path) {
  const std::string bytes = core::read_file(path);
  const std::string name = path.filename().string();
  TrajectoryFile file;
  try {
    if (bytes.starts_with(magic)) {
      read_binary(bytes, name, file);
    } else if (bytes.starts_with(std::string(first_line) + "\n")) {
      read_lines(bytes, name, file);
    } else {
      throw core::Error(core::Code::corrupt, "this is not a file of trajectories").in(name);
    }
  } catch (const core::Error& error) {
    if (bytes.size() < magic.size() || file.trajectories.empty()) throw;
    file.damage = error.what();
  }
  return file;
}

std::vector<Trajectory> read_trajectories(const std::filesystem::path& path) {
  TrajectoryFile file = salvage_trajectories(path);
  if (!file.damage.empty())
    throw core::Error(core::Code::corrupt, fmt::format("after {} trajectories: {}",
                                                       file.trajectories.size(), file.damage))
        .in(path.string())
        .hint("`rose rl inspect --salvage` shows what is whole");
  return std::move(file.trajectories);
}

}  // namespace rose::rlhf
