"""The other side of the engine's benches: `transformers` on the GPU, the shape of Qwen3-0.6B, random weights, bf16.

    transformers_qwen3.py bs1 | prefill

Speaks the pair protocol of benchmarks/README.md.
"""

import json
import sys
import time

import torch
import transformers
from transformers import Qwen3Config, Qwen3ForCausalLM

PROMPT, ANSWER, LONG = 64, 128, 8192


def make_model():
    torch.manual_seed(1)
    config = Qwen3Config(
        vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28,
        num_attention_heads=16, num_key_value_heads=8, head_dim=128, tie_word_embeddings=True,
        max_position_embeddings=40960, rms_norm_eps=1e-6)
    with torch.device("cuda"):
        model = Qwen3ForCausalLM._from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    return model.eval()


def seconds(work):
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def main():
    mode = sys.argv[1]
    model = make_model()
    ids = torch.randint(0, 151936, (1, PROMPT if mode == "bs1" else LONG), device="cuda")

    @torch.inference_mode()
    def generate(tokens):
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, min_new_tokens=tokens,
                       do_sample=False, cache_implementation="static", pad_token_id=0)

    @torch.inference_mode()
    def prefill():
        model(ids, logits_to_keep=1, use_cache=True)

    def sample():
        if mode == "prefill":
            return LONG / seconds(prefill)
        one = seconds(lambda: generate(1))
        return ANSWER / (seconds(lambda: generate(1 + ANSWER)) - one)

    settings = ("generate with a static cache, the decoding step compiled" if mode == "bs1"
                else "one forward call, scaled-dot-product attention, logits of the last token")
    for _ in range(3):
        sample()
    print(json.dumps({"name": "transformers", "version": f"{transformers.__version__}, PyTorch {torch.__version__}",
                      "settings": settings}), flush=True)
    for line in sys.stdin:
        if line.strip() == "run":
            print(json.dumps({"value": sample()}), flush=True)


if __name__ == "__main__":
    main()
