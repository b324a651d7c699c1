// One line per operation: its name, how many cases to draw, its twin.
#include "twins.h"
#include "twin_attention.h"
#include "twin_backward.h"
#include "twin_elementwise.h"
#include "twin_kv.h"
#include "twin_linear.h"
#include "twin_norm.h"
#include "twin_optimizer.h"
#include "twin_packed.h"
#include "twin_sampling.h"
#include "twin_scores.h"
#include "twin_tables.h"

namespace rose::kernels::gpu {

ROSE_TWIN(add, 30, twin_add)
ROSE_TWIN(silu_multiply, 30, twin_silu_multiply)
ROSE_TWIN(silu_multiply_backward, 20, twin_silu_multiply_backward)
ROSE_TWIN(silu, 30, twin_silu)
ROSE_TWIN(gelu, 30, twin_gelu)
ROSE_TWIN(cast, 30, twin_cast)
ROSE_TWIN(cast_stochastic, 30, twin_cast_stochastic)
ROSE_TWIN(dropout, 30, twin_dropout)
ROSE_TWIN(linear, 150, twin_linear)
ROSE_TWIN(linear_backward, 30, twin_linear_backward)
ROSE_TWIN(gelu_bias_backward, 20, twin_gelu_bias_backward)
ROSE_TWIN(turn_heads, 30, twin_turn_heads)
ROSE_TWIN(token_linear, 40, twin_token_linear)
ROSE_TWIN(linear_packed, 30, twin_linear_packed)
ROSE_TWIN(adapters, 20, twin_adapters)
ROSE_TWIN(norm, 80, twin_norm)
ROSE_TWIN(norm_backward, 60, twin_norm_backward)
ROSE_TWIN(softmax, 40, twin_softmax)
ROSE_TWIN(softmax_backward, 40, twin_softmax_backward)
ROSE_TWIN(cross_entropy, 40, twin_cross_entropy)
ROSE_TWIN(rope_table, 20, twin_rope_table)
ROSE_TWIN(rope, 40, twin_rope)
ROSE_TWIN(embedding, 40, twin_embedding)
ROSE_TWIN(attention, 25, twin_attention)
ROSE_TWIN(attention_backward, 15, twin_attention_backward)
ROSE_TWIN(kv_cache, 30, twin_kv_cache)
ROSE_TWIN(kv_copy_pages, 25, twin_kv_copy_pages)
ROSE_TWIN(kv_rollover, 30, twin_kv_rollover)
ROSE_TWIN(resolve_tokens, 20, twin_resolve_tokens)
ROSE_TWIN(scatter_entries, 20, twin_scatter_entries)
ROSE_TWIN(adjust_logits, 30, twin_adjust_logits)
ROSE_TWIN(sample, 60, twin_sample)
ROSE_TWIN(top_logprobs, 40, twin_top_logprobs)
ROSE_TWIN(adamw, 40, twin_adamw)
ROSE_TWIN(flat_step, 30, twin_flat_step)
ROSE_TWIN(gradient_norm, 30, twin_gradient_norm)
ROSE_TWIN(muon, 12, twin_muon)

}  // namespace rose::kernels::gpu
