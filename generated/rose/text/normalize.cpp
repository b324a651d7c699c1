// Decompose, order the marks, compose.

#include "rose/text/normalize.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "rose/text/code_point.h"
#include "rose/text/unicode.h"

namespace rose::text {
namespace {

// Hold the decompositions, the compositions and the combining classes.
struct Tables {
  struct Pair {
    std::uint32_t first, second;  ///< second is 0 for a single character
  };
  std::unordered_map<std::uint32_t, Pair> decomposition;
  std::unordered_map<std::uint64_t, std::uint32_t> composition;  ///< first << 32 | second
  std::unordered_map<std::uint32_t, std::uint8_t> combining;     ///< absent: 0
  std::vector<bool> unsafe;  ///< code points that normalisation may change, join or move

  Tables();
};

const Tables& tables() {
  static const Tables built;
  return built;
}

// Compute the Korean syllables, which need no table.
constexpr std::uint32_t syllable_base = 0xAC00, lead_base = 0x1100, vowel_base = 0x1161,
                        tail_base = 0x11A7;
constexpr std::uint32_t vowels = 21, tails = 28, syllables = 19 * vowels * tails;

// Unpack the tables and mark what needs a closer look.
Tables::Tables() : unsafe(invalid_byte + 256, false) {
  PackedNumbers packed(packed_decompositions());
  for (std::uint32_t c = 0; !packed.done();) {
    const std::uint32_t step = packed.next();
    c += step / 2;
    const auto first =
        static_cast<std::uint32_t>(static_cast<std::int32_t>(c) + packed.next_signed());
    const std::int32_t offset = packed.next_signed();
    const std::uint32_t second = offset == 0 ? 0 : static_cast<std::uint32_t>(0x2FF + offset);
    decomposition[c] = {first, second};
    if (step % 2 != 0) {
      composition[std::uint64_t{first} << 32 | second] = c;
      unsafe[second] = true;
    } else {
      unsafe[c] = true;
    }
  }
  PackedNumbers runs(packed_combining_runs());
  for (std::uint32_t at = 0; !runs.done();) {
    at += runs.next();
    const std::uint32_t end = at + runs.next();
    const auto combining_class = static_cast<std::uint8_t>(runs.next());
    for (;; ++at) {
      combining[at] = combining_class;
      unsafe[at] = true;
      if (at == end) break;
    }
  }
  for (std::uint32_t v = 0; v < vowels; ++v) unsafe[vowel_base + v] = true;
  for (std::uint32_t t = 1; t < tails; ++t) unsafe[tail_base + t] = true;
}

// Append the full decomposition of a code point.
struct Mark {
  std::uint32_t value;
  std::uint8_t combining;
};

void decompose(const Tables& t, std::uint32_t c, std::vector<Mark>& out) {
  if (c >= syllable_base && c < syllable_base + syllables) {
    const std::uint32_t i = c - syllable_base;
    out.push_back({lead_base + i / (vowels * tails), 0});
    out.push_back({vowel_base + i % (vowels * tails) / tails, 0});
    if (i % tails != 0) out.push_back({tail_base + i % tails, 0});
    return;
  }
  if (const auto found = t.decomposition.find(c); found != t.decomposition.end()) {
    decompose(t, found->second.first, out);
    if (found->second.second != 0) decompose(t, found->second.second, out);
    return;
  }
  const auto found = t.combining.find(c);
  out.push_back({c, found == t.combining.end() ? std::uint8_t{0} : found->second});
}

// Find the one character that stands for two, or 0.
std::uint32_t compose(const Tables& t, std::uint32_t a, std::uint32_t b) {
  if (a >= lead_base && a < lead_base + 19 && b >= vowel_base && b < vowel_base + vowels) {
    return syllable_base + ((a - lead_base) * vowels + (b - vowel_base)) * tails;
  }
  const bool open_syllable =
      a >= syllable_base && a < syllable_base + syllables && (a - syllable_base) % tails == 0;
  if (open_syllable && b > tail_base && b < tail_base + tails) return a + (b - tail_base);
  const auto found = t.composition.find(std::uint64_t{a} << 32 | b);
  return found == t.composition.end() ? 0 : found->second;
}

}  // namespace

// Accept text in which nothing can change.
bool quick_check_nfc(std::string_view text) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const auto* end = p + text.size();
  while (p < end && *p < 0xCC) ++p;  // everything below U+0300 is in normal form
  if (p == end) return true;
  const Tables& t = tables();
  while (p < end) {
    const CodePoint c = read_code_point(p, end);
    if (t.unsafe[c.value]) return false;
    p += c.size;
  }
  return true;
}

// Normalise in three passes.
std::string nfc(std::string_view text) {
  if (quick_check_nfc(text)) return std::string(text);
  const Tables& t = tables();
  std::vector<Mark> marks;
  marks.reserve(text.size());
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  for (const auto* end = p + text.size(); p < end;) {
    const CodePoint c = read_code_point(p, end);
    decompose(t, c.value, marks);
    p += c.size;
  }
  // Sort each run of marks by combining class, keeping the order of equals.
  const auto lower = [](const Mark& a, const Mark& b) { return a.combining < b.combining; };
  for (auto at = marks.begin(); at != marks.end();) {
    const auto run_end =
        std::find_if(at, marks.end(), [](const Mark& m) { return m.combining == 0; });
    std::stable_sort(at, run_end, lower);
    at = std::find_if(run_end, marks.end(), [](const Mark& m) { return m.combining != 0; });
  }
  // Join each mark with the last starter unless something between blocks it.
  std::size_t size = 0, starter = marks.size();  // marks[0, size) is the result so far
  std::uint8_t before = 0;                       // class of the last mark kept since the starter
  for (const Mark& m : std::vector<Mark>(marks)) {
    if (starter < size && (starter + 1 == size || before < m.combining)) {
      if (const std::uint32_t joined = compose(t, marks[starter].value, m.value); joined != 0) {
        marks[starter].value = joined;
        continue;
      }
    }
    if (m.combining == 0) starter = size;
    before = m.combining;
    marks[size++] = m;
  }
  marks.resize(size);
  std::string out;
  out.reserve(text.size());
  for (const Mark& m : marks) put_code_point(out, m.value);
  return out;
}

}  // namespace rose::text
