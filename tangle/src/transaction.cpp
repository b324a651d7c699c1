#include "transaction.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "files.h"
#include "text.h"

namespace tangle {
namespace {

namespace fs = std::filesystem;
using Entries = std::map<std::string, fs::file_type>;

/// Everything in the folder, links and not what they lead to.
Entries entries_of(const std::string& folder) {
  Entries out;
  std::error_code none;
  for (const auto& entry : fs::recursive_directory_iterator(folder, none)) {
    out.emplace(entry.path().native().substr(folder.size() + 1), entry.symlink_status(none).type());
  }
  return out;
}

/// Refuses to write through symbolic links or over folders.
bool is_safe(const Output& output, const std::string& folder, const Entries& entries, Diagnostics& diagnostics) {
  const auto refuse = [&](std::string_view code, const std::string& path, const char* why) {
    diagnostics.error(code, output.place, folder + "/" + path + why);
    return false;
  };
  for (std::size_t end = 0; end < output.path.size(); ++end) {
    end = std::min(output.path.find('/', end), output.path.size());
    const auto entry = entries.find(output.path.substr(0, end));
    if (entry == entries.end()) return true;
    const auto& [path, type] = *entry;
    const bool is_folder = type == fs::file_type::directory;
    if (!is_folder && type != fs::file_type::regular) {
      return refuse("symbolic-link", path, " is a symbolic link or a device; nothing is written through it");
    }
    if (is_folder && end == output.path.size()) {
      return refuse("in-the-way", path, " is a folder; it is in the way of this output");
    }
  }
  return true;
}

/// Removes a file, and the folders above it as far as they are empty.
void remove(const std::string& folder, const std::string& path) {
  std::error_code none;
  for (fs::path up = path; !up.empty() && fs::remove(folder / up, none);) up = up.parent_path();
}

/// Puts a copy of a file that is about to go into `keep`. A failure costs the copy, nothing else.
void keep_old(const std::string& folder, const std::string& path, const std::string& keep) {
  if (keep.empty()) return;
  const std::string target = keep + "/" + path;
  if (!make_folders(target.substr(0, target.rfind('/'))).empty()) return;
  if (const auto text = read_file(folder + "/" + path, false)) write_file_atomic(target, *text);
}

void report_change(const Program& program, const Output& output, const std::string& shown, Diagnostics& diagnostics) {
  const std::string file = read_file(shown, false).value_or("");
  const std::string& text = output.text;
  const auto differs = std::ranges::mismatch(file, text).in2;
  const auto line = static_cast<std::uint32_t>(1 + std::count(text.begin(), differs, '\n'));
  const std::size_t begin = skip_lines(text, 0, line - 1);
  const auto says = [&](std::string_view all) {
    return begin < all.size() ? printable(line_at(all, begin)) : "(the end of the file)";
  };
  const Origin origin = origin_of(program, output, line, 0);
  Span span = output.place;
  if (origin.document) {
    const Source& source = *origin.document->source;
    const std::size_t at = skip_lines(source.text, origin.run->source_offset, origin.line - origin.run->source_line);
    span = line_around(source, static_cast<std::uint32_t>(at));
  }
  diagnostics.error("drift", span, shown + ":" + std::to_string(line) + " differs from the book")
      .help("the file says: " + says(file))
      .help("the book says: " + says(text));
}

/// Writes the outputs by `put`. Returns what went wrong, or an empty string.
std::string write(const std::string& folder, const std::vector<const Output*>& outputs,
                  std::string (*put)(const std::string& path, std::string_view text)) {
  std::string made;
  for (const Output* output : outputs) {
    const std::string path = folder + "/" + output->path, parent = path.substr(0, path.rfind('/'));
    std::string why = parent == made ? "" : make_folders(parent);
    made = parent;
    if (why.empty()) why = put(path, output->text);
    if (!why.empty()) return output->path + ": " + why;
  }
  return {};
}

/// A folder that is not there yet is made under another name, and gets its own when it is whole.
std::string write_fresh(const std::string& folder, const std::vector<const Output*>& outputs) {
  const std::string temporary = temporary_name(folder);
  std::string why = write(temporary, outputs, write_file);
  std::error_code error;
  if (why.empty()) fs::rename(temporary, folder, error);
  if (error) why = error.message();
  if (!why.empty()) fs::remove_all(temporary, error);
  return why;
}

}  // namespace

Transaction plan(const std::string& folder, const std::vector<Output>& outputs, Diagnostics& diagnostics) {
  Transaction out{folder, {}, {}, {}, {}, {}};
  const Entries entries = entries_of(folder);
  const std::set<std::string> ours = listed_files(read_file(folder + "/outputs.cmake", false).value_or(""));
  std::set<std::string_view> produced;
  for (const Output& output : outputs) produced.insert(output.path);
  for (const auto& [path, type] : entries) {
    if (type == fs::file_type::directory) continue;
    if (is_leftover(path.substr(path.rfind('/') + 1))) out.leftovers.push_back(path);
    else if (produced.contains(path)) continue;
    else if (type == fs::file_type::regular && ours.contains(path)) out.removed.push_back(path);
    else out.foreign.push_back(path);
  }
  for (const Output& output : outputs) {
    if (!is_safe(output, folder, entries, diagnostics)) continue;
    if (!entries.contains(output.path)) out.missing.push_back(&output);
    else if (!file_holds(folder + "/" + output.path, output.text)) out.changed.push_back(&output);
  }
  return out;
}

void apply(const Transaction& transaction, Diagnostics& diagnostics, const std::string& keep) {
  const std::string& folder = transaction.folder;
  for (const std::string& path : transaction.leftovers) remove(folder, path);
  for (const Output* output : transaction.changed) keep_old(folder, output->path, keep);
  for (const std::string& path : transaction.removed) {
    keep_old(folder, path, keep);
    remove(folder, path);
  }
  std::vector<const Output*> outputs = transaction.missing;
  outputs.insert(outputs.end(), transaction.changed.begin(), transaction.changed.end());
  const bool fresh = !fs::exists(fs::symlink_status(folder));
  const std::string why = fresh ? write_fresh(folder, outputs) : write(folder, outputs, write_file_atomic);
  if (!why.empty()) diagnostics.error("cannot-write", {}, folder + "/" + why);
}

void report_drift(const Program& program, const Transaction& transaction, Diagnostics& diagnostics) {
  const auto shown = [&](const std::string& path) { return transaction.folder + "/" + path; };
  for (const Output* output : transaction.missing) {
    diagnostics.error("drift", output->place, shown(output->path) + " is missing");
  }
  for (const Output* output : transaction.changed) report_change(program, *output, shown(output->path), diagnostics);
  const auto tell = [&](const std::vector<std::string>& paths, std::string_view code, const char* what) {
    for (const std::string& path : paths) diagnostics.error(code, {}, shown(path) + what);
  };
  tell(transaction.removed, "drift", " is no longer produced by the book");
  tell(transaction.foreign, "foreign-file", " does not come from the book");
  tell(transaction.leftovers, "foreign-file", " was left by an interrupted run");
}

}  // namespace tangle
