// Ask for packed weights.

#include "rose/app/engine_quantization.h"

#include "rose/model/packed_weights.h"

namespace rose::app {

void add_quantization_options(CLI::App& command, QuantizationOptions& options) {
  command
      .add_option("-q,--quantization", options.format,
                  "Pack the blocks' weights: none, int8, int4 or fp8")
      ->capture_default_str();
  command.add_option("--quantization-group-size", options.group,
                     "Columns that share a scale, a multiple of 32; 0: whole rows; the default "
                     "is 128, and whole rows for fp8");
}

std::shared_ptr<const model::WeightSet> load_weights(const QuantizationOptions& options,
                                                     const model::Checkpoint& checkpoint,
                                                     bool plain) {
  model::PackOptions pack = model::parse_quantization(options.format, options.group);
  pack.plain = plain;
  return model::pack_weights(model::load_weights(checkpoint), pack);
}

std::string_view sample_text() {
  return "A river does not choose its bed. It takes the lowest ground that it finds, carries off "
         "what is loose, and lays it down where the water slows. After a thousand years the valley "
         "has the shape of the river, and the river has the shape of the valley, and nobody can "
         "say which came first.\n\n"
         "The first bridge at the ford was built of oak in 1284. It stood for two hundred years, "
         "until ice took its middle pier in the winter of 1491. The council then hired a mason "
         "from the south, who asked for 40 men, 12 carts and three summers. He got 25 men and two "
         "summers, and the bridge that he built still stands.\n\n"
         "def mean(values):\n    return sum(values) / len(values)\n\n"
         "Water boils at 100 degrees Celsius at the level of the sea, and at about 90 degrees in "
         "a town that lies 3,000 metres higher, because there is less air above the pot to press "
         "the vapour back. This is why beans take longer in the mountains.\n\n"
         "\"Do you know the way?\" she asked. \"I did when I was young,\" he said, \"but they have "
         "moved the road since, and I have not moved with it.\"\n";
}

std::vector<std::int32_t> sample_ids(const text::Tokenizer& tokenizer) {
  const auto prefix = tokenizer.prefix();
  std::vector<std::int32_t> ids(prefix.begin(), prefix.end());
  tokenizer.encode(sample_text(), false, ids);
  return ids;
}

}  // namespace rose::app
