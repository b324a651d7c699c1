// Make the compute of a device.

#include "rose/trainer/make_compute.h"

#include <fmt/format.h>

#include <utility>

#include "rose/core/error.h"
#include "rose/kernels/gpu/stream.h"
#include "rose/trainer/cpu_compute.h"

namespace rose::trainer {

namespace {

[[noreturn]] void refuse(const char* key, std::string what, const char* hint) {
  throw core::Error(core::Code::unsupported, std::move(what)).in(key).hint(hint);
}

}  // namespace

GpuComputeOptions gpu_options(const DeviceChoice& choice) {
  GpuComputeOptions gpu;
  gpu.tokens = choice.tokens;
  if (choice.precision == "tf32" || choice.precision == "fp16")
    refuse("precision", fmt::format("training in {} is not there yet", choice.precision),
           "choose bf16 or fp32");
  gpu.dtype = choice.precision == "bf16" ? kernels::DType::bf16 : kernels::DType::f32;
  if (choice.recompute == "none") gpu.recompute = model::Recompute::nothing;
  if (choice.recompute == "blocks") gpu.recompute = model::Recompute::blocks;
  return gpu;
}

bool on_gpu(const DeviceChoice& choice) {
  const bool there = kernels::gpu::available();
  const bool asked = choice.device == "gpu" || choice.device == "cuda";
  if (asked && !there)
    refuse("device", "there is no GPU that this build can use",
           "build with CUDA, or choose device: cpu");
  return asked || (choice.device == "auto" && there);
}

void check_cpu(const DeviceChoice& choice) {
  if (choice.precision != "fp32")
    refuse("precision", fmt::format("the CPU does not train in {}", choice.precision),
           "choose precision: fp32");
  if (choice.recompute != "none" && choice.recompute != "auto")
    refuse("recompute", "the CPU keeps all activations",
           "choose recompute: none, and lower batch.rows to save memory");
}

std::unique_ptr<Compute> make_compute(std::shared_ptr<model::WeightSet> weights,
                                      const ComputeOptions& options, const DeviceChoice& choice,
                                      core::ThreadPool& pool) {
  if (on_gpu(choice))
    return std::make_unique<GpuCompute>(std::move(weights), options, gpu_options(choice));
  check_cpu(choice);
  return std::make_unique<CpuCompute>(std::move(weights), options, pool);
}

}  // namespace rose::trainer
