// Tests of the chapter "Checkpoints and exact resume".

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "labs/evidence/values.h"
#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/hash.h"
#include "rose/core/rng.h"
#include "rose/model/files/checkpoint.h"
#include "rose/trainer/checkpoint.h"
#include "rose/trainer/cpu_compute.h"
#include "rose/trainer/data/loader.h"
#include "rose/trainer/schedule.h"

namespace rose::trainer {
namespace {

// A small run with everything that a run has.
namespace fs = std::filesystem;

constexpr std::int32_t vocabulary = 64;

model::Config tiny(model::Family family) {
  model::Config c;
  c.family = family;
  c.vocab_size = vocabulary, c.layers = 2, c.heads = 2, c.kv_heads = 2, c.head_dim = 8;
  c.hidden = 16, c.ffn = 32, c.max_positions = 32, c.tied_head = true;
  if (family == model::Family::gpt2) {
    c.norm = model::NormKind::layernorm;
    c.activation = model::Activation::gelu_tanh;
    c.qkv_bias = c.o_bias = c.mlp_bias = true;
  } else {
    c.kv_heads = 1, c.qk_norm = true, c.tied_head = false;
  }
  return c;
}

// Shards of random documents, the same in every process.
void write_data(const fs::path& folder) {
  fs::create_directories(folder);
  core::Rng rng(4);
  ShardWriter writer(folder / "train-0.bin", {.vocab_size = vocabulary, .separator = 0});
  for (int d = 0; d < 60; ++d) {
    std::vector<std::int32_t> tokens(1 + rng.below(30));
    for (auto& token : tokens) token = 1 + static_cast<std::int32_t>(rng.below(vocabulary - 1));
    writer.append(tokens, static_cast<std::uint64_t>(d), 10);
  }
  writer.finish();
}

// Take a step, digest the state.
struct SmallRun {
  core::ThreadPool pool{1};
  model::Config config;
  CpuCompute compute;
  Loader loader;
  RunState state;

  SmallRun(const fs::path& data, model::Family family, Method method = Method::adamw,
           std::uint64_t seed = 1)
      : config(tiny(family)),
        compute(model::random_weights(config, seed), {.optimizer = {.method = method}}, pool),
        loader({.sources = {{"all", shard_files(data), 1.0}}, .vocab_size = vocabulary}) {}

  void step() {
    const Schedule schedule{.steps = 12, .warmup = 3, .peak = 1e-2, .last = 1e-3};
    MicroBatchBuffer batch;
    compute.zero_gradients();
    for (int micro = 0; micro < 2; ++micro) {
      loader.next(1, 16, batch);
      compute.accumulate(batch.view(), 1.0 / 32);
    }
    const double norm = compute.gradient_norm();
    compute.update({.update = ++state.updates,
                    .rate = schedule.rate(state.step++),
                    .scale = std::min(1.0, 1.0 / norm)});
    state.loader = loader.position();
  }

  std::uint64_t digest() {
    std::string all = fmt::format("{} {}", state.step, core::json::serialize(loader.position()));
    compute.visit([&](const StateTensor& t) {
      std::vector<std::byte> bytes(t.bytes);
      t.read(bytes);
      all += t.role + t.name + fmt::format("{}", core::xxh3(bytes));
    });
    return core::xxh3(all);
  }

