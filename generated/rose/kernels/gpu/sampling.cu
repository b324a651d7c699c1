// Select and draw, one block for each row.

#include "rose/kernels/gpu/group.cuh"
#include "rose/kernels/gpu/philox.cuh"
#include "rose/kernels/gpu/sampling.h"

namespace rose::kernels::gpu {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32;
constexpr int kBins = 2048, kMostCandidates = 2048;
using Key = unsigned long long;

// Order logits and ids by one integer.
__device__ __forceinline__ unsigned ordered_bits(float x) {
  const unsigned bits = __float_as_uint(x + 0.0f);  // -0 becomes +0: they are equal
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ Key key_of(float x, int id) {
  return Key{ordered_bits(x)} << 32 | (0xffffffffu - static_cast<unsigned>(id));
}
__device__ __forceinline__ int id_of(Key key) {
  return static_cast<int>(0xffffffffu - static_cast<unsigned>(key));
}
__device__ __forceinline__ float value_of(Key key) {
  const auto bits = static_cast<unsigned>(key >> 32);
  return __uint_as_float(bits & 0x80000000u ? bits & 0x7fffffffu : ~bits);
}

/// A row and how it is weighed.
struct Row {
  const float* logits;
  int cols;
  float highest, temperature;

  __device__ float score(float z) const { return (z - highest) / temperature; }
  __device__ float weight(float z) const { return exp2_approx(score(z) * log2_e); }
  __device__ Key mass(float z) const { return static_cast<Key>(weight(z) * 4294967296.0f); }
  __device__ int bin(float z) const {
    return max(0, min(kBins - 1, static_cast<int>((highest - z) * 64.0f)));
  }
};

// Combine a block's threads.
struct Scratch {
  Key mass[kBins];
  unsigned count[kBins];
  Key candidates[kMostCandidates];
  Key warps[kWarps];
  Key found, wanted;
  unsigned collected;
};

template <class Op>
__device__ Key combine(Key value, Scratch& s, Op op) {
  ROSE_UNROLL()
  for (int step = 16; step > 0; step /= 2)
    value = op(value, __shfl_xor_sync(full_warp, value, step));
  __syncthreads();  // whoever still reads the last result
  if (threadIdx.x % 32 == 0) s.warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = s.warps[threadIdx.x % kWarps];
  ROSE_UNROLL()
  for (int step = 16; step > 0; step /= 2)
    value = op(value, __shfl_xor_sync(full_warp, value, step));
  return value;
}
__device__ Key block_sum(Key value, Scratch& s) {
  return combine(value, s, [](Key a, Key b) { return a + b; });
}
__device__ Key block_max(Key value, Scratch& s) {
  return combine(value, s, [](Key a, Key b) { return a > b ? a : b; });
}

/// The largest logit and its lowest id; false where a logit is NaN or all are -inf.
__device__ bool find_highest(const float* logits, int cols, Scratch& s, Key& best) {
  Key mine = 0;
  bool bad = false;
  constexpr int each = 8;  // loads in flight
  for (int first = static_cast<int>(threadIdx.x); first < cols; first += each * kThreads) {
    float z[each];
    ROSE_UNROLL()
    for (int i = 0; i < each; ++i) {
      const int v = first + i * kThreads;
      z[i] = v < cols ? logits[v] : -INFINITY;
    }
    ROSE_UNROLL()
    for (int i = 0; i < each; ++i) {
      const int v = first + i * kThreads;
      bad = bad || isnan(z[i]);
      const Key key = v < cols ? key_of(z[i], v) : Key{0};
      mine = key > mine ? key : mine;
    }
  }
  best = block_max(mine, s);
  return !__syncthreads_or(bad) && value_of(best) > -INFINITY;
}

// Count tokens and masses by bins.
__device__ void fill_bins(const Row& row, Scratch& s) {
  for (int b = static_cast<int>(threadIdx.x); b < kBins; b += kThreads)
    s.mass[b] = 0, s.count[b] = 0;
  __syncthreads();
  const int rounds = (row.cols + kThreads - 1) / kThreads;
  for (int round = 0; round < rounds; ++round) {
    const int v = round * kThreads + static_cast<int>(threadIdx.x);
    const float z = v < row.cols ? row.logits[v] : 0.0f;
    const int bin = v < row.cols ? row.bin(z) : -1;
    const unsigned far = __ballot_sync(full_warp, bin == kBins - 1);
    if (bin == kBins - 1) {
      if (threadIdx.x % 32 == static_cast<unsigned>(__ffs(static_cast<int>(far)) - 1)) {
        atomicAdd(&s.count[bin], static_cast<unsigned>(__popc(far)));
      }
    } else if (bin >= 0) {
      atomicAdd(&s.count[bin], 1u);
    }
    if (bin >= 0) {
      const Key mass = row.mass(z);
      if (mass > 0) atomicAdd(&s.mass[bin], mass);
    }
  }
  __syncthreads();
}

// Find the key at which a count or a mass is reached.

/// What is kept: all bins before `bin`, and of it the keys from `key` on.
struct Threshold {
  int bin = kBins;
  Key key = 0;

  __device__ bool keeps(const Row& row, float z, int id) const {
    const int b = row.bin(z);
    return b < bin || (b == bin && key_of(z, id) >= key);
  }
};

/// The bin in which the running sum reaches `wanted`, and what is still wanted from it.
template <bool kMass>
__device__ int find_bin(Key wanted, Scratch& s) {
  constexpr int each = kBins / kThreads;
  Key own[each], sum = 0;
  ROSE_UNROLL()
  for (int i = 0; i < each; ++i) {
    const int b = static_cast<int>(threadIdx.x) * each + i;
    sum += own[i] = kMass ? s.mass[b] : Key{s.count[b]};
  }
  Key upto = sum;
  ROSE_UNROLL()
  for (int step = 1; step < 32; step *= 2) {
    const Key other = __shfl_up_sync(full_warp, upto, step);
    if (static_cast<int>(threadIdx.x % 32) >= step) upto += other;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 31) s.warps[threadIdx.x / 32] = upto;
  if (threadIdx.x == 0) s.found = kBins, s.wanted = 0;
  __syncthreads();
  Key before = upto - sum;
  for (unsigned w = 0; w < threadIdx.x / 32; ++w) before += s.warps[w];
  ROSE_UNROLL()
  for (int i = 0; i < each; ++i) {
    if (before < wanted && wanted <= before + own[i]) {
      s.found = static_cast<Key>(threadIdx.x) * each + i;
      s.wanted = wanted - before;
    }
    before += own[i];
  }
  __syncthreads();
  return static_cast<int>(s.found);
}

template <bool kMass>
__device__ Threshold select(const Row& row, Key wanted, Scratch& s) {
  Threshold t{find_bin<kMass>(wanted, s), 0};
  const Key rest = s.wanted;
  if (t.bin >= kBins || rest == (kMass ? s.mass[t.bin] : Key{s.count[t.bin]}))
    return t;  // the whole bin
  const auto worth = [&](Key key) { return kMass ? row.mass(value_of(key)) : Key{1}; };
  const unsigned count = s.count[t.bin];
  if (count <= kMostCandidates) {
    if (threadIdx.x == 0) s.collected = 0;
    __syncthreads();
    for (int v = static_cast<int>(threadIdx.x); v < row.cols; v += kThreads) {
      const float z = row.logits[v];
      if (row.bin(z) == t.bin) s.candidates[atomicAdd(&s.collected, 1u)] = key_of(z, v);
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < count; i += kThreads) {
      const Key mine = s.candidates[i];
      Key before = 0;
      for (unsigned j = 0; j < count; ++j) {
        if (s.candidates[j] > mine) before += worth(s.candidates[j]);
      }
      if (before < rest && rest <= before + worth(mine)) s.found = mine;
    }
    __syncthreads();
    t.key = s.found;
    return t;
  }
  for (int bit = 63; bit >= 0; --bit) {
    const Key higher = t.key | Key{1} << bit;
    Key reached = 0;
    for (int v = static_cast<int>(threadIdx.x); v < row.cols; v += kThreads) {
      const float z = row.logits[v];
      if (row.bin(z) == t.bin && key_of(z, v) >= higher) reached += worth(key_of(z, v));
    }
    if (block_sum(reached, s) >= rest) t.key = higher;
  }
  return t;
}

// Add noise to what is kept, and take the maximum.
__device__ __forceinline__ float gumbel_of(unsigned word) {
  const float u = (static_cast<float>(word >> 9) + 0.5f) * 0x1p-23f;
  return -logf(-logf(u));
}

/// The winner's key by noisy score, and the mass of what was kept.
__device__ Key draw(const Row& row, const SamplingParams& p, const Threshold& kept, Scratch& s,
                    Key& mass) {
  constexpr float hopeless = -19.5f;
  Key best = 0, sum = 0;
  for (int first = static_cast<int>(threadIdx.x) * 4; first < row.cols; first += kThreads * 4) {
    float score[4];
    bool any = false;
    ROSE_UNROLL()
    for (int i = 0; i < 4; ++i) {
      const int v = first + i;
      const float z = v < row.cols ? row.logits[v] : -INFINITY;
      score[i] = -INFINITY;
      if (v >= row.cols || !kept.keeps(row, z, v) || row.weight(z) < p.min_p) continue;
      sum += row.mass(z);
      score[i] = row.score(z);
      any = any || score[i] >= hopeless;
    }
    if (!any) continue;
    const uint4 words = philox(p.seed, p.position, static_cast<std::uint64_t>(first / 4));
    const unsigned word[4] = {words.x, words.y, words.z, words.w};
    ROSE_UNROLL()
    for (int i = 0; i < 4; ++i) {
      if (!(score[i] >= hopeless)) continue;
      const Key key = key_of(score[i] + gumbel_of(word[i]), first + i);
      best = key > best ? key : best;
    }
  }
  mass = block_sum(sum, s);
  return block_max(best, s);
}

// Choose the token of a row.
__global__ void __launch_bounds__(kThreads)
    sample_kernel(const float* logits, std::int64_t stride, int cols, const SamplingParams* params,
                  std::int32_t* tokens, float* logprobs) {
  __shared__ Scratch s;
  const SamplingParams p = params[blockIdx.x];
  Row row{logits + blockIdx.x * stride, cols, 0.0f, p.temperature};
  Key best = 0;
  const bool good = find_highest(row.logits, cols, s, best);
  row.highest = value_of(best);
  float logprob = 0.0f;
  int token = good ? id_of(best) : -1;
  if (good && p.temperature > 0.0f && row.highest < INFINITY) {
    Threshold kept;
    const bool few = p.top_k > 0 && p.top_k < cols;
    if (few || p.top_p < 1.0f) fill_bins(row, s);
    if (few) kept = select<false>(row, static_cast<Key>(p.top_k), s);
    if (p.top_p < 1.0f) {
      Key all = 0;
      for (int v = static_cast<int>(threadIdx.x); v < cols; v += kThreads) {
        const float z = row.logits[v];
        if (kept.keeps(row, z, v)) all += row.mass(z);
      }
      all = block_sum(all, s);
      kept = select<true>(
          row, static_cast<Key>(ceil(static_cast<double>(p.top_p) * static_cast<double>(all))), s);
    }
    Key mass = 0;
    token = id_of(draw(row, p, kept, s, mass));
    logprob =
        row.score(row.logits[token]) - static_cast<float>(log(static_cast<double>(mass) * 0x1p-32));
  }
  if (threadIdx.x != 0) return;
  tokens[blockIdx.x] = token;
  if (logprobs != nullptr) logprobs[blockIdx.x] = logprob;
}

// List the largest logits in order.
__global__ void __launch_bounds__(kThreads)
    top_logprobs_kernel(const float* logits, std::int64_t stride, int cols, const float* lse,
                        int count, std::int32_t* ids, float* logprobs) {
  __shared__ Scratch s;
  Row row{logits + blockIdx.x * stride, cols, 0.0f, 1.0f};
  Key best = 0;
  const bool good = find_highest(row.logits, cols, s, best);
  const int wanted = good ? min(count, cols) : 0;
  ids += std::int64_t{blockIdx.x} * count;
  logprobs += std::int64_t{blockIdx.x} * count;
  row.highest = value_of(best);
  if (good) {
    const bool infinite = row.highest == INFINITY;  // bins are distances from the highest
    if (infinite) row.highest = 0x1.fffffep127f;
    fill_bins(row, s);
    const Threshold kept = select<false>(row, static_cast<Key>(wanted), s);
    __syncthreads();
    if (threadIdx.x == 0) s.collected = 0;
    __syncthreads();
    for (int v = static_cast<int>(threadIdx.x); v < cols; v += kThreads) {
      const float z = row.logits[v];
      if (kept.keeps(row, z, v)) s.candidates[atomicAdd(&s.collected, 1u)] = key_of(z, v);
    }
    __syncthreads();
  }
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    if (i >= wanted) {
      ids[i] = -1;
      logprobs[i] = -INFINITY;
      continue;
    }
    int rank = 0;
    for (int j = 0; j < wanted; ++j) rank += s.candidates[j] > s.candidates[i] ? 1 : 0;
    ids[rank] = id_of(s.candidates[i]);
    logprobs[rank] = row.logits[id_of(s.candidates[i])] - lse[blockIdx.x];
  }
}

// Bias, mask and penalties.
constexpr int kAdjustThreads = 256;

__global__ void __launch_bounds__(kAdjustThreads)
    adjust_kernel(float* logits, std::int64_t stride, int cols, LogitAdjustments a) {
  float* row = logits + blockIdx.x * stride;
  const auto list = [&](const std::int32_t* offsets, auto&& each) {
    if (offsets == nullptr) return;
    for (int i = offsets[blockIdx.x] + static_cast<int>(threadIdx.x); i < offsets[blockIdx.x + 1];
         i += kAdjustThreads)
      each(i);
  };
  list(a.bias_offsets, [&](int i) {
    const int id = a.bias_ids[i];
    if (id >= 0 && id < cols) row[id] += a.bias_values[i];
  });
  __syncthreads();
  if (a.mask != nullptr) {
    const std::uint32_t* words = a.mask + blockIdx.x * a.mask_words;
    for (int v = static_cast<int>(threadIdx.x); v < cols; v += kAdjustThreads) {
      if ((words[v / 32] >> v % 32 & 1u) == 0) row[v] = -INFINITY;
    }
    __syncthreads();
  }
  list(a.context_offsets, [&](int i) {
    const int id = a.context_ids[i], count = a.context_counts[i];
    if (id < 0 || id >= cols) return;
    const float repetition = a.repetition[blockIdx.x];
    float z = row[id];
    z = z > 0.0f ? z / repetition : z * repetition;
    if (count > 0)
      z = z - a.frequency[blockIdx.x] * static_cast<float>(count) - a.presence[blockIdx.x];
    row[id] = z;
  });
}

}  // namespace

