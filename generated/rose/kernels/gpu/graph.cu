// Streams, copies, events and graphs, through the CUDA runtime.

#include "rose/kernels/gpu/cuda.cuh"
#include "rose/kernels/gpu/graph.h"

namespace rose::kernels::gpu {

void release(StreamTag*, void* handle) noexcept {
  cudaStreamDestroy(static_cast<cudaStream_t>(handle));
}
void release(HostTag*, void* handle) noexcept {
  cudaFreeHost(handle);
}
void release(EventTag*, void* handle) noexcept {
  cudaEventDestroy(static_cast<cudaEvent_t>(handle));
}
void release(GraphTag*, void* handle) noexcept {
  cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(handle));
}

OwnedStream::OwnedStream() {
  cudaStream_t stream = nullptr;
  ROSE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  handle_ = stream;
}

HostBuffer::HostBuffer(std::size_t bytes) : bytes_(bytes) {
  if (bytes > 0) ROSE_CUDA_CHECK(cudaMallocHost(&handle_, bytes));
}

Event::Event() {
  cudaEvent_t event = nullptr;
  ROSE_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  handle_ = event;
}
void Event::record(Stream stream) {
  ROSE_CUDA_CHECK(cudaEventRecord(static_cast<cudaEvent_t>(handle_), to_cuda(stream)));
}
void Event::wait() const {
  ROSE_CUDA_CHECK(cudaEventSynchronize(static_cast<cudaEvent_t>(handle_)));
}

// Capture, and copies.
Graph Graph::capture(Stream stream, const std::function<void()>& enqueue) {
  const cudaStream_t s = to_cuda(stream);
  ROSE_CUDA_CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  cudaGraph_t graph = nullptr;
  try {
    enqueue();
  } catch (...) {
    cudaStreamEndCapture(s, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    throw;
  }
  ROSE_CUDA_CHECK(cudaStreamEndCapture(s, &graph));
  std::size_t nodes = 0;
  cudaGraphExec_t executable = nullptr;
  cudaError_t error = cudaGraphGetNodes(graph, nullptr, &nodes);
  if (error == cudaSuccess) error = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check_cuda(error, "cudaGraphInstantiate");
  return Graph(executable, nodes);
}

void Graph::launch(Stream stream) const {
  ROSE_CUDA_CHECK(cudaGraphLaunch(static_cast<cudaGraphExec_t>(handle_), to_cuda(stream)));
}

void copy_to_device(void* to, const void* from, std::size_t bytes, Stream stream) {
  if (bytes == 0) return;
  ROSE_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, to_cuda(stream)));
}
void copy_to_host(void* to, const void* from, std::size_t bytes, Stream stream) {
  if (bytes == 0) return;
  ROSE_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, to_cuda(stream)));
}
void copy_on_device(void* to, const void* from, std::size_t bytes, Stream stream) {
  if (bytes == 0) return;
  ROSE_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, to_cuda(stream)));
}
void fill_bytes(void* to, int value, std::size_t bytes, Stream stream) {
  if (bytes > 0) ROSE_CUDA_CHECK(cudaMemsetAsync(to, value, bytes, to_cuda(stream)));
}

DeviceMemory device_memory() {
  DeviceMemory memory;
  ROSE_CUDA_CHECK(cudaMemGetInfo(&memory.free, &memory.total));
  return memory;
}

}  // namespace rose::kernels::gpu
