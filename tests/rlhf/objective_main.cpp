// Reads batches, one JSON object a line, and prints value and weights of every objective that is asked for.
#include <iostream>
#include <map>

#include "rose/core/json.h"
#include "rose/rlhf/presets.h"

namespace {

using rose::core::json::object;
using rose::core::json::value;

const std::map<std::string, rose::rlhf::Objective, std::less<>>& objectives() {
  using namespace rose::rlhf;
  static const std::map<std::string, Objective, std::less<>> all = {
      {"reinforce", reinforce()},
      {"ppo", ppo()},
      {"dual", ppo(.2, 3)},
      {"grpo", grpo(.2, .04)},
      {"dapo", dapo()},
      {"dr_grpo", dr_grpo(8)},
      {"gspo", gspo(.02, .03)},
      {"gspo_token", gspo_token(.02, .03)},
      {"sapo", sapo()},
      {"cispo", cispo(.2)},
      {"dis", dis(.3, .5)},
      {"dis_attached", dis(.3, .5, true)},
      {"aipo", aipo(1.2)},
      {"decoupled", decoupled_ppo()},
      {"dppo", dppo(.05, 1.1)},
      {"up_grpo", up_grpo(.2, 1.3)},
      {"tis", with_tis(ppo(), 1.02)},
      {"icepop", with_icepop(ppo(), .9, 1.1)}};
  return all;
}

std::vector<double> column(const object& batch, const char* name) {
  return rose::core::json::value_to<std::vector<double>>(batch.at(name));
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const value parsed = rose::core::parse_json(line, "stdin");
    const object& batch = parsed.as_object();
    const auto starts = rose::core::json::value_to<std::vector<std::size_t>>(batch.at("starts"));
    const auto mask = rose::core::json::value_to<std::vector<std::uint8_t>>(batch.at("mask"));
    const auto current = column(batch, "current"), old = column(batch, "old");
    const auto behaviour = column(batch, "behaviour"), reference = column(batch, "reference");
    const auto advantage = column(batch, "advantage");
    object answer;
    for (const auto& [name, objective] : objectives()) {
      const auto result = rose::rlhf::evaluate(
          objective, {starts, mask, current, old, behaviour, reference, advantage});
      answer[name] = {{"value", result.value},
                      {"weights", rose::core::json::value_from(result.weights)}};
    }
    std::cout << rose::core::json::serialize(answer) << std::endl;
  }
}
