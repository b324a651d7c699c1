// What the two processes say.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rose/core/error.h"
#include "rose/serve/backend.h"
#include "rose/serve/wire.h"

namespace rose::serve {

inline constexpr std::uint32_t wire_magic = 0x45534f52;  // "ROSE"
inline constexpr std::uint16_t wire_version = 4;

// Down.
struct Hello {
  std::uint16_t version = wire_version;
};
struct Submit {
  std::uint64_t number = 0;
  Question question;
};
struct Cancel {
  std::uint64_t number = 0;
};
struct Look {};
struct Operate {
  std::uint64_t number = 0;
  Operation operation;
};
using Command = std::variant<Hello, Submit, Cancel, Look, Operate>;

// Up.
struct Ready {
  std::uint16_t version = wire_version;
  EngineFacts facts;
};
struct Accepted {
  std::uint64_t number = 0;
};
struct Refused {
  std::uint64_t number = 0;
  core::Code code = core::Code::internal;
  std::string message, argument, hint;
};
/// An event with its spans owned.
struct Happened {
  std::uint64_t number = 0;
  std::int32_t choice = 0;
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<infer::Alternative> top;
  std::int32_t top_count = 0;
  bool of_prompt = false;
  std::string text;
  std::uint64_t weights_version = 0;
  std::uint8_t finish = 0;  ///< 0: none; else 1 + infer::Finish
  std::string error;
  infer::Usage usage;
  std::vector<float> embedding;
  std::int64_t queued_us = 0;

  infer::Event event(const core::Error* error_of_it) const;  ///< views into this
};
struct Counts {
  infer::Statistics statistics;
};
struct Seen {
  infer::EngineView view;
};
struct Operated {
  std::uint64_t number = 0;
  bool failed = false;
  core::Code code = core::Code::internal;
  std::string message{}, argument{}, hint{}, said{};
};
using Report = std::variant<Ready, Accepted, Refused, Happened, Counts, Seen, Operated>;

// One frame each, appended.
void encode(const Command& command, std::string& out);
void encode(const Report& report, std::string& out);
Happened owned(std::uint64_t number, const infer::Event& event);

// Throw core::Error (corrupt) for anything that encode would not have written.
Command decode_command(const Frame& frame);
Report decode_report(const Frame& frame);

}  // namespace rose::serve
