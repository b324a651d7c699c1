// Read and write safetensors files.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json/basic_parser_impl.hpp>
#include <cstring>
#include <set>
#include <unordered_set>

#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/json.h"
#include "rose/model/files/safetensors.h"

namespace rose::model {
namespace {

using core::Code;
using core::Error;
using kernels::DType;

struct ElementType {
  std::string_view name;
  std::uint64_t bytes;
  std::optional<DType> dtype;
};

constexpr std::array<ElementType, 16> element_types = {{
    {"F32", 4, DType::f32},
    {"F16", 2, DType::f16},
    {"BF16", 2, DType::bf16},
    {"I32", 4, DType::i32},
    {"U8", 1, DType::u8},
    {"BOOL", 1, std::nullopt},
    {"I8", 1, std::nullopt},
    {"I16", 2, std::nullopt},
    {"U16", 2, std::nullopt},
    {"U32", 4, std::nullopt},
    {"I64", 8, std::nullopt},
    {"U64", 8, std::nullopt},
    {"F64", 8, std::nullopt},
    {"C64", 8, std::nullopt},
    {"F8_E4M3", 1, std::nullopt},
    {"F8_E5M2", 1, std::nullopt},
}};

// Refuse a header that names something twice.
struct UniqueKeys {
  static constexpr std::size_t max_object_size = std::size_t(-1);
  static constexpr std::size_t max_array_size = std::size_t(-1);
  static constexpr std::size_t max_key_size = std::size_t(-1);
  static constexpr std::size_t max_string_size = std::size_t(-1);

  using Text = boost::json::string_view;
  using Failure = boost::system::error_code;
  std::vector<std::unordered_set<std::string>> open;
  std::string key, duplicate;

  bool on_object_begin(Failure&) { return open.emplace_back(), true; }
  bool on_object_end(std::size_t, Failure&) { return open.pop_back(), true; }
  bool on_key_part(Text part, std::size_t, Failure&) { return key.append(part), true; }
  bool on_key(Text part, std::size_t, Failure&) {
    key.append(part);
    if (!open.back().insert(key).second && duplicate.empty()) duplicate = "=" + key;
    key.clear();
    return true;
  }

  bool on_document_begin(Failure&) { return true; }
  bool on_document_end(Failure&) { return true; }
  bool on_array_begin(Failure&) { return true; }
  bool on_array_end(std::size_t, Failure&) { return true; }
  bool on_string_part(Text, std::size_t, Failure&) { return true; }
  bool on_string(Text, std::size_t, Failure&) { return true; }
  bool on_number_part(Text, Failure&) { return true; }
  bool on_int64(std::int64_t, Text, Failure&) { return true; }
  bool on_uint64(std::uint64_t, Text, Failure&) { return true; }
  bool on_double(double, Text, Failure&) { return true; }
  bool on_bool(bool, Failure&) { return true; }
  bool on_null(Failure&) { return true; }
  bool on_comment_part(Text, Failure&) { return true; }
  bool on_comment(Text, Failure&) { return true; }
};

void require_unique_keys(std::string_view header, const std::string& where) {
  boost::json::basic_parser<UniqueKeys> parser(boost::json::parse_options{});
  boost::system::error_code failed;
  parser.write_some(false, header.data(), header.size(), failed);
  const std::string& twice = parser.handler().duplicate;
  if (twice.empty()) return;
  throw Error(Code::corrupt, fmt::format("the header names {} twice", printable(twice.substr(1))))
      .in(where);
}

// Read and check one tensor's entry.
StoredTensor read_entry(std::string_view name, const core::json::value& value,
                        std::span<const std::byte> file, std::uint64_t data_begin,
                        const std::string& where) {
  const std::string field = fmt::format("{}: tensor {}", where, printable(name));
  if (!value.is_object()) throw Error(Code::corrupt, "the entry is no object").in(field);
  const core::json::object& entry = value.get_object();
  StoredTensor tensor;
  tensor.name = name;
  tensor.type = core::get_string(entry, "dtype", field);
  const auto type = std::find_if(element_types.begin(), element_types.end(),
                                 [&](const ElementType& t) { return t.name == tensor.type; });
  if (type == element_types.end()) {
    throw Error(Code::unsupported, fmt::format("unknown element type {}", printable(tensor.type)))
        .in(field)
        .hint("weights in F32, F16 or BF16 can be read");
  }
  tensor.dtype = type->dtype;

  const auto integers = [&](std::string_view key) {
    std::vector<std::int64_t> numbers;
    for (const core::json::value& item : core::get_array(entry, key, field)) {
      if (!item.is_int64() || item.get_int64() < 0) {
        throw Error(Code::corrupt, fmt::format("'{}' must hold non-negative integers", key))
            .in(field);
      }
      numbers.push_back(item.get_int64());
    }
    return numbers;
  };
  tensor.shape = integers("shape");
  const std::vector<std::int64_t> offsets = integers("data_offsets");
  // Its bytes lie in the file and are as many as its shape says.
  const std::uint64_t room = file.size() - data_begin;
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    throw Error(Code::corrupt, "'data_offsets' must be a begin and an end").in(field);
  }
  const auto begin = static_cast<std::uint64_t>(offsets[0]);
  const auto end = static_cast<std::uint64_t>(offsets[1]);
  if (end > room) {
    throw Error(Code::corrupt, fmt::format("its data ends at byte {}, the file at byte {}",
                                           end + data_begin, file.size()))
        .in(field)
        .hint("the file is incomplete: fetch it again");
  }
  const auto elements = element_count(tensor.shape);
  if (!elements || static_cast<std::uint64_t>(*elements) > (end - begin) / type->bytes ||
      static_cast<std::uint64_t>(*elements) * type->bytes != end - begin) {
    throw Error(Code::corrupt,
                fmt::format("shape [{}] of {} does not take the {} bytes that it is given",
                            fmt::join(tensor.shape, ", "), tensor.type, end - begin))
        .in(field);
  }
  tensor.offset = data_begin + begin;
  tensor.bytes = file.subspan(tensor.offset, end - begin);
  return tensor;
}

}  // namespace

