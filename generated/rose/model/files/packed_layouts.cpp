// Read matrices that quantisation libraries have packed.

#include "rose/model/files/packed_layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "rose/core/error.h"
#include "rose/core/json.h"
#include "rose/core/parallel.h"
#include "rose/kernels/packed.h"
#include "rose/kernels/quant.h"

namespace rose::model {

using core::Code;
using core::Error;
using kernels::gpu::WeightFormat;
namespace json = core::json;

// Say how a checkpoint is packed.
namespace {

[[noreturn]] void no_reader(std::string what, std::string_view where) {
  throw Error(Code::unsupported, std::move(what))
      .in(std::string(where))
      .hint("GPTQ and AWQ of 4 bits, compressed-tensors of 4 and 8, and fp8 can be read");
}

void name_it(Packing& p, std::string_view method) {
  if (p.layout == Packing::Layout::bytes) {
    p.name = fmt::format("{}, {}", method, p.bits == 8 ? "8 bits" : "?");
    if (p.block_rows > 0)
      p.name += fmt::format(" in blocks of {} by {}", p.block_rows, p.block_cols);
    return;
  }
  p.name = fmt::format("{}, int{}{}", method, p.bits,
                       p.group == 0 ? std::string(" with a scale for each row")
                                    : fmt::format(" in groups of {}", p.group));
}

void read_block(const json::array& sizes, Packing& p, std::string_view where) {
  constexpr std::int64_t unit = 32;
  const auto size = [&](std::size_t i) {
    return i < sizes.size() && sizes[i].is_int64() ? sizes[i].get_int64() : 0;
  };
  p.block_rows = size(0);
  p.block_cols = size(1);
  if (sizes.size() != 2 || p.block_rows <= 0 || p.block_cols <= 0 || p.block_cols % unit != 0)
    no_reader("blocks of such a shape", where);
}

void read_weights(const json::object& weights, Packing& p, std::string_view where) {
  const std::string_view type = core::get_string_or(weights, "type", "int", where);
  p.bits = static_cast<int>(core::get_int_or(weights, "num_bits", 8, where));
  p.group = std::max<std::int64_t>(0, core::get_int_or(weights, "group_size", 0, where));
  const bool whole = type == "int" && (p.bits == 4 || p.bits == 8);
  if (!whole && !(type == "float" && p.bits == 8))
    no_reader(fmt::format("weights of {} bits of type {}", p.bits, type), where);
  if (core::find(weights, "block_structure") != nullptr)
    read_block(core::get_array(weights, "block_structure", where), p, where);
}

void read_compressed(const json::object& config, Packing& p, std::string_view where) {
  const std::string_view format = core::get_string_or(config, "format", "", where);
  const bool packs = format == "pack-quantized";
  const bool stores =
      format == "float-quantized" || format == "int-quantized" || format == "naive-quantized";
  if (!packs && !stores) no_reader(fmt::format("compressed-tensors' format '{}'", format), where);
  if (core::find(config, "sparsity_config") != nullptr) {
    const json::object& sparsity = core::get_object(config, "sparsity_config", where);
    if (core::get_string_or(sparsity, "format", "dense", where) != "dense")
      no_reader("sparse weights", where);
  }
  p.layout = packs ? Packing::Layout::compressed : Packing::Layout::bytes;
  bool any = false;
  for (const auto& [name, group] : core::get_object(config, "config_groups", where)) {
    if (!group.is_object() || core::find(group.get_object(), "weights") == nullptr) continue;
    Packing other = p;
    read_weights(core::get_object(group.get_object(), "weights", where), other, where);
    if (any && (other.bits != p.bits || other.group != p.group))
      no_reader("modules whose weights are quantised differently", where);
    p = other;
    any = true;
  }
  if (!any) no_reader("a configuration that describes no weights", where);
}

}  // namespace

Packing read_packing(const json::object& config, std::string_view where) {
  const std::string_view method = core::get_string_or(config, "quant_method", "", where);
  Packing p;
  if (method == "gptq" || method == "awq") {
    p.layout = method == "gptq" ? Packing::Layout::gptq : Packing::Layout::awq;
    p.bits = static_cast<int>(core::get_int_or(config, "bits", 0, where));
    p.group = std::max<std::int64_t>(0, core::get_int_or(config, "group_size", 0, where));
    const std::string_view kind =
        core::get_string_or(config, method == "gptq" ? "checkpoint_format" : "version", "", where);
    p.zeros_less_one = kind != "gptq_v2";
    const bool known = method == "gptq" ? kind.empty() || kind == "gptq" || kind == "gptq_v2"
                                        : kind.empty() || kind == "gemm" || kind == "GEMM";
    if (!known) no_reader(fmt::format("{} in the layout '{}'", method, kind), where);
    if (p.bits != 4) no_reader(fmt::format("{} of {} bits", method, p.bits), where);
  } else if (method == "compressed-tensors") {
    read_compressed(config, p, where);
  } else if (method == "fp8" || method == "fbgemm_fp8") {
    p.layout = Packing::Layout::bytes;
    p.bits = 8;
    if (core::find(config, "weight_block_size") != nullptr)
      read_block(core::get_array(config, "weight_block_size", where), p, where);
  } else {
    no_reader(fmt::format("weights quantised by '{}'", method), where);
  }
  name_it(p, method);
  return p;
}

namespace {

// Find the arrays of a matrix.
class Arrays {
 public:
  Arrays(const StoredByName& stored, std::string stem, std::vector<std::string>& used)
      : stored_(&stored), stem_(std::move(stem)), used_(&used) {}