// One block for each row.
void launch_adjust_logits(const Matrix& logits, const LogitAdjustments& a, Stream stream) {
  adjust_kernel<<<static_cast<unsigned>(logits.rows), kAdjustThreads, 0, to_cuda(stream)>>>(
      static_cast<float*>(logits.data), logits.row_stride(), static_cast<int>(logits.cols), a);
  ROSE_LAUNCH_CHECK("adjust_logits");
}

void launch_sample(const Matrix& logits, const SamplingParams* params, std::int32_t* tokens,
                   float* logprobs, Stream stream) {
  sample_kernel<<<static_cast<unsigned>(logits.rows), kThreads, 0, to_cuda(stream)>>>(
      static_cast<const float*>(logits.data), logits.row_stride(), static_cast<int>(logits.cols),
      params, tokens, logprobs);
  ROSE_LAUNCH_CHECK("sample");
}

void launch_top_logprobs(const Matrix& logits, const float* lse, int count, std::int32_t* ids,
                         float* logprobs, Stream stream) {
  top_logprobs_kernel<<<static_cast<unsigned>(logits.rows), kThreads, 0, to_cuda(stream)>>>(
      static_cast<const float*>(logits.data), logits.row_stride(), static_cast<int>(logits.cols),
      lse, count, ids, logprobs);
  ROSE_LAUNCH_CHECK("top_logprobs");
}

}  // namespace rose::kernels::gpu
