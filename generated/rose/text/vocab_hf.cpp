// Read and write Hugging Face's tokenizer.json.

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/json.h"
#include "rose/text/byte_level.h"
#include "rose/text/vocab.h"

namespace rose::text {
namespace {

namespace json = core::json;
using Ids = std::unordered_map<std::string_view, std::int32_t>;  // by spelling

// Know the split expressions by their text.
struct Pattern {
  std::string_view regex;
  SplitRule rule;
};

constexpr Pattern patterns[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
     SplitRule::gpt2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     SplitRule::llama3},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     SplitRule::qwen2},
};

// Refuse by name what is not supported.
[[noreturn]] void refuse(std::string_view kind, std::string_view name, std::string_view where) {
  throw core::Error(core::Code::unsupported, fmt::format("{} \"{}\" is not supported", kind, name))
      .in(std::string(where))
      .hint("byte-level BPE of the GPT-2, Llama 3, SmolLM and Qwen families is");
}

std::string_view type_of(const json::object& o, std::string_view where) {
  return core::get_string(o, "type", where);
}

[[noreturn]] void corrupt(const std::string& what, std::string_view where) {
  throw core::Error(core::Code::corrupt, what).in(std::string(where));
}

// Read the model: spellings, ids and options.
std::int32_t read_id(const json::value& value, std::string_view token, std::string_view where) {
  std::int64_t id = -1;
  if (value.is_int64()) id = value.get_int64();
  constexpr std::int64_t limit = std::int64_t{1}
                                 << 21;  // no vocabulary is near; a wrong id must not cost memory
  if (id < 0 || id >= limit) corrupt(fmt::format("token \"{}\" has no sensible id", token), where);
  return static_cast<std::int32_t>(id);
}

void put(Vocab& vocab, std::int32_t id, std::string bytes) {
  const auto at = static_cast<std::size_t>(id);
  if (vocab.tokens.size() <= at) vocab.tokens.resize(at + 1);
  vocab.tokens[at] = std::move(bytes);
}

Ids read_model(const json::object& model, Vocab& vocab, std::string_view where) {
  if (const std::string_view type = core::get_string_or(model, "type", "BPE", where);
      type != "BPE") {
    refuse("tokenizer model", type, where);
  }
  for (const std::string_view option : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!core::get_string_or(model, option, "", where).empty()) refuse("BPE option", option, where);
  }
  if (core::get_bool_or(model, "byte_fallback", false, where))
    refuse("BPE option", "byte_fallback", where);
  if (core::get_double_or(model, "dropout", 0.0, where) != 0.0)
    refuse("BPE option", "dropout", where);
  vocab.ignore_merges = core::get_bool_or(model, "ignore_merges", false, where);
  vocab.fuse_unk = core::get_bool_or(model, "fuse_unk", false, where);
  Ids ids;
  for (const auto& [token, value] : core::get_object(model, "vocab", where)) {
    const std::int32_t id = read_id(value, token, where);
    if (static_cast<std::size_t>(id) < vocab.tokens.size() &&
        !vocab.tokens[static_cast<std::size_t>(id)].empty()) {
      corrupt(fmt::format("token \"{}\" has the id {} of another", std::string_view(token), id),
              where);
    }
    if (token.empty()) corrupt("a token is empty", where);
    put(vocab, id, unspell_bytes(token).value_or(std::string(token)));
    ids.emplace(token, id);
  }
  if (const std::string_view unk = core::get_string_or(model, "unk_token", "", where);
      !unk.empty()) {
    const auto found = ids.find(unk);
    if (found == ids.end())
      corrupt(fmt::format("the unknown token \"{}\" is not in the vocabulary", unk), where);
    vocab.unk = found->second;
  }
  return ids;
}

