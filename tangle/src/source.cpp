#include "source.h"

#include <algorithm>

#include "text.h"

namespace tangle {

Span line_around(const Source& source, std::uint32_t offset) {
  const std::string_view line = line_at(source.text, offset);
  return span_at(source, static_cast<std::size_t>(line.data() - source.text.data()), line.size());
}

LineColumn locate(const Source& source, std::uint32_t offset) {
  const std::size_t at = std::min<std::size_t>(offset, source.text.size());
  const Span line = line_around(source, offset);
  LineColumn where;
  where.line += static_cast<std::uint32_t>(std::count(source.text.begin(), source.text.begin() + line.begin, '\n'));
  for (std::size_t i = line.begin; i < at; ++i) {
    if ((static_cast<unsigned char>(source.text[i]) & 0xC0) != 0x80) ++where.column;
  }
  return where;
}

}  // namespace tangle
