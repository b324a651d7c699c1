// What the two engines say.

#include "rose/serve/prefill_messages.h"

#include "rose/core/error.h"

namespace rose::serve {
namespace {

enum Type : std::uint8_t {
  read_prompt = 32,
  stop_reading,
  prefill_ready = 96,
  page_block,
  prompt_read,
  prompt_not_read
};
constexpr std::uint32_t prefill_magic = 0x564b5352;  // "RSKV"
constexpr std::uint16_t prefill_version = 1;

void put_shape(WireWriter& w, const infer::KvShape& shape) {
  w.put(prefill_magic), w.put(prefill_version);
  w.put(shape.weights_version), w.put(shape.page_size), w.put(shape.layers),
      w.put(shape.block_bytes);
  w.put(shape.kv_key);
}

infer::KvShape get_shape(WireReader& r) {
  if (r.get<std::uint32_t>("magic") != prefill_magic ||
      r.get<std::uint16_t>("version") != prefill_version)
    throw core::Error(core::Code::corrupt, "this is not our protocol, or another version of it")
        .in("message");
  infer::KvShape shape;
  shape.weights_version = r.get<std::uint64_t>("weights_version");
  shape.page_size = r.get<std::int32_t>("page_size");
  shape.layers = r.get<std::int32_t>("layers");
  shape.block_bytes = r.get<std::int64_t>("block_bytes");
  shape.kv_key = r.get<std::uint64_t>("kv_key");
  return shape;
}

template <class Fields>
void frame(std::string& out, std::uint8_t type, const Fields& fields) {
  std::size_t mark = 0;
  begin_frame(out, type, mark);
  WireWriter w(out);
  fields(w);
  end_frame(out, mark);
}

[[noreturn]] void unknown() {
  throw core::Error(core::Code::corrupt, "a frame of an unknown type").in("message");
}

}  // namespace

void encode(const PrefillCommand& command, std::string& out) {
  if (const auto* stop = std::get_if<StopReading>(&command))
    return frame(out, stop_reading, [&](WireWriter& w) { w.put(stop->number); });
  const auto& c = std::get<ReadPrompt>(command);
  frame(out, read_prompt, [&](WireWriter& w) {
    w.put(c.number);
    put_shape(w, c.shape);
    w.put(c.first), w.put(c.count), w.put(c.deadline_ms);
    w.put(std::span<const std::int32_t>(c.prompt));
    w.put(std::string_view(c.adapter)), w.put(std::string_view(c.salt));
  });
}

void encode_block(std::uint64_t number, const infer::KvBlock& block, std::string& out) {
  frame(out, page_block, [&](WireWriter& w) {
    w.put(number), w.put(block.page), w.put(block.layer);
    w.put(std::string_view(reinterpret_cast<const char*>(block.bytes.data()), block.bytes.size()));
  });
}

void encode(const PrefillReport& report, std::string& out) {
  if (const auto* ready = std::get_if<PrefillReady>(&report))
    return frame(out, prefill_ready, [&](WireWriter& w) { put_shape(w, ready->shape); });
  if (const auto* read = std::get_if<PromptRead>(&report))
    return frame(out, prompt_read, [&](WireWriter& w) { w.put(read->number); });
  if (const auto* failed = std::get_if<PromptNotRead>(&report))
    return frame(out, prompt_not_read, [&](WireWriter& w) {
      w.put(failed->number), w.put(std::string_view(failed->why));
    });
  const auto& b = std::get<PageBlock>(report);
  encode_block(b.number,
               {.page = b.page, .layer = b.layer, .bytes = std::as_bytes(std::span(b.bytes))}, out);
}

PrefillCommand decode_prefill_command(const Frame& f) {
  WireReader r(f.payload);
  const auto number = r.get<std::uint64_t>("number");
  if (f.type == stop_reading) return r.finish(), StopReading{number};
  if (f.type != read_prompt) unknown();
  ReadPrompt c{.number = number, .shape = get_shape(r)};
  c.first = r.get<std::int32_t>("first");
  c.count = r.get<std::int32_t>("count");
  c.deadline_ms = r.get<std::uint32_t>("deadline_ms");
  c.prompt = r.list<std::int32_t>("prompt");
  c.adapter = r.text("adapter"), c.salt = r.text("salt");
  r.finish();
  return c;
}

PrefillReport decode_prefill_report(const Frame& f) {
  WireReader r(f.payload);
  if (f.type == prefill_ready) {
    const PrefillReady ready{get_shape(r)};
    return r.finish(), ready;
  }
  const auto number = r.get<std::uint64_t>("number");
  if (f.type == prompt_read) return r.finish(), PromptRead{number};
  if (f.type == prompt_not_read) {
    PromptNotRead failed{number, std::string(r.text("why"))};
    return r.finish(), failed;
  }
  if (f.type != page_block) unknown();
  PageBlock block{
      .number = number, .page = r.get<std::int32_t>("page"), .layer = r.get<std::int32_t>("layer")};
  block.bytes = r.text("bytes");
  r.finish();
  return block;
}

}  // namespace rose::serve