// Check the frame, then every entry, then that they cover the file.
SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  auto file = std::make_shared<core::MappedFile>(core::MappedFile::open(path));
  return parse(file->bytes(), path.string(), file);
}

SafetensorsFile SafetensorsFile::parse(std::span<const std::byte> bytes, std::string where,
                                       std::shared_ptr<const void> owner) {
  constexpr std::uint64_t longest_header = 100'000'000;
  refuse_lookalikes(bytes, where);
  const auto corrupt = [&](std::string message) {
    return Error(Code::corrupt, std::move(message))
        .in(where)
        .hint("the file is no safetensors file or is damaged: fetch it again");
  };
  std::uint64_t length = 0;
  if (bytes.size() < sizeof length) throw corrupt("too short for the length of a header");
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > longest_header || length > bytes.size() - sizeof length) {
    throw corrupt(fmt::format("the header claims {} bytes, the file has {} after its length word",
                              length, bytes.size() - sizeof length));
  }
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + sizeof length,
                                length);
  if (!header.starts_with('{')) throw corrupt("the header is no JSON object");
  const core::json::value json = core::parse_json(header, where + ": header");
  require_unique_keys(header, where);

  SafetensorsFile file;
  file.where_ = std::move(where);
  file.owner_ = std::move(owner);
  const std::uint64_t data_begin = sizeof length + length;
  for (const auto& [key, value] : core::as_object(json, file.where_)) {
    if (key == "__metadata__") {
      for (const auto& [name, text] : core::get_object(json.get_object(), key, file.where_)) {
        if (text.is_string()) file.metadata_.emplace(name, text.get_string());
      }
    } else {
      file.tensors_.push_back(read_entry(key, value, bytes, data_begin, file.where_));
    }
  }
  require_disjoint(file.tensors_, data_begin, bytes.size(), true, file.where_);
  return file;
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                  [&](const StoredTensor& t) { return t.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

// Read which file holds which tensor.
SafetensorsIndex parse_safetensors_index(std::string_view json, const std::string& where) {
  const core::json::value document = core::parse_json(json, where);
  SafetensorsIndex index;
  std::set<std::string> files;
  for (const auto& [tensor, file] :
       core::get_object(core::as_object(document, where), "weight_map", where)) {
    const std::string name = file.is_string() ? std::string(file.get_string()) : "";
    if (!name.ends_with(".safetensors") || name.find_first_of("/\\:") != std::string::npos ||
        name.find('\0') != std::string::npos) {
      throw Error(Code::corrupt, fmt::format("tensor {} is said to lie in {}, which is no plain "
                                             "name of a safetensors file",
                                             printable(tensor), printable(name)))
          .in(where);
    }
    files.insert(name);
    index.file_of_tensor.emplace(tensor, name);
  }
  index.files.assign(files.begin(), files.end());
  return index;
}

// Write the header of a safetensors file.
std::string safetensors_header(std::span<const PlannedTensor> tensors,
                               const std::map<std::string, std::string>& metadata) {
  core::json::object header;
  if (!metadata.empty()) {
    core::json::object& entries = header["__metadata__"].emplace_object();
    for (const auto& [key, value] : metadata) entries[key] = value;
  }
  std::uint64_t offset = 0;
  for (const PlannedTensor& tensor : tensors) {
    const auto type = std::find_if(element_types.begin(), element_types.end(),
                                   [&](const ElementType& t) { return t.dtype == tensor.dtype; });
    if (type == element_types.end()) {
      throw Error(Code::unsupported,
                  fmt::format("safetensors cannot store {}", kernels::info(tensor.dtype).name))
          .in(tensor.name)
          .hint("write f32, f16 or bf16, or a GGUF file");
    }
    const std::uint64_t end = offset + byte_count(tensor);
    core::json::array shape(tensor.shape.begin(), tensor.shape.end());
    header[tensor.name] = {
        {"dtype", type->name}, {"shape", std::move(shape)}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = core::json::serialize(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  return out + text;
}

}  // namespace rose::model
