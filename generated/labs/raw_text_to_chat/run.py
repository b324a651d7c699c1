#!/usr/bin/env python3
# From raw text to a chat, and what it cost.

"""From raw text to a chat: a vocabulary, a model, a conversation, and what it all cost.

    run.py [--size full|small|tiny] [--out FOLDER] [--bin FOLDER] [--packages FOLDER]
           [--replace] [--device auto|cpu|gpu] [--set KEY=VALUE …]
"""
import argparse
import json
import lzma
import pathlib
import shutil
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
import texts  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent

# Of each size: the vocabulary, and what differs from configs/raw-text.yaml and raw-text-chat.yaml.
SIZES = {
    "full": (8192, [], []),
    "small": (4096, [
        "steps=500", "model.layers=4", "model.hidden=192", "model.heads=6", "model.kv_heads=3",
        "model.head_dim=32", "model.ffn=512", "batch.context=256", "batch.rows=8",
        "batch.tokens=2048", "optimizer.rate=3e-3"],
              ["steps=200", "batch.context=256", "batch.rows=8", "batch.tokens=2048",
               "optimizer.rate=1e-3"]),
    "tiny": (448, [
        "steps=30", "model.layers=2", "model.hidden=64", "model.heads=2", "model.kv_heads=1",
        "model.head_dim=32", "model.ffn=128", "batch.context=128", "batch.rows=2",
        "batch.tokens=256", "optimizer.rate=1e-2", "optimizer.warmup=5", "every.validate=10",
        "every.validation_batches=2", "every.sample=30", "every.checkpoint=10"],
             ["steps=10", "batch.context=128", "batch.rows=2", "batch.tokens=256",
              "optimizer.warmup=2", "every.validate=10", "every.sample=10"]),
}


# Measure what each step takes.
class Meter:
    def __init__(self):
        self.seconds, self.joules, self.now = {}, {}, ""
        self.watts, self.done = shutil.which("nvidia-smi") is not None, threading.Event()
        threading.Thread(target=self.sample, daemon=True).start()

    def sample(self):
        command = ["nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits", "-i", "0"]
        last = time.monotonic()
        while self.watts and not self.done.wait(0.2):
            said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
            now = time.monotonic()
            try:
                joules = float(said) * (now - last)
            except ValueError:
                self.watts = False
                return
            self.joules[self.now] = self.joules.get(self.now, 0.0) + joules
            last = now

    def step(self, name, function):
        print(f"\n== {name}", flush=True)
        self.now, start = name, time.monotonic()
        function()
        self.seconds[name] = time.monotonic() - start


