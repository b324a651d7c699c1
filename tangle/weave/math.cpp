#include "math.h"

#include <cstdlib>
#include <stdexcept>

#include "files.h"
#include "json.h"
#include "process.h"

namespace weave {
Math::Math(const Cache& cache, std::string script)
    : cache_(cache), script_(std::move(script)), release_(tangle::read_file(script_).value_or("")) {}

void Math::want(std::string_view tex, bool display) { results_.try_emplace(name(tex, display)); }

void Math::render() {
  std::vector<const std::string*> missing;
  json::object cached;
  // One file holds all formulas: ten thousand small ones would be slow to open.
  const std::string store = sha256(release_);
  if (const auto bytes = cache_.find("math", store)) cached = json::parse(*bytes).as_object();
  for (auto& [key, result] : results_) {
    const json::value* found = cached.if_contains(key);
    if (found != nullptr) result.html = view(found->as_string());
    else missing.push_back(&key);
  }
  if (missing.empty()) return;

  std::string lines;
  for (const std::string* key : missing)
    lines += json::serialize(json::object{{"tex", key->substr(1)}, {"display", key->front() == 'D'}}) + "\n";
  cache_.keep("math", "in", lines);
  const Finished done = run_program({"node", script_}, cache_.path("math", "in"), cache_.path("math", "out"));
  if (done.status != 0) throw std::runtime_error("KaTeX could not be run (Debian: nodejs and katex):\n" + done.error);
  const std::string answers = cache_.find("math", "out").value_or("");
  std::size_t at = 0;
  for (const std::string* key : missing) {
    const std::size_t end = answers.find('\n', at);
    if (end == std::string::npos) throw std::runtime_error("KaTeX answered too little");
    const json::value answer = json::parse({answers.data() + at, end - at});
    at = end + 1;
    Result& result = results_.at(*key);
    result.error = text(answer.as_object(), "error");
    result.position = static_cast<std::size_t>(integer(answer.as_object(), "position"));
    if (!result.error.empty()) continue;
    result.html = text(answer.as_object(), "html");
    cached[*key] = result.html;
  }
  cache_.keep("math", store, json::serialize(cached));
}

const Math::Result& Math::get(std::string_view tex, bool display) const { return results_.at(name(tex, display)); }

}  // namespace weave
