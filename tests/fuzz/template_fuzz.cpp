// Any bytes are a template, or an error with a place in it; rendering ends within its limits.
#include <cstddef>
#include <cstdint>
#include <string>

#include <boost/json/parse.hpp>

#include "rose/core/error.h"
#include "rose/text/template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const boost::json::object context = boost::json::parse(R"({
        "messages": [{"role": "system", "content": "be <kind>"},
                     {"role": "user", "content": "na\u00efve \ud83d\ude42 text"},
                     {"role": "assistant", "content": null,
                      "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5, "y"]}}}]}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
        "add_generation_prompt": true, "bos_token": "<s>", "n": 3, "s": "a b c"})")
                                                 .as_object();
  rose::text::Limits limits;
  limits.steps = 20'000;
  limits.output_bytes = 1u << 16;
  limits.work_bytes = 1u << 22;
  try {
    const rose::text::ChatTemplate chat_template(
        std::string(reinterpret_cast<const char*>(data), size));
    (void)chat_template.render(context, limits, 1'700'000'000);
  } catch (const rose::core::Error& error) {
    if (error.argument().empty()) __builtin_trap();  // every error says where
  }
  return 0;
}
