// Go back through a norm, one run of rows per block.

#include <algorithm>

#include "rose/kernels/gpu/norm_arguments.h"
#include "rose/kernels/gpu/norm_rows.cuh"

namespace rose::kernels::gpu {
namespace {

struct DeviceNormBackward {
  HeadRows x, dy, add, dx;
  Parameters weight;
  const float *mean, *inv;
  float *dweight, *dbias;  // of the runs: [runs, cols] each
  float2* means;           // of g and of g h, for every row, where rows are long
  std::int64_t rows, cols, run;
  unsigned heads;
};

// Choose a team that leaves registers for the column sums.

/// Two rows of x and dy and the weights fit into shared memory.
template <class T>
constexpr std::int64_t longest_held_backward = sizeof(T) == 2 ? 16'384 : 8192;

template <class T, class F>
void with_backward_team(std::int64_t cols, F&& f) {
  if (cols <= 128) {
    f(Team<16, 1, 256>{});
  } else if (cols <= 512) {
    f(Team<32, 2, 256>{});
  } else if (cols <= 768) {
    f(Team<32, 3, 256>{});  // GPT-2's width: a warp holds the row
  } else if (cols <= 1024) {
    f(Team<64, 2, 256>{});
  } else if (cols <= 2048) {
    f(Team<128, 2, 256>{});
  } else if (cols <= 4096) {
    f(Team<256, 2>{});
  } else if (cols <= 8192 || longest_held_backward<T> <= 8192) {
    f(Team<256, 4>{});
  } else {
    if constexpr (longest_held_backward<T> > 8192) f(Team<256, 8>{});
  }
}

// One element of the gradient.
template <bool kCentre>
__device__ __forceinline__ float hat(float x, float mean, float inv) {
  return kCentre ? (x - mean) * inv : x * inv;
}

__device__ __forceinline__ float slope(float g, float h, float inv, float mean_g, float mean_gh) {
  return inv * fmaf(-h, mean_gh, g - mean_g);
}

// Fold the teams of a block by halves.

/// `of` is shared memory for a float of every column of every team.
template <class Team>
__device__ void merge_teams(const float (&sum)[Team::groups][group_size], float* of, float* to,
                            std::int64_t cols) {
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x % Team::threads) * group_size;
  constexpr std::int64_t step = std::int64_t{Team::threads} * group_size;
  if constexpr (Team::rows == 1) {
    ROSE_UNROLL()
    for (int g = 0; g < Team::groups; ++g) {
      Group<float> out;
      ROSE_UNROLL()
      for (int e = 0; e < group_size; ++e) out.at[e] = sum[g][e];
      store_group<true>(to + first + g * step, out, cols - first - g * step);
    }
  } else {
    constexpr int columns = static_cast<int>(Team::columns);
    __syncthreads();  // whoever still reads what lies there
    ROSE_UNROLL()
    for (int g = 0; g < Team::groups; ++g) {
      ROSE_UNROLL()
      for (int e = 0; e < group_size; ++e)
        of[threadIdx.x / Team::threads * columns + first + g * step + e] = sum[g][e];
    }
    __syncthreads();
    for (std::int64_t col = threadIdx.x; col < cols; col += Team::block) {
      float team[Team::rows];
      ROSE_UNROLL()
      for (int i = 0; i < Team::rows; ++i) team[i] = of[i * columns + col];
      ROSE_UNROLL()
      for (int half = Team::rows / 2; half > 0; half /= 2) {
        ROSE_UNROLL()
        for (int i = 0; i < half; ++i) team[i] += team[i + half];
      }
      to[col] = team[0];
    }
  }
}

// Send rows ahead through shared memory.
template <class T, class Team>
struct RowPipe {
  static constexpr int units = sizeof(Group<T>) / 16;  // of a group
  static constexpr int stage_bytes = 2 * Team::groups * Team::block * units * 16;
  static constexpr int weight_bytes = Team::groups * Team::block * group_size * 4;
  static constexpr int stages = stage_bytes <= 16 * 1024 ? 4 : 2;
  static constexpr int bytes = stages * stage_bytes + weight_bytes;
  unsigned char* memory;
  __device__ explicit RowPipe(unsigned char* at) : memory(at) {}
  /// The weights' memory, for what comes after the rows.
  __device__ float* after() const {
    return reinterpret_cast<float*>(memory + stages * stage_bytes);
  }

