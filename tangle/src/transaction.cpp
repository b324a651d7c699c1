#include "transaction.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <unordered_set>

#include "files.h"
#include "text.h"

namespace tangle {
namespace {

class Planner {
 public:
  Planner(const std::string& folder, const std::vector<Output>& outputs, Diagnostics& diagnostics)
      : outputs_(outputs), diagnostics_(diagnostics) {
    transaction_.folder = folder;
  }

  Transaction run() {
    for (const Output& output : outputs_) produced_.insert(output.path);
    const std::string old_list = read_file(transaction_.folder + "/outputs.cmake", false).value_or("");
    for (std::string& path : listed_files(old_list)) known_.insert(std::move(path));
    walk();
    for (const Output& output : outputs_) compare(output);
    return std::move(transaction_);
  }

 private:
  /// Looks at everything in the folder, so that links are found before anything is written through them.
  void walk() {
    namespace fs = std::filesystem;
    std::error_code none;
    for (const auto& entry : fs::recursive_directory_iterator(transaction_.folder, none)) {
      std::string path = entry.path().string().substr(transaction_.folder.size() + 1);
      const fs::file_type kind = entry.symlink_status(none).type();
      if (kind == fs::file_type::directory) {
        folders_.insert(path);
      } else if (is_leftover(entry.path().filename().string())) {
        transaction_.leftovers.push_back(path);
      } else if (produced_.count(path)) {
        (kind == fs::file_type::regular ? present_ : links_).insert(path);
      } else {
        if (kind != fs::file_type::regular) links_.insert(path);
        const bool ours = known_.count(path) && kind == fs::file_type::regular;
        (ours ? transaction_.removed : transaction_.foreign).push_back(path);
      }
    }
    for (auto* paths : {&transaction_.removed, &transaction_.foreign, &transaction_.leftovers}) {
      std::sort(paths->begin(), paths->end());
    }
  }

  void compare(const Output& output) {
    if (!safe(output)) return;
    if (!present_.count(output.path)) {
      transaction_.missing.push_back(&output);
      return;
    }
    if (!file_holds(transaction_.folder + "/" + output.path, output.text)) transaction_.changed.push_back(&output);
  }

  /// Refuses to write through symbolic links or over folders.
  bool safe(const Output& output) {
    const std::string& path = output.path;
    for (std::size_t end = path.find('/');; end = path.find('/', end + 1)) {
      const std::string part = path.substr(0, end);
      const std::string shown = transaction_.folder + "/" + part;
      if (links_.count(part)) {
        diagnostics_.error("symbolic-link", output.place,
                           shown + " is a symbolic link or a device; nothing is written through it");
        return false;
      }
      const bool last = end == std::string::npos;
      if (last ? folders_.count(part) > 0 : present_.count(part) > 0) {
        diagnostics_.error("in-the-way", output.place,
                           shown + (last ? " is a folder" : " is a file") + "; it is in the way of this output");
        return false;
      }
      if (last) return true;
    }
  }

  const std::vector<Output>& outputs_;
  Diagnostics& diagnostics_;
  Transaction transaction_;
  std::unordered_set<std::string> produced_, known_, present_, folders_, links_;
};

/// Removes the folders above a removed file as far as they are empty.
void remove_empty_folders(const std::string& folder, std::string path) {
  for (std::size_t slash = path.rfind('/'); slash != std::string::npos; slash = path.rfind('/')) {
    path.resize(slash);
    if (::rmdir((folder + "/" + path).c_str()) != 0) return;
  }
}

/// Puts a copy of a file that is about to go into `keep`. A failure costs the copy, nothing else.
void keep_old(const std::string& folder, const std::string& path, const std::string& keep) {
  if (keep.empty()) return;
  const std::string target = keep + "/" + path;
  if (!make_folders(target.substr(0, target.rfind('/'))).empty()) return;
  if (const auto text = read_file(folder + "/" + path, false)) write_file_atomic(target, *text);
}

std::string_view line_at(std::string_view text, std::size_t begin) {
  return begin >= text.size() ? std::string_view("(the end of the file)")
                              : text.substr(begin, text.find('\n', begin) - begin);
}

void report_change(const Program& program, const Output& output, const std::string& shown, Diagnostics& diagnostics) {
  const std::string file = read_file(shown, false).value_or("");
  const auto differs = std::mismatch(file.begin(), file.end(), output.text.begin(), output.text.end());
  const auto offset = static_cast<std::size_t>(differs.second - output.text.begin());
  const auto line = static_cast<std::uint32_t>(1 + std::count(output.text.begin(), differs.second, '\n'));
  const std::size_t before = offset == 0 ? std::string::npos : output.text.rfind('\n', offset - 1);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  const Origin origin = origin_of(program, output, line, 0);
  Span span = output.place;
  if (origin.document) {
    const Source& source = *origin.document->source;
    std::uint32_t at = origin.run->source_offset;
    for (std::uint32_t i = origin.run->source_line; i < origin.line; ++i) at = line_around(source, at).end + 1;
    span = line_around(source, at);
  }
  Message& message = diagnostics.error("drift", span, shown + ":" + std::to_string(line) + " differs from the book");
  message.help("the file says: " + printable(line_at(file, begin)));
  message.help("the book says: " + printable(line_at(output.text, begin)));
}

}  // namespace

Transaction plan(const std::string& folder, const std::vector<Output>& outputs, Diagnostics& diagnostics) {
  return Planner(folder, outputs, diagnostics).run();
}

void apply(const Transaction& transaction, Diagnostics& diagnostics, const std::string& keep) {
  const auto fail = [&](const std::string& path, const std::string& why) {
    if (!why.empty()) diagnostics.error("cannot-write", {}, transaction.folder + "/" + path + ": " + why);
    return !why.empty();
  };
  for (const std::string& path : transaction.leftovers) ::unlink((transaction.folder + "/" + path).c_str());
  for (const Output* output : transaction.changed) keep_old(transaction.folder, output->path, keep);
  for (const std::string& path : transaction.removed) {
    keep_old(transaction.folder, path, keep);
    ::unlink((transaction.folder + "/" + path).c_str());
    remove_empty_folders(transaction.folder, path);
  }
  std::string made;
  for (const auto* outputs : {&transaction.missing, &transaction.changed}) {
    for (const Output* output : *outputs) {
      const std::string path = transaction.folder + "/" + output->path;
      const std::string parent = path.substr(0, path.rfind('/'));
      if (parent != made && fail(output->path, make_folders(parent))) return;
      made = parent;
      if (fail(output->path, write_file_atomic(path, output->text))) return;
    }
  }
}

void report_drift(const Program& program, const Transaction& transaction, Diagnostics& diagnostics) {
  const auto shown = [&](const std::string& path) { return transaction.folder + "/" + path; };
  for (const Output* output : transaction.missing) {
    diagnostics.error("drift", output->place, shown(output->path) + " is missing");
  }
  for (const Output* output : transaction.changed) report_change(program, *output, shown(output->path), diagnostics);
  for (const std::string& path : transaction.removed)
    diagnostics.error("drift", {}, shown(path) + " is no longer produced by the book");
  for (const std::string& path : transaction.foreign)
    diagnostics.error("foreign-file", {}, shown(path) + " does not come from the book");
  for (const std::string& path : transaction.leftovers)
    diagnostics.error("foreign-file", {}, shown(path) + " was left by an interrupted run");
}

}  // namespace tangle
