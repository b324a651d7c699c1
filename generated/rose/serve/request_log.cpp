// Write a line for each request.

#include "rose/serve/request_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "rose/core/error.h"

namespace rose::serve {

RequestLog::RequestLog(std::string file) : file_(std::move(file)) {
  open();
}

RequestLog::~RequestLog() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void RequestLog::open() {
  constexpr int mode = 0640;
  const int made = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, mode);
  if (made < 0) {
    if (descriptor_ >= 0) return;  // the old one is better than none
    throw core::Error(core::Code::io, std::strerror(errno)).in(file_);
  }
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = made;
}

void RequestLog::write(const core::json::object& line) {
  const std::string text = core::json::serialize(line) + "\n";
  const std::scoped_lock lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ > std::chrono::seconds(1)) {
    looked_ = now;
    struct stat here {
    }, there{};
    const bool same = ::fstat(descriptor_, &here) == 0 && ::stat(file_.c_str(), &there) == 0 &&
                      here.st_ino == there.st_ino && here.st_dev == there.st_dev;
    if (!same) open();
  }
  // One call for a line: appended whole, also between processes.
  [[maybe_unused]] const ssize_t n = ::write(descriptor_, text.data(), text.size());
}

}  // namespace rose::serve