  const Stored* find(std::string_view suffix) const {
    const auto at = stored_->find(stem_ + std::string(suffix));
    return at == stored_->end() ? nullptr : &at->second;
  }
  const Stored& need(std::string_view suffix) const {
    if (const Stored* const found = find(suffix)) return *found;
    throw Error(Code::corrupt, fmt::format("tensor '{}{}' is missing", stem_, suffix));
  }
  /// 32-bit words of such a shape.
  std::span<const std::byte> words(std::string_view suffix, std::int64_t rows,
                                   std::int64_t cols) const {
    const Stored& array = need(suffix);
    require(array, array.tensor.type == "I32" && array.tensor.shape == std::vector{rows, cols});
    use(suffix);
    return array.tensor.bytes;
  }
  std::vector<float> floats(std::string_view suffix) const {
    const Stored& array = need(suffix);
    const auto n = element_count(array.tensor.shape).value_or(0);
    const auto type = array.tensor.dtype.value_or(kernels::DType::u8);
    require(array, type == kernels::DType::f32 || type == kernels::DType::f16 ||
                       type == kernels::DType::bf16);
    std::vector<float> values(static_cast<std::size_t>(n));
    kernels::dequantize_row(type, array.tensor.bytes.data(), values.data(), n);
    use(suffix);
    return values;
  }
  void require(const Stored& array, bool fits) const {
    if (fits) return;
    throw Error(Code::corrupt, fmt::format("tensor {} of type {} and shape [{}] does not belong to "
                                           "a matrix that is packed so",
                                           printable(array.tensor.name), array.tensor.type,
                                           fmt::join(array.tensor.shape, ", ")))
        .in(array.where);
  }
  void use(std::string_view suffix) const {
    if (find(suffix) != nullptr) used_->push_back(stem_ + std::string(suffix));
  }

