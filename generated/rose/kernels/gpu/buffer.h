// Own device memory.

#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

/// A piece of device memory, aligned to 256 bytes, freed at the end of its scope. Not for hot paths: it allocates and waits.
/// Throws core::Error: unsupported in a build without CUDA, resource_exhausted, internal.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t bytes);
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  Workspace workspace() const { return {data_, bytes_}; }

  void upload(std::span<const std::byte> host, std::size_t offset = 0);
  void download(std::span<std::byte> host, std::size_t offset = 0) const;
  void poison();  ///< every byte becomes 0xff

  /// A buffer that holds these values.
  template <class T>
  static Buffer of(std::span<const T> values) {
    Buffer buffer(values.size_bytes());
    buffer.upload(std::as_bytes(values));
    return buffer;
  }
  template <class T>
  std::vector<T> values() const {
    std::vector<T> host(bytes_ / sizeof(T));
    download(std::as_writable_bytes(std::span(host)));
    return host;
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace rose::kernels::gpu
