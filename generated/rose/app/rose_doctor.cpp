// Say what this machine has and lacks.

#include <dlfcn.h>
#include <sys/utsname.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <vector>

#include "rose/app/models.h"
#include "rose/app/rose_commands.h"
#include "rose/core/error.h"
#include "rose/core/parallel.h"
#include "rose/kernels/device.h"
#include "rose/kernels/gpu/self_test.h"

namespace rose::app {

namespace {

struct Finding {
  enum class Kind { good, note, bad } kind;
  std::string what, help;
};

// Look at processor and memory.
Finding processor() {
  const int threads = core::available_processors();
  const std::string cores = fmt::format("{} processor{} usable", threads, threads == 1 ? "" : "s");
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    return {Finding::Kind::note, cores + ", without AVX2", "everything works, more slowly"};
  }
  return {Finding::Kind::good,
          fmt::format("{}, {}", cores, __builtin_cpu_supports("avx512f") ? "AVX-512" : "AVX2"), ""};
#else
  return {Finding::Kind::note, cores, "not x86-64: the portable vector code is used"};
#endif
}

Finding memory() {
  std::ifstream info("/proc/meminfo");
  std::string key, unit;
  double kib = 0.0;
  while (info >> key >> kib >> unit && key != "MemAvailable:") {
  }
  const double gib = kib / (1024.0 * 1024.0);
  if (gib < 1.0)
    return {Finding::Kind::note, fmt::format("{:.1f} GiB of memory available", gib),
            "the smallest model needs about half a GiB"};
  return {Finding::Kind::good, fmt::format("{:.1f} GiB of memory available", gib), ""};
}

// Ask the driver which GPUs there are.
Finding driver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return {Finding::Kind::note, "no NVIDIA driver: models run on the processor", ""};
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
  const auto version = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDriverGetVersion"));
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDeviceGetCount"));
  int number = 0, supports = 0;
  if (init == nullptr || version == nullptr || count == nullptr || init(0) != 0 ||
      count(&number) != 0 || number == 0) {
    return {Finding::Kind::note, "an NVIDIA driver is installed, but no GPU answers",
            "`nvidia-smi` says more"};
  }
  version(&supports);
  if (supports < 13000) {
    return {Finding::Kind::note,
            fmt::format("the driver supports CUDA {}.{}", supports / 1000, supports % 1000 / 10),
            "the GPU code needs a driver for CUDA 13 (release 580 or later)"};
  }
  return {Finding::Kind::good,
          fmt::format("{} GPU{}, driver for CUDA {}.{}", number, number == 1 ? "" : "s",
                      supports / 1000, supports % 1000 / 10),
          ""};
}

Finding gpu_code() {
  const kernels::DeviceReport report = kernels::check_devices();
  switch (report.state) {
    case kernels::DeviceState::not_built:
      return {Finding::Kind::note, "built without CUDA kernels", report.detail};
    case kernels::DeviceState::none:
      return {Finding::Kind::note, "CUDA kernels are built, no GPU to run them", report.detail};
    case kernels::DeviceState::failed:
      return {Finding::Kind::note, "the GPU computes wrongly or not at all", report.detail};
    case kernels::DeviceState::works:
      return {Finding::Kind::good, "CUDA kernels run: " + report.detail, ""};
  }
  return {Finding::Kind::note, "unknown", ""};
}

// Look at the engine and the models.
Finding engine() {
  const std::filesystem::path path = engine_path();
  if (!std::filesystem::exists(path)) {
    return {Finding::Kind::bad, "the engine is missing: " + path.string(),
            "`make build` makes it, with the LibTorch that set-up brings"};
  }
  // The engine may be there and still not start, when LibTorch was moved: run it.
  std::FILE* pipe = popen(fmt::format("'{}' --version 2>&1", path.string()).c_str(), "r");
  std::string version(128, '\0');
  version.resize(pipe == nullptr ? 0 : std::fread(version.data(), 1, version.size(), pipe));
  const bool runs = pipe != nullptr && pclose(pipe) == 0;
  while (!version.empty() && version.back() == '\n') version.pop_back();
  if (!runs)
    return {Finding::Kind::bad, "the engine does not start: " + version,
            "run set-up again: `make build`"};
  return {Finding::Kind::good, version, ""};
}

Finding first_model() {
  try {
    const std::filesystem::path path = find_model("");
    model::describe_checkpoint(path);
    return {Finding::Kind::good, "default model: " + path.string(), ""};
  } catch (const std::exception& error) {
    return {Finding::Kind::bad, fmt::format("no usable model: {}", error.what()), ""};
  }
}

// Look at everything, the GPU's bits included.
Finding gpu_bits() {
  if (kernels::check_devices().state != kernels::DeviceState::works) {
    return {Finding::Kind::note, "GPU numerics: not tested, no GPU", ""};
  }
  const auto test = kernels::gpu::self_test(kernels::gpu::Extent::brief);
  if (test.canonical()) return {Finding::Kind::good, "GPU numerics: " + test.summary(), ""};
  return {Finding::Kind::note, "GPU numerics: " + test.summary(),
          "results may depend on what else runs; servers and training logs will say so"};
}

std::vector<Finding> findings() {
  return {processor(), memory(), engine(), first_model(), driver(), gpu_code(), gpu_bits()};
}

void doctor() {
  bool bad = false;
  std::string out;
  for (const Finding& finding : findings()) {
    const char* mark = finding.kind == Finding::Kind::good   ? "ok  "
                       : finding.kind == Finding::Kind::note ? "note"
                                                             : "BAD ";
    out += fmt::format("{}  {}\n", mark, finding.what);
    if (!finding.help.empty()) out += fmt::format("      {}\n", finding.help);
    bad = bad || finding.kind == Finding::Kind::bad;
  }
  print(out);
  if (bad)
    throw core::Error(core::Code::not_found, "this machine cannot run a model yet")
        .hint("see the lines marked BAD");
}

}  // namespace

void add_doctor(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("doctor", "Say what this machine has and lacks, in plain words");
  command->callback(doctor);
}

}  // namespace rose::app
