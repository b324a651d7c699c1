// Compute steps on a GPU.

#include "rose/infer/gpu_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "rose/core/error.h"
#include "rose/core/log.h"
#include "rose/infer/choose.h"
#include "rose/infer/profile.h"
#include "rose/kernels/gpu/activity.h"
#include "rose/kernels/gpu/cross_entropy.h"
#include "rose/kernels/gpu/embedding.h"
#include "rose/kernels/gpu/graph.h"
#include "rose/kernels/gpu/instruments.h"
#include "rose/kernels/gpu/kv_cache.h"
#include "rose/kernels/gpu/sampling.h"
#include "rose/kernels/gpu/tokens.h"
#include "rose/kernels/quant.h"
#include "rose/model/gpu_adapters.h"
#include "rose/model/gpu_forward.h"

namespace rose::infer {

// Choose what to record.
std::vector<std::int64_t> graph_sizes(std::int64_t sequences) {
  constexpr std::int64_t step = 8;
  std::vector<std::int64_t> sizes;
  for (std::int64_t n = 1; n < std::min(step, sequences); n *= 2) sizes.push_back(n);
  for (std::int64_t n = step; n < sequences; n += step) sizes.push_back(n);
  if (sequences > 0) sizes.push_back(sequences);
  return sizes;
}

std::vector<std::int64_t> short_sizes(std::int64_t tokens) {
  constexpr std::int64_t least = 16, most = 256;
  std::vector<std::int64_t> sizes;
  for (std::int64_t n = least; n <= std::min(most, tokens); n *= 2) sizes.push_back(n);
  return sizes;
}

std::vector<std::int64_t> graph_splits(std::int64_t positions) {
  constexpr std::int64_t split = kernels::numerics::key_split, factor = 4, most = 16;
  const std::int64_t needed = std::max<std::int64_t>(1, (positions + split - 1) / split);
  std::vector<std::int64_t> kinds;
  for (std::int64_t n = 1; n < needed && n <= most; n *= factor) kinds.push_back(n);
  if (needed <= most) kinds.push_back(needed);
  return kinds;
}

std::int64_t bucket_of(std::span<const std::int64_t> sizes, std::int64_t n) {
  const auto at = std::ranges::lower_bound(sizes, n);
  return at == sizes.end() ? -1 : *at;
}

namespace {

namespace gpu = kernels::gpu;
using gpu::Matrix;
using kernels::DType;

constexpr std::size_t kLine = 256;
constexpr std::size_t kTokens = 16;  // where results begin, behind the fault flag
std::size_t count(std::int64_t n) {
  return static_cast<std::size_t>(n);
}
std::size_t lines(std::size_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine;
}

// Lay out what every step uploads, backwards from the plan.

/// Offsets from the beginning of a step's upload, for t tokens and r choices; the plan's words follow at `bytes`.
struct InputLayout {
  std::size_t ids, positions, places, rows, params, adapters, bytes;

  InputLayout(std::int64_t t, std::int64_t r, std::int64_t offsets_of_adapters) {
    std::size_t used = 0;
    const auto take = [&](std::int64_t n, std::size_t each) {
      constexpr std::size_t unit = 16;
      const std::size_t at = used;
      used += (count(n) * each + unit - 1) / unit * unit;
      return at;
    };
    ids = take(t, sizeof(std::int32_t));
    positions = take(t, sizeof(std::int32_t));
    places = take(t, sizeof(kernels::KvPlace));
    rows = take(r, sizeof(std::int32_t));
    params = take(r, sizeof(kernels::SamplingParams));
    adapters = take(offsets_of_adapters, sizeof(std::int32_t));
    bytes = lines(used);
    const std::size_t shift = bytes - used;  // the end is fixed, and lines begin at its multiples
    const std::size_t whole = shift / 16 * 16;
    for (std::size_t* at : {&ids, &positions, &places, &rows, &params, &adapters}) *at += whole;
  }
};

// Pack what only some steps need.

/// Arrays one behind the other, in page-locked memory and then on the device; both grow when they must.
class Lists {
 public:
  void clear() { used_ = 0; }
  bool empty() const { return used_ == 0; }

  /// Returns the offset of so many bytes, which the caller fills before it asks for more.
  std::size_t room(std::size_t bytes) {
    constexpr std::size_t unit = 16;
    const std::size_t at = used_;
    used_ += (bytes + unit - 1) / unit * unit;
    if (bytes_.size() < used_) bytes_.resize(std::max(used_, 2 * bytes_.size()));
    return at;
  }
  std::byte* data() { return bytes_.data(); }
  /// Returns the offset.
  template <class T>
  std::size_t add(std::span<const T> values) {
    const std::size_t at = room(values.size_bytes());
    if (!values.empty()) std::memcpy(bytes_.data() + at, values.data(), values.size_bytes());
    return at;
  }
  /// Makes the device's memory large enough.
  void reserve(gpu::Buffer& device, gpu::Stream stream) const {
    if (device.bytes() >= used_) return;
    gpu::synchronize(stream);  // the step before may still read the smaller one
    device = gpu::Buffer(2 * used_);
  }
  /// Enqueues the upload. `host` is this step's, and not in use.
  void upload(gpu::HostBuffer& host, gpu::Buffer& device, gpu::Stream stream) const {
    if (empty()) return;
    if (host.bytes() < used_) host = gpu::HostBuffer(2 * used_);
    reserve(device, stream);
    std::memcpy(host.data(), bytes_.data(), used_);
    gpu::copy_to_device(device.data(), host.data(), used_, stream);
  }

