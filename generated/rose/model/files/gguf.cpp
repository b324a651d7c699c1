// Read and write GGUF files.

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/model/files/gguf.h"

namespace rose::model {
namespace {

using core::Code;
using core::Error;
using kernels::DType;

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

// Take nothing before it is known to be there.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& where)
      : bytes_(bytes), where_(where) {}

  std::uint64_t at() const { return at_; }
  std::uint64_t room() const { return bytes_.size() - at_; }

  /// `what` is only formatted when there is something to complain about.
  void need(std::uint64_t count, std::uint64_t size, std::string_view what) const {
    if (count <= room() / size) return;
    throw Error(Code::corrupt, fmt::format("{} at byte {} needs {} × {} bytes, {} are left", what,
                                           at_, count, size, room()))
        .in(where_)
        .hint("the file is incomplete or damaged: fetch it again");
  }

  template <class T>
  T take(std::string_view what) {
    need(1, sizeof(T), what);
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  std::string take_string(std::string_view what) {
    const auto length = take<std::uint64_t>(what);
    need(length, 1, what);
    std::string text(reinterpret_cast<const char*>(bytes_.data()) + at_, length);
    at_ += length;
    return text;
  }

  [[noreturn]] void corrupt(std::string message) const {
    throw Error(Code::corrupt, std::move(message)).in(where_);
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& where_;
  std::uint64_t at_ = 0;
};

// Read a metadata value of any type.
constexpr int deepest_array = 4;

template <std::size_t... I>
GgufValue read_scalar(Cursor& in, std::uint32_t type, std::string_view what,
                      std::index_sequence<I...>) {
  GgufValue value;
  const auto read = [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_same_v<T, std::string>) {
      value.emplace<T>(in.take_string(what));
    } else if constexpr (std::is_same_v<T, bool>) {
      value.emplace<T>(in.take<std::uint8_t>(what) != 0);
    } else if constexpr (!std::is_same_v<T, GgufArray>) {
      value.emplace<T>(in.take<T>(what));
    }
  };
  ((type == I ? read(std::type_identity<std::variant_alternative_t<I, GgufValue>>{}) : void()),
   ...);
  return value;
}

GgufArray read_array(Cursor& in, std::string_view what, int depth);

GgufValue read_value(Cursor& in, std::uint32_t type, std::string_view what, int depth) {
  constexpr std::size_t types = std::variant_size_v<GgufValue>;
  if (type >= types) in.corrupt(fmt::format("{} has the unknown type {}", what, type));
  if (type == GgufValue(GgufArray{}).index()) return read_array(in, what, depth + 1);
  return read_scalar(in, type, what, std::make_index_sequence<types>{});
}

template <class T>
constexpr std::uint64_t smallest_size() {  // in the file
  if constexpr (std::is_same_v<T, std::string>) return 8;
  if constexpr (std::is_same_v<T, GgufArray>) return 12;
  return sizeof(T);
}

template <std::size_t... I>
GgufArray read_items(Cursor& in, std::uint32_t type, std::uint64_t count, std::string_view what,
                     int depth, std::index_sequence<I...>) {
  GgufArray array;
  const auto read = [&]<class T>(std::type_identity<T>) {
    in.need(count, smallest_size<T>(), what);
    auto& items = array.items.emplace<std::vector<T>>();
    items.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      items.push_back(std::get<T>(read_value(in, type, what, depth)));
    }
  };
  ((type == I ? read(std::type_identity<std::variant_alternative_t<I, GgufValue>>{}) : void()),
   ...);
  return array;
}

GgufArray read_array(Cursor& in, std::string_view what, int depth) {
  constexpr std::size_t types = std::variant_size_v<GgufValue>;
  if (depth > deepest_array) in.corrupt(fmt::format("{} nests arrays too deeply", what));
  const auto type = in.take<std::uint32_t>(what);
  const auto count = in.take<std::uint64_t>(what);
  if (type >= types) in.corrupt(fmt::format("{} has elements of the unknown type {}", what, type));
  return read_items(in, type, count, what, depth, std::make_index_sequence<types>{});
}

// Name every tensor type, and know ours.
struct TensorType {
  std::uint32_t id;
  std::string_view name;
  std::optional<DType> dtype;
};

constexpr std::array<TensorType, 36> tensor_types = {{
    {0, "F32", DType::f32},        {1, "F16", DType::f16},        {2, "Q4_0", DType::q4_0},
    {3, "Q4_1", DType::q4_1},      {6, "Q5_0", DType::q5_0},      {7, "Q5_1", DType::q5_1},
    {8, "Q8_0", DType::q8_0},      {12, "Q4_K", DType::q4_k},     {13, "Q5_K", DType::q5_k},
    {14, "Q6_K", DType::q6_k},     {26, "I32", DType::i32},       {30, "BF16", DType::bf16},
    {9, "Q8_1", std::nullopt},     {10, "Q2_K", std::nullopt},    {11, "Q3_K", std::nullopt},
    {15, "Q8_K", std::nullopt},    {16, "IQ2_XXS", std::nullopt}, {17, "IQ2_XS", std::nullopt},
    {18, "IQ3_XXS", std::nullopt}, {19, "IQ1_S", std::nullopt},   {20, "IQ4_NL", std::nullopt},
    {21, "IQ3_S", std::nullopt},   {22, "IQ2_S", std::nullopt},   {23, "IQ4_XS", std::nullopt},
    {24, "I8", std::nullopt},      {25, "I16", std::nullopt},     {27, "I64", std::nullopt},
    {28, "F64", std::nullopt},     {29, "IQ1_M", std::nullopt},   {34, "TQ1_0", std::nullopt},
    {35, "TQ2_0", std::nullopt},   {39, "MXFP4", std::nullopt},   {40, "NVFP4", std::nullopt},
    {41, "Q1_0", std::nullopt},    {4, "Q4_2", std::nullopt},     {5, "Q4_3", std::nullopt},
}};

const TensorType& tensor_type(std::uint32_t id, std::string_view tensor, const std::string& where) {
  const auto type = std::find_if(tensor_types.begin(), tensor_types.end(),
                                 [&](const TensorType& t) { return t.id == id; });
  if (type == tensor_types.end()) {
    throw Error(Code::corrupt, fmt::format("tensor {} has type {}, which GGUF does not define",
                                           printable(tensor), id))
        .in(where);
  }
  if (!type->dtype) {
    throw Error(Code::unsupported, fmt::format("tensor {} is stored as {}, which is not supported "
                                               "yet",
                                               printable(tensor), type->name))
        .in(where)
        .hint("use a file in F32, F16, BF16, Q8_0, Q6_K, Q5_K, Q5_1, Q5_0, Q4_K, Q4_1 or Q4_0");
  }
  return *type;
}

// Read one tensor's description; its place is relative to the data.
StoredTensor read_tensor(Cursor& in, const std::string& where) {
  StoredTensor tensor;
  tensor.name = in.take_string("a tensor's name");
  const auto rank = in.take<std::uint32_t>("a tensor's rank");
  if (rank > 4) {
    in.corrupt(
        fmt::format("tensor {} has {} dimensions, GGUF allows 4", printable(tensor.name), rank));
  }
  for (std::uint32_t i = 0; i < rank; ++i) {
    const auto extent = in.take<std::uint64_t>("a tensor's extent");
    if (extent > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
      in.corrupt(fmt::format("tensor {} has an extent of {}", printable(tensor.name), extent));
    }
    tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(extent));
  }
  const TensorType& type =
      tensor_type(in.take<std::uint32_t>("a tensor's type"), tensor.name, where);
  tensor.type = type.name;
  tensor.dtype = type.dtype;
  tensor.offset = in.take<std::uint64_t>("a tensor's offset");
  return tensor;
}

}  // namespace

