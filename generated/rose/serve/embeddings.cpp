// Answer with vectors.

#include "rose/serve/embeddings.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <utility>

namespace rose::serve {

// Read the request.
EmbeddingAsk read_embeddings(const json::object& body, const ModelCard& card) {
  constexpr std::size_t most_texts = 2048;
  Fields fields(body);
  Ask model;
  read_model(fields, card, model);
  EmbeddingAsk ask;
  ask.model = model.model;
  ask.prompts = read_prompts(fields, card, "input", most_texts);
  for (const auto& prompt : ask.prompts) {
    const auto length = static_cast<std::int64_t>(prompt.size());
    if (length == 0)
      invalid("Invalid 'input': input cannot be an empty string.", "input", "empty_prompt");
    if (length >= card.positions)
      invalid(fmt::format("This model's maximum context length is {} tokens, however you "
                          "requested {} tokens. Please reduce your input.",
                          card.positions, length),
              "input", "context_length_exceeded");
  }
  ask.base64 = fields.choice("encoding_format", "float", {"float", "base64"}) == "base64";
  ask.dimensions = fields.integer("dimensions", 0, 1);
  ask.pooling.normalize = fields.flag("normalize", true);
  if (fields.choice("pooling", "last", {"last", "mean"}) == "mean")
    ask.pooling.kind = infer::Pooling::Kind::mean;
  fields.ignore({"user"});
  fields.finish();
  return ask;
}

std::string base64_of(std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  std::string out((bytes.size() + 2) / 3 * 4 + 1, '\0');  // and the zero that is written behind
  const int n = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                reinterpret_cast<const unsigned char*>(bytes.data()),
                                static_cast<int>(bytes.size()));
  out.resize(static_cast<std::size_t>(n));
  return out;
}

// Put the questions, collect the vectors.
Embeddings::Embeddings(Kitchen kitchen, EmbeddingAsk ask, std::shared_ptr<Exchange> exchange,
                       Headers headers)
    : kitchen_(kitchen),
      ask_(std::move(ask)),
      exchange_(std::move(exchange)),
      headers_(std::move(headers)),
      vectors_(ask_.prompts.size()),
      open_(ask_.prompts.size()) {}

void Embeddings::start() {
  exchange_->when_gone([self = weak_from_this()] {
    if (const auto it = self.lock()) it->cancel();
  });
  for (std::size_t p = 0; p < ask_.prompts.size(); ++p) {
    Question question;
    question.prompt = ask_.prompts[p];
    question.pooling = ask_.pooling;
    const auto number = kitchen_.backend.submit(
        std::move(question),
        [self = shared_from_this(), p](const Notice& n) { self->notice(p, n); });
    bool late = false;
    {
      const std::scoped_lock lock(mutex_);
      numbers_.push_back(number);
      late = over_ && open_ > 0;
    }
    if (late) kitchen_.backend.cancel(number);
  }
}

void Embeddings::notice(std::size_t prompt, const Notice& notice) {
  const std::scoped_lock lock(mutex_);
  if (over_) return;
  if (notice.kind == Notice::Kind::refused) return fail(api_error(*notice.error, "input"));
  if (notice.kind == Notice::Kind::lost) return fail(no_engine(notice.error->message()));
  if (notice.kind == Notice::Kind::accepted || !notice.event->finish) return;
  const infer::Event& event = *notice.event;
  if (*event.finish == infer::Finish::error || *event.finish == infer::Finish::cancelled)
    return fail(
        ApiError(500, event.error != nullptr ? event.error->what() : "The request was cancelled.",
                 "server_error"));
  vectors_[prompt].assign(event.embedding.begin(), event.embedding.end());
  const auto length = static_cast<std::int64_t>(vectors_[prompt].size());
  if (ask_.dimensions != 0 && ask_.dimensions != length)
    return fail(ApiError(400,
                         fmt::format("This model has embeddings of {} dimensions, and no "
                                     "shortened ones.",
                                     length),
                         "invalid_request_error", "dimensions", "invalid_value"));
  usage_.prompt += static_cast<std::int64_t>(ask_.prompts[prompt].size());
  usage_.cached += event.usage.cached;
  if (--open_ == 0) finish();
}

// A listener must not call the backend, so somebody else does.
void Embeddings::cancel() {
  kitchen_.pool.post([self = shared_from_this()] {
    std::vector<Backend::Number> numbers;
    {
      const std::scoped_lock lock(self->mutex_);
      self->over_ = true;
      numbers = self->numbers_;
    }
    for (const auto number : numbers) self->kitchen_.backend.cancel(number);
  });
}

// Answer once.
void Embeddings::respond(int status, HttpResponse response) {
  over_ = true;
  response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
  exchange_->respond(std::move(response));
  const auto took = std::chrono::steady_clock::now() - start_;
  kitchen_.metrics.request(status, std::chrono::duration<double>(took).count(), usage_);
}

void Embeddings::fail(const ApiError& error) {
  respond(error.status, error.response());
  if (ask_.prompts.size() > 1) cancel();
}

void Embeddings::finish() {
  json::array data;
  for (std::size_t i = 0; i < vectors_.size(); ++i) {
    json::value vector =
        ask_.base64 ? json::value(base64_of(vectors_[i])) : json::value_from(vectors_[i]);
    data.push_back({{"object", "embedding"}, {"index", i}, {"embedding", std::move(vector)}});
  }
  const json::object body{
      {"object", "list"},
      {"data", std::move(data)},
      {"model", ask_.model},
      {"usage", {{"prompt_tokens", usage_.prompt}, {"total_tokens", usage_.prompt}}}};
  respond(200, {200, {{"content-type", "application/json"}}, json::serialize(body)});
}

}  // namespace rose::serve