  /// A unit of group g of x (0) or dy (1).
  __device__ uint4* slot(int stage, int matrix, int g, int unit) const {
    const int index = ((stage * 2 + matrix) * Team::groups + g) * units + unit;
    return reinterpret_cast<uint4*>(memory) + index * Team::block + threadIdx.x;
  }
  __device__ float4* weight_slot(int g, int half) const {
    return reinterpret_cast<float4*>(memory + stages * stage_bytes) + (g * 2 + half) * Team::block +
           threadIdx.x;
  }

  /// Begins to copy this thread's groups of a row, if there is such a row; one group of copies in any case.
  __device__ void start(const DeviceNormBackward& a, int row, int end, int first, int stage) const {
    if (row < end) {
      const T *x = a.x.row<const T>(row, a.heads, a.cols) + first,
              *dy = a.dy.row<const T>(row, a.heads, a.cols) + first;
      ROSE_UNROLL()
      for (int g = 0; g < Team::groups; ++g) {
        const int at = g * Team::threads * group_size;
        if (first + at >= a.cols) continue;
        ROSE_UNROLL()
        for (int u = 0; u < units; ++u) {
          const int element = at + u * (16 / static_cast<int>(sizeof(T)));
          copy_async_16(shared_address(slot(stage, 0, g, u)), x + element);
          copy_async_16(shared_address(slot(stage, 1, g, u)), dy + element);
        }
      }
    }
    copy_async_commit();
  }

