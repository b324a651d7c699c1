// Validate first, then trust.

#include "rose/trainer/data/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/hash.h"

namespace rose::trainer {

namespace {

constexpr std::size_t header_words = 256, header_bytes = header_words * 4;
constexpr std::uint32_t magic2 = 20240520, magic4 = 20240801, version2 = 1, version4 = 7;
constexpr std::uint32_t rose_mark = 0x45534F52, rose_version = 1;  // "ROSE"
constexpr std::string_view index_mark = "ROSEIDX1";
constexpr std::size_t index_header = 16, index_entry = 16;
using Header = std::array<std::uint32_t, header_words>;

std::uint64_t long_word(const Header& header, std::size_t at) {
  return std::uint64_t{header[at + 1]} << 32 | header[at];
}

[[noreturn]] void corrupt(const std::filesystem::path& path, std::string message) {
  throw core::Error(core::Code::corrupt, std::move(message))
      .in(path.string())
      .hint("make the shard again with `rose data tokenize`, or copy it again");
}

}  // namespace

struct Shard::State {
  core::MappedFile file, index;
  ShardInfo info;
  std::span<const std::byte> tokens;
  std::vector<DocumentRange> found;  // of a file without an index
  std::uint64_t token_hash = 0, index_hash = 0;
  bool indexed = false;
  std::int32_t limit = 0;  // of a token; 0: none

  // Look at single numbers.
  std::int32_t token(std::int64_t i) const {
    const auto width = static_cast<std::size_t>(info.token_bytes);
    const std::byte* at = tokens.data() + static_cast<std::size_t>(i) * width;
    std::uint32_t value = 0;
    std::memcpy(&value, at, width);
    return static_cast<std::int32_t>(value);
  }

  std::uint64_t index_word(std::int64_t document, std::size_t field) const {
    std::uint64_t value = 0;
    const std::size_t at = index_header + static_cast<std::size_t>(document) * index_entry;
    std::memcpy(&value, index.bytes().data() + at + field * sizeof value, sizeof value);
    return value;
  }