 private:
  std::vector<std::byte> bytes_;
  std::size_t used_ = 0;
};

/// The host's memory for one step in flight.
struct Slot {
  gpu::HostBuffer input, lists, adjustments, output, rows, hidden;
  gpu::Event done;
  std::int64_t choices = 0, top = 0;
  bool raw = false, given = false;
  std::vector<RowSampling> sampling;
  std::vector<std::int64_t> on_host;  // choices whose alternatives the host works out
  std::vector<std::int32_t> tokens, top_ids;
  std::vector<float> logprobs, top_logprobs, hidden_states;
  std::vector<std::int32_t> hidden_tokens;
};

/// Offsets in a slot's output.
struct OutputLayout {
  std::size_t tokens = kTokens, raw, processed, top_ids, top_logprobs, bytes;
  explicit OutputLayout(std::int64_t r) {
    const std::size_t row = count(r) * sizeof(float), top = row * most_logprobs;
    raw = tokens + row, processed = raw + row, top_ids = processed + row;
    top_logprobs = top_ids + top, bytes = top_logprobs + top;
  }
};

// Own the device's half of an engine.
class GpuRunner final : public Runner {
 public:
  // Plan the memory, allocate, record.
  GpuRunner(std::shared_ptr<const model::WeightSet> weights, const GpuRunnerOptions& options)
      : weights_(std::move(weights)), config_(weights_->config()), options_(options) {
    model::check_gpu_model(config_, options_.dtype);
    if (!gpu::available()) gpu::no_cuda("an engine");
    const auto at_least = [](std::int64_t value, std::int64_t least, const char* what) {
      if (value < least) {
        throw core::Error(core::Code::invalid_argument,
                          fmt::format("{}, where at least {} is needed", value, least))
            .in(what);
      }
    };
    at_least(options_.sequences, 1, "sequences");
    at_least(options_.tokens, options_.sequences, "tokens");
    at_least(options_.page_size, 1, "page_size");
    if (options_.kv_dtype == DType::bf16) options_.kv_dtype = options_.dtype;
    if (options_.max_loras > 0 && options_.dtype != DType::bf16)
      throw core::Error(core::Code::unsupported, "adapters have kernels for bfloat16").in("dtype");
    if (options_.kv_dtype != options_.dtype &&
        (options_.kv_dtype != DType::u8 || options_.dtype == DType::f32)) {
      throw core::Error(
          core::Code::unsupported,
          fmt::format(
              "on a GPU keys and values have the type of the pass, {}, or beside 16 bits fp8",
              kernels::info(options_.dtype).name))
          .in("kv-cache-dtype");
    }
    const auto heads = count(config_.layers * config_.kv_heads);
    for (const std::vector<float>* scales : {&options_.kv_scales.k, &options_.kv_scales.v}) {
      if (!scales->empty() && scales->size() != heads)
        throw core::Error(core::Code::invalid_argument,
                          fmt::format("{} scales for {} heads", scales->size(), heads))
            .in("kv_scales");
    }
    limits_.tokens = options_.tokens;
    limits_.sequences = options_.sequences;
    limits_.rows = std::max(options_.rows, options_.sequences);
    limits_.page_size = options_.page_size;
    limits_.positions = options_.positions == 0
                            ? config_.max_positions
                            : std::min(options_.positions, config_.max_positions);
    limits_.vocab = config_.vocab_size;
    limits_.hidden = config_.hidden;
    limits_.asynchronous = true;
    limits_.late_choices = true;
    limits_.adapters = options_.max_loras;
    limits_.adapter_rank = options_.max_lora_rank;
    limits_.kv_key = kv_key(options_.kv_dtype, options_.kv_scales);
    stride_ = (limits_.positions + limits_.page_size - 1) / limits_.page_size;
    sizes_ = graph_sizes(limits_.sequences);
    kinds_ = graph_splits(limits_.positions);
    if (options_.graphs) short_sizes_ = short_sizes(limits_.tokens);
    short_choices_ = std::min(kShortChoices, limits_.rows);
    const std::int64_t group = config_.heads / config_.kv_heads;
    constexpr std::int64_t few = 64;  // query rows that attention splits
    if (group > few || !options_.graphs) sizes_.clear();
    const gpu::DeviceInfo info = gpu::device_info();
    processors_ = info.multiprocessors;
    name_ = fmt::format(
        "{}, kernels of this book{}{}{}{}", info.name,
        options_.dtype == DType::bf16 ? ""
                                      : fmt::format(", {}", kernels::info(options_.dtype).name),
        weights_->quantization().empty() ? "" : ", weights " + weights_->quantization(),
        options_.kv_dtype == DType::u8 ? ", keys and values fp8" : "",
        options_.laws ? "" : ", laws off");
    const auto reserve_plan = [&](std::int64_t size, std::int64_t splits) {
      const gpu::AttentionPlan plan =
          decode_plan(std::vector<std::int32_t>(count(size), 0), size, splits);
      attention_bytes_ = std::max(attention_bytes_, plan.workspace_bytes());
      words_bytes_ = std::max(words_bytes_, plan.plan_bytes());
    };
    constexpr std::size_t least_words = std::size_t{1} << 20;
    words_bytes_ = least_words;  // for batches of prompts
    attention_bytes_ = 2 * least_words;
    for (const std::int64_t splits : kinds_) reserve_plan(limits_.sequences, splits);
    reserve_short_plans();
    input_bytes_ = layout(limits_.tokens, limits_.rows).bytes;
    const auto row = static_cast<std::int64_t>(sizeof(float)) * limits_.rows;
    const auto graphs = static_cast<std::int64_t>(sizes_.size() * kinds_.size()) *
                            (options_.max_loras > 0 ? 2 : 1) +
                        static_cast<std::int64_t>(short_sizes_.size() * kinds_.size());
    constexpr std::int64_t graph_bytes = std::int64_t{3} << 19;  // of one recording, as measured
    const auto signed_size = [](std::size_t n) { return static_cast<std::int64_t>(n); };
    const gpu::DeviceMemory device = gpu::device_memory();
    const auto budget =
        static_cast<std::int64_t>(static_cast<double>(device.total) * options_.memory_utilization) -
        signed_size(device.total - device.free);
    memory_ = plan_pages(
        budget,
        {{"weights", signed_size(model::GpuWeights::bytes(*weights_, options_.dtype))},
         {fmt::format("activations of {} tokens", limits_.tokens),
          signed_size(
              model::GpuWorkspace::bytes(config_, limits_.tokens, limits_.rows, options_.dtype))},
         {fmt::format("logits of {} rows, twice", limits_.rows), 2 * row * limits_.vocab},
         {"attention's partial sums", signed_size(attention_bytes_)},
         {fmt::format("{} adapters of rank {}", options_.max_loras, options_.max_lora_rank),
          signed_size(model::GpuAdapters::bytes(config_, options_.max_loras, options_.max_lora_rank,
                                                limits_.tokens))},
         {"inputs, outputs and page table",
          signed_size(2 * input_bytes_) + 4 * limits_.sequences * stride_ + 64 * row},
         {fmt::format("{} recorded steps", graphs), graphs * graph_bytes}},
        kv_page_bytes(config_, limits_.page_size, options_.kv_dtype), limits_.page_size,
        options_.pages);
    limits_.pages = memory_.pages;
    device_ = std::make_unique<model::GpuWeights>(*weights_, options_.dtype);
    if (options_.max_loras > 0)
      adapters_ = std::make_unique<model::GpuAdapters>(config_, options_.max_loras,
                                                       options_.max_lora_rank, limits_.tokens);
    workspace_ = std::make_unique<model::GpuWorkspace>(
        config_, limits_.tokens, limits_.rows, options_.measured, options_.laws, options_.dtype);
    const std::size_t half = count(memory_.page_bytes / 2 * limits_.pages);
    keys_ = gpu::Buffer(half);
    values_ = gpu::Buffer(half);
    table_ = gpu::Buffer(count(limits_.sequences * stride_) * sizeof(std::int32_t));
    input_ = gpu::Buffer(input_bytes_ + attention_bytes_);
    ids_ = gpu::Buffer(count(limits_.tokens) * sizeof(std::int32_t));
    const std::size_t rows = count(limits_.rows),
                      logits = rows * count(limits_.vocab) * sizeof(float);
    hidden_ = gpu::Buffer(kernels::row_bytes(options_.dtype, limits_.rows * config_.hidden));
    logits_ = gpu::Buffer(logits);
    model_logits_ = gpu::Buffer(logits);
    const OutputLayout output(limits_.rows);
    results_ = gpu::Buffer(output.bytes);
    targets_ = gpu::Buffer(rows * sizeof(std::int32_t));
    lse_ = gpu::Buffer(rows * sizeof(float));
    gpu::fill_bytes(table_.data(), 0, table_.bytes(), stream_.get());
    gpu::fill_bytes(results_.data(), 0, results_.bytes(), stream_.get());
    gpu::fill_bytes(keys_.data(), 0, half, stream_.get());
    gpu::fill_bytes(values_.data(), 0, half, stream_.get());
    sent_.assign(count(limits_.sequences * stride_), 0);
    view_ = {.k = keys_.data(),
             .v = values_.data(),
             .dtype = options_.kv_dtype,
             .layers = static_cast<int>(config_.layers),
             .kv_heads = static_cast<int>(config_.kv_heads),
             .head_dim = static_cast<int>(config_.head_dim),
             .page_size = limits_.page_size,
             .pages = limits_.pages,
             .page_table = table_.as<std::int32_t>(),
             .table_stride = stride_};
    const auto scales = [&](const std::vector<float>& values, gpu::Buffer& memory) -> const float* {
      if (values.empty()) return nullptr;
      memory = gpu::Buffer::of(std::span(values));
      return memory.as<float>();
    };
    view_.k_scale = scales(options_.kv_scales.k, key_scales_);
    view_.v_scale = scales(options_.kv_scales.v, value_scales_);
    for (Slot& slot : slots_) {
      slot.input = gpu::HostBuffer(input_bytes_ + words_bytes_);
      slot.output = gpu::HostBuffer(output.bytes);
    }
    record_graphs();
  }