  __device__ Group<T> load(int stage, int matrix, int g) const {
    Group<T> group;
    ROSE_UNROLL()
    for (int u = 0; u < units; ++u)
      reinterpret_cast<uint4*>(&group)[u] = *slot(stage, matrix, g, u);
    return group;
  }
  __device__ void keep_weights(const DeviceNormBackward& a, int first) const {
    ROSE_UNROLL()
    for (int g = 0; g < Team::groups; ++g) {
      const int col = first + g * Team::threads * group_size;
      float w[group_size];
      a.weight.load<true>(col, a.cols - col, w);
      *weight_slot(g, 0) = make_float4(w[0], w[1], w[2], w[3]);
      *weight_slot(g, 1) = make_float4(w[4], w[5], w[6], w[7]);
    }
  }
  __device__ void weights(int g, float (&w)[group_size]) const {
    const float4 low = *weight_slot(g, 0), high = *weight_slot(g, 1);
    w[0] = low.x, w[1] = low.y, w[2] = low.z, w[3] = low.w;
    w[4] = high.x, w[5] = high.y, w[6] = high.z, w[7] = high.w;
  }
};

// Walk down a run of rows with the column sums in registers.
template <class T, class Team>
constexpr int kBlocksAtOnce = RowPipe<T, Team>::bytes <= 110 * 1024 ? 2 : 1;

template <class T, class Team, bool kCentre>
__global__ void __launch_bounds__(Team::block, kBlocksAtOnce<T, Team>)
    norm_backward_kernel(DeviceNormBackward a) {
  __shared__ float shared[2][2][Team::block];
  extern __shared__ __align__(16) unsigned char memory[];
  const RowPipe<T, Team> pipe(memory);
  const int team = threadIdx.x / Team::threads;
  const int first = static_cast<int>(threadIdx.x % Team::threads) * group_size;
  constexpr int step = Team::threads * group_size, stages = RowPipe<T, Team>::stages;
  const int run = static_cast<int>(a.run), rows = static_cast<int>(a.rows);
  const int begin = static_cast<int>(blockIdx.x) * run, end = min(begin + run, rows);
  const auto count = static_cast<float>(a.cols);
  float dweight[Team::groups][group_size] = {}, dbias[Team::groups][group_size] = {};
  pipe.keep_weights(a, first);
  for (int s = 0; s + 1 < stages; ++s) pipe.start(a, begin + s * Team::rows + team, end, first, s);
  float next_inv = begin + team < end ? a.inv[begin + team] : 0.0f;
  float next_mean = kCentre && begin + team < end ? a.mean[begin + team] : 0.0f;
  int turn = 0, stage = 0;
  for (int base = begin; base < end; base += Team::rows, turn ^= 1) {
    const int row = base + team, next = row + Team::rows;
    const int cols = row < end ? static_cast<int>(a.cols) : 0;
    const float inv = next_inv, mean = next_mean;
    pipe.start(a, row + (stages - 1) * Team::rows, end, first, (stage + stages - 1) % stages);
    if (next < end) {
      next_inv = a.inv[next];
      if constexpr (kCentre) next_mean = a.mean[next];
    }
    copy_async_wait<stages - 1>();
    // Take the row's two means, and add to the columns on the way.
    float slot_g[Team::used] = {}, slot_gh[Team::used] = {};
    ROSE_UNROLL()
    for (int g = 0; g < Team::groups; ++g) {
      const int col = first + g * step;
      if (col >= cols) continue;
      float weight[group_size];
      pipe.weights(g, weight);
      const Group<T> x = pipe.load(stage, 0, g), dy = pipe.load(stage, 1, g);
      ROSE_UNROLL()
      for (int e = 0; e < group_size; ++e) {
        const float d = to_float(dy.at[e]), h = hat<kCentre>(to_float(x.at[e]), mean, inv);
        if constexpr (kCentre) slot_g[g % Team::slots] += d * weight[e];
        slot_gh[g % Team::slots] = fmaf(d * weight[e], h, slot_gh[g % Team::slots]);
        dweight[g][e] = fmaf(d, h, dweight[g][e]);
        if constexpr (kCentre) dbias[g][e] += d;
      }
    }
    float mean_g = 0.0f;
    if constexpr (kCentre) mean_g = fold_slots<Team>(slot_g, shared[turn][0]) / count;
    const float mean_gh = fold_slots<Team>(slot_gh, shared[turn][1]) / count;
    // Write the row's gradient.
    T* to = a.dx.row<T>(row, a.heads, a.cols);
    const T* past = a.add.row<const T>(row, a.heads, a.cols);
    ROSE_UNROLL()
    for (int g = 0; g < Team::groups; ++g) {
      const int col = first + g * step;
      if (col >= cols) continue;
      float weight[group_size];
      pipe.weights(g, weight);
      const Group<T> x = pipe.load(stage, 0, g), dy = pipe.load(stage, 1, g);
      Group<T> other, out;
      if (a.add.data != nullptr) other = load_group<true>(past + col, cols - col);
      ROSE_UNROLL()
      for (int e = 0; e < group_size; ++e) {
        const float h = hat<kCentre>(to_float(x.at[e]), mean, inv);
        const float d = slope(to_float(dy.at[e]) * weight[e], h, inv, mean_g, mean_gh);
        out.at[e] = from_float<T>(a.add.data != nullptr ? to_float(other.at[e]) + d : d);
      }
      store_group<true>(to + col, out, cols - col);
    }
    stage = stage + 1 == stages ? 0 : stage + 1;
  }
  float* const sums = pipe.after();
  merge_teams<Team>(dweight, sums, a.dweight + blockIdx.x * a.cols, a.cols);
  if constexpr (kCentre) merge_teams<Team>(dbias, sums, a.dbias + blockIdx.x * a.cols, a.cols);
}

// Means of long rows first, then stripes of columns.
template <class T, bool kCentre>
__global__ void __launch_bounds__(numerics::row_slots) row_means_kernel(DeviceNormBackward a) {
  __shared__ float shared[2][numerics::row_slots];
  const std::int64_t row = blockIdx.x, cols = a.cols;
  constexpr std::int64_t step = std::int64_t{numerics::row_slots} * group_size;
  const T *x_row = a.x.row<const T>(row, a.heads, cols),
          *dy_row = a.dy.row<const T>(row, a.heads, cols);
  const float inv = a.inv[row], mean = kCentre ? a.mean[row] : 0.0f;
  float sum_g = 0.0f, sum_gh = 0.0f;
  ROSE_UNROLL(4)
  for (std::int64_t col = static_cast<std::int64_t>(threadIdx.x) * group_size; col < cols;
       col += step) {
    const Group<T> x = load_group<true>(x_row + col, group_size),
                   dy = load_group<true>(dy_row + col, group_size);
    float weight[group_size];
    a.weight.load<true>(col, group_size, weight);
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e) {
      const float g = to_float(dy.at[e]) * weight[e];
      if constexpr (kCentre) sum_g += g;
      sum_gh = fmaf(g, hat<kCentre>(to_float(x.at[e]), mean, inv), sum_gh);
    }
  }
  const auto count = static_cast<float>(cols);
  if constexpr (kCentre) sum_g = fold_threads<numerics::row_slots>(sum_g, shared[0], Plus{});
  sum_gh = fold_threads<numerics::row_slots>(sum_gh, shared[1], Plus{});
  if (threadIdx.x == 0) a.means[row] = make_float2(sum_g / count, sum_gh / count);
}

