// Write a line for each request.

#pragma once

#include <chrono>
#include <mutex>
#include <string>

#include "rose/core/json.h"

namespace rose::serve {

class RequestLog {
 public:
  explicit RequestLog(std::string file);  ///< throws core::Error (io)
  RequestLog(const RequestLog&) = delete;
  RequestLog& operator=(const RequestLog&) = delete;
  ~RequestLog();
  void write(const core::json::object& line);  ///< any thread

 private:
  void open();
  std::string file_;
  std::mutex mutex_;
  int descriptor_ = -1;
  std::chrono::steady_clock::time_point looked_{};
};

}  // namespace rose::serve
