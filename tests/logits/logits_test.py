"""Our logits beside Hugging Face transformers' on the same files, and greedy continuations token by token.

Random small checkpoints of each family and option are written by transformers itself; the real model is the shipped GGUF file,
dequantised by transformers' own GGUF reader (the `gguf` package). Tolerance: 1e-4 absolute, our logits in fp32; the real model's oracle computes in double precision.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

TOLERANCE = 1e-4
TOOL = pathlib.Path(os.environ.get("ROSE_BIN", "build/cpu/bin")) / "logits_tool"


def run(*args):
    return subprocess.run([str(TOOL), *map(str, args)], check=True, capture_output=True, text=True).stdout


def our_logits(model, ids, folder):
    np.array(ids, dtype=np.int32).tofile(folder / "ids")
    run("logits", model, folder / "ids", folder / "out")
    return np.fromfile(folder / "out", dtype=np.float32).reshape(len(ids), -1)


def our_greedy(model, ids, n, folder):
    np.array(ids, dtype=np.int32).tofile(folder / "ids")
    print("   ", run("greedy", model, folder / "ids", n, folder / "out").strip())
    return np.fromfile(folder / "out", dtype=np.int32).tolist()


def their_logits(model, ids):
    import torch

    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def compare(name, path, model, ids, folder, greedy_tokens=64):
    ours, theirs = our_logits(path, ids, folder), their_logits(model, ids)
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    error, spread = float(np.abs(ours - theirs).max()), float(theirs.std())
    print(f"{name}: {len(ids)} tokens, max |error| {error:.2e} where logits have standard deviation {spread:.2f}")
    assert np.isfinite(ours).all() and error < TOLERANCE, f"{name}: {error}"
    assert spread > 0.1, f"{name}: the logits are too flat to test anything"

    prompt = ids[:40]
    made = our_greedy(path, prompt, greedy_tokens, folder)
    assert len(made) == greedy_tokens
    judged = their_logits(model, prompt + made)[len(prompt) - 1 : -1]
    for step, (row, chosen) in enumerate(zip(judged, made)):
        best = int(row.argmax())
        # where the oracle's two best are within the error bound, either is right
        assert chosen == best or row[best] - row[chosen] < TOLERANCE, f"{name}: step {step}: {chosen}, oracle {best}"
    return error


def awaken(model, seed):
    """Nothing zero, nothing one: a forgotten bias or norm shows; attention is far from uniform."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.data = noise * 0.12 if parameter.dim() == 2 else parameter.data + 0.3 * noise
    return model.float().eval()


def families():
    from transformers import GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config

    small = dict(vocab_size=211, hidden_size=64, intermediate_size=96, num_hidden_layers=3, max_position_embeddings=1024,
                 bos_token_id=1, eos_token_id=2, pad_token_id=0)
    gpt2 = dict(vocab_size=211, n_embd=64, n_layer=3, n_head=4, n_positions=1024, bos_token_id=1, eos_token_id=2)

    def rope(theta=10000.0, **scaling):
        return dict(rope_parameters={"rope_theta": theta, "rope_type": "default", **scaling})

    yield "gpt2 (gelu_new, tied)", GPT2Config(**gpt2)
    yield "gpt2 (gelu, untied, n_inner)", GPT2Config(**gpt2, activation_function="gelu", tie_word_embeddings=False, n_inner=80)
    yield "llama (multi-head)", LlamaConfig(**small, num_attention_heads=4, num_key_value_heads=4, **rope())
    yield "llama (grouped, tied)", LlamaConfig(**small, num_attention_heads=8, num_key_value_heads=2, head_dim=16,
                                               tie_word_embeddings=True, **rope(500000.0))
    yield "llama (biases, one kv head)", LlamaConfig(**small, num_attention_heads=4, num_key_value_heads=1,
                                                     attention_bias=True, mlp_bias=True, **rope())
    yield "llama (linear scaling)", LlamaConfig(**small, num_attention_heads=4, num_key_value_heads=2,
                                                **rope(rope_type="linear", factor=4.0))
    yield "llama (llama3 scaling)", LlamaConfig(**small, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
                                                **rope(500000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                                                       high_freq_factor=4.0, original_max_position_embeddings=128))
    yield "llama (yarn scaling)", LlamaConfig(**small, num_attention_heads=2, num_key_value_heads=2, head_dim=32,
                                              **rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=256))
    yield "llama (yarn, attention factor)", LlamaConfig(
        **small, num_attention_heads=2, num_key_value_heads=2, head_dim=32,
        **rope(rope_type="yarn", factor=8.0, original_max_position_embeddings=128, attention_factor=1.3, beta_fast=16.0,
               beta_slow=2.0))
    yield "qwen2 (untied)", Qwen2Config(**small, num_attention_heads=4, num_key_value_heads=2, **rope(1e6))
    yield "qwen2 (tied)", Qwen2Config(**small, num_attention_heads=8, num_key_value_heads=1, tie_word_embeddings=True, **rope(1e6))
    yield "qwen3 (tied)", Qwen3Config(**small, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
                                      tie_word_embeddings=True, **rope(1e6))
    yield "qwen3 (head dim 128, yarn)", Qwen3Config(
        **small, num_attention_heads=2, num_key_value_heads=1, head_dim=128,
        **rope(1e6, rope_type="yarn", factor=4.0, original_max_position_embeddings=256))