  const RunnerLimits& limits() const override { return limits_; }
  const MemoryPlan& memory() const override { return memory_; }
  std::string_view name() const override { return name_; }
  std::shared_ptr<const model::WeightSet> weights() const override { return weights_; }

  // Launch a step.
  void launch(const StepInput& step) override {
    if (in_flight_ == 2) {
      throw core::Error(core::Code::internal, "two steps are in flight").in("launch");
    }
    const auto tokens = static_cast<std::int64_t>(step.ids.size());
    const auto sequences = static_cast<std::int64_t>(step.row_offsets.size()) - 1;
    const auto choices = static_cast<std::int64_t>(step.logit_tokens.size());
    if (tokens > limits_.tokens || sequences > limits_.sequences || choices > limits_.rows) {
      throw core::Error(
          core::Code::out_of_range,
          fmt::format("{} tokens of {} sequences with {} choices, where {}, {} and {} "
                      "are the most",
                      tokens, sequences, choices, limits_.tokens, limits_.sequences, limits_.rows))
          .in("step");
    }
    Slot& slot = slots_[count(launches_ % 2)];
    slot.choices = choices;
    slot.sampling.assign(step.sampling.begin(), step.sampling.end());
    slot.hidden_tokens.assign(step.hidden_tokens.begin(), step.hidden_tokens.end());
    prepare_lists(slot, step, sequences);
    const std::vector<std::int32_t> lengths = key_lengths(step);
    const Recording* const recording = recording_for(step, lengths);
    if (recording != nullptr) {
      const gpu::AttentionPlan plan = decode_plan(lengths, recording->size, recording->splits);
      fill_input(slot, step, recording->size, recording->size, plan);
      recording->graph.launch(stream_.get());
      begin_choice(slot, step, layout(recording->size, recording->size));
    } else if (tokens > 0 && !launch_short(slot, step, lengths)) {
      launch_kernels(slot, step, lengths);
    }
    if (!later_) slot.done.record(stream_.get());
    ++launches_;
    ++in_flight_;
  }

  void choose(std::span<const RowSampling> sampling) override {
    if (!later_)
      throw core::Error(core::Code::internal, "no launch waits to be told how").in("choose");
    Slot& slot = slots_[count((launches_ - 1) % 2)];
    slot.sampling.assign(sampling.begin(), sampling.end());
    send_adjustments(slot);
    choose_tokens(slot, *later_);
    later_.reset();
    slot.done.record(stream_.get());
  }

