// Turns with their tokens.

#include "rose/rlhf/trajectory_json.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "rose/core/error.h"

namespace rose::rlhf {

namespace json = core::json;

namespace {

// The double whose shortest form is the float's, so that 0.1f is written as 0.1.
double shortest(float value) {
  const std::string text = fmt::format("{}", value);
  double result = 0;
  std::from_chars(text.data(), text.data() + text.size(), result);
  return result;
}

[[noreturn]] void refuse(std::string_view where, std::string message) {
  throw core::Error(core::Code::corrupt, std::move(message)).in(std::string(where));
}

template <class T>
T number(const json::value& value, std::string_view key, std::string_view where) {
  if (!value.is_number()) refuse(where, fmt::format("{} has an entry that is no number", key));
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(value.to_number<double>());
  } else {
    boost::system::error_code failed;
    const T result = value.to_number<T>(failed);
    if (failed) refuse(where, fmt::format("{} has an entry that is no integer", key));
    return result;
  }
}

template <class T>
std::vector<T> numbers(const json::object& object, std::string_view key, std::string_view where) {
  std::vector<T> result;
  for (const json::value& value : core::get_array(object, key, where))
    result.push_back(number<T>(value, key, where));
  return result;
}

template <class T>
json::array slice(const std::vector<T>& column, const Turn& turn) {
  json::array result;
  for (std::size_t i = turn.begin; i < turn.end; ++i) {
    if constexpr (std::is_same_v<T, float>)
      result.push_back(shortest(column[i]));
    else if constexpr (std::is_same_v<T, std::vector<std::int32_t>>)
      result.push_back(json::array(column[i].begin(), column[i].end()));
    else
      result.push_back(column[i]);
  }
  return result;
}

// A column of an action turn, which must be as long as its tokens.
template <class T>
void extend(std::vector<T>& column, std::vector<T> more, std::size_t length, const char* key,
            std::string_view where) {
  if (more.size() != length)
    refuse(where, fmt::format("{} has {} entries for {} tokens", key, more.size(), length));
  column.insert(column.end(), std::make_move_iterator(more.begin()),
                std::make_move_iterator(more.end()));
}

// A turn's columns.
bool restricted(const Trajectory& t, const Turn& turn) {
  for (std::size_t i = turn.begin; i < turn.end; ++i)
    if (!t.support[i].empty()) return true;
  return false;
}

void add_columns(json::object& object, const Trajectory& t, const Turn& turn) {
  object["tokens"] = slice(t.tokens, turn);
  if (turn.kind == Kind::observation) return;
  object["trained"] = slice(t.trained, turn);
  object["version"] = slice(t.version, turn);
  object["raw"] = slice(t.raw, turn);
  object["behaviour"] = slice(t.behaviour, turn);
  if (restricted(t, turn)) object["support"] = slice(t.support, turn);
}

std::vector<std::vector<std::int32_t>> supports(const json::object& object, std::size_t length,
                                                std::string_view where) {
  std::vector<std::vector<std::int32_t>> result;
  if (core::find(object, "support") == nullptr) return {length, std::vector<std::int32_t>{}};
  for (const json::value& ids : core::get_array(object, "support", where)) {
    if (!ids.is_array()) refuse(where, "support has an entry that is no array");
    result.emplace_back();
    for (const json::value& id : ids.get_array())
      result.back().push_back(number<std::int32_t>(id, "support", where));
  }
  return result;
}

void read_columns(Trajectory& t, Turn& turn, const json::object& object, std::string_view where) {
  turn.begin = t.tokens.size();
  const auto tokens = numbers<std::int32_t>(object, "tokens", where);
  const std::size_t n = tokens.size();
  turn.end = turn.begin + n;
  t.tokens.insert(t.tokens.end(), tokens.begin(), tokens.end());
  if (turn.kind == Kind::observation) {
    t.trained.resize(turn.end, 0);
    t.version.resize(turn.end, -1);
    t.raw.resize(turn.end, 0);
    t.behaviour.resize(turn.end, 0);
    t.support.resize(turn.end);
    return;
  }
  extend(t.trained, numbers<std::uint8_t>(object, "trained", where), n, "trained", where);
  extend(t.version, numbers<std::int64_t>(object, "version", where), n, "version", where);
  extend(t.raw, numbers<float>(object, "raw", where), n, "raw", where);
  extend(t.behaviour, numbers<float>(object, "behaviour", where), n, "behaviour", where);
  extend(t.support, supports(object, n, where), n, "support", where);
}

}  // namespace

