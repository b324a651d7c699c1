// Copy rows, and add their gradients in token order.

#include <cub/device/device_radix_sort.cuh>

#include "rose/kernels/gpu/embedding.h"
#include "rose/kernels/gpu/group.cuh"

namespace rose::kernels::gpu {
namespace {

constexpr int kThreads = 128, kWarp = 32;

// Copy a row, or write NaN for an id that points nowhere.
template <class In, class Out, bool kWide>
__global__ void __launch_bounds__(kThreads)
    embedding_kernel(const std::int32_t* ids, const In* table, std::int64_t vocab,
                     std::int64_t table_stride, Out* out, std::int64_t out_stride,
                     std::int64_t cols) {
  const std::int32_t id = ids[blockIdx.x];
  const bool known = id >= 0 && id < vocab;
  const In* from = table + (known ? id : 0) * table_stride;
  Out* to = out + blockIdx.x * out_stride;
  for (std::int64_t col = threadIdx.x * group_size; col < cols; col += kThreads * group_size) {
    const Group<In> row = load_group<kWide>(from + col, known ? cols - col : 0);
    Group<Out> copy;
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e)
      copy.at[e] = from_float<Out>(known ? to_float(row.at[e]) : __int_as_float(0x7fffffff));
    store_group<kWide>(to + col, copy, cols - col);
  }
}

// Number the tokens, and lay out the sort's memory.
__global__ void number_kernel(std::int32_t* tokens, std::int64_t count) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) tokens[i] = static_cast<std::int32_t>(i);
}

/// Sorted ids, their tokens, the tokens before sorting, and the sort's own memory, each aligned to 256 bytes.
struct SortMemory {
  std::size_t array, temporary;

  explicit SortMemory(std::int64_t tokens)
      : array((static_cast<std::size_t>(tokens) * sizeof(std::int32_t) + 255) / 256 * 256),
        temporary(0) {
    const std::int32_t* none = nullptr;
    std::int32_t* out = nullptr;
    ROSE_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(nullptr, temporary, none, out, none, out,
                                                    static_cast<int>(tokens)));
  }
  std::size_t bytes() const { return 3 * array + temporary; }
};

// Add a run of equal ids in token order.
template <class T, bool kWide>
__global__ void __launch_bounds__(kThreads)
    embedding_add_kernel(const std::int32_t* ids, const std::int32_t* tokens, std::int64_t count,
                         const T* dy, std::int64_t dy_stride, float* table, std::int64_t vocab,
                         std::int64_t table_stride, std::int64_t cols) {
  constexpr int ahead = 8;
  const std::int64_t begin = std::int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (begin >= count) return;
  const std::int32_t id = ids[begin];
  if (id < 0 || id >= vocab || (begin > 0 && ids[begin - 1] == id))
    return;  // not the first of its run
  const std::int64_t col = (std::int64_t{blockIdx.y} * kWarp + threadIdx.x % kWarp) * group_size;
  const std::int64_t left = cols - col;
  if (left <= 0) return;
  float* row = table + id * table_stride + col;
  Group<float> sum = load_group<kWide>(row, left);
  bool more = true;
  for (std::int64_t base = begin; more; base += ahead) {
    Group<T> group[ahead];
    bool mine[ahead];
    ROSE_UNROLL()
    for (int i = 0; i < ahead; ++i) {
      mine[i] = more = more && base + i < count && ids[base + i] == id;
      if (mine[i]) group[i] = load_group<kWide>(dy + tokens[base + i] * dy_stride + col, left);
    }
    ROSE_UNROLL()
    for (int i = 0; i < ahead; ++i) {
      ROSE_UNROLL()
      for (int e = 0; e < group_size; ++e) {
        if (mine[i]) sum.at[e] += to_float(group[i].at[e]);
      }
    }
  }
  store_group<kWide>(row, sum, left);
}

}  // namespace

// Sort, then add.
void launch_embedding(const std::int32_t* ids, const Matrix& table, const Matrix& out,
                      Stream stream) {
  const bool wide = all_wide(table, out);
  with_activation(table.dtype, [&]<class In>(In*) {
    with_activation(out.dtype, [&]<class Out>(Out*) {
      const auto launch = [&](auto kernel) {
        kernel<<<static_cast<unsigned>(out.rows), kThreads, 0, to_cuda(stream)>>>(
            ids, static_cast<const In*>(table.data), table.rows, table.row_stride(),
            static_cast<Out*>(out.data), out.row_stride(), out.cols);
      };
      wide ? launch(embedding_kernel<In, Out, true>) : launch(embedding_kernel<In, Out, false>);
      ROSE_LAUNCH_CHECK("embedding");
    });
  });
}

std::size_t embedding_backward_bytes(std::int64_t tokens) {
  return tokens == 0 ? 0 : SortMemory(tokens).bytes();
}

void launch_embedding_backward(const std::int32_t* ids, const Matrix& dy, const Matrix& dtable,
                               Workspace workspace, Stream stream) {
  const std::int64_t count = dy.rows;
  SortMemory memory(count);
  auto* const bytes = static_cast<std::byte*>(workspace.data);
  const auto array = [&](std::size_t i) {
    return reinterpret_cast<std::int32_t*>(bytes + i * memory.array);
  };
  std::int32_t *sorted = array(0), *tokens = array(1), *numbers = array(2);
  const auto blocks = static_cast<unsigned>(ceil_div(count, kThreads));
  number_kernel<<<blocks, kThreads, 0, to_cuda(stream)>>>(numbers, count);
  ROSE_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(bytes + 3 * memory.array, memory.temporary, ids,
                                                  sorted, static_cast<const std::int32_t*>(numbers),
                                                  tokens, static_cast<int>(count), 0, 32,
                                                  to_cuda(stream)));
  const dim3 grid(static_cast<unsigned>(ceil_div(count, kThreads / kWarp)),
                  static_cast<unsigned>(ceil_div(dy.cols, kWarp * group_size)));
  with_activation(dy.dtype, [&]<class T>(T*) {
    const auto launch = [&](auto kernel) {
      kernel<<<grid, kThreads, 0, to_cuda(stream)>>>(
          sorted, tokens, count, static_cast<const T*>(dy.data), dy.row_stride(),
          static_cast<float*>(dtable.data), dtable.rows, dtable.row_stride(), dy.cols);
    };
    all_wide(dy, dtable) ? launch(embedding_add_kernel<T, true>)
                         : launch(embedding_add_kernel<T, false>);
  });
  ROSE_LAUNCH_CHECK("embedding_backward");
}

}  // namespace rose::kernels::gpu
