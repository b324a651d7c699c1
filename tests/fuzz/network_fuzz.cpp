// Any bytes as a header of traces, as an address, as a redirection, as a hub's listing. What is read is within its rules.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "rose/core/error.h"
#include "rose/serve/http_client.h"
#include "rose/serve/hub.h"
#include "rose/serve/trace.h"

namespace {

using namespace rose;

void must(bool holds) {
  if (!holds) std::abort();
}

void url(std::string_view text) {
  const serve::Url read = serve::Url::parse(text);
  must(!read.host.empty() && read.target.starts_with('/') && read.port > 0);
  must(serve::Url::parse(read.text()).text() == read.text());
  must(read.target.find_first_of(" \r\n") == std::string::npos);
}

void listing(std::string_view text) {
  for (const serve::HubFile& file : serve::parse_listing(text).files) {
    must(!file.name.empty() && file.name.front() != '/');
    must(("/" + file.name + "/").find("/../") == std::string::npos);
    must(file.hash.find_first_not_of("0123456789abcdef") == std::string::npos);
    must(!file.hash.empty());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    switch (data[0]) {
      case 't':
        if (const auto context = serve::TraceContext::parse(text))
          must(serve::TraceContext::parse(context->header())->trace == context->trace);
        break;
      case 'u': url(text); break;
      case 'r': url(serve::Url::parse("https://hub.example/a/b?c").follow(text).text()); break;
      case 'h': listing(text); break;
      default: break;
    }
  } catch (const core::Error& error) {
    must(error.code() != core::Code::internal);
  }
  return 0;
}
