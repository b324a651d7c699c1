// The choice of one token behind a pipe, for the oracle test, which is in Python.
//
// A line of JSON in: logits, prompt and answer (ids), and the fields of Sampling. A line of JSON out: the token, and the ids and
// log-probabilities of the likeliest, of the distribution that was drawn from.
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "rose/core/json.h"
#include "rose/core/parallel.h"
#include "rose/infer/choose.h"

int main() {
  using namespace rose;
  namespace json = core::json;
  infer::ChooseScratch scratch;
  for (std::string line; std::getline(std::cin, line);) {
    const json::value parsed = core::parse_json(line, "request");
    const json::object& o = parsed.as_object();
    const auto number = [&](const char* key, double otherwise) {
      return static_cast<float>(core::get_double_or(o, key, otherwise, "request"));
    };
    const auto ids = [&](const char* key) {
      std::vector<std::int32_t> out;
      for (const json::value& v : core::get_array(o, key, "request"))
        out.push_back(static_cast<std::int32_t>(v.to_number<std::int64_t>()));
      return out;
    };
    infer::Sampling asked{.temperature = number("temperature", 1),
                          .top_p = number("top_p", 1),
                          .min_p = number("min_p", 0),
                          .top_k = static_cast<int>(number("top_k", 0)),
                          .repetition_penalty = number("repetition_penalty", 1),
                          .presence_penalty = number("presence_penalty", 0),
                          .frequency_penalty = number("frequency_penalty", 0),
                          .seed = static_cast<std::uint64_t>(number("seed", 0)),
                          .logprobs = infer::most_logprobs,
                          .processed_logprobs = true};
    if (const json::value* bias = o.if_contains("logit_bias"))
      for (const auto& b : bias->as_object())
        asked.logit_bias.emplace_back(std::stoi(std::string(b.key())),
                                      static_cast<float>(b.value().to_number<double>()));
    std::vector<float> logits;
    for (const json::value& v : core::get_array(o, "logits", "request"))
      logits.push_back(static_cast<float>(v.to_number<double>()));
    const auto vocab = static_cast<std::int64_t>(logits.size());
    infer::validate(asked, vocab);
    const auto prompt = ids("prompt"), answer = ids("answer");
    infer::RequestSampler sampler(std::make_shared<infer::Sampling>(asked), 0, prompt, vocab, {});
    for (const std::int32_t token : answer) sampler.accept(token);
    const infer::RowSampling row =
        sampler.row(static_cast<std::int64_t>(prompt.size() + answer.size()));
    const infer::RowChoice choice = infer::choose(logits, row, scratch, core::default_pool());
    json::array top;
    for (std::size_t i = 0; i < choice.top_ids.size(); ++i)
      if (choice.top_logprobs[i] > -1e30f)
        top.push_back(json::array{choice.top_ids[i], choice.top_logprobs[i]});
    std::cout << json::serialize(json::object{
                     {"token", choice.token}, {"logprob", choice.logprob}, {"top", top}})
              << std::endl;
  }
}