// Read magic, counts, metadata and tensor descriptions.
GgufFile GgufFile::open(const std::filesystem::path& path) {
  auto file = std::make_shared<core::MappedFile>(core::MappedFile::open(path));
  return parse(file->bytes(), path.string(), file);
}

GgufFile GgufFile::parse(std::span<const std::byte> bytes, std::string where,
                         std::shared_ptr<const void> owner) {
  refuse_lookalikes(bytes, where);
  GgufFile file;
  file.where_ = std::move(where);
  file.owner_ = std::move(owner);
  Cursor in(bytes, file.where_);
  constexpr std::uint32_t magic = 0x46554747;  // "GGUF", little-endian
  if (in.take<std::uint32_t>("the magic") != magic) in.corrupt("this is no GGUF file");
  file.version_ = in.take<std::uint32_t>("the version");
  if (file.version_ != 3 && file.version_ != 2) {
    const bool swapped = (file.version_ & 0xffff) == 0;
    throw Error(Code::unsupported,
                swapped ? std::string("this is a big-endian GGUF file")
                        : fmt::format("GGUF version {} is not supported", file.version_))
        .in(file.where_)
        .hint("versions 2 and 3, little-endian, can be read");
  }
  const auto tensors = in.take<std::uint64_t>("the number of tensors");
  const auto values = in.take<std::uint64_t>("the number of values");
  in.need(values, 13, "the metadata");
  for (std::uint64_t i = 0; i < values; ++i) {
    std::string key = in.take_string("a metadata key");
    const auto type = in.take<std::uint32_t>("a metadata type");
    if (!file.keys_.emplace(key, file.metadata_.size()).second) {
      in.corrupt(fmt::format("the metadata names {} twice", printable(key)));
    }
    const std::string what = "metadata value " + printable(key);
    file.metadata_.emplace_back(std::move(key), read_value(in, type, what, 0));
  }
  in.need(tensors, 24, "the tensor descriptions");
  for (std::uint64_t i = 0; i < tensors; ++i) {
    file.tensors_.push_back(read_tensor(in, file.where_));
    const std::string& name = file.tensors_.back().name;
    if (!file.names_.emplace(name, i).second) {
      in.corrupt(fmt::format("the file has two tensors {}", printable(name)));
    }
  }
  file.place(bytes, in.at());
  return file;
}