  void resume(const fs::path& checkpoint) {
    state = load_checkpoint(checkpoint, compute);
    loader.restore(state.loader);
  }
};

// Make a place to train in.
struct Folder {
  fs::path path;
  explicit Folder(std::string_view name)
      : path(fs::temp_directory_path() / fmt::format("rose-checkpoint-{}-{}", name, getpid())) {
    fs::remove_all(path);
    write_data(path / "data");
  }
  ~Folder() { fs::remove_all(path); }
  fs::path data() const { return path / "data"; }
  fs::path run() const { return path / "run"; }
};

constexpr CheckpointOptions quick{.keep = 0, .durability = core::Durability::process};

// Resumed from any step, a run ends with the same bytes.
TEST(Checkpoint, ResumesFromEveryStep) {
  for (const auto family : {model::Family::gpt2, model::Family::qwen3}) {
    for (const Method method : {Method::adamw, Method::muon}) {
      const Folder folder("resume");
      constexpr std::size_t steps = 12;
      std::vector<std::uint64_t> digests;
      SmallRun first(folder.data(), family, method);
      {
        CheckpointWriter writer(folder.run(), {.config = first.config}, quick);
        writer.save(first.compute, first.state = {.loader = first.loader.position()});
        digests.push_back(first.digest());
        for (std::size_t s = 0; s < steps; ++s) {
          first.step();
          writer.save(first.compute, first.state);
          digests.push_back(first.digest());
        }
        writer.wait();
      }
      EXPECT_EQ(std::set(digests.begin(), digests.end()).size(), steps + 1);
      for (std::size_t from = 0; from <= steps; ++from) {
        SmallRun again(folder.data(), family, method, 99);
        again.resume(folder.run() / fmt::format("step-{:08}", from));
        ASSERT_EQ(again.digest(), digests[from]) << from;
        for (std::size_t s = from; s < steps; ++s) {
          again.step();
          ASSERT_EQ(again.digest(), digests[s + 1]) << "from " << from << " at " << s + 1;
        }
      }
      EXPECT_EQ(latest_checkpoint(folder.run())->filename(), "step-00000012");
    }
  }
}

// A checkpoint is a model folder.
TEST(Checkpoint, IsAModelFolder) {
  for (const auto family : {model::Family::gpt2, model::Family::qwen3}) {
    const Folder folder("model");
    SmallRun run(folder.data(), family);
    run.step();
    CheckpointWriter writer(folder.run(), {.config = run.config, .tokenizer_json = "{}"}, quick);
    writer.save(run.compute, run.state);
    run.step();  // the snapshot was taken: what follows does not reach the disk
    const auto before = run.digest();
    writer.wait();
    const auto weights = model::load_weights(model::open_checkpoint(*writer.last()));
    SmallRun copy(folder.data(), family, Method::adamw, 5);
    copy.resume(*writer.last());
    for (const model::Parameter& p : copy.compute.weights().parameters()) {
      const auto other = weights->parameter(p.name).f32();
      ASSERT_TRUE(std::ranges::equal(p.f32(), other)) << p.name;
    }
    copy.step();
    EXPECT_EQ(copy.digest(), before);
    EXPECT_TRUE(fs::exists(*writer.last() / "tokenizer.json"));
  }
}

// Torn files and other models are refused.
core::Error refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const core::Error& error) {
    return error;
  }
  return {core::Code::internal, "nothing was refused"};
}

TEST(Checkpoint, DamageIsFoundAndTheOneBeforeIsUsed) {
  const Folder folder("damage");
  SmallRun run(folder.data(), model::Family::qwen3);
  CheckpointWriter writer(folder.run(), {.config = run.config}, quick);
  const auto save = [&] {
    run.step();
    writer.save(run.compute, run.state);
    writer.wait();
  };
  save();
  const fs::path good = *writer.last();
  for (const char* name :
       {"model.safetensors", "optimizer.safetensors", "config.json", "state.json"}) {
    save();
    const fs::path newest = *writer.last();
    ASSERT_NE(newest, good);
    const std::string whole = core::read_file(newest / name);
    SmallRun other(folder.data(), model::Family::qwen3, Method::adamw, 7);
    const auto before = other.digest();
    std::string flipped = whole;
    flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 1);
    core::write_file_atomic(newest / name, flipped);
    EXPECT_EQ(refusal([&] { other.resume(newest); }).code(), core::Code::corrupt) << name;
    core::write_file_atomic(newest / name, whole.substr(0, whole.size() / 2));
    EXPECT_EQ(refusal([&] { other.resume(newest); }).code(), core::Code::corrupt) << name;
    EXPECT_EQ(other.digest(), before);
    EXPECT_EQ(*latest_checkpoint(folder.run()), good);
    fs::remove_all(newest);
  }
}