// The fields that are not columns.
json::object header_json(const Trajectory& t) {
  json::object object{{"id", t.id}, {"task", t.task}, {"group", t.group}, {"seed", t.seed}};
  object["environment"] = t.environment;
  object["environment_version"] = t.environment_version;
  object["tokenizer_hash"] = t.tokenizer_hash;
  object["template_hash"] = t.template_hash;
  object["temperature"] = shortest(t.temperature);
  object["mixed"] = t.mixed;
  object["ending"] = t.ending == Ending::terminated ? "terminated" : "truncated";
  object["reason"] = t.reason;
  if (t.fork)
    object["fork"] = {
        {"parent", t.fork->parent}, {"at", t.fork->at}, {"had", t.fork->had}, {"got", t.fork->got}};
  json::array turns;
  for (const Turn& turn : t.turns) {
    json::object entry{{"kind", turn.kind == Kind::action ? "action" : "observation"}};
    entry["length"] = turn.end - turn.begin;
    if (!turn.state.empty()) entry["state"] = turn.state;
    json::object rewards;
    for (const Reward& reward : turn.rewards) rewards[reward.name] = shortest(reward.value);
    if (!rewards.empty()) entry["rewards"] = std::move(rewards);
    turns.push_back(std::move(entry));
  }
  object["turns"] = std::move(turns);
  return object;
}

namespace {

bool one_of(std::string_view value, std::string_view yes, std::string_view no, const char* key,
            std::string_view where) {
  if (value == yes) return true;
  if (value != no) refuse(where, fmt::format("{} is '{}', not '{}' or '{}'", key, value, yes, no));
  return false;
}

Turn turn_from_json(const json::object& object, std::size_t begin, std::string_view where) {
  Turn turn;
  const auto kind = core::get_string(object, "kind", where);
  if (one_of(kind, "action", "observation", "kind", where)) turn.kind = Kind::action;
  turn.begin = begin;
  const std::int64_t length = core::get_int_or(object, "length", 0, where);
  if (length < 0) refuse(where, fmt::format("length of a turn is {}", length));
  turn.end = begin + static_cast<std::size_t>(length);
  turn.state = core::get_string_or(object, "state", "", where);
  if (core::find(object, "rewards") != nullptr)
    for (const auto& [name, value] : core::get_object(object, "rewards", where))
      turn.rewards.push_back({name, number<float>(value, "rewards", where)});
  return turn;
}

Fork fork_from_json(const json::object& object, std::string_view where) {
  return {std::string(core::get_string(object, "parent", where)),
          static_cast<std::size_t>(core::get_int(object, "at", where)),
          static_cast<std::int32_t>(core::get_int(object, "had", where)),
          static_cast<std::int32_t>(core::get_int(object, "got", where))};
}

}  // namespace

Trajectory header_from_json(const json::object& object, std::string_view where) {
  const auto text = [&](const char* key) {
    return std::string(core::get_string_or(object, key, "", where));
  };
  Trajectory t;
  t.id = core::get_string(object, "id", where);
  t.task = text("task");
  t.group = text("group");
  if (const json::value* seed = core::find(object, "seed"))
    t.seed = number<std::uint64_t>(*seed, "seed", where);
  t.environment = text("environment");
  t.environment_version = text("environment_version");
  t.tokenizer_hash = text("tokenizer_hash");
  t.template_hash = text("template_hash");
  t.temperature = static_cast<float>(core::get_double_or(object, "temperature", 1, where));
  t.mixed = core::get_bool_or(object, "mixed", false, where);
  const auto ending = core::get_string(object, "ending", where);
  if (!one_of(ending, "terminated", "truncated", "ending", where)) t.ending = Ending::truncated;
  t.reason = text("reason");
  if (core::find(object, "fork") != nullptr)
    t.fork = fork_from_json(core::get_object(object, "fork", where), where);
  std::size_t at = 0;
  for (const json::value& turn : core::get_array(object, "turns", where)) {
    t.turns.push_back(turn_from_json(core::as_object(turn, where), at, where));
    at = t.turns.back().end;
  }
  return t;
}

// One line.
std::string to_json_line(const Trajectory& t) {
  json::object object = header_json(t);
  json::array& turns = object["turns"].as_array();
  for (std::size_t k = 0; k < t.turns.size(); ++k) {
    json::object& turn = turns[k].as_object();
    turn.erase("length");
    add_columns(turn, t, t.turns[k]);
  }
  return json::serialize(object);
}

Trajectory from_json_line(std::string_view line, std::string_view where) {
  const json::value value = core::parse_json(line, where);
  const json::object& object = core::as_object(value, where);
  Trajectory t = header_from_json(object, where);
  const json::array& turns = core::get_array(object, "turns", where);
  for (std::size_t k = 0; k < t.turns.size(); ++k)
    read_columns(t, t.turns[k], turns[k].get_object(), fmt::format("{}, turn {}", where, k));
  validate(t);
  return t;
}

}  // namespace rose::rlhf
