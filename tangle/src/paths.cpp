#include "output.h"

#include <algorithm>
#include <cctype>
#include <unordered_map>

#include "text.h"

namespace tangle {
namespace {

bool portable(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("._+-/").find(c) != std::string_view::npos;
}

/// Remembers each path and each folder above one, in lower case.
class Registry {
 public:
  explicit Registry(Diagnostics& diagnostics) : diagnostics_(diagnostics) {}

  void add(const Output& output) {
    for (std::size_t slash = output.path.find('/'); slash != std::string::npos;
         slash = output.path.find('/', slash + 1)) {
      place(output, std::string_view(output.path).substr(0, slash), false);
    }
    place(output, output.path, true);
  }

 private:
  struct Seen {
    std::string_view path;
    const Output* output;
    bool file;
  };

  void place(const Output& output, std::string_view path, bool file) {
    std::string key(path);
    for (char& c : key) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const auto [at, fresh] = seen_.try_emplace(std::move(key), Seen{path, &output, file});
    const Seen& other = at->second;
    if (fresh || (!file && !other.file && other.path == path)) return;
    if (told_ == &output) return;
    told_ = &output;
    const bool same = other.path == path;
    diagnostics_
        .error(same ? "duplicate-file" : "case-collision", output.place,
               !same                ? quoted(output.path) + " differs in case alone from another path"
               : file && other.file ? "two chunks become the file " + quoted(output.path)
                                    : quoted(path) + " is a file and a folder")
        .note(other.output->place, same ? "the other is here" : "the other is " + quoted(other.output->path));
  }

  Diagnostics& diagnostics_;
  std::unordered_map<std::string, Seen> seen_;
  const Output* told_ = nullptr;
};

}  // namespace

std::string path_objection(std::string_view path) {
  if (path.empty()) return "it is empty";
  if (path.front() == '/') return "it is absolute";
  if (path.size() > 200) return "it is longer than 200 characters";
  const auto odd = std::find_if_not(path.begin(), path.end(), portable);
  if (odd != path.end()) return "it holds a character other than letters, digits and ._+-/";
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view name = path.substr(begin, end - begin);
    if (name.empty()) return "a name in it is empty";
    if (name == "." || name == "..") return quoted(name) + " is not allowed in it";
    if (name.front() == '-') return "a name in it begins with a hyphen";
    begin = end + 1;
  }
  return {};
}

void check_paths(const std::vector<Output>& outputs, Diagnostics& diagnostics) {
  Registry registry(diagnostics);
  for (const Output& output : outputs) {
    const std::string objection = path_objection(output.path);
    if (!objection.empty()) {
      diagnostics.error("bad-path", output.place, "this path cannot be written: " + objection)
          .help("paths are relative to generated/, such as rose/text/bpe.h");
    } else {
      registry.add(output);
    }
  }
}

}  // namespace tangle
