// Read and write responses.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rose/serve/answer_json.h"

namespace rose::serve {

/// POST /v1/responses, without anything that is stored. Throws ApiError.
Ask read_response(const json::object& body, const ModelCard& card);

/// Input items as the messages of a chat template; a text is a message of the user. Throws ApiError.
json::array read_items(Fields& fields);

/// Writes an answer as a response: a list of items, and a stream that opens and closes each of them.
class ResponseForm final : public AnswerForm {
 public:
  /// `echo` is what a response repeats of its request.
  ResponseForm(json::object echo, bool logprobs) : echo_(std::move(echo)), logprobs_(logprobs) {}
  const char* prefix() const override { return "resp_"; }
  void start(const AnswerHead& head) override { head_ = head; }
  std::string opening() override;
  std::string add(const ChoiceDelta& delta) override;
  std::string closing(const UsageSum& usage) override;
  std::string failure(const ApiError& error) override;
  json::object whole(const UsageSum& usage) override;

 private:
  enum class Kind : std::uint8_t { thought, message, call };
  struct Item {
    Kind kind = Kind::message;
    std::string id{}, text{};       ///< of a call: its arguments
    std::string name{}, call_id{};  ///< of a call
    std::vector<TokenLogprob> logprobs{};
    std::size_t call = 0;  ///< which one
    const char* status = "in_progress";
  };
  void open(Item item, std::string& out);
  void close(const char* status, std::string& out);
  void grow(Kind kind, const std::string& text, std::string& out);
  void say(std::string_view type, const json::object& event, std::string& out);
  void say_part(std::string_view type, const Item& item, std::string& out);
  json::object part(const Item& item) const;
  json::object item_json(const Item& item) const;
  json::object place(const Item& item) const;
  json::object response(std::string_view status) const;
  void use(const UsageSum& usage);

  json::object echo_;
  bool logprobs_;
  AnswerHead head_;
  std::vector<Item> items_;
  std::vector<TokenLogprob> unsaid_;  ///< of tokens whose text has not come yet
  bool open_ = false, cut_short_ = false;
  std::int64_t number_ = 0;
  json::value usage_, error_, completed_;
};

}  // namespace rose::serve
