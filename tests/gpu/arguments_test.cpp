// What an operation must refuse, asked of every operation: each matrix at an odd address, without memory, of a negative size, of a
// type that nobody computes with; a workspace that is missing, too small, or not aligned. The error names the argument, and comes from
// the host before anything is enqueued, so that no GPU is needed. And no rows are nothing to do, even where there is no GPU.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "rose/core/error.h"
#include "rose/kernels/gpu/attention.h"
#include "rose/kernels/gpu/attention_backward.h"
#include "rose/kernels/gpu/cross_entropy.h"
#include "rose/kernels/gpu/elementwise.h"
#include "rose/kernels/gpu/embedding.h"
#include "rose/kernels/gpu/flat_step.h"
#include "rose/kernels/gpu/kv_cache.h"
#include "rose/kernels/gpu/linear.h"
#include "rose/kernels/gpu/linear_backward.h"
#include "rose/kernels/gpu/linear_packed.h"
#include "rose/kernels/gpu/muon.h"
#include "rose/kernels/gpu/norm.h"
#include "rose/kernels/gpu/optimizer.h"
#include "rose/kernels/gpu/rope.h"
#include "rose/kernels/gpu/sampling.h"
#include "rose/kernels/gpu/softmax.h"
#include "rose/kernels/gpu/token_linear.h"
#include "rose/kernels/gpu/tokens.h"
#include "rose/kernels/gpu/turn_heads.h"

namespace rose::kernels::gpu {
namespace {

/// Addresses that nobody reads: every call is refused, or has nothing to do.
alignas(256) std::array<std::byte, 1024> memory{};

enum class Mistake { none, odd_address, no_memory, negative, unknown_type, workspace };

/// Hands out a call's arguments, one of them wrong.
struct Arguments {
  Mistake mistake = Mistake::none;
  int at = -1;            ///< which matrix is wrong
  std::int64_t rows = 4;  ///< of the batch
  int count = 0;          ///< matrices handed out
  std::string wrong{};    ///< the name of the wrong one
  Workspace given{};      ///< instead of a workspace, when that is wrong
  bool has_workspace = false;

