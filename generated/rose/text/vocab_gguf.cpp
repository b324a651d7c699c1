// Read and write the tokenizer keys of GGUF.

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "rose/core/error.h"
#include "rose/text/byte_level.h"
#include "rose/text/vocab.h"

namespace rose::text {
namespace {

// Map the names of tokenizer.ggml.pre to split rules.
struct Family {
  std::string_view name;
  std::vector<SplitRule> split;
  bool nfc = false;
  bool ignore_merges = false;
};

const std::vector<Family>& families() {
  using enum SplitRule;
  static const std::vector<Family> known = {
      {"gpt-2", {gpt2}},
      {"gpt2", {gpt2}},
      {"smollm", {digits, gpt2}},
      {"starcoder", {digits, gpt2}},
      {"llama-bpe", {llama3}, false, true},
      {"llama3", {llama3}, false, true},
      {"qwen2", {qwen2}, true},
      {"deepseek-r1-qwen", {qwen2}, true},
  };
  return known;
}

enum GgufType : std::int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5 };

}  // namespace

// Turn the keys into a vocabulary.
Vocab vocab_from_gguf(const GgufVocab& gguf) {
  if (gguf.model != "gpt2") {
    throw core::Error(core::Code::unsupported,
                      fmt::format("tokenizer model \"{}\" is not supported", gguf.model))
        .in("tokenizer.ggml.model")
        .hint("byte-level BPE (\"gpt2\") is");
  }
  const auto family = std::find_if(families().begin(), families().end(),
                                   [&](const Family& f) { return f.name == gguf.pre; });
  if (family == families().end()) {
    throw core::Error(core::Code::unsupported,
                      fmt::format("split rule \"{}\" is not supported", gguf.pre))
        .in("tokenizer.ggml.pre")
        .hint("gpt-2, smollm, llama-bpe and qwen2 are");
  }
  Vocab vocab;
  vocab.split = family->split, vocab.nfc = family->nfc, vocab.ignore_merges = family->ignore_merges;
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (std::size_t i = 0; i < gguf.tokens.size(); ++i) {
    const std::int32_t type = i < gguf.types.size() ? gguf.types[i] : normal;
    const auto id = static_cast<std::int32_t>(i);
    const std::string& token = gguf.tokens[i];
    ids.emplace(token, id);
    if (type == control || type == user_defined || type == unknown) {
      vocab.added.push_back({.content = token, .id = id, .special = type != user_defined});
    }
    vocab.tokens.push_back(type == normal ? unspell_bytes(token).value_or(token) : token);
  }
  // Split each merge at its space and look its tokens up.
  std::string joined;
  for (std::size_t rank = 0; rank < gguf.merges.size(); ++rank) {
    const std::string_view text = gguf.merges[rank];
    const std::size_t gap = text.find(' ');
    const auto id = [&](std::string_view token) {
      const auto found = ids.find(token);
      if (gap == text.npos || found == ids.end()) {
        throw core::Error(
            core::Code::corrupt,
            fmt::format("merge {} (\"{}\") needs token \"{}\", which is not in the vocabulary",
                        rank, text, token))
            .in("tokenizer.ggml.merges");
      }
      return found->second;
    };
    const std::string_view left = text.substr(0, gap),
                           right = gap == text.npos ? "" : text.substr(gap + 1);
    joined.assign(left).append(right);
    vocab.merges.push_back({id(left), id(right), static_cast<std::int32_t>(rank), id(joined)});
  }
  vocab.bos = gguf.bos, vocab.eos = gguf.eos, vocab.pad = gguf.pad;
  const bool bos_by_default = gguf.pre == "llama-bpe" || gguf.pre == "llama3";
  if (gguf.bos && gguf.add_bos.value_or(bos_by_default)) vocab.prefix.push_back(*gguf.bos);
  if (gguf.eos && gguf.add_eos.value_or(false)) vocab.suffix.push_back(*gguf.eos);
  check(vocab, "tokenizer.ggml");
  return vocab;
}

// Turn a vocabulary into the keys.
GgufVocab to_gguf(const Vocab& vocab) {
  const auto family = std::find_if(families().begin(), families().end(),
                                   [&](const Family& f) { return f.split == vocab.split; });
  if (family == families().end())
    throw core::Error(core::Code::unsupported, "GGUF has no name for these split rules");
  GgufVocab gguf;
  gguf.model = "gpt2", gguf.pre = family->name;
  gguf.types.assign(vocab.tokens.size(), normal);
  for (std::size_t id = 0; id < vocab.tokens.size(); ++id) {
    const bool hole = vocab.tokens[id].empty();
    if (hole) gguf.types[id] = unused;
    gguf.tokens.push_back(hole ? fmt::format("[PAD{}]", id) : spell_bytes(vocab.tokens[id]));
  }
  for (const AddedToken& a : vocab.added) {
    gguf.types[static_cast<std::size_t>(a.id)] = a.special ? control : user_defined;
    gguf.tokens[static_cast<std::size_t>(a.id)] = a.content;
  }
  std::vector<Merge> sorted = vocab.merges;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
  const auto spelled = [&](std::int32_t id) { return gguf.tokens[static_cast<std::size_t>(id)]; };
  for (const Merge& m : sorted) gguf.merges.push_back(spelled(m.left) + " " + spelled(m.right));
  gguf.bos = vocab.bos, gguf.eos = vocab.eos, gguf.pad = vocab.pad, gguf.unk = vocab.unk;
  gguf.add_bos = !vocab.prefix.empty(), gguf.add_eos = !vocab.suffix.empty();
  return gguf;
}

}  // namespace rose::text
