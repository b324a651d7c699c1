// What a front knows of its model.

#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rose/text/template.h"
#include "rose/text/tokenizer.h"

namespace rose::serve {

/// Names of adapters that are loaded. Any thread.
class AdapterNames {
 public:
  void add(const std::string& name) {
    const std::scoped_lock lock(mutex_);
    names_.insert(name);
  }
  void remove(const std::string& name) {
    const std::scoped_lock lock(mutex_);
    names_.erase(name);
  }
  bool has(const std::string& name) const {
    const std::scoped_lock lock(mutex_);
    return names_.contains(name);
  }
  std::set<std::string> all() const {
    const std::scoped_lock lock(mutex_);
    return names_;
  }

 private:
  mutable std::mutex mutex_;
  std::set<std::string> names_;
};

/// The model as a front knows it.
struct ModelCard {
  std::string name;                  ///< what clients call it
  std::vector<std::string> aliases;  ///< other names that are accepted
  text::Tokenizer tokenizer;
  std::optional<text::ChatTemplate> chat{};
  std::string bos_token{}, eos_token{};  ///< for the template
  std::int64_t positions = 0;            ///< the longest context
  std::int64_t vocab = 0;                ///< rows of logits
  std::int64_t created = 0;              ///< seconds since 1970
  std::shared_ptr<AdapterNames> adapters = std::make_shared<AdapterNames>();  ///< models, too

  bool called(const std::string& given) const;  ///< it is one of the model's own names
};

}  // namespace rose::serve