  // Wait for the oldest step.
  StepOutput wait() override {
    if (in_flight_ == 0) throw core::Error(core::Code::internal, "no step is in flight").in("wait");
    Slot& slot = slots_[count((launches_ - in_flight_) % 2)];
    --in_flight_;
    slot.done.wait();
    const OutputLayout out(limits_.rows);
    if (*slot.output.as<std::int32_t>() != 0) {
      throw core::Error(core::Code::internal, "a page table pointed outside the cache").in("step");
    }
    const std::int64_t r = slot.choices, top = std::max<std::int64_t>(slot.top, 0);
    const auto* const tokens = slot.output.as<std::int32_t>(out.tokens);
    slot.tokens.assign(tokens, tokens + r);
    slot.logprobs.assign(count(r), 0.0f);
    slot.top_ids.assign(count(r * top), -1);
    slot.top_logprobs.assign(count(r * top), -std::numeric_limits<float>::infinity());
    for (std::int64_t i = 0; i < r; ++i) {
      const RowSampling& row = slot.sampling[count(i)];
      if (row.given >= 0) slot.tokens[count(i)] = row.given;
      if (row.logprobs < 0) continue;
      slot.logprobs[count(i)] = slot.output.as<float>(row.processed ? out.processed : out.raw)[i];
      if (row.processed) continue;
      const auto* const ids = slot.output.as<std::int32_t>(out.top_ids) + i * top;
      const auto* const logprobs = slot.output.as<float>(out.top_logprobs) + i * top;
      std::copy_n(ids, row.logprobs, slot.top_ids.begin() + i * top);
      std::copy_n(logprobs, row.logprobs, slot.top_logprobs.begin() + i * top);
    }
    work_out_on_host(slot, top);
    read_hidden(slot);
    return {.tokens = slot.tokens,
            .logprobs = slot.logprobs,
            .top_ids = slot.top_ids,
            .top_logprobs = slot.top_logprobs,
            .top_stride = top,
            .hidden = slot.hidden_states};
  }

  void read_hidden(Slot& slot) const {
    const std::size_t c = count(config_.hidden);
    slot.hidden_states.clear();
    for (const std::int32_t token : slot.hidden_tokens) {
      const std::size_t first = slot.hidden_states.size(),
                        row = kernels::row_bytes(options_.dtype, config_.hidden);
      slot.hidden_states.resize(first + c);
      kernels::dequantize_row(options_.dtype,
                              slot.hidden.data() + count(token - slot.hidden_tokens.front()) * row,
                              slot.hidden_states.data() + first, config_.hidden);
    }
  }

  void work_out_on_host(Slot& slot, std::int64_t top) {
    for (std::size_t i = 0; i < slot.on_host.size(); ++i) {
      const std::size_t r = count(slot.on_host[i]), v = count(limits_.vocab);
      RowSampling row = slot.sampling[r];
      row.given = slot.tokens[r];
      if (row.given < 0) continue;
      const RowChoice choice =
          infer::choose({slot.rows.as<float>() + i * v, v}, row, scratch_, core::default_pool());
      slot.logprobs[r] = choice.logprob;
      const auto at = static_cast<std::ptrdiff_t>(r * count(top));
      std::ranges::copy(choice.top_ids, slot.top_ids.begin() + at);
      std::ranges::copy(choice.top_logprobs, slot.top_logprobs.begin() + at);
    }
  }

  // Change weights, move pages.
  void set_weights(std::shared_ptr<const model::WeightSet> weights) override {
    must_be_idle("set_weights");
    model::require_same_packing(*weights_, *weights);
    device_->assign(*weights);
    weights_ = std::move(weights);
  }

  std::uint64_t set_adapter(std::int64_t slot,
                            std::shared_ptr<const model::Adapter> adapter) override {
    must_be_idle("set_adapter");
    if (adapters_ == nullptr)
      throw core::Error(core::Code::unsupported, "this runner was made without room for adapters")
          .in("max_loras");
    adapters_->set(slot, adapter.get());
    return adapter == nullptr ? 0 : model::hash(*adapter);
  }

  void read_pages(std::span<const std::int32_t> pages, std::span<std::byte> out) const override {
    must_be_idle("read_pages");
    walk_pages(pages, out.size(),
               [&](const gpu::Buffer& from, std::size_t at, std::size_t to, std::size_t bytes) {
                 from.download(out.subspan(to, bytes), at);
               });
  }

  void write_pages(std::span<const std::int32_t> pages, std::span<const std::byte> in) override {
    must_be_idle("write_pages");
    walk_pages(pages, in.size(),
               [&](const gpu::Buffer& from, std::size_t at, std::size_t to, std::size_t bytes) {
                 const_cast<gpu::Buffer&>(from).upload(in.subspan(to, bytes), at);
               });
  }

  /// Calls each(buffer, offset in it, offset outside, bytes) for every layer's part of every page.
  template <class Each>
  void walk_pages(std::span<const std::int32_t> pages, std::size_t bytes, const Each& each) const {
    if (bytes != pages.size() * count(memory_.page_bytes)) {
      throw core::Error(
          core::Code::invalid_argument,
          fmt::format("{} bytes for {} pages of {}", bytes, pages.size(), memory_.page_bytes))
          .in("pages");
    }
    const std::size_t part = count(memory_.page_bytes / 2 / config_.layers);
    std::size_t outside = 0;
    for (const std::int32_t page : pages) {
      if (page < 0 || page >= limits_.pages) {
        throw core::Error(core::Code::out_of_range,
                          fmt::format("page {} of {}", page, limits_.pages))
            .in("pages");
      }
      for (const gpu::Buffer* buffer : {&keys_, &values_}) {
        for (std::int64_t layer = 0; layer < config_.layers; ++layer, outside += part) {
          each(*buffer, count(layer * limits_.pages + page) * part, outside, part);
        }
      }
    }
  }

  void start_profile() override { gpu::start_activities(); }
  void stop_profile(std::vector<ProfileSpan>& spans) override {
    gpu::synchronize(stream_.get());
    for (gpu::Activity& a : gpu::stop_activities())
      spans.push_back({std::move(a.name), "device", a.begin, a.end});
  }

  void must_be_idle(const char* what) const {
    if (in_flight_ > 0) {
      throw core::Error(core::Code::internal, fmt::format("{} steps are in flight", in_flight_))
          .in(what);
    }
  }

 private:
  // Write down a step for the device.
  static std::vector<std::int32_t> key_lengths(const StepInput& step) {
    std::vector<std::int32_t> lengths;
    for (std::size_t s = 0; s + 1 < step.row_offsets.size(); ++s) {
      const auto end = count(step.row_offsets[s + 1]);
      const bool any = step.row_offsets[s] < step.row_offsets[s + 1];
      lengths.push_back(any ? step.positions[end - 1] + 1 : 0);
    }
    return lengths;
  }