# The steps, one after another.
class Pipeline:
    def __init__(self, options):
        self.options, self.out, self.meter = options, options.out, Meter()
        self.vocabulary, self.base_settings, self.chat_settings = SIZES[options.size]
        self.gpu = options.device == "gpu" or (options.device == "auto" and self.meter.watts)

    def rose(self, *arguments):
        command = [str(self.options.bin / "rose"), *map(str, arguments)]
        print("$ rose " + " ".join(command[1:]), flush=True)
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=False)
        if done.returncode != 0:
            raise SystemExit(f"that ended with status {done.returncode}")
        return done.stdout

    def train(self, config, out, settings):
        settings = [*settings, "device=gpu" if self.gpu else "device=cpu",
                    "precision=bf16" if self.gpu else "precision=fp32", *self.options.set]
        words = [word for setting in settings for word in ("--set", setting)]
        print(self.rose("train", "--config", ROOT / "configs" / config, "--out", out, *words), end="")
        lines = texts.read_lines(out / "metrics.jsonl")
        return {key: [line for line in lines if key in line] for key in ("loss", "validation_loss")}

    # Text, pretraining, fine-tuning.
    def read(self):
        self.sizes = texts.write(ROOT, self.options.packages, self.out)
        words = self.out / "vocabulary"
        self.rose("data", "vocabulary", self.out / "text", "--out", words, "--size", self.vocabulary)
        for folder, tokens in (("text", "tokens"), ("held-out-text", "held-out-tokens")):
            self.rose("data", "tokenize", self.out / folder, "--out", self.out / tokens,
                      "--model", words, "--held-out", 0)

    def pretrain(self):
        self.base_run = self.train("raw-text.yaml", self.out / "base", [
            f"tokenizer.from={self.out}/vocabulary/tokenizer.json", f"data.train={self.out}/tokens",
            f"data.validation={self.out}/held-out-tokens/train-00000.bin", *self.base_settings])
        checkpoints = (self.out / "base/checkpoints").glob("step-*")
        saved = {int(folder.name[len("step-"):]): folder for folder in checkpoints}
        judged = [line for line in self.base_run["validation_loss"] if line["step"] in saved]
        self.best = min(judged, key=lambda line: line["validation_loss"])
        self.base = saved[self.best["step"]]
        print(f"of {len(saved)} checkpoints, that of step {self.best['step']} is the best")

    def tune(self):
        self.chat_run = self.train("raw-text-chat.yaml", self.out / "chat", [
            f"model.from={self.base}", f"data.chat={self.out}/chat.jsonl", *self.chat_settings])
        self.chat = max((self.out / "chat/checkpoints").glob("step-*"))

    # Measure on what was held out, beside a compressor.
    def measure(self):
        self.scores = {}
        device = ["--device", "gpu" if self.gpu else "cpu"]
        for name, model in (("base", self.base), ("chat", self.chat)):
            for part in texts.PARTS:
                text = self.rose("eval", "--model", model, "--json", "--task", "endings",
                                 "--data", self.out / "held-out-text" / part, *device)
                said = json.loads(text)["models"][0]
                self.scores[f"{name}/{part}"] = said["text"]
            self.scores[f"{name}/endings"] = said["choices"]["per_byte"]
        for part in texts.PARTS:
            bits = bits_by_xz(self.out / "text", self.out / "held-out-text" / part)
            self.scores[f"xz/{part}"] = {"bits_per_byte": bits}

    # Count what it knows by heart, and talk.
    def talk(self):
        known = texts.read_lines(self.out / "known.jsonl")[:64]
        template = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
        asked, answered = self.out / "asked.jsonl", self.out / "answered.jsonl"
        texts.write_lines(asked, [{"prompt": template.format(question)} for question, _ in known])
        self.rose("generate", "--model", self.chat, "--prompts", asked, "--out", answered,
                  "--device", "cpu", "--temperature", 0, "--max-tokens", 96)
        said = [line["choices"][0]["text"].strip() for line in texts.read_lines(answered)]
        right = sum(text == answer for text, (_, answer) in zip(said, known))
        self.recall = {"right": right, "of": len(known)}
        self.answers = []
        for kind, question in texts.read_lines(self.out / "questions.jsonl"):
            answer = self.rose("chat", "--model", self.chat, "--temperature", 0.7, "--seed", 1,
                               "--max-tokens", 80, question).strip()
            print(f"  {answer}", flush=True)
            self.answers.append({"kind": kind, "question": question, "answer": answer})

    def run(self):
        if self.out.exists() and self.options.replace:
            shutil.rmtree(self.out)
        if self.out.exists():
            raise SystemExit(f"{self.out} exists; name another folder with --out, or --replace it")
        start = time.monotonic()
        for name, step in (("text and vocabulary", self.read), ("pretraining", self.pretrain),
                           ("fine-tuning", self.tune), ("evaluation", self.measure),
                           ("conversation", self.talk)):
            self.meter.step(name, step)
        self.meter.done.set()
        return record_of(self, time.monotonic() - start)


# Write down what came out, and what it cost.
def bits_by_xz(known, unknown):
    """Bits per byte of a text for a compressor that has just read the training text."""
    first, then = (b"".join(file.read_bytes() for file in sorted(folder.rglob("*.txt")))
                   for folder in (known, unknown))
    more = len(lzma.compress(first + then, preset=9)) - len(lzma.compress(first, preset=9))
    return 8 * more / max(1, len(then))


