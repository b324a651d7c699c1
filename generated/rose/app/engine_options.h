// What generate and chat share.

#pragma once

#include <optional>
#include <string>

#include "rose/app/cli.h"
#include "rose/app/models.h"
#include "rose/model/generate.h"

#include "rose/app/engine_quantization.h"

namespace rose::app {

struct EngineOptions {
  std::string model;
  std::int64_t max_model_len = 0;  ///< 0: what the model allows
  model::GenerateOptions generate;
  bool statistics = false;
  QuantizationOptions quantization{};
  std::string adapter{};  ///< its folder; empty: none
};

/// The options, named as users of other engines know them. The values already in `options` are the defaults that --help shows.
void add_engine_options(CLI::App& command, EngineOptions& options);

/// A model ready to generate.
class LoadedModel {
 public:
  explicit LoadedModel(const EngineOptions& options);

  /// Continues ids and prints the text as it comes. Ctrl-C ends the answer, not the program. Returns what was generated.
  model::Generation stream(std::span<const std::int32_t> ids, const EngineOptions& options);

  const model::Checkpoint& checkpoint() const { return checkpoint_; }
  const text::Tokenizer& tokenizer() const { return tokenizer_; }
  const std::string& text() const { return text_; }  ///< of the last call of stream
  void reset() { generator_->reset(); }

 private:
  model::Checkpoint checkpoint_;
  text::Tokenizer tokenizer_;
  std::optional<model::Generator> generator_;
  std::string text_;
  std::vector<std::int32_t> stops_{};  ///< of an adapter that ends answers otherwise

  void adapt(const std::filesystem::path& folder, const model::WeightSet& weights);
};

/// True once Ctrl-C was pressed since the last call.
bool take_interrupt();
/// From now on Ctrl-C sets the flag of take_interrupt() and interrupts a blocking read instead of ending the program.
void catch_interrupts();

}  // namespace rose::app
