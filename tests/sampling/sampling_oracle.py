#!/usr/bin/env python3
"""The distribution that a request's settings leave, against Hugging Face transformers' logits processors. Presence and frequency
penalties, which transformers lacks, follow the OpenAI interface's published formula."""
import json
import os
import random
import subprocess
import sys

import torch
from transformers.generation import logits_process as hf

tool = subprocess.Popen([os.path.join(os.environ["ROSE_BIN"], "sampling_tool")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                        text=True)
failures = skipped = 0
r = random.Random(1)
generator = torch.Generator().manual_seed(1)
cases = 400
for case in range(cases):
    vocab = r.choice([5, 40, 300])
    logits = (torch.randn(vocab, generator=generator) * r.choice([1, 3])).tolist()
    prompt = [r.randrange(vocab) for _ in range(r.randrange(6))]
    answer = [r.randrange(vocab) for _ in range(r.randrange(6))]
    asked = {}
    for key, value in [("temperature", r.uniform(0.3, 2)), ("top_k", r.randrange(1, vocab + 5)), ("top_p", r.uniform(0.1, 0.99)),
                       ("min_p", r.uniform(0, 0.5)), ("repetition_penalty", r.uniform(0.5, 2)),
                       ("presence_penalty", r.uniform(-2, 2)), ("frequency_penalty", r.uniform(-2, 2))]:
        if r.random() < 0.5:
            asked[key] = value
    if r.random() < 0.4:
        asked["logit_bias"] = {str(v): r.uniform(-5, 5) for v in r.sample(range(vocab), 3)}
    request = {"logits": logits, "prompt": prompt, "answer": answer, "seed": case, **asked}
    tool.stdin.write(json.dumps(request) + "\n")
    tool.stdin.flush()
    ours = json.loads(tool.stdout.readline())

    z = torch.tensor(logits, dtype=torch.float64)
    for v, value in asked.get("logit_bias", {}).items():
        z[int(v)] += value
    z = z[None]
    context = torch.tensor([prompt + answer])
    if "repetition_penalty" in asked and context.numel():
        z = hf.RepetitionPenaltyLogitsProcessor(asked["repetition_penalty"])(context, z)
    for v in set(answer):
        z[0, v] -= asked.get("frequency_penalty", 0) * answer.count(v) + asked.get("presence_penalty", 0)
    z = z / asked.get("temperature", 1)
    if "top_k" in asked:
        z = hf.TopKLogitsWarper(asked["top_k"])(context, z)
    if "top_p" in asked:
        mass = torch.softmax(z, -1).sort(descending=True).values.cumsum(-1)
        if (mass - asked["top_p"]).abs().min() < 1e-5:  # rounding decides
            skipped += 1
            continue
        z = hf.TopPLogitsWarper(asked["top_p"])(context, z)
    if "min_p" in asked:
        z = hf.MinPLogitsWarper(asked["min_p"])(context, z)
    expected = torch.log_softmax(z, -1)[0]
    kept = expected > -1e30
    order = expected.argsort(descending=True, stable=True)[: min(20, int(kept.sum()))].tolist()
    top = [i for i, _ in ours["top"]]
    error = max([abs(expected[i].item() - p) for i, p in ours["top"]] + [abs(expected[ours["token"]].item() - ours["logprob"])])
    if top != order or error > 2e-5:
        failures += 1
        print("WRONG:", asked, "ours", ours["top"][:5], "transformers", [(i, expected[i].item()) for i in order[:5]], error)
tool.stdin.close()
tool.wait()
print(f"{cases - skipped} distributions agree with transformers ({skipped} left to rounding)" if not failures else f"{failures} wrong")
sys.exit(1 if failures or tool.returncode else 0)
