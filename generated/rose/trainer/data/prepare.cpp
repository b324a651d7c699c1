// Read, judge, encode, write.

#include "rose/trainer/data/prepare.h"

#include <fmt/format.h>

#include <cmath>
#include <unordered_set>

#include "rose/core/error.h"
#include "rose/core/hash.h"
#include "rose/core/json.h"
#include "rose/core/progress.h"
#include "rose/core/utf8.h"
#include "rose/trainer/data/contamination.h"
#include "rose/trainer/data/encode.h"
#include "rose/trainer/data/near_duplicates.h"
#include "rose/trainer/data/shard.h"

namespace rose::trainer {

namespace {

namespace fs = std::filesystem;
namespace json = core::json;

// Judge one document by itself.
struct Candidate {
  RawDocument raw;
  std::string text, dropped;  // the reason; empty: kept so far
  std::uint64_t hash = 0;
  BandKeys keys{};
};

void judge(Candidate& d, const PrepareOptions& options, const Contamination& exam) {
  d.text = d.raw.text(options.source);
  d.hash = core::xxh3(d.text);
  if (d.text.find_first_not_of(" \t\r\n") == d.text.npos) {
    d.dropped = "empty";
  } else if (!core::is_utf8(d.text)) {
    d.dropped = "not UTF-8";
  } else if (const char* why =
                 options.quality ? quality_problem(d.text, *options.quality) : nullptr) {
    d.dropped = why;
  } else if (!exam.empty() && exam.found_in(d.text)) {
    d.dropped = "part of an evaluation set";
  } else if (options.duplicates == Duplicates::near) {
    constexpr std::size_t words = 5;
    d.keys = band_keys(min_hash(word_shingles(d.text, words)));
  }
  if (!d.dropped.empty()) d.text = {};
}

bool is_held_out(std::uint64_t hash, double share) {
  const std::uint64_t mixed = core::xxh3(std::as_bytes(std::span(&hash, 1)));
  return std::ldexp(static_cast<double>(mixed), -64) < share;
}

// Keep what one pass knows.
class Pass {
 public:
  explicit Pass(const PrepareOptions& options)
      : options_(options),
        pool_(options.pool != nullptr ? *options.pool : core::default_pool()),
        source_(options.inputs, options.source) {
    info_.vocab_size = options.tokenizer->vocab_size();
    info_.separator = options.separator ? *options.separator : separator_of(*options.tokenizer);
    info_.tokenizer = options.tokenizer->hash();
  }

  PrepareResult run();

 private:
  std::string fingerprint() const;
  void read_exams();
  bool go_on();
  void open_pair();
  void close_pair(bool last);
  void take(std::vector<Candidate>& batch);
  void write(std::vector<Candidate*>& kept);
  fs::path shard_path(const char* name, std::int64_t number) const {
    return options_.out / fmt::format("{}-{:05}.bin", name, number);
  }
  fs::path journal() const { return options_.out / "prepare.json"; }

