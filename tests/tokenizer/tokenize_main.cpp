// The book's tokenizer behind a pipe, for the oracle tests, which are in Python.
//
//   tokenize_main hf FILE | gguf FILE | tiktoken FILE RULE | train RULES VOCAB MIN_FREQUENCY MAX_BYTES [SPECIAL…]
//
// `gguf FILE` takes the tokenizer keys as JSON. The first three answer requests on standard input: one byte of operation,
// a length in four bytes (little endian), and as many bytes of text or ids. 'e' encodes text, 's' the same with special
// tokens parsed, 't' with the template's ids around it: the answer is a count and ids. 'd' decodes ids, 'k' the same with special
// tokens skipped, 'p' piece by piece: the answer is a length and text. `train` reads all of its input and prints tokenizer.json.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/json.h"
#include "rose/core/utf8.h"
#include "rose/text/bpe_trainer.h"
#include "rose/text/detokenizer.h"
#include "rose/text/tokenizer.h"

namespace {

using namespace rose;

std::vector<text::SplitRule> rules(std::string_view names) {
  std::vector<text::SplitRule> out;
  while (!names.empty()) {
    const std::size_t end = std::min(names.find('+'), names.size());
    const std::string_view name = names.substr(0, end);
    names.remove_prefix(std::min(end + 1, names.size()));
    out.push_back(name == "gpt2"     ? text::SplitRule::gpt2
                  : name == "llama3" ? text::SplitRule::llama3
                  : name == "qwen2"  ? text::SplitRule::qwen2
                  : name == "digits" ? text::SplitRule::digits
                                     : text::SplitRule::digit_groups);
  }
  return out;
}

text::GgufVocab gguf_from_json(std::string_view json, std::string_view where) {
  const auto value = core::parse_json(json, where);
  const auto& o = core::as_object(value, where);
  text::GgufVocab v;
  v.model = core::get_string(o, "model", where);
  v.pre = core::get_string(o, "pre", where);
  for (const auto& t : core::get_array(o, "tokens", where))
    v.tokens.emplace_back(std::string_view(t.get_string()));
  for (const auto& t : core::get_array(o, "merges", where))
    v.merges.emplace_back(std::string_view(t.get_string()));
  for (const auto& t : core::get_array(o, "types", where))
    v.types.push_back(static_cast<std::int32_t>(t.get_int64()));
  return v;
}

text::Tokenizer open(std::string_view kind, const std::string& file, std::string_view rule) {
  if (kind == "hf") return text::Tokenizer::load(file);
  const std::string contents = core::read_file(file);
  if (kind == "gguf") return text::Tokenizer::from_gguf(gguf_from_json(contents, file));
  return text::Tokenizer(text::vocab_from_tiktoken(contents, rules(rule), {}, file));
}

void write_u32(std::size_t value) {
  const auto v = static_cast<std::uint32_t>(value);
  std::fwrite(&v, 4, 1, stdout);
}

void serve(const text::Tokenizer& tokenizer) {
  text::Detokenizer detokenizer(tokenizer, false);
  std::vector<std::int32_t> ids;
  std::string data;
  for (int op; (op = std::getchar()) != EOF;) {
    std::uint32_t size = 0;
    if (std::fread(&size, 4, 1, stdin) != 1) return;
    data.resize(size);
    if (std::fread(data.data(), 1, size, stdin) != size) return;
    ids.clear();
    if (op == 'e' || op == 's' || op == 't') {
      const auto around = [&](auto part) { ids.insert(ids.end(), part.begin(), part.end()); };
      if (op == 't') around(tokenizer.prefix());
      tokenizer.encode(data, op != 'e', ids);
      if (op == 't') around(tokenizer.suffix());
      write_u32(ids.size());
      std::fwrite(ids.data(), 4, ids.size(), stdout);
      continue;
    }
    ids.resize(size / 4);
    std::memcpy(ids.data(), data.data(), ids.size() * 4);
    std::string text;
    if (op == 'p') {
      for (const std::int32_t id : ids) {
        const std::string piece = detokenizer.push(id);
        if (!core::is_utf8(piece)) std::exit(70);
        text += piece;
      }
      text += detokenizer.finish();
    } else {
      text = tokenizer.decode(ids, op == 'k');
    }
    write_u32(text.size());
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
}

void train(int argc, char** argv) {
  text::BpeTrainerOptions options;
  options.split = rules(argv[2]);
  options.vocab_size = std::strtoul(argv[3], nullptr, 10);
  options.min_frequency = std::strtol(argv[4], nullptr, 10);
  if (const auto bytes = std::strtoul(argv[5], nullptr, 10); bytes > 0)
    options.max_token_bytes = bytes;
  for (int i = 6; i < argc; ++i) options.special_tokens.emplace_back(argv[i]);
  text::BpeTrainer trainer(options);
  trainer.feed(std::string(std::istreambuf_iterator<char>(std::cin), {}));
  std::cout << text::to_hf_json(trainer.train());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc >= 6 && std::string_view(argv[1]) == "train") {
      train(argc, argv);
    } else if (argc >= 3) {
      serve(open(argv[1], argv[2], argc > 3 ? argv[3] : ""));
    } else {
      std::cerr << "usage: see the comment at the top of tokenize_main.cpp\n";
      return 2;
    }
  } catch (const std::exception& e) {
    std::cerr << core::describe(e) << '\n';
    return core::exit_code(e);
  }
}
