"""A hundred steps of a small GPT-2 and a small Qwen3 beside the same training written in PyTorch.

curve_tool trains in double precision (the vector-Jacobian products of chapter 1/03, chained) and in single precision (the kernels),
and writes down the initial weights and every batch. Here the model, the objective, the clipping and the optimizer are written again in
PyTorch. In double precision the losses of all steps agree within 1e-9. In single precision every order of summation gives another curve;
PyTorch itself gives one with one thread and may give another with two. Ours must be as near to the curve in double as PyTorch's are.
"""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F

TOOL = pathlib.Path(os.environ.get("ROSE_BIN", "build/cpu/bin")) / "curve_tool"
STEPS = 100


def norm(s, w, name, x):
    if s["family"] == "gpt2":
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], s["norm_eps"])
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + s["norm_eps"]) * w[name + ".weight"]


def linear(w, name, x):
    return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))


def heads(s, w, name, x, count, turn):
    y = linear(w, name, x).unflatten(-1, (count, s["head_dim"]))
    if s["family"] == "qwen3" and turn:
        y = norm(s, w, name + "_norm", y)
        angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * torch.tensor(s["frequencies"], dtype=torch.float64)
        cos, sin = angle.cos().to(x.dtype)[:, None], angle.sin().to(x.dtype)[:, None]
        a, b = y.chunk(2, -1)
        y = torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
    return y.transpose(-2, -3)


def logits(s, w, ids):
    x = F.embedding(ids, w["embed.weight"])
    if s["family"] == "gpt2":
        x = x + w["pos_embed.weight"][: ids.shape[-1]]
    for layer in range(s["layers"]):
        at = f"layers.{layer}."
        n = norm(s, w, at + "attn_norm", x)
        q, k, v = (heads(s, w, at + "attn." + c, n, s["heads"] if c == "q" else s["kv_heads"], c != "v") for c in "qkv")
        k, v = (t.repeat_interleave(s["heads"] // s["kv_heads"], 1) for t in (k, v))
        x = x + linear(w, at + "attn.o", F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(-2, -3).flatten(-2))
        m = norm(s, w, at + "ffn_norm", x)
        up = linear(w, at + "ffn.up", m)
        inner = F.gelu(up, approximate="tanh") if s["family"] == "gpt2" else F.silu(linear(w, at + "ffn.gate", m)) * up
        x = x + linear(w, at + "ffn.down", inner)
    return F.linear(norm(s, w, "norm", x), w["embed.weight"])


def train(s, initial, batches, dtype):
    w = {p["name"]: torch.tensor(initial[p["name"]], dtype=dtype, requires_grad=True) for p in s["parameters"]}
    groups = {}
    for p in s["parameters"]:
        groups.setdefault(p["decay"], []).append(w[p["name"]])
    optimizer = torch.optim.AdamW([{"params": v, "weight_decay": d} for d, v in groups.items()], betas=(s["beta1"], s["beta2"]), eps=s["epsilon"])
    losses = []
    for step in range(s["steps"]):
        parts = batches[step]
        weight = sum(int((t >= 0).sum()) for _, t in parts)
        optimizer.zero_grad()
        total = 0.0
        for ids, targets in parts:
            z = logits(s, w, ids).flatten(0, 1)
            loss = F.cross_entropy(z, targets.flatten(), ignore_index=-1, reduction="sum") / weight
            loss.backward()
            total += loss.item()
        losses.append(total)
        length = math.sqrt(sum(float(v.grad.double().square().sum()) for v in w.values()))
        for v in w.values():
            v.grad *= min(1.0, s["clip"] / length)
        for group in optimizer.param_groups:
            group["lr"] = s["rates"][step]
        optimizer.step()
    return np.array(losses)


def compare(family, folder):
    subprocess.run([str(TOOL), family, str(STEPS), str(folder)], check=True)
    s = json.loads((folder / "settings.json").read_text())
    curves = {k: np.array(v) for k, v in json.loads((folder / "curves.json").read_text()).items()}
    raw, initial, at = np.fromfile(folder / "weights.f32", np.float32), {}, 0
    for p in s["parameters"]:
        n = math.prod(p["shape"])
        initial[p["name"]] = raw[at : at + n].reshape(p["shape"])
        at += n
    tokens = np.fromfile(folder / "batches.i32", np.int32).reshape(s["steps"], s["micro_batches"], 2, s["rows"], s["context"]).astype(np.int64)
    batches = [[(torch.tensor(m[0]), torch.tensor(m[1])) for m in step] for step in tokens]
    torch.set_num_threads(1)
    exact, one = train(s, initial, batches, torch.float64), train(s, initial, batches, torch.float32)
    torch.set_num_threads(2)
    two = train(s, initial, batches, torch.float32)
    torch.set_num_threads(1)

    def apart(a, b):
        return float(np.abs(a - b).max())

    in_double, ours = apart(curves["fp64"], exact), apart(curves["fp32"], exact)
    theirs = max(apart(one, exact), apart(two, exact))
    print(f"{family}: loss {exact[0]:.3f} -> {exact[-1]:.3f} in {STEPS} steps")
    print(f"  double: ours and PyTorch's at most {in_double:.1e} apart")
    print(f"  single: at most {ours:.1e} from double; PyTorch's {theirs:.1e}; its own with one and two threads {apart(one, two):.1e} apart; "
          f"ours and PyTorch's {apart(curves['fp32'], one):.1e} apart")
    assert exact[-1] < 0.75 * exact[0], "nothing was learnt"
    assert in_double < 1e-9, f"{family}: {in_double}"
    assert ours < 2 * theirs, f"{family}: {ours} against {theirs}"


def main():
    for family in ("gpt2", "qwen3"):
        with tempfile.TemporaryDirectory() as folder:
            compare(family, pathlib.Path(folder))


if __name__ == "__main__":
    sys.exit(main())