TEST(Checkpoint, AnotherModelIsRefused) {
  const Folder folder("other");
  SmallRun run(folder.data(), model::Family::qwen3);
  CheckpointWriter writer(folder.run(), {.config = run.config}, quick);
  writer.save(run.compute, run.state);
  writer.wait();
  const fs::path saved = *writer.last();
  SmallRun gpt2(folder.data(), model::Family::gpt2);
  const core::Error family = refusal([&] { gpt2.resume(saved); });
  EXPECT_EQ(family.code(), core::Code::invalid_argument);
  EXPECT_NE(family.message().find("another model"), std::string::npos);
  SmallRun muon(folder.data(), model::Family::qwen3, Method::muon);
  const core::Error optimizer = refusal([&] { muon.resume(saved); });
  EXPECT_EQ(optimizer.code(), core::Code::invalid_argument);
  EXPECT_NE(optimizer.hint().find("optimizer"), std::string::npos);
  EXPECT_EQ(refusal([&] { run.resume(folder.run() / "step-1"); }).code(), core::Code::not_found);
  EXPECT_FALSE(latest_checkpoint(folder.data()));
  EXPECT_FALSE(latest_checkpoint(folder.path / "nowhere"));
}

// A full disk costs one checkpoint, not two.
TEST(Checkpoint, AFullDiskLeavesTheOneBefore) {
  const Folder folder("full");
  SmallRun run(folder.data(), model::Family::qwen3);
  CheckpointWriter writer(folder.run(), {.config = run.config}, {.keep = 1});
  run.step();
  writer.save(run.compute, run.state);
  writer.wait();
  const auto digest = run.digest();
  run.step();
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 20'000;  // room for the configuration, none for the weights
  setrlimit(RLIMIT_FSIZE, &small);
  writer.save(run.compute, run.state);  // returns: the writer is on its own
  const core::Error error = refusal([&] { writer.wait(); });
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(error.code(), core::Code::resource_exhausted);
  EXPECT_EQ(core::exit_code(error), 6);
  EXPECT_NE(error.message().find("step 2 could not be saved"), std::string::npos);
  EXPECT_NE(error.hint().find("step-00000001 is complete"), std::string::npos);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.run()), {}), 1);  // and no half one
  SmallRun again(folder.data(), model::Family::qwen3, Method::adamw, 3);
  again.resume(*writer.last());
  EXPECT_EQ(again.digest(), digest);
  writer.save(run.compute, run.state);  // there is room again
  writer.wait();
  EXPECT_EQ(writer.last()->filename(), "step-00000002");
}

// A process that trains until it is killed.
constexpr std::int64_t kill_steps = 120;

// Trains to the end, resuming from what is there; the digest is its last word.
TEST(CheckpointChild, Trains) {
  const char* folder = std::getenv("ROSE_CHECKPOINT_CHILD");
  if (folder == nullptr) return;  // only ever started by the test below
  SmallRun run(fs::path(folder) / "data", model::Family::qwen3);
  CheckpointWriter writer(fs::path(folder) / "run", {.config = run.config},
                          {.keep = 2, .durability = core::Durability::process});
  run.state.loader = run.loader.position();
  if (const auto last = writer.last()) run.resume(*last);
  core::write_file_atomic(fs::path(folder) / "alive", "");
  while (run.state.step < kill_steps) {
    run.step();
    writer.save(run.compute, run.state);
  }
  writer.wait();
  core::write_file_atomic(fs::path(folder) / "digest", fmt::format("{}", run.digest()));
}