  void fill_input(Slot& slot, const StepInput& step, std::int64_t tokens, std::int64_t choices,
                  const gpu::AttentionPlan& plan) {
    const InputLayout at = layout(tokens, choices);
    if (plan.words.size() * sizeof(std::int32_t) > words_bytes_) {
      throw core::Error(core::Code::resource_exhausted, "the plan of attention is too long")
          .in("step");
    }
    auto* const ids = slot.input.as<std::int32_t>(at.ids);
    auto* const positions = slot.input.as<std::int32_t>(at.positions);
    auto* const places = slot.input.as<kernels::KvPlace>(at.places);
    auto* const rows = slot.input.as<std::int32_t>(at.rows);
    auto* const params = slot.input.as<kernels::SamplingParams>(at.params);
    const std::size_t given = step.ids.size();
    std::ranges::copy(step.ids, ids);
    std::ranges::copy(step.positions, positions);
    std::fill(ids + given, ids + tokens, 0);
    std::fill(positions + given, positions + tokens, 0);
    std::fill(places + given, places + tokens, kernels::KvPlace{0, -1});
    for (std::size_t s = 0; s + 1 < step.row_offsets.size(); ++s) {
      for (auto t = count(step.row_offsets[s]); t < count(step.row_offsets[s + 1]); ++t) {
        places[t] = {static_cast<std::int32_t>(s), step.positions[t]};
      }
    }
    std::ranges::copy(step.logit_tokens, rows);
    std::iota(rows + step.logit_tokens.size(), rows + choices,
              static_cast<std::int32_t>(step.logit_tokens.size()));
    for (std::size_t r = 0; r < step.sampling.size(); ++r) params[r] = step.sampling[r].params;
    std::fill(params + step.sampling.size(), params + choices, kernels::SamplingParams{});
    fill_adapters(slot.input.as<std::int32_t>(at.adapters), step);
    const std::size_t words = plan.words.size() * sizeof(std::int32_t);
    std::memcpy(slot.input.data() + at.bytes, plan.words.data(), words);
    gpu::copy_to_device(input_.as<std::byte>() + input_bytes_ - at.bytes, slot.input.data(),
                        at.bytes + words, stream_.get());
  }

  /// Rows are sorted by slot: the tokens of slot i are offsets[i] to offsets[i + 1].
  void fill_adapters(std::int32_t* offsets, const StepInput& step) const {
    std::size_t s = 0;
    for (std::int64_t slot = 0; slot <= (options_.max_loras > 0 ? options_.max_loras : -1);
         ++slot) {
      while (s < step.adapters.size() && step.adapters[s] < slot) ++s;
      offsets[slot] = step.adapters.empty() ? 0 : step.row_offsets[s];
    }
  }

  // Send copies of pages and changed entries of the table.
  void prepare_lists(Slot& slot, const StepInput& step, std::int64_t sequences) {
    lists_.clear();
    entries_.clear();
    for (std::int64_t s = 0; s < sequences; ++s) {
      const auto end = count(step.row_offsets[count(s) + 1]);
      if (step.row_offsets[count(s)] == step.row_offsets[count(s) + 1]) continue;
      const std::int64_t used = step.positions[end - 1] / limits_.page_size + 1;
      for (std::int64_t i = 0; i < used; ++i) {
        const std::int32_t page = step.page_table[count(s * step.table_stride + i)];
        std::int32_t& sent = sent_[count(s * stride_ + i)];
        if (page == sent) continue;
        sent = page;
        entries_.push_back({static_cast<std::int32_t>(s * stride_ + i), page});
      }
    }
    const std::size_t entries = lists_.add(std::span<const gpu::TableEntry>(entries_));
    const std::size_t copies = lists_.add(step.copies);
    lists_.upload(slot.lists, lists_memory_, stream_.get());
    const std::byte* const base = lists_memory_.as<std::byte>();
    gpu::scatter_entries(reinterpret_cast<const gpu::TableEntry*>(base + entries),
                         static_cast<std::int64_t>(entries_.size()), table_.as<std::int32_t>(),
                         limits_.sequences * stride_, stream_.get());
    if (step.copies.empty()) return;
    gpu::kv_copy_pages(view_, reinterpret_cast<const kernels::KvPageCopy*>(base + copies),
                       static_cast<std::int64_t>(step.copies.size()), stream_.get());
  }

  // Enqueue a pass: kernel by kernel, or into a recording.
  struct Recording {
    std::int64_t size, splits;
    gpu::Graph graph;
  };
  /// How a pass differs from one over plain rows.
  struct Kind {
    bool all = false;      ///< every token is followed by a choice: no rows are picked out
    bool adapted = false;  ///< some rows have adapters
    bool hidden = false;   ///< somebody wants hidden states
  };
  using RecordingKey = std::tuple<std::int64_t, std::int64_t, bool>;  // size, splits, adapted

  InputLayout layout(std::int64_t tokens, std::int64_t choices) const {
    return {tokens, choices, options_.max_loras > 0 ? options_.max_loras + 1 : 0};
  }

  /// One token for each of `size` sequences, the last ones empty; work items for pasts of up to `splits` splits.
  gpu::AttentionPlan decode_plan(std::vector<std::int32_t> lengths, std::int64_t size,
                                 std::int64_t splits) const {
    constexpr std::int64_t rows = 16;  // query rows of a work item
    const std::int64_t items =
        size * config_.kv_heads * ((config_.heads / config_.kv_heads + rows - 1) / rows);
    std::vector<std::int32_t> offsets(count(size) + 1);
    std::iota(offsets.begin(), offsets.end(), 0);
    lengths.resize(count(size), 0);
    return gpu::plan_attention(
        model::attention_shape(config_), offsets, lengths,
        {.least_splits = items * splits, .least_merges = splits > 1 ? items : 0});
  }

  const std::byte* device_input(const InputLayout& at) const {
    return input_.as<std::byte>() + input_bytes_ - at.bytes;
  }