 private:
  const StoredByName* stored_;
  std::string stem_;
  std::vector<std::string>* used_;
};

std::uint32_t word(std::span<const std::byte> words, std::int64_t at) {
  std::uint32_t value = 0;
  std::memcpy(&value, words.data() + static_cast<std::size_t>(at) * sizeof value, sizeof value);
  return value;
}

// Lay the numbers out as the kernels want them.
struct Numbers {
  WeightFormat format = WeightFormat::int4;
  std::int64_t group = 0;
  std::vector<std::int32_t> order;  ///< each column's group, where groups are no runs of columns
  std::function<void(std::int64_t row, std::uint8_t* numbers)> row;  ///< one a byte
  std::function<float(std::int64_t row, std::int64_t group)> scale;
  std::function<int(std::int64_t row, std::int64_t group)> zero;  ///< int4; empty: 8
};

kernels::PackedMatrix build(const Numbers& from, std::int64_t rows, std::int64_t cols) {
  kernels::PackedMatrix to;
  to.format = from.format, to.rows = rows, to.cols = cols, to.group = from.group;
  const std::int64_t groups = to.groups();
  to.data.resize(static_cast<std::size_t>(rows * to.row_bytes()));
  to.scales.resize(static_cast<std::size_t>(rows * groups));
  if (from.zero) to.zeros.resize(to.scales.size());
  core::default_pool().for_range(rows, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::uint8_t> numbers(static_cast<std::size_t>(cols));
    for (std::int64_t r = begin; r < end; ++r) {
      from.row(r, numbers.data());
      std::uint8_t* const bytes = to.data.data() + r * to.row_bytes();
      if (from.format == WeightFormat::int4) {
        for (std::int64_t k = 0; k + 1 < cols; k += 2) {
          const auto at = static_cast<std::size_t>(k);
          bytes[k / 2] = static_cast<std::uint8_t>(numbers[at] | numbers[at + 1] << 4);
        }
      } else {
        std::ranges::copy(numbers, bytes);
      }
      for (std::int64_t g = 0; g < groups; ++g) {
        const auto at = static_cast<std::size_t>(r * groups + g);
        to.scales[at] = from.scale(r, g);
        if (from.zero) to.zeros[at] = static_cast<std::uint8_t>(from.zero(r, g));
      }
    }
  });
  return to;
}

// Read what was reordered as what it stands for.
void unpack(const Numbers& from, TensorInfo& to) {
  const std::int64_t rows = to.shape[0], cols = to.shape[1];
  auto values = std::make_shared<std::vector<kernels::bf16>>(static_cast<std::size_t>(rows * cols));
  constexpr int middle = 8;
  core::default_pool().for_range(rows, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::uint8_t> numbers(static_cast<std::size_t>(cols));
    for (std::int64_t r = begin; r < end; ++r) {
      from.row(r, numbers.data());
      for (std::int64_t k = 0; k < cols; ++k) {
        const auto at = static_cast<std::size_t>(k);
        const std::int64_t group = from.order[at];
        const int number = numbers[at] - (from.zero ? from.zero(r, group) : middle);
        (*values)[static_cast<std::size_t>(r * cols + k)] =
            kernels::to_bf16(static_cast<float>(number) * from.scale(r, group));
      }
    }
  });
  to.dtype = kernels::DType::bf16;
  to.data = reinterpret_cast<const std::byte*>(values->data());
  to.bytes = values->size() * sizeof(kernels::bf16);
  to.owner = values;
}

/// The groups of columns, when they are not simply runs. Throws core::Error (corrupt) for a group that does not exist.
std::vector<std::int32_t> read_order(const Arrays& arrays, std::string_view suffix,
                                     std::int64_t cols, std::int64_t group, std::int64_t groups) {
  const Stored* const stored = arrays.find(suffix);
  if (stored == nullptr) return {};
  arrays.require(*stored, stored->tensor.type == "I32" &&
                              stored->tensor.shape == std::vector<std::int64_t>{cols});
  arrays.use(suffix);
  std::vector<std::int32_t> order;
  bool runs = true;
  for (std::int64_t k = 0; k < cols; ++k) {
    order.push_back(static_cast<std::int32_t>(word(stored->tensor.bytes, k)));
    arrays.require(*stored, order.back() >= 0 && order.back() < groups);
    runs = runs && order.back() == k / group;
  }
  return runs ? std::vector<std::int32_t>{} : order;
}

// Know the four layouts.
constexpr int nibble = 15;
constexpr std::array<int, 8> awq_places{0, 4, 1, 5, 2, 6, 3, 7};  // where in a word an output lies