constexpr int kStripe = 256, kAhead = 4;  // threads of a stripe, rows under way

template <class T, bool kCentre>
__global__ void __launch_bounds__(kStripe) stripe_kernel(DeviceNormBackward a) {
  const std::int64_t col =
      (std::int64_t{blockIdx.x} * kStripe + static_cast<std::int64_t>(threadIdx.x)) * group_size;
  if (col >= a.cols) return;
  const std::int64_t begin = blockIdx.y * a.run, end = min(begin + a.run, a.rows);
  float weight[group_size], dweight[group_size] = {}, dbias[group_size] = {};
  a.weight.load<true>(col, group_size, weight);
  for (std::int64_t base = begin; base < end; base += kAhead) {
    Group<T> x[kAhead], dy[kAhead];
    ROSE_UNROLL()
    for (int i = 0; i < kAhead; ++i) {
      if (base + i >= end) continue;
      x[i] = load_group<true>(a.x.row<const T>(base + i, a.heads, a.cols) + col, group_size);
      dy[i] = load_group<true>(a.dy.row<const T>(base + i, a.heads, a.cols) + col, group_size);
    }
    ROSE_UNROLL()
    for (int i = 0; i < kAhead; ++i) {
      const std::int64_t row = base + i;
      if (row >= end) continue;
      const float inv = a.inv[row], mean = kCentre ? a.mean[row] : 0.0f;
      const float2 means = a.means[row];
      Group<T> other, out;
      if (a.add.data != nullptr)
        other = load_group<true>(a.add.row<const T>(row, a.heads, a.cols) + col, group_size);
      ROSE_UNROLL()
      for (int e = 0; e < group_size; ++e) {
        const float d = to_float(dy[i].at[e]), h = hat<kCentre>(to_float(x[i].at[e]), mean, inv);
        const float dx = slope(d * weight[e], h, inv, means.x, means.y);
        out.at[e] = from_float<T>(a.add.data != nullptr ? to_float(other.at[e]) + dx : dx);
        dweight[e] = fmaf(d, h, dweight[e]);
        if constexpr (kCentre) dbias[e] += d;
      }
      store_group<true>(a.dx.row<T>(row, a.heads, a.cols) + col, out, group_size);
    }
  }
  Group<float> sums;
  ROSE_UNROLL()
  for (int e = 0; e < group_size; ++e) sums.at[e] = dweight[e];
  store_group<true>(a.dweight + blockIdx.y * a.cols + col, sums, group_size);
  if constexpr (kCentre) {
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e) sums.at[e] = dbias[e];
    store_group<true>(a.dbias + blockIdx.y * a.cols + col, sums, group_size);
  }
}