// Put every tensor into the file, or refuse.
void GgufFile::place(std::span<const std::byte> bytes, std::uint64_t header_end) {
  const auto corrupt = [&](std::string message) {
    return Error(Code::corrupt, std::move(message)).in(where_);
  };
  if (const auto chosen = integer("general.alignment")) {
    if (*chosen < 1 || *chosen > (1 << 30) ||
        !std::has_single_bit(static_cast<std::uint64_t>(*chosen))) {
      throw corrupt(fmt::format("an alignment of {} is no power of two", *chosen));
    }
    alignment_ = static_cast<std::uint64_t>(*chosen);
  }
  if (integer("split.count").value_or(1) > 1) {
    throw Error(Code::unsupported, "this is one part of a GGUF file split in several")
        .in(where_)
        .hint("join the parts with `llama-gguf-split --merge`");
  }
  const std::uint64_t data_begin = std::min<std::uint64_t>(
      (header_end + alignment_ - 1) / alignment_ * alignment_, bytes.size());
  const std::uint64_t room = bytes.size() - data_begin;
  for (StoredTensor& tensor : tensors_) {
    const std::string name = "tensor " + printable(tensor.name);
    const auto elements = element_count(tensor.shape);
    if (!elements) throw corrupt(name + " has more elements than can be counted");
    const std::int64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
    if (columns % kernels::info(*tensor.dtype).block_elements != 0) {
      throw corrupt(fmt::format("{} has rows of {} in {}, no whole number of blocks", name, columns,
                                tensor.type));
    }
    if (tensor.offset % alignment_ != 0) {
      throw corrupt(fmt::format("{} lies at offset {}, which is not aligned to {}", name,
                                tensor.offset, alignment_));
    }
    // Its bytes lie within the data.
    const auto& type = kernels::info(*tensor.dtype);
    const auto blocks = static_cast<std::uint64_t>(*elements / type.block_elements);
    const auto block_bytes = static_cast<std::uint64_t>(type.block_bytes);
    if (tensor.offset > room || blocks > (room - tensor.offset) / block_bytes) {
      throw Error(
          Code::corrupt,
          fmt::format("{} needs {} × {} bytes at byte {}, the file has {}", name, blocks,
                      block_bytes, data_begin + std::min(tensor.offset, room), bytes.size()))
          .in(where_)
          .hint("the file is incomplete: fetch it again");
    }
    tensor.offset += data_begin;
    tensor.bytes = bytes.subspan(tensor.offset, blocks * block_bytes);
  }
  require_disjoint(tensors_, data_begin, bytes.size(), false, where_);
}

// Look values up by key and kind.
const StoredTensor* GgufFile::find(std::string_view name) const {
  const auto found = names_.find(std::string(name));
  return found == names_.end() ? nullptr : &tensors_[found->second];
}

const GgufValue* GgufFile::value(std::string_view key) const {
  const auto found = keys_.find(std::string(key));
  return found == keys_.end() ? nullptr : &metadata_[found->second].second;
}

