// Show what the model sees.

#include <algorithm>
#include <charconv>
#include <memory>

#include "rose/app/models.h"
#include "rose/app/rose_commands.h"
#include "rose/core/error.h"
#include "rose/core/utf8.h"

namespace rose::app {

namespace {

struct TokenizeOptions {
  std::string model, text;
  bool ids = false, decode = false, no_special = false;
};

// Read ids, and show bytes that may not be text.
std::vector<std::int32_t> parse_ids(std::string_view text, std::int32_t vocab_size) {
  std::vector<std::int32_t> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  while ((at = std::find_if(at, end, [](char c) { return c != ' ' && c != ',' && c != '\n'; })) !=
         end) {
    std::int32_t id = 0;
    const auto [after, failure] = std::from_chars(at, end, id);
    if (failure != std::errc() || id < 0 || id >= vocab_size) {
      const char* word_end =
          std::find_if(at, end, [](char c) { return c == ' ' || c == ',' || c == '\n'; });
      throw core::Error(core::Code::invalid_argument,
                        fmt::format("'{}' is not a token id below {}",
                                    std::string_view(at, word_end), vocab_size))
          .in(fmt::format("position {}", ids.size() + 1));
    }
    ids.push_back(id);
    at = after;
  }
  return ids;
}

// As a C string would be written: what is part of a character, or none, in hexadecimal.
std::string quoted(std::string_view bytes) {
  const bool whole = core::is_utf8(bytes);
  std::string out = "\"";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !whole))
      out += fmt::format("\\x{:02x}", byte);
    else if (c == '"' || c == '\\')
      out += {'\\', c};
    else
      out += c;
  }
  return out + "\"";
}

void tokenize(const TokenizeOptions& options) {
  const model::Checkpoint checkpoint = model::describe_checkpoint(find_model(options.model));
  const text::Tokenizer tokenizer = load_tokenizer(checkpoint);
  const std::string text = options.text.empty() ? read_stdin() : options.text;
  if (options.decode) {
    print(tokenizer.decode(parse_ids(text, tokenizer.vocab_size()), false) + "\n");
    return;
  }
  const std::vector<std::int32_t> ids = tokenizer.encode(text, !options.no_special);
  std::string out;
  for (const std::int32_t id : ids) {
    // A piece may end inside a character; JSON's quoting shows blanks and line ends, and lone bytes become escapes.
    if (options.ids)
      out += fmt::format("{}{}", out.empty() ? "" : " ", id);
    else
      out += fmt::format("{:>8}  {}\n", id, quoted(tokenizer.bytes(id)));
  }
  if (options.ids) out += "\n";
  print(out);
  if (!options.ids) fmt::print(stderr, "{} tokens, {} bytes\n", ids.size(), text.size());
}

}  // namespace

void add_tokenize(CLI::App& app) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command = app.add_subcommand("tokenize", "Show the tokens of a text");
  command->add_option("text", options->text, "The text; standard input when absent");
  command->add_option(
      "-m,--model", options->model,
      "Model whose tokenizer to use: path, org/name or a name that `rose models` lists");
  command->add_flag("--ids", options->ids, "Print ids alone, separated by blanks");
  command->add_flag("--decode", options->decode, "The input is ids; print their text");
  command->add_flag("--no-special", options->no_special,
                    "Treat the text of special tokens as plain text");
  command->callback([options] { tokenize(*options); });
}

}  // namespace rose::app