// Killed at any moment, the run ends with the same bytes.
TEST(Checkpoint, SurvivesBeingKilledAtAnyMoment) {
  const Folder folder("kill");
  SmallRun whole(folder.data(), model::Family::qwen3);
  while (whole.state.step < kill_steps) whole.step();
  core::Rng rng(static_cast<std::uint64_t>(getpid()));  // other moments each time
  int killed = 0, started = 0;
  while (!fs::exists(folder.path / "digest") && started < 60) {
    fs::remove(folder.path / "alive");
    ++started;
    const pid_t child = fork();
    if (child == 0) {
      setenv("ROSE_CHECKPOINT_CHILD", folder.path.c_str(), 1);
      execl("/proc/self/exe", "child", "--gtest_brief=1", "--gtest_filter=CheckpointChild.*",
            nullptr);
      _exit(127);
    }
    ASSERT_GT(child, 0);
    int status = 0;
    bool ended = false;
    const auto wait_while = [&](const std::function<bool()>& more) {
      while (!ended && more()) {
        ended = waitpid(child, &status, WNOHANG) == child;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    };
    wait_while([&] { return !fs::exists(folder.path / "alive"); });  // loading LibTorch takes long
    const auto start = std::chrono::steady_clock::now();
    // a little longer each time, so that a slow machine comes to the end too
    const std::chrono::microseconds moment(
        rng.below(40'000 + 20'000 * static_cast<std::uint32_t>(started)));
    wait_while([&] { return std::chrono::steady_clock::now() - start < moment; });
    if (!ended) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
    }
    killed += WIFSIGNALED(status);
    if (killed == 0 && fs::remove(folder.path / "digest"))
      fs::remove_all(folder.run());  // too fast
    for (const auto& entry : fs::directory_iterator(folder.path)) {
      if (entry.path().filename() == "run" && latest_checkpoint(entry.path())) {
        SmallRun check(folder.data(), model::Family::qwen3, Method::adamw, 2);
        check.resume(*latest_checkpoint(entry.path()));  // what is there is always whole
      }
    }
  }
  ASSERT_TRUE(fs::exists(folder.path / "digest")) << "after " << started << " processes";
  EXPECT_EQ(core::read_file(folder.path / "digest"), fmt::format("{}", whole.digest()));
  EXPECT_GT(killed, 0);
  fmt::print("{} processes, {} of them killed\n", started, killed);
}

// The newest stay, and every so many for good.
TEST(Checkpoint, TheNewestStayAndEverySoManyForGood) {
  const Folder folder("keep");
  SmallRun run(folder.data(), model::Family::gpt2);
  fs::create_directories(folder.run() / ".partial-step-00000007");  // of a killed process
  CheckpointWriter writer(
      folder.run(), {.config = run.config},
      {.keep = 2, .keep_every = 4, .durability = core::Durability::process, .asynchronous = false});
  for (int s = 0; s < 10; ++s) {
    run.step();
    writer.save(run.compute, run.state);
  }
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.run()))
    names.insert(entry.path().filename());
  EXPECT_EQ(names, (std::set<std::string>{"step-00000004", "step-00000008", "step-00000009",
                                          "step-00000010"}));
  SmallRun back(folder.data(), model::Family::gpt2);
  back.resume(folder.run() / "step-00000008");
  back.step();
  writer.save(back.compute, back.state);  // step 9 again: replaced, and 10 is not deleted for it
  EXPECT_EQ(writer.last()->filename(), "step-00000010");
  EXPECT_EQ(read_run_state(folder.run() / "step-00000009").step, 9);
}

// The best interval, simulated.
TEST(Checkpoint, YoungsIntervalIsTheBest) {
  constexpr double mean_between = 86'400, cost = 0.2;
  const double best = std::sqrt(2 * cost * mean_between);
  labs::write_value("saving-interval-test", "interval", best);
  labs::write_value("saving-interval-test", "lost-percent",
                    100 * std::sqrt(2 * cost / mean_between));
  // the same with 1 and 100: crashes at exponentially distributed times
  const auto lost = [](double interval) {
    core::Rng rng(8);
    double wall = 0, done = 0;
    while (done < 200'000) {
      const double crash = -100 * std::log(1 - rng.uniform64());
      const double saves = std::floor(crash / (interval + 1));
      done += saves * interval;
      wall += crash;
    }
    return 1 - done / wall;
  };
  const double tau = std::sqrt(2 * 1.0 * 100);
  EXPECT_LT(lost(tau), lost(tau / 3));
  EXPECT_LT(lost(tau), lost(tau * 3));
  EXPECT_NEAR(lost(tau), std::sqrt(2.0 / 100), 0.02);
}

}  // namespace
}  // namespace rose::trainer
