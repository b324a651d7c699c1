"""What the oracle tests of weights share: the program's view of a checkpoint, and the reference's names for the same weights."""
import hashlib
import json
import os
import pathlib
import subprocess

import numpy as np
import torch
import transformers

PROBE = os.environ.get("ROSE_PROBE") or os.path.join(os.environ["ROSE_BIN"], "dump_checkpoint")


def probe(*args, check=True, **kwargs):
    done = subprocess.run([PROBE, *map(str, args)], capture_output=True, text=True, **kwargs)
    if check and done.returncode != 0:
        raise AssertionError(f"dump_checkpoint {' '.join(map(str, args))} ended with {done.returncode}: {done.stderr}")
    return done


def dump(path):
    return json.loads(probe("dump", path).stdout)


def sha(array):
    return hashlib.sha256(np.ascontiguousarray(array, dtype=np.float32).tobytes()).hexdigest()


def rotary(**kwargs):
    return {"rope_theta": 10000.0, **kwargs}


def families():
    """name -> a small random configuration; together they use every option that is supported."""
    llama = dict(vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                 max_position_embeddings=128)
    qwen = dict(llama, num_key_value_heads=2)
    gpt2 = dict(vocab_size=96, n_embd=64, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2)
    L, Q2, Q3, G = (transformers.LlamaConfig, transformers.Qwen2Config, transformers.Qwen3Config, transformers.GPT2Config)
    return {
        "gpt2": G(**gpt2),
        "gpt2-untied-inner": G(**gpt2, n_inner=96, tie_word_embeddings=False, layer_norm_epsilon=1e-6),
        "llama": L(**llama),
        "llama-gqa-tied": L(**llama, num_key_value_heads=2, tie_word_embeddings=True, rms_norm_eps=1e-5, eos_token_id=[3, 5]),
        "llama-bias": L(**llama, attention_bias=True, mlp_bias=True, num_key_value_heads=1),
        "llama-head-dim": L(**llama, head_dim=32, num_key_value_heads=2),
        "llama-linear": L(**llama, rope_parameters=rotary(rope_type="linear", factor=2.0)),
        "llama-llama3": L(**llama, rope_parameters=dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0,
                                                        high_freq_factor=4.0, original_max_position_embeddings=32)),
        "llama-yarn": L(**llama, rope_parameters=rotary(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)),
        "qwen2": Q2(**qwen),
        "qwen2-tied-yarn": Q2(**qwen, tie_word_embeddings=True,
                              rope_parameters=rotary(rope_type="yarn", factor=2.0, original_max_position_embeddings=64, beta_fast=16.0)),
        "qwen3": Q3(**qwen, head_dim=32),
        "qwen3-bias-tied": Q3(**qwen, head_dim=16, attention_bias=True, tie_word_embeddings=True),
    }


def random_model(config, seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.05)  # norms and biases too, lest a swapped pair of them go unnoticed
    return model.to(dtype).eval()


def canonical(model):
    """canonical name -> fp32 array, by a table written for this test and by nothing of the program's."""
    config, state, out = model.config, {k: v.float().numpy() for k, v in model.state_dict().items()}, {}
    if config.model_type == "gpt2":
        out["embed.weight"], out["pos_embed.weight"] = state["transformer.wte.weight"], state["transformer.wpe.weight"]
        for i in range(config.n_layer):
            old, new = f"transformer.h.{i}.", f"layers.{i}."
            for a, b in (("ln_1", "attn_norm"), ("ln_2", "ffn_norm")):
                for kind in ("weight", "bias"):
                    out[f"{new}{b}.{kind}"] = state[f"{old}{a}.{kind}"]
            for a, b in (("attn.c_proj", "attn.o"), ("mlp.c_fc", "ffn.up"), ("mlp.c_proj", "ffn.down")):
                out[f"{new}{b}.weight"], out[f"{new}{b}.bias"] = state[f"{old}{a}.weight"].T, state[f"{old}{a}.bias"]
            weights, biases = np.split(state[f"{old}attn.c_attn.weight"], 3, axis=1), np.split(state[f"{old}attn.c_attn.bias"], 3)
            for part, weight, bias in zip("qkv", weights, biases):
                out[f"{new}attn.{part}.weight"], out[f"{new}attn.{part}.bias"] = weight.T, bias
        out["norm.weight"], out["norm.bias"] = state["transformer.ln_f.weight"], state["transformer.ln_f.bias"]
    else:
        table = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn.q",
                 "self_attn.k_proj": "attn.k", "self_attn.v_proj": "attn.v", "self_attn.o_proj": "attn.o", "self_attn.q_norm": "attn.q_norm",
                 "self_attn.k_norm": "attn.k_norm", "mlp.gate_proj": "ffn.gate", "mlp.up_proj": "ffn.up", "mlp.down_proj": "ffn.down"}
        for name, value in state.items():
            stem, kind = name.rsplit(".", 1)
            if stem.startswith("model.layers."):
                _, _, layer, rest = stem.split(".", 3)
                out[f"layers.{layer}.{table[rest]}.{kind}"] = value
        out["embed.weight"], out["norm.weight"] = state["model.embed_tokens.weight"], state["model.norm.weight"]
    if not config.tie_word_embeddings:
        out["head.weight"] = state["lm_head.weight"]
    return out


def require_equal(path, expected, what):
    got = dump(path)
    assert set(got["tensors"]) == set(expected), (what, set(got["tensors"]) ^ set(expected))
    for name, value in expected.items():
        tensor = got["tensors"][name]
        assert tensor["shape"] == list(value.shape), (what, name, tensor["shape"], value.shape)
        assert tensor["sha256"] == sha(value), (what, name)
    return got



def pair(weight, heads):
    """Rows of each head from halves to interleaved pairs, as llama.cpp's converter does it."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def main(tests):
    import tempfile
    for test in tests:
        with tempfile.TemporaryDirectory(prefix="rose-weights-") as folder:
            test(pathlib.Path(folder))
        print(f"ok {test.__name__}", flush=True)
