// Formulas as MathML: one Node process renders all that are new, the rest comes from the cache.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cache.h"

namespace weave {

class Math {
 public:
  /// `script` is katex.mjs; `release` names KaTeX and the script, as a part of the cache's keys.
  Math(const Cache& cache, std::string script);

  /// Asks for a formula. Every browser draws MathML by itself, with a quarter of the elements that HTML would take.
  void want(std::string_view tex, bool display);

  /// Renders everything that was asked for. Throws std::runtime_error when Node or KaTeX cannot be run.
  void render();

  struct Result {
    std::string html;
    std::string error;         ///< what KaTeX says of a faulty formula
    std::size_t position = 0;  ///< and where, in bytes of the formula
  };
  const Result& get(std::string_view tex, bool display) const;
  std::size_t count() const { return results_.size(); }

 private:
  static std::string name(std::string_view tex, bool display) { return (display ? "D" : "I") + std::string(tex); }

  const Cache& cache_;
  std::string script_;
  std::string release_;
  std::map<std::string, Result, std::less<>> results_;
};

}  // namespace weave