  Matrix operator()(const char* name, std::int64_t r, std::int64_t c, DType dtype = DType::bf16) {
    Matrix m{.data = r == 0 ? nullptr : memory.data(), .dtype = dtype, .rows = r, .cols = c};
    if (count++ != at) return m;
    wrong = name;
    if (mistake == Mistake::odd_address) m.data = memory.data() + 1;
    if (mistake == Mistake::no_memory) m.data = nullptr;
    if (mistake == Mistake::negative) m.rows = -m.rows;
    if (mistake == Mistake::unknown_type) m.dtype = DType::q8_0;
    return m;
  }
  /// One that may be absent.
  Matrix optional(const char* name, std::int64_t r, std::int64_t c, DType dtype = DType::bf16) {
    const Matrix m = (*this)(name, r, c, dtype);
    if (m.data == nullptr) wrong.clear();
    return m;
  }
  Workspace workspace(std::size_t bytes) {
    has_workspace = bytes > 0;
    if (mistake != Mistake::workspace) return {memory.data(), bytes};
    return {given.data, given.bytes == 0 ? bytes - 1 : bytes};
  }
  Matrix batch(const char* name, std::int64_t c, DType dtype = DType::bf16) {
    return (*this)(name, rows, c, dtype);
  }
  template <class T>
  T* numbers() {
    return rows == 0 ? nullptr : reinterpret_cast<T*>(memory.data());
  }
};

struct Operation {
  const char* name;
  std::function<void(Arguments&)> call;
};

const AttentionShape heads_of_64{.heads = 2, .kv_heads = 1, .head_dim = 64, .scale = 0.125f};

KvView cache() {
  static const std::array<std::int32_t, 2> table{};
  return {.k = memory.data(),
          .v = memory.data(),
          .dtype = DType::bf16,
          .layers = 1,
          .kv_heads = 1,
          .head_dim = 64,
          .page_size = 16,
          .pages = 2,
          .page_table = table.data(),
          .table_stride = 2};
}
std::vector<std::int32_t> offsets(std::int64_t rows) {
  return {0, static_cast<std::int32_t>(rows)};
}

std::vector<Operation> of_elements() {
  return {
      {"add", [](Arguments& a) { add(a.batch("a", 8), a.batch("b", 8), a.batch("out", 8), {}); }},
      {"silu_multiply",
       [](Arguments& a) {
         silu_multiply(a.batch("gate", 8), a.batch("up", 8), a.batch("out", 8), {});
       }},
      {"silu_multiply_backward",
       [](Arguments& a) {
         silu_multiply_backward(a.batch("gate", 8), a.batch("up", 8), a.batch("dy", 8),
                                a.batch("dgate", 8), a.batch("dup", 8), {});
       }},
      {"silu", [](Arguments& a) { silu(a.batch("x", 8), a.batch("out", 8), {}); }},
      {"silu_backward",
       [](Arguments& a) {
         silu_backward(a.batch("x", 8), a.batch("dy", 8), a.batch("dx", 8), {});
       }},
      {"gelu", [](Arguments& a) { gelu(a.batch("x", 8), a.batch("out", 8), Gelu::exact, {}); }},
      {"gelu_backward",
       [](Arguments& a) {
         gelu_backward(a.batch("x", 8), a.batch("dy", 8), a.batch("dx", 8), Gelu::exact, {});
       }},
      {"gelu_bias_backward",
       [](Arguments& a) {
         gelu_bias_backward(a.batch("x", 8), a.batch("dy", 8), a.batch("dx", 8), Gelu::exact,
                            a.numbers<float>(), a.workspace(bias_backward_workspace(a.rows, 8)),
                            {});
       }},
      {"bias_backward",
       [](Arguments& a) {
         bias_backward(a.batch("dy", 8), a.numbers<float>(),
                       a.workspace(bias_backward_workspace(a.rows, 8)), {});
       }},
      {"cast", [](Arguments& a) { cast(a.batch("x", 8), a.batch("out", 8, DType::f32), {}); }},
      {"cast_stochastic",
       [](Arguments& a) {
         cast_stochastic(a.batch("x", 8, DType::f32), {}, a.batch("out", 8), {});
       }},
      {"softmax", [](Arguments& a) { softmax(a.batch("x", 8), a.batch("y", 8), {}); }},
      {"softmax_backward",
       [](Arguments& a) {
         softmax_backward(a.batch("y", 8), a.batch("dy", 8), a.batch("dx", 8), {});
       }},
      {"rope",
       [](Arguments& a) {
         rope(a.batch("x", 8), 4, a.numbers<float>(), a.numbers<float>(), RopePairing::half, false,
              {});
       }},
      {"embedding",
       [](Arguments& a) {
         embedding(a.numbers<std::int32_t>(), a("table", 3, 8), a.batch("out", 8), {});
       }},
#ifdef ROSE_HAVE_CUDA
      {"embedding_backward",
       [](Arguments& a) {
         embedding_backward(
             a.numbers<std::int32_t>(), a.batch("dy", 8), a("dtable", 3, 8, DType::f32),
             a.workspace(a.rows == 0 ? 0 : embedding_backward_workspace(a.rows)), {});
       }},
#endif
      {"token_logprob",
       [](Arguments& a) {
         token_logprob(a.batch("logits", 8, DType::f32), a.numbers<std::int32_t>(),
                       a.numbers<float>(), nullptr, {});
       }},
      {"cross_entropy",
       [](Arguments& a) {
         cross_entropy(a.batch("logits", 8, DType::f32), a.numbers<std::int32_t>(), 1.0f,
                       a.batch("dlogits", 8), nullptr, nullptr, {});
       }},
      {"adjust_logits",
       [](Arguments& a) { adjust_logits(a.batch("logits", 8, DType::f32), {}, {}); }},
      {"sample",
       [](Arguments& a) {
         sample(a.batch("logits", 8, DType::f32), a.numbers<SamplingParams>(),
                a.numbers<std::int32_t>(), nullptr, {});
       }},
      {"top_logprobs",
       [](Arguments& a) {
         top_logprobs(a.batch("logits", 8, DType::f32), a.numbers<float>(), 2,
                      a.numbers<std::int32_t>(), a.numbers<float>(), {});
       }},
      {"resolve_tokens",
       [](Arguments& a) {
         if (a.rows == 0) resolve_tokens(nullptr, 0, nullptr, 0, nullptr, {});
       }},
      {"scatter_entries",
       [](Arguments& a) {
         if (a.rows == 0) scatter_entries(nullptr, 0, nullptr, 0, {});
       }},
  };
}

std::vector<Operation> of_rows() {
  return {
      {"rmsnorm",
       [](Arguments& a) {
         rmsnorm(a.batch("x", 8), a("weight", 1, 8), 1e-5f, a.batch("y", 8), nullptr, {});
       }},
      {"layernorm",
       [](Arguments& a) {
         layernorm(a.batch("x", 8), a("weight", 1, 8), a("bias", 1, 8), 1e-5f, a.batch("y", 8),
                   nullptr, nullptr, {});
       }},
      {"rmsnorm_heads",
       [](Arguments& a) {
         rmsnorm_heads(a.batch("x", 8), a("weight", 1, 4), 1e-5f, a.batch("y", 8), nullptr, {});
       }},
      {"add_rmsnorm",
       [](Arguments& a) {
         add_rmsnorm(a.batch("x", 8), a.batch("residual", 8), a("weight", 1, 8), 1e-5f,
                     a.batch("sum", 8), a.batch("y", 8), nullptr, {});
       }},
      {"add_layernorm",
       [](Arguments& a) {
         add_layernorm(a.batch("x", 8), a.batch("residual", 8), a("weight", 1, 8), a("bias", 1, 8),
                       1e-5f, a.batch("sum", 8), a.batch("y", 8), nullptr, nullptr, {});
       }},
      {"rmsnorm_backward",
       [](Arguments& a) {
         rmsnorm_backward(a.batch("x", 8), a("weight", 1, 8), a.numbers<float>(), a.batch("dy", 8),
                          a.optional("add", a.rows, 8), a.batch("dx", 8), a.numbers<float>(),
                          a.workspace(norm_backward_workspace(a.rows, 8)), {});
       }},
      {"layernorm_backward",
       [](Arguments& a) {
         layernorm_backward(a.batch("x", 8), a("weight", 1, 8), a.numbers<float>(),
                            a.numbers<float>(), a.batch("dy", 8), {}, a.batch("dx", 8),
                            a.numbers<float>(), a.numbers<float>(),
                            a.workspace(norm_backward_workspace(a.rows, 8)), {});
       }},
      {"rmsnorm_heads_backward",
       [](Arguments& a) {
         rmsnorm_heads_backward(a.batch("x", 8), a("weight", 1, 4), a.numbers<float>(),
                                a.batch("dy", 8), a.batch("dx", 8), a.numbers<float>(),
                                a.workspace(norm_backward_workspace(2 * a.rows, 4)), {});
       }},
      {"turn_heads",
       [](Arguments& a) {
         const HeadTurn turn{.heads = 2,
                             .kv_heads = 1,
                             .head_dim = 32,
                             .q_norm = a("q_norm", 1, 32),
                             .k_norm = a("k_norm", 1, 32),
                             .cos = reinterpret_cast<float*>(memory.data()),
                             .sin = reinterpret_cast<float*>(memory.data())};
         turn_heads(turn, a.batch("x", 96), a.batch("y", 96), nullptr, nullptr, {});
       }},
      {"turn_heads_backward",
       [](Arguments& a) {
         const HeadTurn turn{.heads = 2,
                             .kv_heads = 1,
                             .head_dim = 32,
                             .q_norm = a("q_norm", 1, 32),
                             .k_norm = a("k_norm", 1, 32),
                             .cos = reinterpret_cast<float*>(memory.data()),
                             .sin = reinterpret_cast<float*>(memory.data())};
         turn_heads_backward(turn, a.batch("x", 96), a.numbers<float>(), a.numbers<float>(),
                             a.batch("gradient", 96), a.numbers<float>(), a.numbers<float>(),
                             a.workspace(turn_heads_backward_workspace(32)), {});
       }},
  };
}

std::vector<Operation> of_products() {
  return {
      {"linear",
       [](Arguments& a) {
         const LinearShape shape{.m = a.rows, .n = 8, .k = 16, .bias = true, .residual = true};
         const LinearPlan plan{.shape = shape,
                               .path = a.rows == 0 ? LinearPath::none : LinearPath::general,
                               .workspace_bytes = 64};
         linear(plan,
                {.x = a.batch("x", 16),
                 .w = a("w", 8, 16),
                 .bias = memory.data(),
                 .residual = a.batch("residual", 8),
                 .y = a.batch("y", 8)},
                a.workspace(64), {});
       }},
      {"linear_backward_input",
       [](Arguments& a) {
         const BackwardPlan plan{
             .shape = {.product = BackwardProduct::input, .m = a.rows, .n = 8, .k = 16},
             .workspace_bytes = 64};
         linear_backward_input(plan, a.batch("dy", 8), a("w", 8, 16), a.batch("dx", 16),
                               a.workspace(64), {});
       }},
      {"linear_backward_weight",
       [](Arguments& a) {
         const BackwardPlan plan{
             .shape = {.product = BackwardProduct::weight, .m = a.rows, .n = 8, .k = 16},
             .workspace_bytes = 64};
         linear_backward_weight(plan, a.batch("dy", 8), a.batch("x", 16),
                                a("dw", 8, 16, DType::f32), a.workspace(64), {});
       }},
      {"token_linear",
       [](Arguments& a) {
         if (a.rows == 0) return;  // takes 1 to 8 rows
         const LinearShape shape{.m = a.rows, .n = 8, .k = 128};
         token_linear(shape,
                      {.x = a.batch("x", 128),
                       .add = a.optional("add", a.rows, 128),
                       .sum = {memory.data() + 512, DType::bf16, a.rows, 128},
                       .norm = a.optional("norm", 1, 128),
                       .w = a("w", 8, 128),
                       .y = a.batch("y", 8)},
                      {});
       }},
      {"linear_packed",
       [](Arguments& a) {
         const PackedWeight w{.data = memory.data(),
                              .rows = 8,
                              .cols = 32,
                              .scales = reinterpret_cast<const float*>(memory.data())};
         linear_packed(a.batch("x", 32), w, nullptr, a.batch("y", 8), {});
       }},
      {"add_adapters",
       [](Arguments& a) {
         const auto* const list = reinterpret_cast<const void* const*>(memory.data());
         const Adapters adapters{.a = list,
                                 .b = list,
                                 .scales = a.numbers<float>(),
                                 .offsets = a.numbers<std::int32_t>(),
                                 .count = 1,
                                 .rank = 8};
         add_adapters(a.batch("x", 32), adapters, a.batch("y", 8),
                      a.workspace(adapters_workspace(a.rows, 8)), {});
       }},
  };
}

std::vector<Operation> of_attention() {
  return {
      {"attention",
       [](Arguments& a) {
         const AttentionPlan plan = plan_attention(heads_of_64, offsets(a.rows));
         attention(plan, a.batch("q", 128), a.batch("k", 64), a.batch("v", 64), a.batch("out", 128),
                   nullptr, a.workspace(plan.workspace_bytes()), {});
       }},
      {"attention, paged",
       [](Arguments& a) {
         const std::vector<std::int32_t> lengths{static_cast<std::int32_t>(a.rows)};
         const AttentionPlan plan = plan_attention(heads_of_64, offsets(a.rows), lengths);
         attention(plan, a.batch("q", 128), cache(), 0, a.batch("out", 128), nullptr,
                   a.workspace(plan.workspace_bytes()), {});
       }},
      {"attention_backward",
       [](Arguments& a) {
         const AttentionBackwardPlan plan = plan_attention_backward(heads_of_64, offsets(a.rows));
         attention_backward(plan,
                            {a.batch("q", 128), a.batch("k", 64), a.batch("v", 64),
                             a.batch("out", 128), a.numbers<float>()},
                            a.batch("dout", 128), a.batch("dq", 128), a.batch("dk", 64),
                            a.batch("dv", 64), a.workspace(plan.workspace_bytes()), {});
       }},
      {"kv_append",
       [](Arguments& a) {
         kv_append(a.optional("q", a.rows, 128), a.batch("k", 64), a.batch("v", 64), cache(), 0,
                   a.numbers<KvPlace>(), {}, {});
       }},
      {"kv_gather",
       [](Arguments& a) {
         kv_gather(cache(), 0, a.numbers<KvPlace>(), a.batch("k", 64), a.batch("v", 64), {});
       }},
      {"kv_copy_pages",
       [](Arguments& a) {
         if (a.rows == 0) kv_copy_pages(cache(), nullptr, 0, {});
       }},
      {"kv_rollover",
       [](Arguments& a) {
         if (a.rows == 0) kv_rollover(cache(), nullptr, 0, nullptr, nullptr, {});
       }},
  };
}

std::vector<Operation> of_steps() {
  return {
      {"adamw",
       [](Arguments& a) {
         adamw({.weight = a.batch("weight", 8, DType::f32),
                .gradient = a.batch("gradient", 8),
                .first = a.numbers<float>(),
                .second = a.numbers<float>(),
                .copy = a.optional("copy", a.rows, 8)},
               {}, nullptr, {});
       }},
      {"muon",
       [](Arguments& a) {
         const MuonPlan plan{.rows = a.rows, .cols = 8, .workspace_bytes = 64};
         muon(plan,
              {.weight = a.batch("weight", 8, DType::f32),
               .gradient = a.batch("gradient", 8),
               .first = a.numbers<float>()},
              {}, nullptr, a.workspace(64), {});
       }},
      {"gradient_norm",
       [](Arguments& a) {
         if (a.rows == 0) return;  // the norm of nothing is 0, and is written
         const std::array<Matrix, 1> gradients{a.batch("gradients", 8)};
         gradient_norm(gradients, 1.0f, a.numbers<float>(),
                       a.workspace(gradient_norm_workspace(gradients)), {});
       }},
      {"flat_adamw",
       [](Arguments& a) {
         const std::array<AdamWStep, 1> steps{};
         if (a.rows == 0) flat_adamw(nullptr, 0, {}, steps, 1.0f, {});
       }},
      {"flat_square_sum",
       [](Arguments& a) {
         if (a.rows == 0) return;  // likewise
         flat_square_sum(a.numbers<FlatBlock>(), 4, a.numbers<float>(), a.numbers<double>(),
                         a.workspace(flat_square_sum_workspace(4)), {});
       }},
  };
}

std::vector<Operation> operations() {
  std::vector<Operation> all;
  for (const auto& part : {of_elements(), of_rows(), of_products(), of_attention(), of_steps()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// The error of a call, or code internal and no argument when it has none.
core::Error error_of(const Operation& operation, Arguments& arguments) {
  try {
    operation.call(arguments);
  } catch (const core::Error& error) {
    return error;
  }
  return {core::Code::internal, "no error"};
}

int matrices_of(const Operation& operation) {
  Arguments counting{.mistake = Mistake::negative, .at = 0};
  static_cast<void>(error_of(operation, counting));
  return counting.count;
}

TEST(OperationArguments, AWrongMatrixIsNamedBeforeAnythingRuns) {
  int refused = 0;
  for (const Operation& operation : operations()) {
    const int count = matrices_of(operation);
    for (int at = 0; at < count; ++at) {
      for (const Mistake mistake :
           {Mistake::odd_address, Mistake::no_memory, Mistake::negative, Mistake::unknown_type}) {
        Arguments arguments{.mistake = mistake, .at = at};
        // What is absent is no mistake: where a GPU is, such a call would run.
        if (mistake == Mistake::no_memory) {
          Arguments probe{.mistake = mistake, .at = at, .rows = 0};
          static_cast<void>(error_of(operation, probe));
          if (probe.wrong.empty()) continue;
        }
        const core::Error error = error_of(operation, arguments);
        EXPECT_EQ(error.argument(), arguments.wrong)
            << operation.name << ", mistake " << static_cast<int>(mistake) << ": " << error.what();
        EXPECT_TRUE(error.code() == core::Code::invalid_argument ||
                    error.code() == core::Code::unsupported)
            << operation.name << ": " << error.what();
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 300);
}

TEST(OperationArguments, AWorkspaceThatIsTooSmallIsRefused) {
  int with_workspace = 0;
  for (const Operation& operation : operations()) {
    Arguments looking{.mistake = Mistake::odd_address, .at = 0};
    static_cast<void>(error_of(operation, looking));
    if (!looking.has_workspace) continue;
    ++with_workspace;
    struct Case {
      Workspace given;  ///< bytes 0: one less than is needed
      core::Code code;
    };
    for (const Case& wrong : {Case{{memory.data(), 0}, core::Code::resource_exhausted},
                              Case{{nullptr, 1}, core::Code::resource_exhausted},
                              Case{{memory.data() + 128, 1}, core::Code::invalid_argument}}) {
      Arguments arguments{.mistake = Mistake::workspace, .given = wrong.given};
      const core::Error error = error_of(operation, arguments);
      EXPECT_EQ(error.argument(), "workspace") << operation.name << ": " << error.what();
      EXPECT_EQ(error.code(), wrong.code) << operation.name << ": " << error.what();
    }
  }
  EXPECT_GE(with_workspace, 14);
}

TEST(OperationArguments, NoRowsAreNothingToDo) {
  for (const Operation& operation : operations()) {
    Arguments arguments{.rows = 0};
    EXPECT_NO_THROW(operation.call(arguments)) << operation.name;
  }
}

TEST(OperationArguments, WeightsThatAreReadWideMustBeginThere) {
  const KvView kv = cache();
  const Matrix q{memory.data(), DType::bf16, 1, 128}, row{memory.data(), DType::bf16, 1, 64};
  const HeadNorm norm{.q = memory.data(), .k = memory.data() + 8, .dtype = DType::bf16, .eps = 1};
  const std::array<KvPlace, 1> place{};
  try {
    kv_append(q, row, row, kv, 0, place.data(), {}, {}, nullptr, norm);
    ADD_FAILURE() << "no error";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.argument(), "norm");
  }
  const std::array<AdamWStep, 1> steps{};
  const std::array<FlatBlock, 1> block{FlatBlock{.first = 0, .count = 8}};
  auto* const numbers = reinterpret_cast<float*>(memory.data());
  for (const FlatArrays& arrays :
       {FlatArrays{.weight = numbers + 1, .gradient = numbers, .first = numbers, .second = numbers},
        FlatArrays{.weight = numbers, .gradient = numbers + 2, .first = numbers, .second = numbers},
        FlatArrays{.weight = numbers,
        .gradient = numbers,
        .first = numbers,
        .second = numbers,
        .copy = memory.data() + 8}}) {
    try {
      flat_adamw(block.data(), 1, arrays, steps, 1.0f, {});
      ADD_FAILURE() << "no error";
    } catch (const core::Error& error) {
      EXPECT_EQ(error.argument(), "arrays");
    }
  }
}

}  // namespace
}  // namespace rose::kernels::gpu