Numbers read_gptq_or_awq(const Arrays& arrays, const Packing& p, std::int64_t rows,
                         std::int64_t cols) {
  const std::int64_t group = p.group == 0 ? cols : p.group, groups = (cols + group - 1) / group;
  const bool awq = p.layout == Packing::Layout::awq;
  const auto words =
      awq ? arrays.words(".qweight", cols, rows / 8) : arrays.words(".qweight", cols / 8, rows);
  const auto zeros = arrays.words(".qzeros", groups, rows / 8);
  const auto place = [awq](std::int64_t row) {
    const auto at = static_cast<std::size_t>(row % 8);
    return 4 * (awq ? awq_places[at] : static_cast<int>(at));
  };
  auto scales = std::make_shared<std::vector<float>>(arrays.floats(".scales"));
  arrays.require(arrays.need(".scales"), scales->size() == static_cast<std::size_t>(groups * rows));
  Numbers n;
  n.group = p.group;
  n.order = read_order(arrays, ".g_idx", cols, group, groups);
  n.row = [=](std::int64_t row, std::uint8_t* numbers) {
    for (std::int64_t k = 0; k < cols; ++k) {
      const std::uint32_t w =
          awq ? word(words, k * (rows / 8) + row / 8) : word(words, k / 8 * rows + row);
      const int shift = awq ? place(row) : static_cast<int>(4 * (k % 8));
      numbers[k] = static_cast<std::uint8_t>(w >> shift & nibble);
    }
  };
  n.scale = [=](std::int64_t row, std::int64_t g) {
    return (*scales)[static_cast<std::size_t>(g * rows + row)];
  };
  const int more = !awq && p.zeros_less_one ? 1 : 0;
  n.zero = [=](std::int64_t row, std::int64_t g) {
    const auto z = static_cast<int>(word(zeros, g * (rows / 8) + row / 8) >> place(row) & nibble);
    return (z + more) & nibble;
  };
  return n;
}
Numbers read_compressed_words(const Arrays& arrays, const Packing& p, std::int64_t rows,
                              std::int64_t cols) {
  const int each = 32 / p.bits;  // numbers in a word
  const std::int64_t group = p.group == 0 ? cols : p.group, groups = (cols + group - 1) / group;
  const std::int64_t per_row = (cols + each - 1) / each;
  const auto words = arrays.words(".weight_packed", rows, per_row);
  auto scales = std::make_shared<std::vector<float>>(arrays.floats(".weight_scale"));
  const bool one = scales->size() == 1;
  arrays.require(arrays.need(".weight_scale"),
                 one || scales->size() == static_cast<std::size_t>(groups * rows));
  arrays.use(".weight_shape");
  Numbers n;
  n.format = p.bits == 4 ? WeightFormat::int4 : WeightFormat::int8;
  n.group = p.group;
  n.order = read_order(arrays, ".weight_g_idx", cols, group, groups);
  const int mask = (1 << p.bits) - 1, less = p.bits == 4 ? 0 : 128, bits = p.bits;
  n.row = [=](std::int64_t row, std::uint8_t* numbers) {
    for (std::int64_t k = 0; k < cols; ++k) {
      const std::uint32_t w = word(words, row * per_row + k / each);
      numbers[k] =
          static_cast<std::uint8_t>((static_cast<int>(w >> (k % each * bits)) & mask) - less);
    }
  };
  n.scale = [=](std::int64_t row, std::int64_t g) {
    return (*scales)[one ? 0 : static_cast<std::size_t>(row * groups + g)];
  };
  const Stored* const zeros = arrays.find(".weight_zero_point");
  if (zeros == nullptr) return n;
  arrays.require(*zeros, p.bits == 4);
  const auto zero_words = arrays.words(".weight_zero_point", (rows + 7) / 8, groups);
  n.zero = [=](std::int64_t row, std::int64_t g) {
    return static_cast<int>(word(zero_words, row / 8 * groups + g) >> (4 * (row % 8)) & nibble);
  };
  return n;
}
Numbers read_bytes(const Arrays& arrays, const Packing& p, std::int64_t rows, std::int64_t cols) {
  const Stored& stored = arrays.need(".weight");
  const bool floats = stored.tensor.type == "F8_E4M3";
  arrays.require(stored, (floats || stored.tensor.type == "I8") &&
                             stored.tensor.shape == std::vector{rows, cols});
  arrays.use(".weight");
  const auto bytes = stored.tensor.bytes;
  const std::string_view suffix =
      arrays.find(".weight_scale_inv") != nullptr ? ".weight_scale_inv" : ".weight_scale";
  auto scales = std::make_shared<std::vector<float>>(arrays.floats(suffix));
  const auto count = static_cast<std::int64_t>(scales->size());
  Numbers n;
  n.format = floats ? WeightFormat::fp8_e4m3 : WeightFormat::int8;
  std::int64_t row_step = 1, per_row = 1;
  if (p.block_rows > 0) {
    row_step = p.block_rows;
    per_row = (cols + p.block_cols - 1) / p.block_cols;
    n.group = p.block_cols;
  } else if (p.group > 0) {
    per_row = (cols + p.group - 1) / p.group;
    n.group = p.group;
  }
  const bool one = count == 1;
  arrays.require(arrays.need(suffix), one || count == (rows + row_step - 1) / row_step * per_row);
  n.row = [=](std::int64_t row, std::uint8_t* numbers) {
    std::memcpy(numbers, bytes.data() + row * cols, static_cast<std::size_t>(cols));
  };
  n.scale = [=](std::int64_t row, std::int64_t g) {
    return (*scales)[one ? 0 : static_cast<std::size_t>(row / row_step * per_row + g)];
  };
  return n;
}

}  // namespace

