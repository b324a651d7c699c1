// Streams, copies, events and graphs: what a runner drives a GPU with.

#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

// Own a stream, host memory, an event, a graph.

/// One handle of the CUDA runtime, moved and not copied.
template <class Tag>
class Owned {
 public:
  Owned() = default;
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle_ != nullptr) release(static_cast<Tag*>(nullptr), handle_);
  }
  explicit operator bool() const { return handle_ != nullptr; }

 protected:
  explicit Owned(void* handle) : handle_(handle) {}
  void* handle_ = nullptr;
};

struct StreamTag {};
struct HostTag {};
struct EventTag {};
struct GraphTag {};
void release(StreamTag*, void* handle) noexcept;
void release(HostTag*, void* handle) noexcept;
void release(EventTag*, void* handle) noexcept;
void release(GraphTag*, void* handle) noexcept;

/// A stream that does not wait for the default stream, nor the default stream for it.
class OwnedStream : public Owned<StreamTag> {
 public:
  OwnedStream();
  Stream get() const { return {handle_}; }
};
/// Page-locked host memory.
class HostBuffer : public Owned<HostTag> {
 public:
  HostBuffer() = default;
  explicit HostBuffer(std::size_t bytes);
  std::byte* data() const { return static_cast<std::byte*>(handle_); }
  std::size_t bytes() const { return bytes_; }
  template <class T>
  T* as(std::size_t offset = 0) const {
    return reinterpret_cast<T*>(data() + offset);
  }

 private:
  std::size_t bytes_ = 0;
};

/// A point of a stream, set by `record`.
class Event : public Owned<EventTag> {
 public:
  Event();
  void record(Stream stream);
  void wait() const;  ///< blocks until the device has got there; throws what failed on it
};

/// What was enqueued while it was captured. Only what does not wait and does not allocate can be.
class Graph : public Owned<GraphTag> {
 public:
  Graph() = default;
  static Graph capture(Stream stream, const std::function<void()>& enqueue);
  void launch(Stream stream) const;
  std::size_t nodes() const { return nodes_; }

 private:
  explicit Graph(void* handle, std::size_t nodes) : Owned(handle), nodes_(nodes) {}
  std::size_t nodes_ = 0;
};

/// Enqueues a copy. Host memory must be a HostBuffer's, and be left alone until the copy is done.
void copy_to_device(void* to, const void* from, std::size_t bytes, Stream stream);
void copy_to_host(void* to, const void* from, std::size_t bytes, Stream stream);
void copy_on_device(void* to, const void* from, std::size_t bytes, Stream stream);
/// Enqueues: every byte becomes `value`.
void fill_bytes(void* to, int value, std::size_t bytes, Stream stream);

/// Bytes of the device's memory. Throws core::Error (unsupported) in a build without CUDA.
struct DeviceMemory {
  std::size_t free = 0, total = 0;
};
DeviceMemory device_memory();

}  // namespace rose::kernels::gpu