def test_families():
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(2)
    generator = torch.Generator().manual_seed(1)
    for i, (name, config) in enumerate(families()):
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            model = awaken(AutoModelForCausalLM.from_config(config, attn_implementation="eager"), i)
            model.save_pretrained(folder / "model", max_shard_size="100KB" if i % 2 else "1GB")  # sharded every other time
            ids = torch.randint(0, config.vocab_size, (700,), generator=generator).tolist()  # crosses a split of 512 keys
            compare(name, folder / "model", model, ids, folder)


def test_smollm2():
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    path = os.environ.get("ROSE_MODEL", "")
    if not pathlib.Path(path).is_file():
        print("no model file: set ROSE_MODEL")
        sys.exit(77)
    torch.set_num_threads(2)
    folder, name = os.path.split(path)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    config = LlamaConfig(**load_gguf_checkpoint(path)["config"], attn_implementation="eager")
    model = LlamaForCausalLM(config).float().eval()
    weights = load_gguf_checkpoint(path, return_tensors=True, model_to_load=model, torch_dtype=torch.float32)["tensors"]
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    model.double()  # 30 blocks and logits up to 30: in fp32 the oracle's own rounding is as large as ours
    texts = [
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
        "The theory of relativity says that the laws of physics are the same for all observers, and that the speed of light "
        "does not depend on the motion of its source. From this, Einstein concluded",
        "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    ]
    with tempfile.TemporaryDirectory() as temporary:
        for i, text in enumerate(texts):
            ids = tokenizer(text).input_ids
            compare(f"SmolLM2 {i}", path, model, ids, pathlib.Path(temporary))


def test_counts():
    """parameter_count against the number of elements that transformers allocates, for the shapes of released models."""
    import torch
    from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config

    models = {
        "GPT-2 124M": GPT2Config(),
        "SmolLM2-135M": LlamaConfig(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                                    num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True),
        "Llama-3.2-1B": LlamaConfig(vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
                                    num_attention_heads=32, num_key_value_heads=8, head_dim=64, tie_word_embeddings=True),
        "Qwen2.5-0.5B": Qwen2Config(vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24,
                                    num_attention_heads=14, num_key_value_heads=2, tie_word_embeddings=True),
        "Qwen3-0.6B": Qwen3Config(vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28,
                                  num_attention_heads=16, num_key_value_heads=8, head_dim=128, tie_word_embeddings=True),
    }
    with tempfile.TemporaryDirectory() as temporary:
        for name, config in models.items():
            with torch.device("meta"):
                theirs = sum(p.numel() for p in AutoModelForCausalLM.from_config(config).parameters())
            config.architectures = None
            config.save_pretrained(temporary)
            ours = int(run("counts", pathlib.Path(temporary) / "config.json"))
            print(f"{name}: {ours:,}")
            assert ours == theirs, f"{name}: ours {ours}, transformers {theirs}"


if __name__ == "__main__":
    {"families": test_families, "smollm2": test_smollm2, "counts": test_counts}[sys.argv[1]]()
