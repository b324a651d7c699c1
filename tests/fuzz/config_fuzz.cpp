// Any bytes as a config.json. What is accepted must be consistent, and mean the same when it is written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "rose/core/error.h"
#include "rose/core/json.h"
#include "rose/model/files/config.h"
#include "rose/model/files/names.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rose;
  model::Config config;
  try {
    const auto json = core::parse_json({reinterpret_cast<const char*>(data), size}, "fuzz");
    config = model::parse_hf_config(core::as_object(json, "fuzz"));
  } catch (const core::Error& error) {
    if (error.code() == core::Code::internal) std::abort();
    return 0;
  }
  model::validate(config);
  const model::Config again = model::parse_hf_config(model::to_hf_config(config));
  if (!(again == config)) std::abort();
  if (config.layers <= 64) model::expected_tensors(config);
  return 0;
}
