// Verify and time the candidates.

#include <algorithm>
#include <numeric>

#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/instruments.h"
#include "rose/kernels/gpu/linear.cuh"

namespace rose::kernels::gpu {

namespace {

__global__ void count_differing(const std::uint16_t* a, const std::uint16_t* b, std::int64_t count,
                                unsigned long long* differing) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    if (a[i] != b[i]) atomicAdd(differing, 1ull);
  }
}

std::size_t element_bytes(DType dtype) {
  return static_cast<std::size_t>(info(dtype).block_bytes);
}

/// A buffer of random numbers in [-1, 1).
Buffer random_buffer(std::int64_t count, DType dtype, std::uint32_t seed) {
  Buffer buffer(static_cast<std::size_t>(count) * element_bytes(dtype));
  fill_random(buffer, dtype, seed);
  return buffer;
}

/// Inputs and outputs of a shape, in as many copies as asked.
struct Trial {
  LinearShape shape;
  std::int64_t copies;
  Buffer x, w, bias, residual, y;

  Trial(const LinearShape& s, std::int64_t n)
      : shape(s),
        copies(n),
        x(random_buffer(n * s.m * s.k, s.in, 1)),
        w(random_buffer(n * s.weight_rows() * s.k, s.in, 2)),
        bias(random_buffer(s.bias ? s.weight_rows() : 0, s.in, 3)),
        residual(random_buffer(s.residual ? s.m * s.n : 0, s.out, 4)),
        y(static_cast<std::size_t>(n * s.m * s.n) * element_bytes(s.out)) {}

  LinearArguments arguments(std::int64_t copy) const {
    const auto at = [&](const Buffer& buffer, std::int64_t elements, DType dtype) {
      return buffer.as<std::byte>() +
             static_cast<std::size_t>(copy * elements) * element_bytes(dtype);
    };
    return {.x = {at(x, shape.m * shape.k, shape.in), shape.in, shape.m, shape.k},
            .w = {at(w, shape.weight_rows() * shape.k, shape.in), shape.in, shape.weight_rows(),
                  shape.k},
            .bias = bias.data(),
            .scale = shape.scaled ? 0.5f : 1.0f,
            .residual = {residual.data(), shape.out, shape.residual ? shape.m : 0,
                         shape.residual ? shape.n : 0},
            .y = {at(y, shape.m * shape.n, shape.out), shape.out, shape.m, shape.n}};
  }
};

}  // namespace

bool linear_paths::has_canonical_bits(const LinearPlan& plan) {
  Trial trial(plan.shape, 1);
  LinearPlan general{.shape = plan.shape,
                     .path = plan.shape.in == DType::f32 ? LinearPath::f32 : LinearPath::general};
  if (plan.shape.activation == Activation::swiglu) {
    general.workspace_bytes =
        static_cast<std::size_t>(2 * plan.shape.m * plan.shape.n) * element_bytes(plan.shape.out);
  }
  const Buffer workspace(std::max(plan.workspace_bytes, general.workspace_bytes));
  LinearArguments arguments = trial.arguments(0);
  trial.y.poison();
  linear(plan, arguments, workspace.workspace(), {});
  Buffer expected(trial.y.bytes());
  arguments.y.data = expected.data();
  linear(general, arguments, workspace.workspace(), {});
  const unsigned long long none = 0;
  const Buffer differing = Buffer::of(std::span(&none, 1));
  count_differing<<<1024, 256>>>(trial.y.as<std::uint16_t>(), expected.as<std::uint16_t>(),
                                 static_cast<std::int64_t>(expected.bytes() / 2),
                                 differing.as<unsigned long long>());
  ROSE_LAUNCH_CHECK("count_differing");
  synchronize({});
  return differing.values<unsigned long long>().front() == 0;
}

std::vector<TimedLinear> time_linear(const LinearShape& shape, std::span<const LinearPlan> plans,
                                     int samples) {
  const double bytes =
      static_cast<double>(shape.weight_rows() * shape.k + shape.m * shape.k) *
          static_cast<double>(element_bytes(shape.in)) +
      static_cast<double>(shape.m * shape.n) * static_cast<double>(element_bytes(shape.out));
  const int copies = copies_past_l2(bytes, device_info().l2_bytes);
  const Trial trial(shape, copies);
  std::size_t room = 0;
  for (const LinearPlan& plan : plans) room = std::max(room, plan.workspace_bytes);
  const Buffer workspace(room);
  std::vector<Launch> sides;
  for (const LinearPlan& plan : plans) {
    sides.emplace_back([&](int copy, Stream stream) {
      linear(plan, trial.arguments(copy), workspace.workspace(), stream);
    });
  }
  std::vector<Timing> timings =
      time_interleaved(sides, {.copies = copies, .samples = samples, .warmup = 2});
  std::vector<TimedLinear> timed;
  for (std::size_t i = 0; i < plans.size(); ++i) timed.push_back({plans[i], std::move(timings[i])});
  return timed;
}

LinearPlan measure_linear(const LinearShape& shape) {
  const std::vector<LinearPlan> plans = linear_candidates(shape, true);
  if (plans.size() == 1) return plans.front();
  constexpr int samples = 7;
  const std::vector<TimedLinear> timed = time_linear(shape, plans, samples);
  return std::min_element(timed.begin(), timed.end(),
                          [](const TimedLinear& a, const TimedLinear& b) {
                            return a.timing.median_us < b.timing.median_us;
                          })
      ->plan;
}

}  // namespace rose::kernels::gpu