// Or rows and columns one after the other.
template <class T, bool kCentre>
__global__ void __launch_bounds__(numerics::row_slots)
    long_norm_backward_kernel(DeviceNormBackward a) {
  __shared__ float shared[2][numerics::row_slots];
  const std::int64_t row = blockIdx.x, cols = a.cols;
  constexpr std::int64_t step = std::int64_t{numerics::row_slots} * group_size;
  const T *x_row = a.x.row<const T>(row, a.heads, cols),
          *dy_row = a.dy.row<const T>(row, a.heads, cols);
  const float inv = a.inv[row], mean = kCentre ? a.mean[row] : 0.0f;
  const auto count = static_cast<float>(cols);
  float sum_g = 0.0f, sum_gh = 0.0f, mean_g = 0.0f, mean_gh = 0.0f;
  T* to = a.dx.row<T>(row, a.heads, cols);
  const T* past = a.add.row<const T>(row, a.heads, cols);
  for (int pass = 0; pass < 2; ++pass) {
    for (std::int64_t col = static_cast<std::int64_t>(threadIdx.x) * group_size; col < cols;
         col += step) {
      const std::int64_t left = cols - col;
      const Group<T> x = load_group<false>(x_row + col, left),
                     dy = load_group<false>(dy_row + col, left);
      float weight[group_size];
      a.weight.load<false>(col, left, weight);
      Group<T> other, out;
      if (pass == 1 && a.add.data != nullptr) other = load_group<false>(past + col, left);
      ROSE_UNROLL()
      for (int e = 0; e < group_size; ++e) {
        const float g = to_float(dy.at[e]) * weight[e],
                    h = hat<kCentre>(to_float(x.at[e]), mean, inv);
        if (kCentre && pass == 0) sum_g += g;
        if (pass == 0) sum_gh = fmaf(g, h, sum_gh);
        const float d = slope(g, h, inv, mean_g, mean_gh);
        out.at[e] = from_float<T>(a.add.data != nullptr ? to_float(other.at[e]) + d : d);
      }
      if (pass == 1) store_group<false>(to + col, out, left);
    }
    if (pass == 1) break;
    if constexpr (kCentre)
      mean_g = fold_threads<numerics::row_slots>(sum_g, shared[0], Plus{}) / count;
    mean_gh = fold_threads<numerics::row_slots>(sum_gh, shared[1], Plus{}) / count;
  }
}

template <class T, int kTeams, bool kCentre>
__global__ void norm_columns_kernel(DeviceNormBackward a) {
  const std::int64_t col = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (col >= a.cols) return;
  const std::int64_t begin = blockIdx.y * a.run, end = min(begin + a.run, a.rows);
  float dweight[kTeams] = {}, dbias[kTeams] = {};
  for (std::int64_t base = begin; base < end; base += kTeams) {
    ROSE_UNROLL()
    for (int team = 0; team < kTeams; ++team) {
      const std::int64_t row = base + team;
      if (row >= end) continue;
      const float x = to_float(a.x.row<const T>(row, a.heads, a.cols)[col]);
      const float d = to_float(a.dy.row<const T>(row, a.heads, a.cols)[col]);
      const float h = hat<kCentre>(x, kCentre ? a.mean[row] : 0.0f, a.inv[row]);
      dweight[team] = fmaf(d, h, dweight[team]);
      if constexpr (kCentre) dbias[team] += d;
    }
  }
  ROSE_UNROLL()
  for (int half = kTeams / 2; half > 0; half /= 2) {
    ROSE_UNROLL()
    for (int i = 0; i < half; ++i) {
      dweight[i] += dweight[i + half];
      if constexpr (kCentre) dbias[i] += dbias[i + half];
    }
  }
  a.dweight[blockIdx.y * a.cols + col] = dweight[0];
  if constexpr (kCentre) a.dbias[blockIdx.y * a.cols + col] = dbias[0];
}

// Add the runs.
constexpr int kColumns = 32, kChains = 8;