  void pass(std::int64_t tokens, std::int64_t choices, const gpu::AttentionPlan& plan,
            const Kind& kind) {
    const InputLayout at = layout(tokens, choices);
    const std::byte* const base = device_input(at);
    const gpu::Stream s = stream_.get();
    const auto ints = [&](std::size_t offset) {
      return reinterpret_cast<const std::int32_t*>(base + offset);
    };
    gpu::resolve_tokens(ints(at.ids), tokens, chosen(), limits_.rows, ids_.as<std::int32_t>(), s);
    const model::GpuBatch batch{
        .tokens = tokens,
        .ids = ids_.as<std::int32_t>(),
        .positions = ints(at.positions),
        .places = reinterpret_cast<const kernels::KvPlace*>(base + at.places),
        .logit_tokens = kind.all || kind.hidden ? nullptr : ints(at.rows),
        .plan = &plan,
        .attention = {input_.as<std::byte>() + input_bytes_, attention_bytes_},
        .kv = &view_,
        .fault = reinterpret_cast<std::int32_t*>(results_.as<std::byte>()),
        .adapters = kind.adapted ? adapters_.get() : nullptr,
        .adapter_offsets = ints(at.adapters)};
    const Matrix hidden{hidden_.data(), options_.dtype, choices, config_.hidden};
    if (kind.hidden) {  // of all tokens, where the norms wrote before
      const Matrix every{workspace_->normed, options_.dtype, tokens, config_.hidden};
      model::forward(*device_, batch, *workspace_, every, s);
      if (choices > 0) gpu::embedding(ints(at.rows), every, hidden, s);
    } else {
      model::forward(*device_, batch, *workspace_, hidden, s);
    }
    if (choices > 0) model::logits(*device_, hidden, *workspace_, logits(logits_, choices), s);
  }

  // Launch a mixed step.
  void launch_kernels(Slot& slot, const StepInput& step, const std::vector<std::int32_t>& lengths) {
    constexpr std::int64_t unit = 64;
    const auto tokens = static_cast<std::int64_t>(step.ids.size());
    const std::int64_t padded = std::min((tokens + unit - 1) / unit * unit, limits_.tokens);
    std::vector<std::int32_t> offsets(step.row_offsets.begin(), step.row_offsets.end()),
        keys(lengths);
    if (padded > tokens) {
      offsets.push_back(static_cast<std::int32_t>(padded));
      keys.push_back(0);
    }
    const kernels::AttentionShape shape = model::attention_shape(config_);
    gpu::AttentionPlan plan = gpu::plan_attention(shape, offsets, keys, mixed_attention(step));
    const auto is_too_large = [&] {
      return plan.workspace_bytes() > attention_bytes_ || plan.plan_bytes() > words_bytes_;
    };
    if (is_too_large()) plan = gpu::plan_attention(shape, offsets, keys);
    if (is_too_large())
      plan = gpu::plan_attention(shape, offsets, keys, {.path = gpu::AttentionPath::rows});
    fill_input(slot, step, padded, slot.choices, plan);
    pass(padded, slot.choices, plan,
         {.adapted = has_adapters(step), .hidden = !slot.hidden_tokens.empty()});
    bring_hidden(slot);
    begin_choice(slot, step, layout(padded, slot.choices));
  }

  /// With the laws off, prompts alone are walked in one go, without the merges that equality with short queries costs.
  gpu::AttentionOptions mixed_attention(const StepInput& step) const {
    constexpr std::int32_t few = 16;
    gpu::AttentionOptions options{.divide_below = processors_};
    if (options_.laws) return options;
    for (std::size_t s = 0; s + 1 < step.row_offsets.size(); ++s)
      if (step.row_offsets[s + 1] - step.row_offsets[s] < few) return options;
    constexpr int whole = 1 << 20;
    options.path = gpu::AttentionPath::rows;
    options.key_split = whole;
    return options;
  }

  static bool has_adapters(const StepInput& step) {
    return !step.adapters.empty() && step.adapters.back() >= 0;
  }

  /// The wanted hidden states, and what lies between them.
  void bring_hidden(Slot& slot) {
    if (slot.hidden_tokens.empty()) return;
    const std::size_t row = kernels::row_bytes(options_.dtype, config_.hidden);
    const auto first = count(slot.hidden_tokens.front()), last = count(slot.hidden_tokens.back());
    const std::size_t bytes = (last - first + 1) * row;
    if (slot.hidden.bytes() < bytes) slot.hidden = gpu::HostBuffer(2 * bytes);
    gpu::copy_to_host(slot.hidden.data(), workspace_->normed + first * row, bytes, stream_.get());
  }

  // Record the decoding steps.
  void record_graphs() {
    gpu::synchronize(stream_.get());
    const std::size_t before = gpu::device_memory().free;
    const StepInput nothing{};
    for (const std::int64_t size : sizes_) {
      workspace_->plan(size);
      workspace_->plan_head(size);
      for (const std::int64_t splits : kinds_) {
        const gpu::AttentionPlan plan = decode_plan({}, size, splits);
        fill_input(slots_[0], nothing, size, size, plan);
        for (const bool adapted : {false, true}) {
          if (adapted && adapters_ == nullptr) continue;
          const Kind kind{.all = true, .adapted = adapted};
          pass(size, size, plan, kind);
          gpu::synchronize(stream_.get());
          recordings_[{size, splits, adapted}] = {
              size, splits,
              gpu::Graph::capture(stream_.get(), [&] { pass(size, size, plan, kind); })};
        }
      }
    }
    record_short_steps();
    const std::size_t after = gpu::device_memory().free;
    core::log(core::LogLevel::info, "{} recorded steps take {} MiB",
              recordings_.size() + short_recordings_.size(),
              (before - std::min(before, after)) >> 20);
  }

  /// The recording that plays this step, if there is one.
  const Recording* recording_for(const StepInput& step,
                                 std::span<const std::int32_t> lengths) const {
    const std::size_t sequences = lengths.size();
    if (sizes_.empty() || sequences == 0 || !step.hidden_tokens.empty() ||
        step.ids.size() != sequences || step.logit_tokens.size() != sequences) {
      return nullptr;
    }
    for (std::size_t i = 0; i < sequences; ++i) {
      const auto own = static_cast<std::int32_t>(i);
      if (step.row_offsets[i + 1] != own + 1 || step.logit_tokens[i] != own) return nullptr;
    }
    const auto found =
        recordings_.find({bucket_of(sizes_, static_cast<std::int64_t>(sequences)),
                          bucket_of(kinds_, splits_of(lengths)), has_adapters(step)});
    return found == recordings_.end() ? nullptr : &found->second;
  }

  /// Of the longest past.
  static std::int64_t splits_of(std::span<const std::int32_t> lengths) {
    const std::int64_t longest = *std::ranges::max_element(lengths);
    return (longest + kernels::numerics::key_split - 1) / kernels::numerics::key_split;
  }

  // Record steps over short pieces of prompts.
  static constexpr std::int64_t kShortSequences = 4, kShortChoices = 8;
  static constexpr std::array<std::int32_t, 1> kNoOffsets{0};