// Read a packed matrix, if it is one.
PackedReader packed_reader(const Packing& packing) {
  return [packing](TensorInfo& to, const std::string& name, const StoredByName& stored,
                   std::vector<std::string>& used) {
    constexpr std::string_view suffix = ".weight", prefix = "model.";
    if (!name.ends_with(suffix)) return false;
    std::string stem = name.substr(0, name.size() - suffix.size());
    const auto there = [&](const std::string& at) {
      switch (packing.layout) {
        case Packing::Layout::compressed: return stored.count(at + ".weight_packed") != 0;
        case Packing::Layout::bytes:
          return stored.count(at + ".weight_scale") + stored.count(at + ".weight_scale_inv") != 0;
        default: return stored.count(at + ".qweight") != 0;
      }
    };
    if (!there(stem) && stem.starts_with(prefix)) stem = stem.substr(prefix.size());
    if (!there(stem)) return false;
    const Arrays arrays(stored, stem, used);
    const std::int64_t rows = to.shape[0], cols = to.shape[1];
    constexpr std::int64_t eight = 8;
    if (rows % eight != 0 || cols % eight != 0)
      throw Error(Code::unsupported, fmt::format("'{}' is packed, and {} by {}", stem, rows, cols));
    const Numbers numbers = packing.layout == Packing::Layout::compressed
                                ? read_compressed_words(arrays, packing, rows, cols)
                            : packing.layout == Packing::Layout::bytes
                                ? read_bytes(arrays, packing, rows, cols)
                                : read_gptq_or_awq(arrays, packing, rows, cols);
    for (const std::string_view other : {".input_scale", ".activation_scale", ".input_zero_point",
                                         ".output_scale", ".k_scale", ".v_scale"})
      arrays.use(other);
    if (const Stored* const bias = arrays.find(".bias");
        bias != nullptr &&
        std::ranges::all_of(bias->tensor.bytes, [](std::byte b) { return b == std::byte{0}; }))
      arrays.use(".bias");
    if (!numbers.order.empty()) {
      unpack(numbers, to);
      return true;
    }
    auto packed = std::make_shared<kernels::PackedMatrix>(build(numbers, rows, cols));
    to.dtype = kernels::DType::bf16;
    to.bytes = static_cast<std::size_t>(packed->bytes());
    to.packed = std::move(packed);
    return true;
  };
}

}  // namespace rose::model
