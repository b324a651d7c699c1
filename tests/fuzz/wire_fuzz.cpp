// Any bytes as frames between front and engine, and between engines that read and write. What is accepted encodes to the same bytes again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "rose/core/error.h"
#include "rose/serve/messages.h"
#include "rose/serve/prefill_messages.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rose;
  serve::FrameReader reader;
  reader.push({reinterpret_cast<const char*>(data), size});
  try {
    while (const auto frame = reader.next()) {
      const std::string payload(frame->payload);
      std::string again;
      constexpr std::uint8_t first_prefill_command = 32, first_report = 64,
                             first_prefill_report = 96;
      if (frame->type >= first_prefill_report) {
        serve::encode(serve::decode_prefill_report(*frame), again);
      } else if (frame->type >= first_prefill_command && frame->type < first_report) {
        serve::encode(serve::decode_prefill_command(*frame), again);
      } else if (frame->type < first_report) {
        serve::encode(serve::decode_command(*frame), again);
      } else {
        serve::encode(serve::decode_report(*frame), again);
      }
      if (std::string_view(again).substr(5) != payload) std::abort();
    }
  } catch (const core::Error& error) {
    if (error.code() != core::Code::corrupt) std::abort();
  }
  return 0;
}