  /// Sequences are filled up with empty ones, and tokens with a last sequence that has no past. Absent: the lists are too short.
  std::optional<gpu::AttentionPlan> short_plan(std::span<const std::int32_t> row_offsets,
                                               std::span<const std::int32_t> lengths,
                                               std::int64_t size, std::int64_t splits) const {
    constexpr std::int64_t item_rows = 128, part_rows = 16, more = 3, always = 1 << 20;
    const std::int64_t rows = size * config_.heads / config_.kv_heads;
    const std::int64_t items =
        config_.kv_heads * ((rows + item_rows - 1) / item_rows + more) * splits;
    const std::int64_t merges =
        config_.kv_heads * ((rows + part_rows - 1) / part_rows + kShortSequences);
    std::vector<std::int32_t> offsets(row_offsets.begin(), row_offsets.end()),
        keys(lengths.begin(), lengths.end());
    offsets.resize(kShortSequences + 1, offsets.back());
    offsets.push_back(static_cast<std::int32_t>(size));
    keys.resize(kShortSequences + 1, 0);
    gpu::AttentionPlan plan = gpu::plan_attention(model::attention_shape(config_), offsets, keys,
                                                  {.path = gpu::AttentionPath::rows,
                                                   .divide_below = always,
                                                   .least_rows = items,
                                                   .least_merges = splits > 1 ? merges : 0});
    if (plan.rows > items || plan.merges > merges) return std::nullopt;
    return plan;
  }

  // Record them, and play what fits.
  void reserve_short_plans() {
    for (const std::int64_t size : short_sizes_) {
      for (const std::int64_t splits : kinds_) {
        const auto plan = short_plan(kNoOffsets, {}, size, splits);
        attention_bytes_ = std::max(attention_bytes_, plan->workspace_bytes());
        words_bytes_ = std::max(words_bytes_, plan->plan_bytes());
      }
    }
  }

  void record_short_steps() {
    const StepInput nothing{};
    if (!short_sizes_.empty()) workspace_->plan_head(short_choices_);
    for (const std::int64_t size : short_sizes_) {
      workspace_->plan(size);
      for (const std::int64_t splits : kinds_) {
        const auto plan = short_plan(kNoOffsets, {}, size, splits);
        const auto enqueue = [&] { pass(size, short_choices_, *plan, {}); };
        fill_input(slots_[0], nothing, size, short_choices_, *plan);
        enqueue();
        gpu::synchronize(stream_.get());
        short_recordings_[{size, splits}] = gpu::Graph::capture(stream_.get(), enqueue);
      }
    }
  }

  /// False: no recording plays this step.
  bool launch_short(Slot& slot, const StepInput& step, std::span<const std::int32_t> lengths) {
    if (lengths.size() > kShortSequences || slot.choices > short_choices_ || has_adapters(step) ||
        !step.hidden_tokens.empty()) {
      return false;
    }
    const std::int64_t size = bucket_of(short_sizes_, static_cast<std::int64_t>(step.ids.size()));
    const std::int64_t splits = bucket_of(kinds_, splits_of(lengths));
    const auto found = short_recordings_.find({size, splits});
    if (found == short_recordings_.end()) return false;
    const auto plan = short_plan(step.row_offsets, lengths, size, splits);
    if (!plan) return false;
    fill_input(slot, step, size, short_choices_, *plan);
    found->second.launch(stream_.get());
    begin_choice(slot, step, layout(size, short_choices_));
    return true;
  }

  // Choose tokens, and what is asked about them.
  Matrix logits(const gpu::Buffer& of, std::int64_t rows) const {
    return {of.data(), DType::f32, rows, limits_.vocab};
  }
  std::int32_t* chosen() const {
    return reinterpret_cast<std::int32_t*>(results_.as<std::byte>() + kTokens);
  }

  // Flatten what is done to the logits before a choice.

  /// Chooses, or leaves it to choose().
  void begin_choice(Slot& slot, const StepInput& step, const InputLayout& at) {
    if (step.choose_later) {
      later_ = at;
      return;
    }
    send_adjustments(slot);
    choose_tokens(slot, at);
  }

  void send_adjustments(Slot& slot) {
    adjusted_ = false;
    adjustments_ = {};
    given_ = nullptr;
    bool bias = false, mask = false, context = false, given = false;
    for (const RowSampling& row : slot.sampling) {
      bias = bias || !row.adjust.bias.empty();
      mask = mask || !row.adjust.mask.empty();
      context = context || !row.adjust.context.empty();
      given = given || row.given >= 0;
    }
    adjusted_ = bias || mask || context;
    std::vector<std::int32_t> targets, bias_offsets{0}, bias_ids, context_offsets{0}, ids, counts;
    std::vector<float> values, repetition, frequency, presence;
    adjust_lists_.clear();
    const std::size_t words = (count(limits_.vocab) + 31) / 32;
    const std::size_t masks_at =
        mask ? adjust_lists_.room(slot.sampling.size() * words * sizeof(std::uint32_t)) : 0;
    for (std::size_t r = 0; r < slot.sampling.size(); ++r) {
      const RowSampling& row = slot.sampling[r];
      targets.push_back(row.given >= 0 ? row.given : -static_cast<std::int32_t>(r) - 1);
      for (const auto& [id, value] : row.adjust.bias)
        bias_ids.push_back(id), values.push_back(value);
      bias_offsets.push_back(static_cast<std::int32_t>(bias_ids.size()));
      for (const auto& [id, times] : row.adjust.context) ids.push_back(id), counts.push_back(times);
      context_offsets.push_back(static_cast<std::int32_t>(ids.size()));
      repetition.push_back(row.adjust.repetition);
      frequency.push_back(row.adjust.frequency);
      presence.push_back(row.adjust.presence);
      if (!mask) continue;
      auto* const to =
          reinterpret_cast<std::uint32_t*>(adjust_lists_.data() + masks_at) + r * words;
      const std::size_t given_words = std::min(words, row.adjust.mask.size());
      std::ranges::copy(row.adjust.mask.first(given_words), to);
      std::fill(to + given_words, to + words, ~0u);
    }
    const auto add = [&](const auto& list) {
      return adjust_lists_.add(std::span(std::as_const(list)));
    };
    if (!adjusted_ && !given) return;
    const std::size_t at[] = {add(targets),    add(bias_offsets),    add(bias_ids), add(values),
                              masks_at,        add(context_offsets), add(ids),      add(counts),
                              add(repetition), add(frequency),       add(presence)};
    adjust_lists_.upload(slot.adjustments, adjust_memory_, stream_.get());
    const std::byte* const base = adjust_memory_.as<std::byte>();
    const auto ints = [&](std::size_t i) {
      return reinterpret_cast<const std::int32_t*>(base + at[i]);
    };
    const auto floats = [&](std::size_t i) { return reinterpret_cast<const float*>(base + at[i]); };
    given_ = ints(0);
    if (bias) {
      adjustments_.bias_offsets = ints(1), adjustments_.bias_ids = ints(2);
      adjustments_.bias_values = floats(3);
    }
    if (mask) {
      adjustments_.mask = reinterpret_cast<const std::uint32_t*>(base + at[4]);
      adjustments_.mask_words = static_cast<std::int64_t>(words);
    }
    if (context) {
      adjustments_.context_offsets = ints(5), adjustments_.context_ids = ints(6);
      adjustments_.context_counts = ints(7);
      adjustments_.repetition = floats(8), adjustments_.frequency = floats(9);
      adjustments_.presence = floats(10);
    }
  }