def thinned(lines, key, most=100):
    """Means of neighbours, so that a curve has at most so many points."""
    every = max(1, len(lines) // most)
    groups = [lines[i:i + every] for i in range(0, len(lines), every)]
    return [[group[-1]["step"], round(sum(line[key] for line in group) / len(group), 4)]
            for group in groups]


def cost_of(meter, seconds):
    on_device = ("pretraining", "fine-tuning", "evaluation")
    cost = {"seconds": seconds, "device_seconds": sum(meter.seconds[name] for name in on_device)}
    if meter.watts:
        cost["watt_hours"] = sum(meter.joules.values()) / 3600
        cost["device_watt_hours"] = sum(meter.joules.get(name, 0.0) for name in on_device) / 3600
    return {name: round(value, 2) for name, value in cost.items()}


def record_of(run, seconds):
    base, chat = run.base_run, run.chat_run
    times = texts.read_lines(run.out / "base/timing.jsonl")
    rates = sorted(line["tokens_per_second"] for line in times)
    return {
        "metric": "time", "unit": "s", "better": "lower", "samples": 1, "warmup": 0,
        "median": round(seconds, 1), "cost": cost_of(run.meter, seconds),
        "steps": {name: round(value, 1) for name, value in run.meter.seconds.items()},
        "texts": run.sizes, "tokens": int(base["loss"][-1]["tokens"]),
        "tokens_per_second": round(rates[len(rates) // 2]),
        "loading": {"stalled_seconds": round(times[-1]["stalled_seconds"], 6),
                    "step_seconds": round(sum(line["seconds"] for line in times), 3)},
        "best": {"step": run.best["step"], "loss": round(run.best["validation_loss"], 4)},
        "curve": {"training": thinned(base["loss"], "loss"),
                  "held_out": thinned(base["validation_loss"], "validation_loss")},
        "chat_curve": {"training": thinned(chat["loss"], "loss"),
                       "held_out": thinned(chat["validation_loss"], "validation_loss")},
        "scores": run.scores, "recall": run.recall, "answers": run.answers,
        "written": (run.out / "base/samples.txt").read_text("utf-8").split("--- step ")[1:],
        "seed": 1, "config": {"size": run.options.size, "gpu": run.gpu, "set": run.options.set}}


def summary(record):
    scores, cost = record["scores"], record["cost"]
    energy = f", {cost['watt_hours']} Wh" if "watt_hours" in cost else ""
    lines = [f"from raw text to a chat in {cost['seconds']:.0f} s{energy}"]
    lines += [f"  {name:<20} {seconds:8.1f} s" for name, seconds in record["steps"].items()]
    for part in texts.PARTS:
        bits = [scores[f"{name}/{part}"]["bits_per_byte"] for name in ("base", "chat", "xz")]
        lines.append("  bits per byte of held-out {}: {:.3f} (after fine-tuning {:.3f}; "
                     "xz {:.3f})".format(part, *bits))
    before, after = (scores[f"{name}/endings"]["right"] for name in ("base", "chat"))
    lines.append(f"  endings: {before} of 40 right before fine-tuning, {after} after")
    lines.append("  definitions said word for word: {right} of {of}".format(**record["recall"]))
    return "\n".join(lines)


# Read the command line.
def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "runs/raw-text-to-chat")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/cpu/bin")
    parser.add_argument("--packages", type=pathlib.Path, default=ROOT / "build/packages")
    parser.add_argument("--device", choices=["auto", "cpu", "gpu"], default="auto")
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE, for both trainings")
    parser.add_argument("--replace", action="store_true", help="remove what is in --out")
    options = parser.parse_args()
    for name in ("out", "bin", "packages"):
        setattr(options, name, getattr(options, name).resolve())
    record = Pipeline(options).run()
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    (options.out / "record.json").write_text(text, encoding="utf-8")
    print("\n" + summary(record))
    print(json.dumps(record, ensure_ascii=False))


if __name__ == "__main__":
    sys.exit(main())