  const PrepareOptions& options_;
  core::ThreadPool& pool_;
  TextSource source_;
  ShardInfo info_;
  Contamination exam_;
  std::unordered_set<std::uint64_t> exact_;
  NearDuplicates near_;
  std::vector<std::uint64_t> near_keys_;  // of the pair that is open
  std::optional<ShardWriter> train_, val_;
  std::int64_t file_ = 0;  // where the input goes on after the last document that was written
  std::uint64_t offset_ = 0;
  PrepareResult result_;
};

// Batch after batch.
PrepareResult Pass::run() {
  std::error_code failed;
  fs::create_directories(options_.out, failed);
  read_exams();
  if (go_on()) return result_;
  core::Progress progress(
      "tokenizing", source_.total_bytes(), "bytes", stderr,
      options_.quiet ? core::Progress::Style::none : core::Progress::Style::detect);
  open_pair();
  std::vector<Candidate> batch;
  for (bool more = true; more;) {
    batch.clear();
    std::size_t bytes = 0;
    RawDocument raw;
    while (bytes < options_.batch_bytes && (more = source_.next(raw))) {
      bytes += raw.bytes.size();
      batch.emplace_back().raw = std::move(raw);
    }
    take(batch);
    progress.update(source_.done_bytes(),
                    core::short_count(static_cast<double>(result_.tokens)) + " tokens");
    if (options_.after_batch) options_.after_batch(result_.documents);
  }
  close_pair(true);
  progress.finish();
  if (result_.kept == 0) {
    throw core::Error(core::Code::invalid_argument, "no document was kept")
        .in(options_.inputs.front().string())
        .hint(result_.dropped.empty() ? "the input is empty" : "loosen the rules");
  }
  return result_;
}

// Judge, drop copies, encode, write.
void Pass::take(std::vector<Candidate>& batch) {
  for_each_taken(pool_, batch.size(), [&](std::size_t i) { judge(batch[i], options_, exam_); });
  std::vector<Candidate*> kept;
  for (Candidate& d : batch) {
    ++result_.documents;
    if (d.dropped.empty() && options_.duplicates != Duplicates::keep) {
      if (!exact_.insert(d.hash).second) {
        d.dropped = "exact copy";
      } else if (options_.duplicates == Duplicates::near && near_.seen(d.keys)) {
        d.dropped = "near copy";
      }
    }
    if (d.dropped.empty()) {
      kept.push_back(&d);
    } else {
      ++result_.dropped[d.dropped];
    }
  }
  write(kept);
  if (!batch.empty()) {
    file_ = batch.back().raw.file_number;
    offset_ = batch.back().raw.end;
  }
  if (train_->tokens() >= options_.shard_tokens) {
    close_pair(false);
    open_pair();
  }
}

void Pass::write(std::vector<Candidate*>& kept) {
  std::vector<std::string_view> texts;
  texts.reserve(kept.size());
  for (const Candidate* d : kept) texts.push_back(d->text);
  const auto ids = encode_all(*options_.tokenizer, texts, pool_);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const Candidate& d = *kept[i];
    const bool held = is_held_out(d.hash, options_.held_out);
    const auto bytes = static_cast<std::int64_t>(d.text.size());
    (held ? val_ : train_)->append(ids[i], d.hash, bytes);
    ++result_.kept;
    result_.held_out += held;
    result_.tokens += std::ssize(ids[i]);
    result_.text_bytes += bytes;
    if (options_.duplicates == Duplicates::near)
      near_keys_.insert(near_keys_.end(), d.keys.begin(), d.keys.end());
  }
}

// Write a pair, then the journal.
void Pass::open_pair() {
  train_.emplace(shard_path("train", result_.shards), info_);
  val_.emplace(shard_path("val", result_.shards), info_);
  near_keys_.clear();
}

void Pass::close_pair(bool last) {
  if (train_->documents() + val_->documents() > 0) {
    if (options_.duplicates == Duplicates::near) {
      const auto bytes = std::as_bytes(std::span(near_keys_));
      core::write_file_atomic(options_.out / fmt::format("near-{:05}.keys", result_.shards),
                              {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
    if (train_->documents() > 0) train_->finish();
    if (val_->documents() > 0) val_->finish();
    ++result_.shards;
  }
  json::object dropped;
  for (const auto& [why, count] : result_.dropped) dropped[why] = count;
  const json::object entry{{"fingerprint", fingerprint()},
                           {"done", last},
                           {"file", file_},
                           {"offset", offset_},
                           {"shards", result_.shards},
                           {"documents", result_.documents},
                           {"kept", result_.kept},
                           {"held_out", result_.held_out},
                           {"tokens", result_.tokens},
                           {"text_bytes", result_.text_bytes},
                           {"dropped", std::move(dropped)}};
  core::write_file_atomic(journal(), core::pretty_json(entry) + "\n");
}

// Go on where the journal ends.
std::string Pass::fingerprint() const {
  std::string all =
      fmt::format("{} {} {} {} {} {} {} {} {}", info_.tokenizer, *info_.separator,
                  options_.held_out, options_.shard_tokens, options_.batch_bytes,
                  options_.source.text_field, options_.source.delimiter,
                  static_cast<int>(options_.duplicates), options_.quality.has_value());
  if (options_.quality) {
    const QualityRules& q = *options_.quality;
    all += fmt::format(" {} {} {} {} {} {} {} {}", q.min_words, q.max_words, q.min_word_length,
                       q.max_word_length, q.min_lettered, q.max_repeated_lines, q.max_bullets,
                       q.max_ellipses);
  }
  for (const fs::path& exam : options_.exams) all += " " + core::sha256_hex(core::read_file(exam));
  for (const fs::path& file : source_.files())
    all += fmt::format("\n{} {} {}", fs::absolute(file).string(), fs::file_size(file),
                       fs::last_write_time(file).time_since_epoch().count());
  return fmt::format("{:016x}", core::xxh3(all));
}

// Read the journal, rebuild the tables.
bool Pass::go_on() {
  if (!fs::exists(journal())) return false;
  const std::string where = journal().string();
  const json::value value = core::parse_json(core::read_file(journal()), where);
  const json::object& from = core::as_object(value, where);
  if (core::get_string(from, "fingerprint", where) != fingerprint()) {
    throw core::Error(core::Code::invalid_argument,
                      "the folder holds shards of other inputs or other options")
        .in(options_.out.string())
        .hint("choose another folder, or remove this one");
  }
  file_ = core::get_int(from, "file", where);
  offset_ = static_cast<std::uint64_t>(core::get_int(from, "offset", where));
  result_ = {.documents = core::get_int(from, "documents", where),
             .kept = core::get_int(from, "kept", where),
             .held_out = core::get_int(from, "held_out", where),
             .tokens = core::get_int(from, "tokens", where),
             .text_bytes = core::get_int(from, "text_bytes", where),
             .shards = core::get_int(from, "shards", where),
             .dropped = {},
             .resumed = true};
  for (const auto& [why, count] : core::get_object(from, "dropped", where))
    result_.dropped[why] = count.to_number<std::int64_t>();
  if (core::get_bool(from, "done", where)) return true;
  source_.seek(file_, offset_);
  if (options_.duplicates == Duplicates::keep) return false;
  for (std::int64_t s = 0; s < result_.shards; ++s) {
    for (const char* name : {"train", "val"}) {
      if (!fs::exists(shard_path(name, s))) continue;
      const Shard shard = Shard::open(shard_path(name, s));
      for (std::int64_t d = 0; d < shard.documents(); ++d) exact_.insert(shard.document_hash(d));
    }
    if (options_.duplicates != Duplicates::near) continue;
    const auto keys = core::MappedFile::open(options_.out / fmt::format("near-{:05}.keys", s));
    BandKeys one{};
    for (std::size_t at = 0; at + sizeof one <= keys.bytes().size(); at += sizeof one) {
      std::memcpy(one.data(), keys.bytes().data() + at, sizeof one);
      near_.insert(one);
    }
  }
  return false;
}

// Read the evaluation sets.
void Pass::read_exams() {
  for (const fs::path& path : options_.exams) {
    TextSourceOptions lines = options_.source;
    lines.delimiter.clear();
    TextSource source({path}, lines);
    for (RawDocument raw; source.next(raw);) {
      std::string text = raw.text(lines);
      if (raw.json) {
        exam_.add(text);
        continue;
      }
      for (std::size_t at = 0; at < text.size();) {  // a line of text is an item
        const std::size_t end = std::min(text.find('\n', at), text.size());
        exam_.add(std::string_view(text).substr(at, end - at));
        at = end + 1;
      }
    }
  }
}

}  // namespace

// Check what was asked for, and begin.
std::int32_t separator_of(const text::Tokenizer& tokenizer) {
  if (const auto id = tokenizer.find("<|endoftext|>")) return *id;
  if (const auto id = tokenizer.eos()) return *id;
  throw core::Error(core::Code::invalid_argument, "the tokenizer has no token that ends a text")
      .in("separator")
      .hint("name one of its special tokens");
}

PrepareResult prepare(const PrepareOptions& options) {
  const auto refuse = [](const char* what, std::string message) {
    throw core::Error(core::Code::invalid_argument, std::move(message)).in(what);
  };
  if (options.tokenizer == nullptr) refuse("tokenizer", "a tokenizer is needed");
  if (!(options.held_out >= 0 && options.held_out < 1))
    refuse("held_out",
           fmt::format("a share of {}; it is at least 0 and below 1", options.held_out));
  if (options.shard_tokens < 1 || options.batch_bytes < 1)
    refuse("shard_tokens", "a shard holds at least one token");
  return Pass(options).run();
}

}  // namespace rose::trainer
