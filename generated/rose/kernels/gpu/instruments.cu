// Replay graphs between events.

#include <dlfcn.h>

#include <array>
#include <memory>

#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/cuda.cuh"
#include "rose/kernels/gpu/instruments.h"

namespace rose::kernels::gpu {

namespace {

struct StreamOwner {
  cudaStream_t stream = nullptr;
  StreamOwner() { ROSE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  StreamOwner(const StreamOwner&) = delete;
  StreamOwner& operator=(const StreamOwner&) = delete;
  ~StreamOwner() { cudaStreamDestroy(stream); }
};

struct EventPair {
  std::array<cudaEvent_t, 2> events{};
  EventPair() {
    for (cudaEvent_t& event : events) ROSE_CUDA_CHECK(cudaEventCreate(&event));
  }
  EventPair(const EventPair&) = delete;
  EventPair& operator=(const EventPair&) = delete;
  ~EventPair() {
    for (cudaEvent_t event : events) cudaEventDestroy(event);
  }
};

// What one side enqueues, recorded once.
class Graph {
 public:
  Graph(const Launch& launch, const TimingOptions& options, cudaStream_t stream) {
    ROSE_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    cudaGraph_t graph = nullptr;
    try {
      for (int round = 0; round < options.rounds; ++round) {
        for (int copy = 0; copy < options.copies; ++copy) launch(copy, Stream{stream});
      }
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      throw;
    }
    ROSE_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    const cudaError_t error = cudaGraphInstantiate(&executable_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(error, "cudaGraphInstantiate");
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { cudaGraphExecDestroy(executable_); }

  double replay_us(EventPair& pair, cudaStream_t stream) const {
    ROSE_CUDA_CHECK(cudaEventRecord(pair.events[0], stream));
    ROSE_CUDA_CHECK(cudaGraphLaunch(executable_, stream));
    ROSE_CUDA_CHECK(cudaEventRecord(pair.events[1], stream));
    ROSE_CUDA_CHECK(cudaEventSynchronize(pair.events[1]));
    float milliseconds = 0;
    ROSE_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, pair.events[0], pair.events[1]));
    return 1e3 * milliseconds;
  }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace

std::vector<Timing> time_interleaved(std::span<const Launch> sides, const TimingOptions& options) {
  const StreamOwner owner;
  EventPair pair;
  ROSE_CUDA_CHECK(cudaDeviceSynchronize());  // what the caller prepared in other streams
  for (const Launch& side : sides) side(0, Stream{owner.stream});  // loads modules, sets attributes
  ROSE_CUDA_CHECK(cudaStreamSynchronize(owner.stream));
  std::vector<std::unique_ptr<Graph>> graphs;
  for (const Launch& side : sides) {
    graphs.push_back(std::make_unique<Graph>(side, options, owner.stream));
  }
  std::vector<std::vector<double>> samples(sides.size());
  const double launches = static_cast<double>(options.copies) * options.rounds;
  for (int sample = -options.warmup; sample < options.samples; ++sample) {
    for (std::size_t i = 0; i < sides.size(); ++i) {
      const std::size_t side = sample % 2 == 0 ? i : sides.size() - 1 - i;
      const double us = graphs[side]->replay_us(pair, owner.stream) / launches;
      if (sample >= 0) samples[side].push_back(us);
    }
  }
  std::vector<Timing> timings;
  for (std::vector<double>& of_side : samples) timings.push_back(summarise(std::move(of_side)));
  return timings;
}

// Name the machine and read its clocks.
DeviceInfo device_info() {
  int device = 0;
  ROSE_CUDA_CHECK(cudaGetDevice(&device));
  cudaDeviceProp properties{};
  ROSE_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  DeviceInfo info;
  info.name = properties.name;
  info.capability = running_capability();
  info.multiprocessors = properties.multiProcessorCount;
  info.l2_bytes = properties.l2CacheSize;
  info.memory_bytes = static_cast<double>(properties.totalGlobalMem);
  ROSE_CUDA_CHECK(cudaDriverGetVersion(&info.driver));
  ROSE_CUDA_CHECK(cudaRuntimeGetVersion(&info.runtime));
  return info;
}

Clocks read_clocks() {
  Clocks clocks;
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return clocks;
  const auto call = [&](const char* name, auto... arguments) {
    using Function = int (*)(decltype(arguments)...);
    const auto function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr && function(arguments...) == 0;
  };
  void* device = nullptr;
  if (call("nvmlInit_v2")) {
    if (call("nvmlDeviceGetHandleByIndex_v2", 0u, &device)) {
      constexpr int sm = 1, memory = 2, gpu_sensor = 0;
      unsigned value = 0;
      if (call("nvmlDeviceGetClockInfo", device, sm, &value))
        clocks.sm_mhz = static_cast<int>(value);
      if (call("nvmlDeviceGetClockInfo", device, memory, &value)) {
        clocks.memory_mhz = static_cast<int>(value);
      }
      if (call("nvmlDeviceGetTemperature", device, gpu_sensor, &value)) {
        clocks.celsius = static_cast<int>(value);
      }
      if (call("nvmlDeviceGetPowerUsage", device, &value)) clocks.watts = 1e-3 * value;
    }
    call("nvmlShutdown");
  }
  dlclose(library);
  return clocks;
}

// Measure what plain reads, copies and writes reach.
namespace {

constexpr int sweep_threads = 512;
constexpr int sweep_unroll = 4;

template <bool Read, bool Write>
__global__ void __launch_bounds__(sweep_threads)
    sweep(const uint4* from, uint4* to, std::int64_t n) {
  const std::int64_t start =
      static_cast<std::int64_t>(blockIdx.x) * sweep_threads * sweep_unroll + threadIdx.x;
  uint4 value[sweep_unroll] = {};
#pragma unroll
  for (int i = 0; i < sweep_unroll; ++i) {
    const std::int64_t at = start + i * sweep_threads;
    if (Read && at < n) value[i] = __ldcs(from + at);
  }
  std::uint32_t seen = 0;
#pragma unroll
  for (int i = 0; i < sweep_unroll; ++i) {
    const std::int64_t at = start + i * sweep_threads;
    if (Write && at < n) {
      if (!Read) value[i] = make_uint4(threadIdx.x, blockIdx.x, i, 1);
      __stcs(to + at, value[i]);
    }
    seen |= value[i].x & value[i].y & value[i].z & value[i].w;
  }
  if (!Write && seen == 0xdeadbeefu) *to = value[0];
}

template <bool Read, bool Write>
double sweep_rate(const Buffer& from, const Buffer& to) {
  const std::int64_t n = static_cast<std::int64_t>(from.bytes() / sizeof(uint4));
  const auto blocks = static_cast<unsigned>(ceil_div(n, sweep_threads * sweep_unroll));
  const Timing timing = time_launches(
      [&](int, Stream stream) {
        sweep<Read, Write>
            <<<blocks, sweep_threads, 0, to_cuda(stream)>>>(from.as<uint4>(), to.as<uint4>(), n);
        ROSE_LAUNCH_CHECK("sweep");
      },
      {.copies = 1, .rounds = 2, .samples = 9, .warmup = 2});
  return static_cast<double>(from.bytes()) * (Read + Write) / (1e-6 * timing.median_us);
}

}  // namespace

Bandwidth measure_bandwidth() {
  constexpr std::size_t bytes = std::size_t{4} << 30;
  Buffer from(bytes);
  const Buffer to(bytes);
  sweep<false, true><<<static_cast<unsigned>(bytes / sizeof(uint4) / sweep_threads / sweep_unroll),
                       sweep_threads>>>(nullptr, from.as<uint4>(),
                                        static_cast<std::int64_t>(bytes / sizeof(uint4)));
  ROSE_LAUNCH_CHECK("sweep");
  return {.read = sweep_rate<true, false>(from, to),
          .copy = sweep_rate<true, true>(from, to),
          .write = sweep_rate<false, true>(from, to)};
}

// Fill memory with random numbers.
namespace {

template <class T>
__global__ void fill(T* to, std::int64_t count, std::uint32_t seed) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    std::uint32_t h =
        static_cast<std::uint32_t>(i) * 2654435761u ^ static_cast<std::uint32_t>(i >> 32) ^ seed;
    h = (h ^ h >> 16) * 0x7feb352du;
    h = (h ^ h >> 15) * 0x846ca68bu;
    h ^= h >> 16;
    to[i] = from_float<T>(static_cast<float>(static_cast<std::int32_t>(h)) * 0x1p-31f);
  }
}

template <class T>
void fill_all(const Buffer& buffer, std::uint32_t seed) {
  fill<<<1024, 256>>>(buffer.as<T>(), static_cast<std::int64_t>(buffer.bytes() / sizeof(T)), seed);
}

}  // namespace

void fill_random(const Buffer& buffer, DType dtype, std::uint32_t seed) {
  if (buffer.bytes() == 0) return;
  if (dtype == DType::bf16) fill_all<__nv_bfloat16>(buffer, seed);
  if (dtype == DType::f16) fill_all<__half>(buffer, seed);
  if (dtype == DType::f32) fill_all<float>(buffer, seed);
  ROSE_LAUNCH_CHECK("fill_random");
}

}  // namespace rose::kernels::gpu
