// Answer with vectors.

#pragma once

#include "rose/serve/answer.h"

namespace rose::serve {

struct EmbeddingAsk {
  std::string model;
  std::vector<std::vector<std::int32_t>> prompts;
  infer::Pooling pooling;
  std::int64_t dimensions = 0;  ///< 0: not said
  bool base64 = false;
};

EmbeddingAsk read_embeddings(const json::object& body, const ModelCard& card);  // throws ApiError

/// Little-endian fp32, as RFC 4648 writes bytes as text.
std::string base64_of(std::span<const float> values);

/// One request for vectors on its way. It keeps itself alive until every text has one.
class Embeddings : public std::enable_shared_from_this<Embeddings> {
 public:
  Embeddings(Kitchen kitchen, EmbeddingAsk ask, std::shared_ptr<Exchange> exchange,
             Headers headers);
  void start();  ///< not on the I/O thread: it submits

 private:
  void notice(std::size_t prompt, const Notice& notice);
  void fail(const ApiError& error);
  void finish();
  void cancel();
  void respond(int status, HttpResponse response);

  Kitchen kitchen_;
  EmbeddingAsk ask_;
  std::shared_ptr<Exchange> exchange_;
  Headers headers_;
  std::mutex mutex_;
  std::vector<std::vector<float>> vectors_;  // [prompts][C]
  std::vector<Backend::Number> numbers_;
  UsageSum usage_;
  std::size_t open_ = 0;
  bool over_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace rose::serve
