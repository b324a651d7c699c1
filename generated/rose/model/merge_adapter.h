// Make a model and its adapter one.

#pragma once

#include <filesystem>

#include "rose/model/adapter.h"
#include "rose/model/files/checkpoint.h"
#include "rose/model/files/convert.h"

namespace rose::model {

/// The checkpoint with the change of an adapter (a folder in PEFT's layout) in its matrices; if the folder says how to chat and
/// which tokens end an answer, the checkpoint says the same. Throws core::Error as read_adapter() does, and unsupported for
/// a checkpoint whose matrices a library has packed.
Checkpoint merge_adapter(const Checkpoint& checkpoint, const std::filesystem::path& adapter);

/// merge_adapter(), written as convert() writes.
ConvertResult export_merged(const Checkpoint& checkpoint, const std::filesystem::path& adapter,
                            const std::filesystem::path& to, ConvertOptions options);

}  // namespace rose::model
