// Name a place in the source.

#include "rose/dist/wire.h"

#include <fmt/format.h>

#include <string_view>

namespace rose::dist {

std::string place(const Site& site) {
  const std::string_view file(site.file);
  return fmt::format("{}:{}", file.substr(file.rfind('/') + 1), site.line);
}

}  // namespace rose::dist
