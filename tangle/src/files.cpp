#include "files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace tangle {
namespace {

constexpr std::string_view leftover_mark = ".tangle-tmp.";

/// A descriptor that closes itself.
struct Descriptor {
  explicit Descriptor(int number) : fd(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  int fd;
};

std::string reason(std::string_view what) { return std::string(what) + ": " + std::strerror(errno); }

/// Opens for reading. Without O_NONBLOCK a pipe in the place of a file would stop us.
Descriptor open_to_read(const std::string& path, bool follow) {
  return Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | (follow ? 0 : O_NOFOLLOW)));
}

/// Reads until `size` bytes are there or the file ends. Returns how many, or -1.
ssize_t read_up_to(int file, char* to, std::size_t size) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(file, to + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return static_cast<ssize_t>(done);
}

bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(file, text.data(), text.size());
    if (put < 0 && errno != EINTR) return false;
    if (put > 0) text.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

}  // namespace

std::optional<std::string> read_file(const std::string& path, bool follow) {
  const Descriptor file = open_to_read(path, follow);
  struct stat info {};
  if (file.fd < 0 || ::fstat(file.fd, &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  std::string out(static_cast<std::size_t>(info.st_size), '\0');
  const ssize_t got = read_up_to(file.fd, out.data(), out.size());
  if (got < 0) return std::nullopt;
  out.resize(static_cast<std::size_t>(got));
  return out;
}

bool file_holds(const std::string& path, std::string_view text) {
  const Descriptor file = open_to_read(path, false);
  std::array<char, 64 * 1024> buffer;
  while (file.fd >= 0) {
    const ssize_t got = read_up_to(file.fd, buffer.data(), buffer.size());
    if (got < 0) return false;
    const auto size = static_cast<std::size_t>(got);
    if (!text.starts_with(std::string_view(buffer.data(), size))) return false;
    text.remove_prefix(size);
    if (size < buffer.size()) return text.empty();
  }
  return false;
}

std::string write_file(const std::string& path, std::string_view text) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file < 0) return reason("cannot create");
  std::string why = write_all(file, text) ? "" : reason("cannot write");
  if (::close(file) != 0 && why.empty()) why = reason("cannot write");
  if (!why.empty()) ::unlink(path.c_str());
  return why;
}

std::string write_file_atomic(const std::string& path, std::string_view text) {
  const std::string temporary = temporary_name(path);
  std::string why = write_file(temporary, text);
  if (!why.empty() || ::rename(temporary.c_str(), path.c_str()) == 0) return why;
  why = reason("cannot write");
  ::unlink(temporary.c_str());
  return why;
}

std::string temporary_name(const std::string& path) {
  static const std::string mark = std::string(leftover_mark) + std::to_string(::getpid()) + ".";
  std::string out = path;
  return out.insert(path.rfind('/') + 1, mark);
}

bool is_leftover(std::string_view name) { return name.starts_with(leftover_mark); }

std::vector<std::string> stems_in(const std::string& folder, std::string_view ending) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename();
    if (name.ends_with(ending) && !entry.is_directory(none)) names.push_back(name);
  }
  std::ranges::sort(names);
  for (std::string& name : names) name.resize(name.size() - ending.size());
  return names;
}

std::string make_folders(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return {};  // its parent is there nearly always
  std::error_code error;
  std::filesystem::create_directories(path, error);
  return error ? "cannot create the folder " + path + ": " + error.message() : "";
}

}  // namespace tangle
