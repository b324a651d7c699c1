// Write a packed batch.

#include "rose/trainer/data/micro_batch.h"

namespace rose::trainer {

void MicroBatchBuffer::clear() {
  ids.clear();
  positions.clear();
  targets.clear();
  weights.clear();
  row_offsets.assign(1, 0);
}

void MicroBatchBuffer::push(std::int32_t id, std::int32_t target) {
  positions.push_back(static_cast<std::int32_t>(ids.size()) - row_offsets.back());
  ids.push_back(id);
  targets.push_back(target);
}

void MicroBatchBuffer::end_sequence() {
  const auto end = static_cast<std::int32_t>(ids.size());
  if (end > row_offsets.back()) row_offsets.push_back(end);
}

}  // namespace rose::trainer