__global__ void __launch_bounds__(kColumns* kChains)
    fold_runs_kernel(const float* partial, std::int64_t runs, std::int64_t cols, float* dweight,
                     float* dbias) {
  __shared__ float of[kChains][kColumns];
  partial += blockIdx.y * runs * cols;
  float* const to = blockIdx.y == 0 ? dweight : dbias;
  const std::int64_t col = std::int64_t{blockIdx.x} * kColumns + threadIdx.x;
  float sum = 0.0f;
  if (col < cols) {
    ROSE_UNROLL(32)
    for (std::int64_t run = threadIdx.y; run < runs; run += kChains)
      sum += partial[run * cols + col];
  }
  of[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || col >= cols) return;
  float chain[kChains];
  ROSE_UNROLL()
  for (int i = 0; i < kChains; ++i) chain[i] = of[i][threadIdx.x];
  ROSE_UNROLL()
  for (int half = kChains / 2; half > 0; half /= 2) {
    ROSE_UNROLL()
    for (int i = 0; i < half; ++i) chain[i] += chain[i + half];
  }
  to[col] += chain[0];
}

}  // namespace

// Choose, launch, and add up.
void launch_norm_backward(const NormBackwardArguments& n, Stream stream) {
  DeviceNormBackward a{};
  a.x = head_rows(n.x), a.dy = head_rows(n.dy), a.add = head_rows(n.add), a.dx = head_rows(n.dx);
  a.weight = parameters(n.weight);
  a.mean = n.mean, a.inv = n.inv, a.heads = static_cast<unsigned>(n.heads);
  a.rows = n.x.rows * n.heads, a.cols = n.weight.cols;
  a.run = rows_of_norm_run(a.rows, most_norm_runs(a.cols));
  const std::int64_t runs = runs_of_norm(a.rows, most_norm_runs(a.cols));
  a.dweight = n.partial, a.dbias = n.partial + runs * a.cols;
  a.means = reinterpret_cast<float2*>(a.dbias + runs * a.cols);
  const bool wide = all_wide(n.x, n.dy, n.add, n.dx, n.weight) && a.cols % group_size == 0;
  const auto launch = [&]<class T, bool kCentre>(T*, std::bool_constant<kCentre>) {
    with_backward_team<T>(a.cols, [&]<class Team>(Team) {
      if (wide && a.cols <= longest_held_backward<T>) {
        const auto kernel = norm_backward_kernel<T, Team, kCentre>;
        constexpr int bytes = RowPipe<T, Team>::bytes;
        allow_shared_memory(kernel, bytes);
        kernel<<<static_cast<unsigned>(runs), Team::block, bytes, to_cuda(stream)>>>(a);
        return;
      }
      const auto rows = static_cast<unsigned>(a.rows);
      if (wide) {
        row_means_kernel<T, kCentre><<<rows, numerics::row_slots, 0, to_cuda(stream)>>>(a);
        const dim3 grid(static_cast<unsigned>(ceil_div(a.cols, kStripe * group_size)),
                        static_cast<unsigned>(runs));
        stripe_kernel<T, kCentre><<<grid, kStripe, 0, to_cuda(stream)>>>(a);
        return;
      }
      // dx may be dy: the columns are read first.
      constexpr unsigned block = 128;
      norm_columns_kernel<T, Team::rows, kCentre>
          <<<dim3(static_cast<unsigned>(ceil_div(a.cols, block)), static_cast<unsigned>(runs)),
             block, 0, to_cuda(stream)>>>(a);
      long_norm_backward_kernel<T, kCentre><<<rows, numerics::row_slots, 0, to_cuda(stream)>>>(a);
    });
  };
  with_activation(n.x.dtype, [&]<class T>(T* type) {
    n.mean != nullptr ? launch(type, std::true_type{}) : launch(type, std::false_type{});
  });
  const dim3 grid(static_cast<unsigned>(ceil_div(a.cols, kColumns)), n.mean != nullptr ? 2 : 1);
  fold_runs_kernel<<<grid, dim3(kColumns, kChains), 0, to_cuda(stream)>>>(n.partial, runs, a.cols,
                                                                          n.dweight, n.dbias);
  ROSE_LAUNCH_CHECK("norm backward");
}

}  // namespace rose::kernels::gpu
