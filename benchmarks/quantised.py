#!/usr/bin/env python3
"""What few bits cost in accuracy, and on a GPU what they give in speed.

    quantised.py BIN MODEL [cpu|cuda]

The model as it is beside the same with its blocks packed: perplexity, divergence and logits by `rose compare`, on the text that it
brings. With cuda also the tokens per second of 32 answers of 128 tokens. The last line is a record.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

MODES = [("int8", "int8", []), ("int4", "int4", []), ("fp8", "fp8", []),
         ("kv_fp8", "none", ["--kv-cache-dtype", "fp8", "--calculate-kv-scales"])]


def ran(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stdout + done.stderr


def accuracy(rose, model, mode, options):
    said = ran(rose, "compare", "--model", model, "--quantization", mode, *options)
    numbers = re.search(r"perplexity ([\d.]+) \(unquantised ([\d.]+)\), KL ([\d.]+) nat \(largest ([\d.]+)\), logits within ([\d.]+), "
                        r"same choice ([\d.]+) %, over (\d+) tokens", said)
    keys = ("perplexity", "base_perplexity", "mean_kl_nat", "largest_kl_nat", "largest_logit_difference", "same_choice_percent", "tokens")
    return dict(zip(keys, map(float, numbers.groups())))


def speed(rose, model, mode, options):
    with tempfile.TemporaryDirectory() as folder:
        prompts = pathlib.Path(folder) / "prompts.jsonl"
        lines = [json.dumps({"prompt": f"The story of the number {i} begins"}) for i in range(32)]
        prompts.write_text("\n".join(lines) + "\n", encoding="utf-8")
        said = ran(rose, "generate", "--model", model, "--device", "cuda", "--quantization", mode, *options, "--prompts", prompts,
                   "--out", pathlib.Path(folder) / "out.jsonl", "-n", 128, "--ignore-eos")
    return float(re.search(r"([\d.]+) written per second", said).group(1))


def main():
    rose, model, device = pathlib.Path(sys.argv[1]) / "rose", sys.argv[2], (sys.argv[3:] or ["cpu"])[0]
    modes = {}
    for name, mode, options in MODES:
        modes[name] = accuracy(rose, model, mode, options)
        if device == "cuda":
            modes[name]["tokens_per_second"] = speed(rose, model, mode, options)
        print(name, modes[name], file=sys.stderr)
    record = {"metric": "divergence", "unit": "nat", "better": "lower", "median": modes["int8"]["mean_kl_nat"], "samples": 1, "warmup": 0,
              "modes": modes}
    if device == "cuda":
        record["unquantised_tokens_per_second"] = speed(rose, model, "none", [])
        record.update(metric="rate", unit="tokens/s", better="higher", median=modes["int8"]["tokens_per_second"])
    print(json.dumps(record))


if __name__ == "__main__":
    main()
