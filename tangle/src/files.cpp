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
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int close() {
    const int fd = fd_;
    fd_ = -1;
    return ::close(fd);
  }

 private:
  int fd_;
};

std::string reason(std::string_view what) { return std::string(what) + ": " + std::strerror(errno); }

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

}  // namespace

std::optional<std::string> read_file(const std::string& path, bool follow) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | (follow ? 0 : O_NOFOLLOW)));
  struct stat info {};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  std::string out(static_cast<std::size_t>(info.st_size), '\0');
  const ssize_t got = read_up_to(file.get(), out.data(), out.size());
  if (got < 0) return std::nullopt;
  out.resize(static_cast<std::size_t>(got));
  return out;
}

bool file_holds(const std::string& path, std::string_view text) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (file.get() < 0) return false;
  std::array<char, 64 * 1024> buffer;
  while (true) {
    const ssize_t got = read_up_to(file.get(), buffer.data(), buffer.size());
    if (got < 0) return false;
    const auto size = static_cast<std::size_t>(got);
    if (text.substr(0, size) != std::string_view(buffer.data(), size)) return false;
    text.remove_prefix(size);
    if (size < buffer.size()) return text.empty();
  }
}

std::string write_file_atomic(const std::string& path, std::string_view text) {
  const std::size_t slash = path.rfind('/');
  const std::size_t name = slash == std::string::npos ? 0 : slash + 1;
  const std::string temporary =
      path.substr(0, name) + std::string(leftover_mark) + std::to_string(::getpid()) + "." + path.substr(name);
  Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (file.get() < 0) return reason("cannot create");
  while (!text.empty()) {
    const ssize_t put = ::write(file.get(), text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      const std::string why = reason("cannot write");
      ::unlink(temporary.c_str());
      return why;
    }
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  if (file.close() != 0 || ::rename(temporary.c_str(), path.c_str()) != 0) {
    const std::string why = reason("cannot write");
    ::unlink(temporary.c_str());
    return why;
  }
  return {};
}

std::vector<std::string> list_files(const std::string& path) {
  std::vector<std::string> out;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(path, none)) {
    if (!entry.is_directory(none)) out.push_back(entry.path().filename());
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string make_folders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  return error ? "cannot create the folder " + path + ": " + error.message() : "";
}

bool is_leftover(std::string_view name) { return name.starts_with(leftover_mark); }

}  // namespace tangle
