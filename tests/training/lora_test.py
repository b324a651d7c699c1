"""Gradients of adapters beside PEFT's: small models of each family by transformers, adapters by PEFT, gradients by PyTorch's autograd.

Every number of every A and B is compared, for a loss over a part of the tokens. Both compute in fp32; the tolerance is 2e-5 of the largest gradient of
the matrix. GPT-2's queries, keys and values share one A in PEFT: the gradients of our three add up to its.
"""
import os
import pathlib
import subprocess
import tempfile

import numpy as np

TOOL = pathlib.Path(os.environ.get("ROSE_BIN", "build/cpu/bin")) / "lora_tool"
TOLERANCE = 2e-5
RANK = 6
NAMES = ["q", "k", "v", "o", "gate", "up", "down"]


def cases():
    from transformers import GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config

    small = dict(vocab_size=211, hidden_size=64, intermediate_size=96, num_hidden_layers=2, max_position_embeddings=256,
                 num_attention_heads=4, num_key_value_heads=2, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    yield "gpt2", GPT2Config(vocab_size=211, n_embd=64, n_layer=2, n_head=4, n_positions=256, bos_token_id=1, eos_token_id=2,
                             attn_pdrop=0, embd_pdrop=0, resid_pdrop=0), ["c_attn", "c_proj", "c_fc"]
    yield "llama", LlamaConfig(**small), "all-linear"
    yield "llama, queries and values", LlamaConfig(**small), ["q_proj", "v_proj"]
    yield "qwen2", Qwen2Config(**small), "all-linear"
    yield "qwen3", Qwen3Config(**small, head_dim=32), "all-linear"


def shapes(config, targets):
    """Our order: name of the matrix, block, half, shape; only what is adapted."""
    gpt2 = config.model_type == "gpt2"
    c = config.hidden_size
    width = getattr(config, "head_dim", None) or c // config.num_attention_heads
    q, kv = config.num_attention_heads * width, (config.num_attention_heads if gpt2 else config.num_key_value_heads) * width
    ffn = 4 * c if gpt2 else config.intermediate_size
    sizes = dict(q=(c, q), k=(c, kv), v=(c, kv), o=(q, c), gate=(c, ffn), up=(c, ffn), down=(ffn, c))
    for layer in range(config.num_hidden_layers):
        for name in NAMES:
            if name == "gate" and gpt2 or targets == ["q_proj", "v_proj"] and name not in "qv":
                continue
            k, n = sizes[name]
            yield layer, name, "A", (RANK, k)
            yield layer, name, "B", (n, RANK)


def main():
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(2)
    generator = torch.Generator().manual_seed(3)
    for name, config, targets in cases():
        gpt2 = config.model_type == "gpt2"
        base = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float()
        for p in base.parameters():
            if p.dim() == 2:
                p.data = torch.randn(p.shape, generator=generator) * 0.1
        model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", r=RANK, lora_alpha=9, target_modules=targets,
                                                fan_in_fan_out=gpt2)).train()
        for key, p in model.named_parameters():
            if "lora_B" in key:
                p.data = torch.randn(p.shape, generator=generator) * 0.05
        ids = torch.randint(0, config.vocab_size, (70,), generator=generator)
        targets_of = torch.where(torch.rand(70, generator=generator) < 0.4, torch.roll(ids, -1), torch.tensor(-1))
        targets_of[-1] = -1
        loss = torch.nn.functional.cross_entropy(model(ids[None]).logits[0], targets_of, ignore_index=-1)
        loss.backward()
        theirs = {k: p.grad.numpy() for k, p in model.named_parameters() if p.grad is not None}
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            model.save_pretrained(folder / "adapter")
            model.unload().save_pretrained(folder / "model")
            np.array(ids.tolist(), dtype=np.int32).tofile(folder / "ids")
            np.array(targets_of.tolist(), dtype=np.int32).tofile(folder / "targets")
            subprocess.run([TOOL, folder / "model", folder / "adapter", folder / "ids", folder / "targets", folder / "out"], check=True)
            flat = np.fromfile(folder / "out", dtype=np.float32)
        ours, at = {}, 0
        for layer, matrix, half, shape in shapes(config, targets):
            n = shape[0] * shape[1]
            ours[layer, matrix, half] = flat[at:at + n].reshape(shape)
            at += n
        assert at == len(flat), (name, at, len(flat))
        if gpt2:
            for layer in range(config.num_hidden_layers):
                ours[layer, "attn", "A"] = sum(ours.pop((layer, m, "A")) for m in "qkv")
                ours[layer, "attn", "B"] = np.concatenate([ours.pop((layer, m, "B")) for m in "qkv"])
        modules = dict(attn="attn.c_attn", o="attn.c_proj", up="mlp.c_fc", down="mlp.c_proj") if gpt2 else {
            m: f"self_attn.{m}_proj" if m in "qkvo" else f"mlp.{m}_proj" for m in NAMES}
        prefix = "base_model.model.transformer.h" if gpt2 else "base_model.model.model.layers"
        worst = 0
        for (layer, matrix, half), mine in ours.items():
            want = theirs[f"{prefix}.{layer}.{modules[matrix]}.lora_{half}.default.weight"]
            assert want.shape == mine.shape and np.abs(want).max() > 0, (name, matrix)
            worst = max(worst, float(np.abs(want - mine).max() / np.abs(want).max()))
        assert len(ours) == len(theirs), (name, len(ours), len(theirs))
        print(f"{name}: {len(ours)} matrices, loss {loss.item():.4f}, max relative error {worst:.1e}")
        assert worst < TOLERANCE, name


if __name__ == "__main__":
    main()