  // Search for documents where no index names them.
  void find_documents() {
    if (!info.separator) {
      if (info.tokens > 0) found.push_back({0, info.tokens});
      return;
    }
    std::int64_t begin = 0;
    for (std::int64_t i = 0; i <= info.tokens; ++i) {
      if (i < info.tokens && token(i) != *info.separator) continue;
      if (i > begin) found.push_back({begin, i});
      begin = i + 1;
    }
  }
};

// Recognise the three kinds of file.
Shard Shard::open(const std::filesystem::path& path, const ShardExpectation& expected) {
  auto state = std::make_shared<State>();
  state->file = core::MappedFile::open(path);
  const auto bytes = state->file.bytes();
  ShardInfo& info = state->info;
  Header header{};
  std::memcpy(header.data(), bytes.data(), std::min(bytes.size(), header_bytes));
  const bool two = header[0] == magic2 && header[1] == version2;
  const bool four = header[0] == magic4 && header[1] == version4;
  info.token_bytes = four ? 4 : 2;
  const bool has_header = bytes.size() >= header_bytes && (two || four);
  state->tokens = bytes.subspan(has_header ? header_bytes : 0);
  const auto width = static_cast<std::size_t>(info.token_bytes);
  const std::size_t count = has_header ? header[2] : state->tokens.size() / width;
  if (count * width != state->tokens.size()) {
    corrupt(path, fmt::format("{} bytes of tokens, where {} tokens of {} bytes were expected",
                              state->tokens.size(), count, width));
  }
  info.tokens = static_cast<std::int64_t>(count);
  info.separator = expected.separator;
  if (has_header && header[3] == rose_mark) {
    // Believe the index only when it fits.
    if (header[4] != rose_version) {
      throw core::Error(core::Code::unsupported,
                        fmt::format("a shard of version {}; this program reads 1", header[4]))
          .in(path.string());
    }
    info.vocab_size = static_cast<std::int32_t>(header[5]);
    info.separator = static_cast<std::int32_t>(header[6]);
    info.documents = static_cast<std::int64_t>(header[7]);
    info.tokenizer = long_word(header, 8);
    state->token_hash = long_word(header, 10);
    state->index_hash = long_word(header, 12);
    info.text_bytes = static_cast<std::int64_t>(long_word(header, 14));
    const std::filesystem::path index_path = std::filesystem::path(path).replace_extension(".idx");
    state->index = core::MappedFile::open(index_path);
    const auto index = state->index.bytes();
    const auto documents = static_cast<std::size_t>(info.documents);
    if (index.size() != index_header + documents * index_entry ||
        std::memcmp(index.data(), index_mark.data(), index_mark.size()) != 0 ||
        core::xxh3(index) != state->index_hash) {
      corrupt(index_path, "this is not the index of the shard beside it");
    }
    state->indexed = true;
    std::uint64_t last = 0;
    for (std::int64_t d = 0; d < info.documents; ++d) {
      const std::uint64_t end = state->index_word(d, 0);
      if (end <= last || end > count) corrupt(index_path, "the documents' ends are not in order");
      last = end;
    }
  }
  if (!state->indexed) state->find_documents();
  info.documents = state->indexed ? info.documents : static_cast<std::int64_t>(state->found.size());
  state->limit = expected.vocab_size;
  if (state->limit > 0 && info.vocab_size > state->limit) {
    throw core::Error(core::Code::out_of_range,
                      fmt::format("the shard was made with a vocabulary of {}, the model has {}",
                                  info.vocab_size, state->limit))
        .in(path.string())
        .hint("tokenize the text with the model's own tokenizer");
  }
  Shard shard;
  shard.state_ = std::move(state);
  return shard;
}

// Hand out documents and tokens.
const ShardInfo& Shard::info() const {
  return state_->info;
}
const std::filesystem::path& Shard::path() const {
  return state_->file.path();
}
std::int64_t Shard::documents() const {
  return state_->info.documents;
}

DocumentRange Shard::document(std::int64_t d) const {
  if (!state_->indexed) return state_->found[static_cast<std::size_t>(d)];
  const std::uint64_t before = d == 0 ? 0 : state_->index_word(d - 1, 0);
  return {static_cast<std::int64_t>(before) + 1,
          static_cast<std::int64_t>(state_->index_word(d, 0))};
}

std::uint64_t Shard::document_hash(std::int64_t d) const {
  if (state_->indexed) return state_->index_word(d, 1);
  const DocumentRange range = document(d);
  const auto width = static_cast<std::size_t>(state_->info.token_bytes);
  return core::xxh3(state_->tokens.subspan(static_cast<std::size_t>(range.begin) * width,
                                           static_cast<std::size_t>(range.size()) * width));
}

// Copy tokens, none beyond the vocabulary.
void Shard::copy(std::int64_t begin, std::span<std::int32_t> out) const {
  if (begin < 0 || begin + static_cast<std::int64_t>(out.size()) > state_->info.tokens) {
    throw core::Error(core::Code::internal, "a read beyond the shard").in(path().string());
  }
  std::uint32_t largest = 0;
  const auto read = [&]<class T>(T) {
    const std::byte* at = state_->tokens.data() + static_cast<std::size_t>(begin) * sizeof(T);
    for (std::int32_t& value : out) {
      T token;
      std::memcpy(&token, at, sizeof token);
      at += sizeof token;
      largest = std::max<std::uint32_t>(largest, token);
      value = static_cast<std::int32_t>(token);
    }
  };
  if (state_->info.token_bytes == 2) {
    read(std::uint16_t{});
  } else {
    read(std::uint32_t{});
  }
  const auto limit = state_->limit > 0 ? static_cast<std::uint32_t>(state_->limit)
                                       : std::uint32_t{std::numeric_limits<std::int32_t>::max()};
  if (largest < limit || out.empty()) return;
  const auto bad = std::find_if(out.begin(), out.end(), [&](std::int32_t token) {
    return static_cast<std::uint32_t>(token) >= limit;
  });
  throw core::Error(
      core::Code::out_of_range,
      fmt::format("token {} at position {} is beyond the vocabulary of {}",
                  static_cast<std::uint32_t>(*bad), begin + (bad - out.begin()), limit))
      .in(path().string())
      .hint("tokenize the text with the model's own tokenizer");
}

// Verify, and tell shards apart.
void Shard::verify() const {
  if (state_->indexed && core::xxh3(state_->tokens) != state_->token_hash) {
    corrupt(path(), "the tokens do not have the checksum that the header gives");
  }
  std::vector<std::int32_t> piece(std::size_t{1} << 16);
  for (std::int64_t at = 0; at < state_->info.tokens;) {
    const auto n = std::min<std::int64_t>(state_->info.tokens - at, std::ssize(piece));
    copy(at, std::span(piece).first(static_cast<std::size_t>(n)));
    at += n;
  }
}

std::uint64_t Shard::fingerprint() const {
  const std::uint64_t tokens = state_->indexed ? state_->token_hash : core::xxh3(state_->tokens);
  const std::array<std::uint64_t, 4> parts = {tokens, state_->index_hash,
                                              static_cast<std::uint64_t>(state_->info.tokens),
                                              static_cast<std::uint64_t>(state_->info.documents)};
  return core::xxh3(std::as_bytes(std::span(parts)));
}

// Collect documents, then write them whole.
ShardWriter::ShardWriter(std::filesystem::path path, const ShardInfo& info)
    : path_(std::move(path)), info_(info) {
  if (!info_.separator || *info_.separator < 0 || *info_.separator >= info_.vocab_size) {
    throw core::Error(core::Code::invalid_argument, "a shard needs a separator in its vocabulary")
        .in(path_.string());
  }
  info_.tokens = info_.documents = info_.text_bytes = 0;
  info_.token_bytes = info_.vocab_size > 65536 ? 4 : 2;
}

void ShardWriter::push(std::int32_t token) {
  const auto value = static_cast<std::uint32_t>(token);
  const auto* raw = reinterpret_cast<const std::byte*>(&value);
  bytes_.insert(bytes_.end(), raw, raw + info_.token_bytes);
  ++info_.tokens;
}

void ShardWriter::append(std::span<const std::int32_t> tokens, std::uint64_t hash,
                         std::int64_t text_bytes) {
  if (tokens.empty()) return;
  for (const std::int32_t token : tokens) {
    if (token >= 0 && token < info_.vocab_size && token != *info_.separator) continue;
    throw core::Error(core::Code::out_of_range,
                      fmt::format("token {} is the separator or beyond the vocabulary of {}", token,
                                  info_.vocab_size))
        .in(path_.string());
  }
  if (info_.tokens + std::ssize(tokens) + 1 > std::numeric_limits<std::int32_t>::max()) {
    throw core::Error(core::Code::out_of_range, "more than 2^31 tokens in one shard")
        .in(path_.string());
  }
  push(*info_.separator);
  for (const std::int32_t token : tokens) push(token);
  ++info_.documents;
  info_.text_bytes += text_bytes;
  index_.push_back(static_cast<std::uint64_t>(info_.tokens));
  index_.push_back(hash);
}

// Write the index, then the tokens.
void ShardWriter::finish() {
  std::string index(index_mark);
  const auto append_word = [&](std::uint64_t word) {
    index.append(reinterpret_cast<const char*>(&word), sizeof word);
  };
  append_word(static_cast<std::uint64_t>(info_.documents));
  for (const std::uint64_t word : index_) append_word(word);
  core::write_file_atomic(std::filesystem::path(path_).replace_extension(".idx"), index);

  Header header{};
  const bool two = info_.token_bytes == 2;
  const auto store = [&](std::size_t at, std::uint64_t value) {
    header[at] = static_cast<std::uint32_t>(value);
    header[at + 1] = static_cast<std::uint32_t>(value >> 32);
  };
  header[0] = two ? magic2 : magic4;
  header[1] = two ? version2 : version4;
  header[2] = static_cast<std::uint32_t>(info_.tokens);
  header[3] = rose_mark;
  header[4] = rose_version;
  header[5] = static_cast<std::uint32_t>(info_.vocab_size);
  header[6] = static_cast<std::uint32_t>(*info_.separator);
  header[7] = static_cast<std::uint32_t>(info_.documents);
  store(8, info_.tokenizer);
  store(10, core::xxh3(bytes_));
  store(12, core::xxh3(index));
  store(14, static_cast<std::uint64_t>(info_.text_bytes));
  core::AtomicFile file(path_);
  file.write(std::as_bytes(std::span(header)));
  file.write(bytes_);
  file.commit();
}

// Find the shards of a folder.
std::vector<std::filesystem::path> shard_files(const std::filesystem::path& file_or_folder,
                                               std::string_view name) {
  namespace fs = std::filesystem;
  if (fs::is_regular_file(file_or_folder)) return {file_or_folder};
  std::vector<fs::path> files;
  if (fs::is_directory(file_or_folder)) {
    for (const auto& entry : fs::directory_iterator(file_or_folder)) {
      if (entry.path().extension() == ".bin" &&
          entry.path().filename().string().starts_with(name)) {
        files.push_back(entry.path());
      }
    }
  }
  if (files.empty()) {
    throw core::Error(core::Code::not_found, fmt::format("there is no shard {}*.bin", name))
        .in(file_or_folder.string())
        .hint("`rose data tokenize` makes shards from text");
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace rose::trainer