  void choose_tokens(Slot& slot, const InputLayout& at) {
    const std::int64_t r = slot.choices;
    const OutputLayout out(limits_.rows);
    const gpu::Stream s = stream_.get();
    std::byte* const results = results_.as<std::byte>();
    const auto floats = [&](std::size_t offset) {
      return reinterpret_cast<float*>(results + offset);
    };
    slot.top = 0, slot.raw = slot.given = false;
    slot.on_host.clear();
    for (std::int64_t i = 0; i < r; ++i) {
      const RowSampling& row = slot.sampling[count(i)];
      slot.top = std::max<std::int64_t>(slot.top, row.logprobs);
      slot.raw = slot.raw || (row.logprobs >= 0 && !row.processed);
      slot.given = slot.given || row.given >= 0;
      if (row.processed && (row.logprobs > 0 || row.given >= 0)) slot.on_host.push_back(i);
    }
    if (r > 0) {
      const bool copy = adjusted_ && (slot.raw || !slot.on_host.empty());
      const std::size_t bytes = count(r * limits_.vocab) * sizeof(float);
      if (copy) gpu::copy_on_device(model_logits_.data(), logits_.data(), bytes, s);
      const Matrix model = logits(copy ? model_logits_ : logits_, r), adjusted = logits(logits_, r);
      auto* const lse = lse_.as<float>();
      if (slot.raw) gpu::token_logprob(model, chosen(), nullptr, lse, s);
      if (slot.raw && slot.top > 0) {
        gpu::top_logprobs(model, lse, static_cast<int>(slot.top),
                          reinterpret_cast<std::int32_t*>(results + out.top_ids),
                          floats(out.top_logprobs), s);
      }
      if (adjusted_) gpu::adjust_logits(adjusted, adjustments_, s);
      const auto* params =
          reinterpret_cast<const kernels::SamplingParams*>(device_input(at) + at.params);
      gpu::sample(adjusted, params, chosen(), floats(out.processed), s);
      const std::int32_t* targets = chosen();
      if (slot.given) {
        gpu::resolve_tokens(given_, r, chosen(), r, targets_.as<std::int32_t>(), s);
        targets = targets_.as<std::int32_t>();
      }
      if (slot.raw) gpu::token_logprob(model, targets, floats(out.raw), nullptr, s);
      bring_rows(slot, model);
    }
    const auto bring = [&](std::size_t from, std::size_t to) {
      gpu::copy_to_host(slot.output.data() + from, results + from, to - from, s);
    };
    bring(0, slot.top < 0 || r == 0 ? kTokens + count(r) * sizeof(float) : out.top_ids);
    if (slot.top > 0) bring(out.top_ids, out.bytes);
  }

  // Bring rows to the host.
  void bring_rows(Slot& slot, const Matrix& model) {
    const std::size_t row = count(limits_.vocab) * sizeof(float);
    if (slot.rows.bytes() < slot.on_host.size() * row) {
      slot.rows = gpu::HostBuffer(slot.on_host.size() * row);
    }
    for (std::size_t i = 0; i < slot.on_host.size(); ++i) {
      gpu::copy_to_host(slot.rows.data() + i * row,
                        static_cast<const std::byte*>(model.data) + count(slot.on_host[i]) * row,
                        row, stream_.get());
    }
  }

  std::shared_ptr<const model::WeightSet> weights_;
  model::Config config_;
  GpuRunnerOptions options_;
  RunnerLimits limits_;
  MemoryPlan memory_;
  std::string name_;
  std::int64_t stride_ = 0;  // of the device's page table
  int processors_ = 0;       // multiprocessors
  std::vector<std::int64_t> sizes_, kinds_, short_sizes_;
  std::int64_t short_choices_ = 0;
  std::size_t input_bytes_ = 0, words_bytes_ = 0, attention_bytes_ = 0;

  gpu::OwnedStream stream_;
  std::unique_ptr<model::GpuWeights> device_;
  std::unique_ptr<model::GpuWorkspace> workspace_;
  std::unique_ptr<model::GpuAdapters> adapters_;
  gpu::Buffer keys_, values_, table_, input_, ids_, hidden_, logits_, model_logits_, results_,
      targets_, lse_, lists_memory_, adjust_memory_, key_scales_, value_scales_;
  kernels::KvView view_;
  std::array<Slot, 2> slots_;
  std::map<RecordingKey, Recording> recordings_;
  std::map<std::pair<std::int64_t, std::int64_t>, gpu::Graph> short_recordings_;  // size, splits
  std::int64_t launches_ = 0, in_flight_ = 0;

  std::vector<std::int32_t> sent_;  // what the device's page table holds
  std::vector<gpu::TableEntry> entries_;
  Lists lists_, adjust_lists_;
  bool adjusted_ = false;
  std::optional<InputLayout> later_;  // of a launch whose tokens are chosen by choose()
  gpu::LogitAdjustments adjustments_;
  const std::int32_t* given_ = nullptr;
  ChooseScratch scratch_;
};

}  // namespace

std::unique_ptr<Runner> make_gpu_runner(std::shared_ptr<const model::WeightSet> weights,
                                        const GpuRunnerOptions& options) {
  return std::make_unique<GpuRunner>(std::move(weights), options);
}

}  // namespace rose::infer
