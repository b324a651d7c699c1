#!/usr/bin/env python3
"""How long the steps of a run have waited for data: `rose train` on a GPU, a step as large as memory and text allow, from shards on disk.

    stalls.py ROSE FOLDER [OVERRIDE …]     FOLDER holds tokens/ and words/
"""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def main():
    rose, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    out = folder / "run"
    settings = ["steps=60", "batch.rows=32", "batch.tokens=65536", "optimizer.warmup=10", "every.log=1", "every.validate=0", "every.sample=0",
                "every.checkpoint=0", f"data.train={folder}/tokens", "data.validation=", f"tokenizer.from={folder}/words/tokenizer.json",
                *sys.argv[3:]]
    done = subprocess.run([rose, "train", "--config", ROOT / "configs/gpt2-124m.yaml", "--out", out, *(w for s in settings for w in ("--set", s))],
                          stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"rose train ended with status {done.returncode}")
    lines = [json.loads(line) for line in (out / "timing.jsonl").read_text().splitlines()]
    seconds = sum(line["seconds"] for line in lines)
    rates = sorted(line["tokens_per_second"] for line in lines)
    share = 100 * lines[-1]["stalled_seconds"] / seconds
    print(json.dumps({"median": share, "min": share, "max": share, "samples": len(lines), "warmup": 0, "stalled_seconds": lines[-1]["stalled_seconds"],
                      "step_seconds": seconds, "tokens_per_second": rates[len(rates) // 2], "config": {"settings": settings[:4]}}))


if __name__ == "__main__":
    main()