namespace {

[[noreturn]] void wrong_kind(std::string_view key, std::string_view wanted,
                             const std::string& where) {
  throw Error(Code::corrupt, fmt::format("metadata value {} is not {}", printable(key), wanted))
      .in(where);
}

template <class T>
std::optional<std::int64_t> as_integer(T value) {
  if constexpr (std::is_same_v<T, std::uint64_t>) {
    if (value > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) return std::nullopt;
  }
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    return static_cast<std::int64_t>(value);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> GgufFile::integer(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  const auto result = std::visit(
      [](const auto& v) -> std::optional<std::int64_t> {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(v)>>) return as_integer(v);
        return std::nullopt;
      },
      *found);
  if (!result) wrong_kind(key, "an integer", where_);
  return result;
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  if (const auto* single = std::get_if<float>(found)) return *single;
  if (const auto* wide = std::get_if<double>(found)) return *wide;
  return static_cast<double>(*integer(key));
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  if (!std::holds_alternative<bool>(*found)) wrong_kind(key, "a boolean", where_);
  return std::get<bool>(*found);
}

std::optional<std::string_view> GgufFile::text(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  if (!std::holds_alternative<std::string>(*found)) wrong_kind(key, "a string", where_);
  return std::get<std::string>(*found);
}

const std::vector<std::string>* GgufFile::texts(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return nullptr;
  const auto* array = std::get_if<GgufArray>(found);
  const auto* items = array ? std::get_if<std::vector<std::string>>(&array->items) : nullptr;
  if (items == nullptr) wrong_kind(key, "an array of strings", where_);
  return items;
}

std::optional<std::vector<std::int64_t>> GgufFile::integers(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  std::vector<std::int64_t> numbers;
  const auto* array = std::get_if<GgufArray>(found);
  const bool good =
      array != nullptr && std::visit(
                              [&](const auto& items) {
                                using T = typename std::decay_t<decltype(items)>::value_type;
                                if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
                                  for (const T item : items) {
                                    const auto n = as_integer(item);
                                    if (!n) return false;
                                    numbers.push_back(*n);
                                  }
                                  return true;
                                } else {
                                  return items.empty();
                                }
                              },
                              array->items);
  if (!good) wrong_kind(key, "an array of integers", where_);
  return numbers;
}

// Write everything before the data.
namespace {

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_string(std::string& out, std::string_view text) {
  put<std::uint64_t>(out, text.size());
  out.append(text);
}

template <class T>
void put_item(std::string& out, const T& item) {
  if constexpr (std::is_same_v<T, std::string>) {
    put_string(out, item);
  } else if constexpr (std::is_same_v<T, bool>) {
    put<std::uint8_t>(out, item ? 1 : 0);
  } else if constexpr (std::is_same_v<T, GgufArray>) {
    put(out, static_cast<std::uint32_t>(item.items.index()));
    std::visit(
        [&](const auto& items) {
          using Item = typename std::decay_t<decltype(items)>::value_type;
          put<std::uint64_t>(out, items.size());
          for (const auto& element : items) put_item<Item>(out, element);
        },
        item.items);
  } else {
    put(out, item);
  }
}

std::uint32_t type_id(DType dtype) {
  const auto type = std::find_if(tensor_types.begin(), tensor_types.end(),
                                 [&](const TensorType& t) { return t.dtype == dtype; });
  if (type != tensor_types.end()) return type->id;
  throw Error(Code::unsupported, fmt::format("GGUF cannot store {}", kernels::info(dtype).name));
}

}  // namespace

std::string gguf_header(const GgufMetadata& metadata, std::span<const PlannedTensor> tensors) {
  std::string out = "GGUF";
  put<std::uint32_t>(out, 3);
  put<std::uint64_t>(out, tensors.size());
  put<std::uint64_t>(out, metadata.size());
  for (const auto& [key, value] : metadata) {
    put_string(out, key);
    put(out, static_cast<std::uint32_t>(value.index()));
    std::visit([&](const auto& item) { put_item(out, item); }, value);
  }
  std::uint64_t offset = 0;
  for (const PlannedTensor& tensor : tensors) {
    put_string(out, tensor.name);
    put(out, static_cast<std::uint32_t>(tensor.shape.size()));
    for (auto extent = tensor.shape.rbegin(); extent != tensor.shape.rend(); ++extent) {
      put(out, static_cast<std::uint64_t>(*extent));
    }
    put(out, type_id(tensor.dtype));
    put(out, offset);
    offset += gguf_padded(byte_count(tensor));
  }
  out.resize(gguf_padded(out.size()), '\0');
  return out;
}

}  // namespace rose::model