// Read merges, written as strings or as pairs.
void read_merges(const json::array& merges, const Ids& ids, Vocab& vocab, std::string_view where) {
  std::string joined;
  for (const json::value& entry : merges) {
    const auto rank = static_cast<std::int32_t>(vocab.merges.size());
    std::string_view left, right;
    if (entry.is_string()) {
      const std::string_view text = entry.get_string();
      const std::size_t gap = text.find(' ');
      if (gap != text.npos && text.find(' ', gap + 1) == text.npos)
        left = text.substr(0, gap), right = text.substr(gap + 1);
    } else if (entry.is_array() && entry.get_array().size() == 2 &&
               entry.get_array()[0].is_string() && entry.get_array()[1].is_string()) {
      left = entry.get_array()[0].get_string(), right = entry.get_array()[1].get_string();
    }
    if (left.empty() || right.empty())
      corrupt(fmt::format("merge {} is not two tokens", rank), where);
    joined.assign(left).append(right);
    const auto id = [&](std::string_view token) {
      const auto found = ids.find(token);
      if (found == ids.end()) {
        corrupt(
            fmt::format("merge {} (\"{} {}\") needs token \"{}\", which is not in the vocabulary",
                        rank, left, right, token),
            where);
      }
      return found->second;
    };
    vocab.merges.push_back({id(left), id(right), rank, id(joined)});
  }
}

// Read the added tokens with their flags.
void read_added(const json::array& added, const Ids& ids, Vocab& vocab, std::string_view where) {
  for (const json::value& value : added) {
    if (!value.is_object()) corrupt("an added token is not an object", where);
    const json::object& o = value.get_object();
    const std::string_view content = core::get_string(o, "content", where);
    const json::value* id = core::find(o, "id");
    if (content.empty() || id == nullptr) corrupt("an added token has no content or no id", where);
    AddedToken token{.content = std::string(content),
                     .id = read_id(*id, content, where),
                     .special = core::get_bool_or(o, "special", false, where),
                     .single_word = core::get_bool_or(o, "single_word", false, where),
                     .lstrip = core::get_bool_or(o, "lstrip", false, where),
                     .rstrip = core::get_bool_or(o, "rstrip", false, where),
                     .normalized = core::get_bool_or(o, "normalized", true, where)};
    const auto at = static_cast<std::size_t>(token.id);
    const bool taken = at < vocab.tokens.size() && !vocab.tokens[at].empty();
    if (const auto found = ids.find(content);
        found == ids.end() ? taken : found->second != token.id) {
      corrupt(fmt::format("added token \"{}\" has id {}, which the vocabulary gives to another",
                          content, token.id),
              where);
    }
    put(vocab, token.id, token.content);
    vocab.added.push_back(std::move(token));
  }
}

// Read the pre-tokenizer as a list of split rules.
bool read_split(const json::object& o, Vocab& vocab,
                std::string_view where) {  // returns whether bytes are spelled
  const std::string_view type = type_of(o, where);
  bool byte_level = false;
  if (type == "Sequence") {
    for (const json::value& step : core::get_array(o, "pretokenizers", where)) {
      if (byte_level)
        refuse("pre-tokenizer after ByteLevel", type_of(core::as_object(step, where), where),
               where);
      byte_level = read_split(core::as_object(step, where), vocab, where);
    }
  } else if (type == "ByteLevel") {
    if (core::get_bool_or(o, "add_prefix_space", true, where))
      refuse("ByteLevel option", "add_prefix_space", where);
    if (core::get_bool_or(o, "use_regex", true, where)) vocab.split.push_back(SplitRule::gpt2);
    byte_level = true;
  } else if (type == "Digits") {
    const bool single = core::get_bool_or(o, "individual_digits", false, where);
    vocab.split.push_back(single ? SplitRule::digits : SplitRule::digit_groups);
  } else if (type == "Split") {
    const std::string_view regex =
        core::get_string_or(core::get_object(o, "pattern", where), "Regex", "", where);
    const auto* found = std::find_if(std::begin(patterns), std::end(patterns),
                                     [&](const Pattern& p) { return p.regex == regex; });
    const std::string_view behavior = core::get_string(o, "behavior", where);
    const bool whole = behavior == "Isolated" ||
                       (behavior == "Removed" && core::get_bool_or(o, "invert", false, where));
    if (found == std::end(patterns)) refuse("split pattern", regex, where);
    if (!whole) refuse("split behaviour", behavior, where);
    vocab.split.push_back(found->rule);
  } else {
    refuse("pre-tokenizer", type, where);
  }
  return byte_level;
}

