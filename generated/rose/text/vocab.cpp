// Refuse a vocabulary that contradicts itself.

#include "rose/text/vocab.h"

#include <fmt/format.h>

#include <string>

#include "rose/core/error.h"

namespace rose::text {

void check(const Vocab& vocab, std::string_view where) {
  const auto size = static_cast<std::int32_t>(vocab.tokens.size());
  const auto fail = [&](const std::string& what) {
    throw core::Error(core::Code::corrupt, what).in(std::string(where));
  };
  const auto known = [&](std::int32_t id) {
    return id >= 0 && id < size && !vocab.tokens[static_cast<std::size_t>(id)].empty();
  };
  if (size == 0) fail("the vocabulary is empty");
  for (const Merge& m : vocab.merges) {
    if (known(m.left) && known(m.right) && known(m.result)) continue;
    fail(fmt::format(
        "merge {} joins tokens {} and {} to {}, which are not all in the vocabulary of {}", m.rank,
        m.left, m.right, m.result, size));
  }
  for (const AddedToken& a : vocab.added) {
    if (!known(a.id))
      fail(fmt::format("added token \"{}\" has id {}, beyond the vocabulary of {}", a.content, a.id,
                       size));
  }
  const auto check_id = [&](std::optional<std::int32_t> id, std::string_view name) {
    if (id && !known(*id))
      fail(fmt::format("the {} token has id {}, which is not in the vocabulary of {}", name, *id,
                       size));
  };
  check_id(vocab.bos, "bos"), check_id(vocab.eos, "eos"), check_id(vocab.pad, "pad"),
      check_id(vocab.unk, "unk");
  for (const std::int32_t id : vocab.prefix) check_id(id, "prefix");
  for (const std::int32_t id : vocab.suffix) check_id(id, "suffix");
}

}  // namespace rose::text
