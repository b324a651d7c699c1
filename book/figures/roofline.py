#!/usr/bin/env python3
"""Makes what the roofline explorer starts from: the machines, out of the store of facts and the records of benches, and the
table that stands there without scripts.

    roofline.py [--check]      --check compares instead of writing
"""
import datetime
import json
import pathlib
import sys

import yaml

FILE = pathlib.Path(__file__).with_suffix(".json")
ROOT = FILE.parent.parent.parent


def facts():
    return {fact["id"]: fact for fact in yaml.safe_load((ROOT / "citations/facts/hardware.yaml").read_text(encoding="utf-8"))}


def record(bench):
    files = sorted((ROOT / "benchmarks/results" / bench).glob("nvidia-h200-*.json"), key=lambda path: json.loads(path.read_text())["date"])
    return json.loads(files[-1].read_text(encoding="utf-8"))


def machines():
    """Rates in 10^12 per second."""
    known = facts()

    def disclosed(name, machine, bf16):
        return {"name": name, "bf16": known[f"{machine}-{bf16}"]["value"], "fp32": known[f"{machine}-fp32-peak"]["value"],
                "bandwidth": known[f"{machine}-memory-bandwidth"]["value"],
                "about": f"The ceilings are the maker's ({machine}-{bf16}, {machine}-fp32-peak and {machine}-memory-bandwidth in the index of facts)."}

    gemm, fp32, read = record("gemm-bf16-shapes"), record("gemm-fp32-4096"), record("paged-decode-64x4k")
    best = max(2 * s["m"] * s["n"] * s["k"] / s["us"] / 1e6 for s in gemm["config"]["shapes"])
    measured = {"name": "NVIDIA H200, measured", "bf16": round(best, 1), "fp32": round(fp32["config"]["flops"] / fp32["median"] / 1e6, 1),
                "bandwidth": round(read["limit"]["value"] / 1000, 3),
                "about": f"The ceilings were reached here on {read['date']}: the best product of gemm-bf16-shapes, gemm-fp32-4096, plain reads of paged-decode-64x4k."}
    return [disclosed("NVIDIA H200", "h200", "bf16-dense-peak"), measured, disclosed("NVIDIA H100 SXM", "h100-sxm", "bf16-dense-peak"),
            disclosed("NVIDIA A100 SXM 80GB", "a100-sxm-80gb", "bf16-dense-peak")]


def linear(m, n, k, s=2):
    return 2 * m * n * k, s * (n * k + m * k + m * n)


def prefill(t, h, g, d, s=2):
    return 2 * h * d * t * (t + 1), 2 * s * t * d * (h + g)


def decode(b, t, h, g, d, s=2):
    return 4 * b * h * d * t, 2 * s * b * d * (g * t + h)


def norm(r, c, s=2):
    return 4 * r * c, s * (2 * r * c + c)


def size(value):
    """As figures.js shows a number: three digits and a prefix."""
    for prefix in ["", "k", "M", "G", "T", "P"]:
        if value < 999.5:
            return f"{float(f'{value:.3g}'):g} {prefix}".rstrip()
        value /= 1000
    raise ValueError(value)


def rows(machine):
    for name, (flops, bytes_) in [
        ("linear layer, 1 row, 4096 × 4096", linear(1, 4096, 4096)),
        ("linear layer, 256 rows, 4096 × 4096", linear(256, 4096, 4096)),
        ("linear layer, 4096 rows, 4096 × 4096", linear(4096, 4096, 4096)),
        ("causal attention, 4096 tokens, 32 heads of 128, 8 of keys", prefill(4096, 32, 8, 128)),
        ("attention of one new token, 64 sequences of 4096 keys, as above", decode(64, 4096, 32, 8, 128)),
        ("RMSNorm, 4096 rows of 4096", norm(4096, 4096)),
    ]:
        work, traffic = flops / machine["bf16"] / 1e12, bytes_ / machine["bandwidth"] / 1e12
        yield [name, size(flops) + "flop", size(bytes_) + "B", f"{float(f'{flops / bytes_:.3g}'):g}", f"{float(f'{max(work, traffic) * 1e6:.3g}'):g} µs",
               "arithmetic" if work > traffic else "memory"]


def agree(kept, made):
    """What is disclosed is the same; what was measured is within the spread of measurements, so that a new record needs no new figure."""
    return len(kept) == len(made) and all(
        old["name"] == new["name"] and all(abs(old[key] / new[key] - 1) <= (0.05 if "measured" in new["name"] else 0) for key in ("bf16", "fp32", "bandwidth"))
        for old, new in zip(kept, made))


def main():
    made = {"columns": ["operation, bf16", "operations", "bytes", "intensity", "no faster than", "bound by"], "state": {"machines": machines()}}
    made["rows"] = list(rows(made["state"]["machines"][0]))
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    same = bool(kept) and all(kept[key] == made[key] for key in ("columns", "rows")) and agree(kept["state"]["machines"], made["state"]["machines"])
    if "--check" in sys.argv:
        print(f"{FILE.name}: " + ("as the stores have it" if same else "the stores have other numbers: run roofline.py again"))
        return 0 if same else 1
    date = kept["recorded"] if same else datetime.date.today().isoformat()
    FILE.write_text(json.dumps({"recorded": date, "by": "book/figures/roofline.py, for the first machine"} | made, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