// Read the normaliser and the template of special tokens around a text.
void read_normalizer(const json::object& o, Vocab& vocab, std::string_view where) {
  const std::string_view type = type_of(o, where);
  if (type == "Sequence") {
    for (const json::value& step : core::get_array(o, "normalizers", where)) {
      read_normalizer(core::as_object(step, where), vocab, where);
    }
  } else if (type == "NFC") {
    vocab.nfc = true;
  } else {
    refuse("normalizer", type, where);
  }
}

void read_template(const json::object& o, Vocab& vocab, std::string_view where) {
  const std::string_view type = type_of(o, where);
  if (type == "Sequence") {
    for (const json::value& step : core::get_array(o, "processors", where)) {
      read_template(core::as_object(step, where), vocab, where);
    }
  } else if (type == "TemplateProcessing") {
    std::vector<std::int32_t>* side = &vocab.prefix;
    const json::object& tokens = core::get_object(o, "special_tokens", where);
    for (const json::value& piece : core::get_array(o, "single", where)) {
      const json::object& p = core::as_object(piece, where);
      if (core::find(p, "Sequence") != nullptr) side = &vocab.suffix;
      if (core::find(p, "SpecialToken") == nullptr) continue;
      const std::string_view name =
          core::get_string(core::get_object(p, "SpecialToken", where), "id", where);
      for (const json::value& id :
           core::get_array(core::get_object(tokens, name, where), "ids", where)) {
        side->push_back(read_id(id, name, where));
      }
    }
  } else if (type != "ByteLevel") {
    refuse("post-processor", type, where);
  }
}

// Take bos, eos and pad from tokenizer_config.json.
void read_config(const json::object& config, Vocab& vocab) {
  const auto id_of = [&](std::string_view key) -> std::optional<std::int32_t> {
    const json::value* value = core::find(config, key);
    if (value != nullptr && value->is_object()) value = core::find(value->get_object(), "content");
    if (value == nullptr || !value->is_string()) return std::nullopt;
    for (const AddedToken& a : vocab.added) {
      if (a.content == value->get_string()) return a.id;
    }
    return std::nullopt;
  };
  vocab.bos = id_of("bos_token"), vocab.eos = id_of("eos_token"), vocab.pad = id_of("pad_token");
}

}  // namespace

// Read every part; an absent one is an error where ids depend on it.
Vocab vocab_from_hf_json(std::string_view text, std::string_view where) {
  const json::value document = core::parse_json(text, where);
  const json::object& top = core::as_object(document, where);
  Vocab vocab;
  const json::object& model = core::get_object(top, "model", where);
  const Ids ids = read_model(model, vocab, where);
  read_merges(core::get_array(model, "merges", where), ids, vocab, where);
  if (core::find(top, "added_tokens") != nullptr)
    read_added(core::get_array(top, "added_tokens", where), ids, vocab, where);
  if (core::find(top, "normalizer") != nullptr)
    read_normalizer(core::get_object(top, "normalizer", where), vocab, where);
  if (!read_split(core::get_object(top, "pre_tokenizer", where), vocab, where)) {
    refuse("pre-tokenizer", "without ByteLevel", where);
  }
  if (core::find(top, "post_processor") != nullptr)
    read_template(core::get_object(top, "post_processor", where), vocab, where);
  if (const json::value* decoder = core::find(top, "decoder"); decoder != nullptr) {
    const std::string_view type = type_of(core::as_object(*decoder, where), where);
    if (type != "ByteLevel") refuse("decoder", type, where);
  }
  check(vocab, where);
  return vocab;
}

// Load from a folder or a file.
Vocab vocab_from_hf(const std::filesystem::path& path) {
  const bool folder = std::filesystem::is_directory(path);
  const std::filesystem::path file = folder ? path / "tokenizer.json" : path;
  if (folder && !std::filesystem::exists(file)) {
    throw core::Error(core::Code::not_found, "the model has no tokenizer.json")
        .in(path.string())
        .hint("copy the one that was published with the model into the folder");
  }
  const core::MappedFile mapped = core::MappedFile::open(file);
  Vocab vocab = vocab_from_hf_json(mapped.text(), file.string());
  const std::filesystem::path config = file.parent_path() / "tokenizer_config.json";
  if (std::filesystem::exists(config)) {
    const json::value parsed = core::parse_json(core::read_file(config), config.string());
    read_config(core::as_object(parsed, config.string()), vocab);
  }
  return vocab;
}

