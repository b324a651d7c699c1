// A build without CUDA has no device memory.

#include "rose/kernels/gpu/buffer.h"

namespace rose::kernels::gpu {

#ifndef ROSE_HAVE_CUDA
Buffer::Buffer(std::size_t) {
  no_cuda("allocating memory");
}
Buffer::~Buffer() {
  data_ = nullptr;
}  // there was none to free
void Buffer::upload(std::span<const std::byte>, std::size_t) {
  no_cuda("copying to the device");
}
void Buffer::download(std::span<std::byte>, std::size_t) const {
  no_cuda("copying from the device");
}
void Buffer::poison() {
  no_cuda("filling memory");
}
#endif

}  // namespace rose::kernels::gpu
