// Turn a file's tensors into canonical ones.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "rose/model/files/names.h"
#include "rose/model/files/stored_tensor.h"
#include "rose/model/files/tensor_source.h"

namespace rose::model {

/// A tensor of some file, and what keeps its bytes alive.
struct Stored {
  StoredTensor tensor;
  std::shared_ptr<const void> owner;
  std::string where;  ///< the file, for messages
};
using StoredByName = std::unordered_map<std::string, Stored>;

/// What a container calls things: HF or GGUF.
struct Naming {
  Place (*place)(const Config&, std::string_view canonical);
  bool (*tolerated)(const Config&, std::string_view name);
  std::string prefix;  ///< may be absent in the file: "model." or "transformer."
};
Naming hf_naming(const Config& config);
Naming gguf_naming(const Config& config);

/// Reads a matrix that is stored in few bits under several names, which it adds to `used`; false when it is not stored so.
using PackedReader =
    std::function<bool(TensorInfo& to, const std::string& name, const StoredByName& stored,
                       std::vector<std::string>& used)>;

/// All canonical tensors, in place where the layout allows it and rearranged copies elsewhere.
/// Throws core::Error when one is missing or misshapen, or when the file has one too many.
std::vector<TensorInfo> assemble(const Config& config, const Naming& naming,
                                 const StoredByName& stored, const std::string& where,
                                 const PackedReader& packed = {});

}  // namespace rose::model
