// Take the steps of a run together.

#include "rose/trainer/data_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "rose/core/error.h"

namespace rose::trainer {

using core::Code;
using core::Error;

// Check that the groups can be shared.
DataParallelCompute::DataParallelCompute(std::unique_ptr<Compute> inner, dist::Group& group,
                                         std::int64_t micro_batches, std::int64_t groups)
    : inner_(std::move(inner)), group_(group), micro_batches_(micro_batches), groups_(groups) {
  const auto refuse = [](std::string what, std::string hint) {
    throw Error(Code::invalid_argument, std::move(what))
        .in("batch.grad_groups")
        .hint(std::move(hint));
  };
  if (groups < 1 || !std::has_single_bit(static_cast<std::uint64_t>(groups)))
    refuse(fmt::format("{} groups", groups), "a tree of gradients has a power of two of them");
  if (groups % group.size() != 0)
    refuse(fmt::format("{} processes cannot share {} groups equally", group.size(), groups),
           "the processes must divide the groups");
  if (micro_batches % groups != 0)
    refuse(fmt::format("{} micro-batches cannot be cut into {} groups", micro_batches, groups),
           "choose batch.tokens and batch.rows so that a step has a multiple of them");
  if (inner_->gradient_spans().empty())
    throw Error(Code::unsupported, "gradients of this device cannot be shared yet")
        .in("device")
        .hint("several processes train on the CPU so far: device: cpu");
}

DeviceInfo DataParallelCompute::device() const {
  DeviceInfo info = inner_->device();
  if (group_.size() > 1) info.name += fmt::format(", {} processes", group_.size());
  return info;
}

// Do your part, fold whole groups, add up with the others.
void DataParallelCompute::zero_gradients() {
  inner_->zero_gradients();
  tree_.clear();
  next_ = 0;
  sums_.assign(static_cast<std::size_t>(micro_batches_), {});
}

LossSum DataParallelCompute::accumulate(const MicroBatch& batch, double scale) {
  const std::int64_t in_group = micro_batches_ / groups_, own = groups_ / group_.size();
  const std::int64_t at = next_++, of = at / in_group;
  if (of / own != group_.rank()) return {};
  if (at % in_group == 0 && of % own != 0) inner_->zero_gradients();  // the one before is folded
  sums_[static_cast<std::size_t>(at)] = inner_->accumulate(batch, scale);
  if (at % in_group == in_group - 1 && own > 1) tree_.push(inner_->gradient_spans());
  return {};
}

void DataParallelCompute::add_up() {
  const std::vector<std::span<float>> gradient = inner_->gradient_spans();
  if (groups_ > group_.size()) tree_.take(gradient);
  constexpr std::size_t bucket = std::size_t{1} << 20;  // elements
  for (const std::span<float> span : gradient)
    for (std::size_t at = 0; at < span.size(); at += bucket)
      group_.all_reduce(span.subspan(at, std::min(bucket, span.size() - at)));
}

LossSum DataParallelCompute::complete(const LossSum& /*found*/) {
  add_up();
  constexpr std::size_t numbers = 4;
  std::vector<double> all(sums_.size() * numbers);
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const LossSum& s = sums_[i];
    const double values[numbers] = {s.loss, s.z, s.weight, static_cast<double>(s.tokens)};
    std::copy_n(values, numbers, all.begin() + static_cast<std::ptrdiff_t>(i * numbers));
  }
  if (group_.size() > 1) group_.all_gather(std::span(all));
  LossSum total;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    LossSum s;
    s.loss = all[i * numbers], s.z = all[i * numbers + 1], s.weight = all[i * numbers + 2];
    s.tokens = static_cast<std::int64_t>(all[i * numbers + 3]);
    total += s;
  }
  return total;
}

// Settle the groups, and refuse what is not shared yet.
bool DataParallelTeam::any(bool mine) {
  std::int32_t count = mine ? 1 : 0;
  group_.all_reduce(std::span(&count, 1));
  return count > 0;
}

std::unique_ptr<Compute> DataParallelTeam::share(std::unique_ptr<Compute> compute,
                                                 TrainConfig& config) {
  if (config.batch.grad_groups == 0) config.batch.grad_groups = group_.size();
  const auto refuse = [](const char* key, const char* what, const char* hint) {
    throw Error(Code::unsupported, what).in(key).hint(hint);
  };
  if (group_.size() > 1 && config.task == "preference")
    refuse("task", "preferences are not learnt by several processes yet", "start one process");
  if (group_.size() > 1 && config.lora.dropout > 0)
    refuse("lora.dropout", "several processes would leave out other numbers than one does",
           "lora.dropout=0, or start one process");
  return std::make_unique<DataParallelCompute>(std::move(compute), group_, config.micro_batches(),
                                               config.batch.grad_groups);
}

}  // namespace rose::trainer
