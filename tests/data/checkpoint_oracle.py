"""A checkpoint of a training run opens in `transformers`, with the same probabilities."""
import os
import pathlib
import subprocess
import tempfile

import torch
import transformers

transformers.logging.set_verbosity_error()

with tempfile.TemporaryDirectory() as temporary:
    for family in ("gpt2", "llama", "qwen3"):
        folder = pathlib.Path(temporary) / family
        done = subprocess.run([os.path.join(os.environ["ROSE_BIN"], "write_checkpoint"), folder, family],
                              capture_output=True, text=True, timeout=100, check=True)
        ours = torch.tensor([float(line) for line in done.stdout.split()])
        model = transformers.AutoModelForCausalLM.from_pretrained(folder / "step-00000001", dtype=torch.float32)
        ids = torch.tensor([[(i * 37 + 5) % 96 for i in range(40)]])
        targets = torch.tensor([(i * 37 + 42) % 96 for i in range(40)])
        with torch.no_grad():
            theirs = torch.log_softmax(model(ids).logits[0].double(), -1)[torch.arange(40), targets]
        worst = (ours - theirs).abs().max().item()
        print(f"{family}: {type(model).__name__}, largest difference of log probabilities {worst:.2e}")
        assert worst < 1e-5, family
