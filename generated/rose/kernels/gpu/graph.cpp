// A build without CUDA has neither streams nor graphs.

#include "rose/kernels/gpu/graph.h"

namespace rose::kernels::gpu {

#ifndef ROSE_HAVE_CUDA
void release(StreamTag*, void*) noexcept {}
void release(HostTag*, void*) noexcept {}
void release(EventTag*, void*) noexcept {}
void release(GraphTag*, void*) noexcept {}
OwnedStream::OwnedStream() {
  no_cuda("making a stream");
}
HostBuffer::HostBuffer(std::size_t) {
  no_cuda("allocating page-locked memory");
}
Event::Event() {
  no_cuda("making an event");
}
void Event::record(Stream) {
  no_cuda("recording an event");
}
void Event::wait() const {
  no_cuda("waiting for an event");
}
Graph Graph::capture(Stream, const std::function<void()>&) {
  no_cuda("recording a graph");
}
void Graph::launch(Stream) const {
  no_cuda("launching a graph");
}
void copy_to_device(void*, const void*, std::size_t, Stream) {
  no_cuda("copying to the device");
}
void copy_to_host(void*, const void*, std::size_t, Stream) {
  no_cuda("copying from the device");
}
void copy_on_device(void*, const void*, std::size_t, Stream) {
  no_cuda("copying on the device");
}
void fill_bytes(void*, int, std::size_t, Stream) {
  no_cuda("filling memory");
}
DeviceMemory device_memory() {
  no_cuda("asking for the memory");
}
#endif

}  // namespace rose::kernels::gpu