// Write a tokenizer.json that Hugging Face's tokenizers reads as the same tokenizer.
std::string to_hf_json(const Vocab& vocab) {
  const auto spelling = [&](std::int32_t id) {
    for (const AddedToken& a : vocab.added) {
      if (a.id == id) return a.content;
    }
    return spell_bytes(vocab.tokens[static_cast<std::size_t>(id)]);
  };
  json::object tokens;
  for (std::size_t id = 0; id < vocab.tokens.size(); ++id) {
    if (!vocab.tokens[id].empty()) tokens[spelling(static_cast<std::int32_t>(id))] = id;
  }
  std::vector<Merge> sorted = vocab.merges;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
  json::array merges, added, steps;
  for (const Merge& m : sorted) merges.push_back(json::array{spelling(m.left), spelling(m.right)});
  for (const AddedToken& a : vocab.added) {
    added.emplace_back(json::object{{"id", a.id},
                                    {"content", a.content},
                                    {"single_word", a.single_word},
                                    {"lstrip", a.lstrip},
                                    {"rstrip", a.rstrip},
                                    {"normalized", a.normalized},
                                    {"special", a.special}});
  }
  const json::object byte_level{{"type", "ByteLevel"},
                                {"add_prefix_space", false},
                                {"trim_offsets", true},
                                {"use_regex", false}};
  // Spell each split rule out.
  for (const SplitRule rule : vocab.split) {
    if (rule == SplitRule::digits || rule == SplitRule::digit_groups) {
      steps.emplace_back(
          json::object{{"type", "Digits"}, {"individual_digits", rule == SplitRule::digits}});
      continue;
    }
    const auto* known = std::find_if(std::begin(patterns), std::end(patterns),
                                     [&](const Pattern& p) { return p.rule == rule; });
    const json::object pattern{{"Regex", known->regex}};
    steps.emplace_back(json::object{
        {"type", "Split"}, {"pattern", pattern}, {"behavior", "Isolated"}, {"invert", false}});
  }
  steps.emplace_back(byte_level);
  json::object model{{"type", "BPE"},
                     {"dropout", nullptr},
                     {"unk_token", nullptr},
                     {"continuing_subword_prefix", nullptr},
                     {"end_of_word_suffix", nullptr},
                     {"fuse_unk", vocab.fuse_unk},
                     {"byte_fallback", false},
                     {"ignore_merges", vocab.ignore_merges},
                     {"vocab", std::move(tokens)},
                     {"merges", std::move(merges)}};
  if (vocab.unk) model["unk_token"] = spelling(*vocab.unk);
  json::object top{{"version", "1.0"},
                   {"truncation", nullptr},
                   {"padding", nullptr},
                   {"added_tokens", std::move(added)},
                   {"normalizer", nullptr},
                   {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}}},
                   {"post_processor", nullptr},
                   {"decoder", byte_level},
                   {"model", std::move(model)}};
  if (vocab.nfc) top["normalizer"] = {{"type", "NFC"}};
  // Spell the prefix and the suffix out.
  if (!vocab.prefix.empty() || !vocab.suffix.empty()) {
    json::array single, pair;
    json::object special;
    const auto piece = [&](std::int32_t id, int type) {
      const std::string text = spelling(id);
      special[text] = {{"id", text}, {"ids", json::array{id}}, {"tokens", json::array{text}}};
      return json::object{{"SpecialToken", {{"id", text}, {"type_id", type}}}};
    };
    for (const std::int32_t id : vocab.prefix) single.emplace_back(piece(id, 0));
    single.emplace_back(json::object{{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    for (const std::int32_t id : vocab.suffix) single.emplace_back(piece(id, 0));
    pair = single;
    pair.emplace_back(json::object{{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
    top["post_processor"] = {{"type", "TemplateProcessing"},
                             {"single", single},
                             {"pair", pair},
                             {"special_tokens", special}};
  }
  return json::serialize(top);
}

}  // namespace rose::text
