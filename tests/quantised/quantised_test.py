"""Checkpoints in the layouts of GPTQ, AWQ, compressed-tensors and eight-bit floats, read by us, beside transformers on what they stand for.

The packing here is written from the layouts alone, with other operations than ours: whole tensors, shifts and sums. A random model's matrices are
rounded to the format, packed, and written as such libraries write them; the oracle is transformers on the same matrices, dequantised and rounded to
bf16 as our kernels round them. Reading eight-bit floats in blocks is also shown to transformers' own loader.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config

TOLERANCE = 2e-4
TOOL = pathlib.Path(os.environ.get("ROSE_BIN", "build/cpu/bin")) / "logits_tool"
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
SIZES = dict(vocab_size=211, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0)


def our_logits(folder, ids):
    np.array(ids, dtype=np.int32).tofile(folder / "ids")
    done = subprocess.run([TOOL, "logits", folder, folder / "ids", folder / "out"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return np.fromfile(folder / "out", dtype=np.float32).reshape(len(ids), -1)


def refusal(folder):
    np.array([1, 2], dtype=np.int32).tofile(folder / "ids")
    done = subprocess.run([TOOL, "logits", folder, folder / "ids", folder / "out"], capture_output=True, text=True)
    assert done.returncode != 0, "this should have been refused"
    return done.stderr + done.stdout


def as_int32(numbers):
    """Eight numbers of four bits, the lowest bits first, along the last axis."""
    words = numbers.to(torch.int64).reshape(*numbers.shape[:-1], -1, 8)
    total = (words << (4 * torch.arange(8))).sum(-1)
    return torch.where(total >= 1 << 31, total - (1 << 32), total).to(torch.int32)


def round_to_groups(w, group, bits, symmetric, order=None):
    """[N, K] -> whole numbers from 0, scales [N, G] and zero points [N, G]; order gives each column's group."""
    n, k = w.shape
    most = 2**bits - 1
    order = torch.arange(k) // group if order is None else order
    groups = int(order.max()) + 1
    q, scales, zeros = torch.zeros(n, k, dtype=torch.int64), torch.zeros(n, groups), torch.zeros(n, groups, dtype=torch.int64)
    for g in range(groups):
        part = w[:, order == g]
        if symmetric:
            scale = part.abs().amax(1) / (most // 2)
            zero = torch.full((n,), (most + 1) // 2)
        else:
            low, high = part.amin(1).clamp(max=0), part.amax(1).clamp(min=0)
            scale = (high - low) / most
            zero = (-low / scale).round().clamp(1, most)
        scale = scale.half().float()
        q[:, order == g] = (part / scale[:, None] + zero[:, None]).round().clamp(0, most).long()
        scales[:, g], zeros[:, g] = scale, zero.long()
    plain = (q - zeros[:, order]).float() * scales[:, order]
    return q, scales, zeros, plain.bfloat16().float()


def gptq(w, group, symmetric, order=None, less_one=1):
    q, scales, zeros, plain = round_to_groups(w, group, 4, symmetric, order)
    k = w.shape[1]
    index = torch.arange(k) // group if order is None else order
    parts = {"qweight": as_int32(q).t().contiguous(), "qzeros": as_int32((zeros - less_one).t()), "scales": scales.t().half().contiguous(),
             "g_idx": index.to(torch.int32)}
    return parts, plain


def awq(w, group):
    q, scales, zeros, plain = round_to_groups(w, group, 4, False)
    def interleave(numbers):  # [rows, N]: within eight outputs, place i holds output 0, 2, 4, 6, 1, 3, 5, 7
        return as_int32(numbers.reshape(numbers.shape[0], -1, 8)[..., [0, 2, 4, 6, 1, 3, 5, 7]].reshape(numbers.shape[0], -1))
    return {"qweight": interleave(q.t()), "qzeros": interleave(zeros.t()), "scales": scales.t().half().contiguous()}, plain


def compressed(w, group, symmetric):
    q, scales, zeros, plain = round_to_groups(w, group, 4, symmetric)
    parts = {"weight_packed": as_int32(q), "weight_scale": scales.bfloat16().float(), "weight_shape": torch.tensor(w.shape)}
    plain = ((q - zeros.repeat_interleave(group, 1)).float() * parts["weight_scale"].repeat_interleave(group, 1)).bfloat16().float()
    if not symmetric:
        parts["weight_zero_point"] = as_int32(zeros.t()).t().contiguous()
    return parts, plain


def compressed_int8(w):
    scale = w.abs().amax(1, keepdim=True) / 127
    q = (w / scale).round()
    words = (q.to(torch.int64) + 128).reshape(w.shape[0], -1, 4)
    total = (words << (8 * torch.arange(4))).sum(-1)
    return {"weight_packed": torch.where(total >= 1 << 31, total - (1 << 32), total).to(torch.int32), "weight_scale": scale,
            "weight_shape": torch.tensor(w.shape)}, (q * scale).bfloat16().float()


def fp8(w, granularity, suffix="weight_scale"):
    n, k = w.shape
    if granularity == "tensor":
        scale = (w.abs().max() / 448).reshape(1)
        wide = scale.reshape(1, 1)
    elif granularity == "row":
        scale = wide = w.abs().amax(1, keepdim=True) / 448
    else:
        blocks = torch.nn.functional.pad(w, (0, -k % 128, 0, -n % 128)).reshape(-(-n // 128), 128, -(-k // 128), 128)
        scale = blocks.abs().amax((1, 3)) / 448
        wide = scale.repeat_interleave(128, 0)[:n].repeat_interleave(128, 1)[:, :k]
    q = (w / wide).to(torch.float8_e4m3fn)
    parts = {"weight": q, suffix: scale}
    if granularity != "block":
        parts["input_scale"] = torch.tensor([1.0])
    return parts, (q.float() * wide).bfloat16().float()


def scattered(columns):
    return torch.tensor([(5 * i + 3) % (columns // 32) for i in range(columns)])


GPTQ = dict(quant_method="gptq", bits=4, group_size=32)
CT = dict(quant_method="compressed-tensors")
WHOLE = dict(num_bits=4, type="int", strategy="group", group_size=32)
CASES = {
    "gptq": (lambda w: gptq(w, 32, False), dict(GPTQ, desc_act=False, sym=False)),
    "gptq, symmetric, second format": (lambda w: gptq(w, 32, True, less_one=0), dict(GPTQ, sym=True, checkpoint_format="gptq_v2")),
    "gptq, reordered columns": (lambda w: gptq(w, 32, False, scattered(w.shape[1])), dict(GPTQ, desc_act=True)),
    "gptq, whole rows": (lambda w: gptq(w, w.shape[1], True), dict(GPTQ, group_size=-1)),
    "awq": (lambda w: awq(w, 64), dict(quant_method="awq", bits=4, group_size=64, zero_point=True, version="gemm")),
    "compressed-tensors, int4": (lambda w: compressed(w, 32, True), dict(CT, format="pack-quantized", config_groups={"group_0": {"weights": WHOLE}})),
    "compressed-tensors, int4 with zero points":
        (lambda w: compressed(w, 32, False), dict(CT, format="pack-quantized", config_groups={"group_0": {"weights": WHOLE}})),
    "compressed-tensors, int8": (lambda w: compressed_int8(w), dict(
        CT, format="pack-quantized", config_groups={"group_0": {"weights": dict(num_bits=8, type="int", strategy="channel")}})),
    "compressed-tensors, fp8 by rows": (lambda w: fp8(w, "row"), dict(
        CT, format="float-quantized", config_groups={"group_0": {"weights": dict(num_bits=8, type="float", strategy="channel")}})),
    "compressed-tensors, fp8 by tensors": (lambda w: fp8(w, "tensor"), dict(
        CT, format="float-quantized", config_groups={"group_0": {"weights": dict(num_bits=8, type="float", strategy="tensor")}})),
    "fp8 in blocks": (lambda w: fp8(w, "block", "weight_scale_inv"), dict(quant_method="fp8", weight_block_size=[128, 128], activation_scheme="dynamic")),
}


def main():
    torch.manual_seed(5)
    ids = torch.randint(0, SIZES["vocab_size"], (40,)).tolist()
    for number, (name, (pack, described)) in enumerate(CASES.items()):
        config = (LlamaConfig if number % 2 == 0 else Qwen3Config)(**SIZES, head_dim=32, tie_word_embeddings=number % 2 == 1)
        model = AutoModelForCausalLM.from_config(config).float().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                noise = torch.randn_like(parameter)
                parameter.copy_(0.12 * noise if parameter.dim() == 2 else parameter + 0.3 * noise)
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            model.save_pretrained(folder)
            tensors = load_file(folder / "model.safetensors")
            state = model.state_dict()
            for key in list(tensors):
                if not key.endswith(".weight") or key.split(".")[-2] not in LINEAR:
                    continue
                if "layers.1.self_attn.o_proj" in key:
                    continue  # a module that the library left alone
                parts, plain = pack(tensors.pop(key))
                tensors.update({key.removesuffix("weight") + part: value.contiguous() for part, value in parts.items()})
                state[key].copy_(plain)
            save_file(tensors, folder / "model.safetensors")
            settings = json.loads((folder / "config.json").read_text())
            settings["quantization_config"] = described
            (folder / "config.json").write_text(json.dumps(settings))
            ours = our_logits(folder, ids)
            with torch.no_grad():
                theirs = model(torch.tensor([ids])).logits[0].numpy()
            error, spread = float(np.abs(ours - theirs).max()), float(theirs.std())
            print(f"{name}: max |error| {error:.2e} where logits have standard deviation {spread:.2f}")
            assert error < TOLERANCE and spread > 0.1, name
            if name == "fp8 in blocks":
                by_transformers(folder, ids, ours)
            if name == "gptq":
                refusals(folder, settings)
    print("ok")


def by_transformers(folder, ids, ours):
    from transformers import FineGrainedFP8Config

    try:
        model = AutoModelForCausalLM.from_pretrained(folder, quantization_config=FineGrainedFP8Config(dequantize=True), dtype=torch.float32).eval()
    except (ImportError, RuntimeError, ValueError) as error:
        print("transformers' own loader is not usable here:", str(error).splitlines()[0])
        return
    with torch.no_grad():
        theirs = model(torch.tensor([ids])).logits[0].float().numpy()
    error = float(np.abs(ours - theirs).max())
    print(f"  transformers' own loader: max |difference| {error:.2e}")
    assert error < 0.2, error  # it does not round what it has dequantised to bf16


def refusals(folder, settings):
    for change, words in ((dict(bits=3), "3 bits"), (dict(quant_method="bitsandbytes"), "bitsandbytes"), (dict(checkpoint_format="marlin"), "marlin")):
        settings["quantization_config"] = dict(GPTQ, **change)
        (folder / "config.json").write_text(json.dumps(settings))
        assert words in refusal(folder), (words, refusal(folder))
    settings["quantization_config"] = dict(GPTQ, group_size=64)
    (folder / "config.json").write_text(json.dumps(settings))
    assert "does not belong" in refusal(folder), refusal(folder)


if __name__ == "__main__":
    sys.exit(main())
