// Files by way of the system calls.

#include "rose/core/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "rose/core/error.h"

namespace rose::core {

namespace {

// Say what the system's error number means for the person.
[[noreturn]] void fail(std::string what, const std::filesystem::path& path, int number) {
  const std::string reason = std::generic_category().message(number);
  Code code = Code::io;
  std::string hint;
  switch (number) {
    case ENOENT:
    case ENOTDIR:
      code = Code::not_found;
      hint = "check the path";
      break;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      code = Code::resource_exhausted;
      hint = "free some space, or write elsewhere";
      break;
    case EMFILE:
    case ENFILE:
    case ENOMEM: code = Code::resource_exhausted; break;
    case EACCES:
    case EPERM:
    case EROFS: hint = "check the permissions of the file and of its folder"; break;
    default: break;
  }
  Error error = Error(code, std::move(what) + ": " + reason).in(path.string());
  if (!hint.empty()) throw std::move(error).hint(hint);
  throw error;
}

// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags)
      : value_(::open(path.c_str(), flags | O_CLOEXEC)) {
    if (value_ < 0) fail("cannot open the file", path, errno);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(value_); }
  int get() const noexcept { return value_; }

 private:
  int value_;
};

}  // namespace

// Map a regular file, and let an empty one be an empty span.
MappedFile MappedFile::open(const std::filesystem::path& path) {
  const Descriptor file(path, O_RDONLY | O_NONBLOCK);  // do not wait for a pipe's writer
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail("cannot inspect the file", path, errno);
  if (!S_ISREG(status.st_mode)) {
    throw Error(Code::invalid_argument,
                S_ISDIR(status.st_mode) ? "this is a folder, not a file" : "not a regular file")
        .in(path.string());
  }
  MappedFile result;
  result.path_ = path;
  if (status.st_size == 0) return result;  // mmap refuses a length of zero
  const auto size = static_cast<std::size_t>(status.st_size);
  void* base = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (base == MAP_FAILED) fail("cannot map the file into memory", path, errno);
  result.bytes_ = {static_cast<const std::byte*>(base), size};
  return result;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

// Read until the end, wherever it is.
std::string read_file(const std::filesystem::path& path, std::size_t limit) {
  const Descriptor file(path, O_RDONLY);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail("cannot inspect the file", path, errno);
  if (S_ISDIR(status.st_mode)) {
    throw Error(Code::invalid_argument, "this is a folder, not a file").in(path.string());
  }
  std::string text;
  std::size_t used = 0;
  if (S_ISREG(status.st_mode)) text.resize(static_cast<std::size_t>(status.st_size) + 1);
  for (;;) {
    if (used == text.size()) text.resize(std::max<std::size_t>(2 * used, 1 << 16));
    const ssize_t got = ::read(file.get(), text.data() + used, text.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot read the file", path, errno);
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
    if (used > limit) {
      throw Error(Code::resource_exhausted,
                  "the file is longer than the " + std::to_string(limit) + " bytes allowed here")
          .in(path.string());
    }
  }
  text.resize(used);
  return text;
}

// Write beside the target, so that renaming stays on one disk.
AtomicFile::AtomicFile(const std::filesystem::path& target) : target_(target) {
  std::error_code ignored;
  if (std::filesystem::is_symlink(target_, ignored)) {  // replace what the link names, not the link
    target_ = std::filesystem::weakly_canonical(target_);
  }
  struct stat existing {};
  const bool exists = ::stat(target_.c_str(), &existing) == 0;
  if (exists && !S_ISREG(existing.st_mode)) {  // renaming over /dev/null would replace the device
    throw Error(Code::invalid_argument, "the output exists and is not a regular file")
        .in(target_.string())
        .hint("name a file");
  }
  static std::atomic<unsigned> serial{0};
  const std::string unique = std::to_string(::getpid()) + "-" + std::to_string(serial++);
  temporary_ = target_;
  temporary_.replace_filename("." + target_.filename().string() + "." + unique + ".tmp");
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("cannot create the file", target_, errno);
  if (exists) (void)::fchmod(descriptor_, existing.st_mode & 07777);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

// Gather small writes, pass large ones through.
void AtomicFile::write(std::string_view text) {
  if (descriptor_ < 0) throw Error(Code::internal, "written after commit").in(target_.string());
  constexpr std::size_t gather = 1 << 16;
  written_ += text.size();
  if (buffer_.size() + text.size() > gather) flush();
  if (text.size() <= gather) {
    buffer_ += text;
    return;
  }
  while (!text.empty()) {
    const ssize_t put = ::write(descriptor_, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("cannot write the file", target_, errno);
    text.remove_prefix(static_cast<std::size_t>(put));
  }
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  write(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

void AtomicFile::flush() {
  std::string_view rest = buffer_;
  while (!rest.empty()) {
    const ssize_t put = ::write(descriptor_, rest.data(), rest.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("cannot write the file", target_, errno);
    rest.remove_prefix(static_cast<std::size_t>(put));
  }
  buffer_.clear();
}

// Let the finished file take the target's name.
void AtomicFile::commit(Durability durability) {
  if (descriptor_ < 0) throw Error(Code::internal, "committed twice").in(target_.string());
  flush();
  const bool power = durability == Durability::power;
  if (power && ::fsync(descriptor_) != 0) fail("cannot write the file", target_, errno);
  const int closed = ::close(std::exchange(descriptor_, -1));  // a network disk may report it here
  if (closed != 0 || ::rename(temporary_.c_str(), target_.c_str()) != 0) {
    const int number = errno;
    ::unlink(temporary_.c_str());
    fail("cannot write the file", target_, number);
  }
  if (!power) return;
  const auto folder = target_.has_parent_path() ? target_.parent_path() : ".";
  const Descriptor directory(folder, O_RDONLY | O_DIRECTORY);
  if (::fsync(directory.get()) != 0) fail("cannot write the folder", folder, errno);
}

void write_file_atomic(const std::filesystem::path& path, std::string_view contents,
                       Durability durability) {
  AtomicFile file(path);
  file.write(contents);
  file.commit(durability);
}

}  // namespace rose::core
