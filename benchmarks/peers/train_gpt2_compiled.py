"""PyTorch compiled, training GPT-2 124M on the GPU: the peer of train-gpt2-124m.

    train_gpt2_compiled.py

Speaks the pair protocol of benchmarks/README.md. A sample is the rate of four training steps (forward, cross-entropy, backward,
clipped fused AdamW) in tokens/s: nanoGPT's model with biases, 12 blocks of width 768, 12 heads, GELU of 3,072, tied embeddings of
50,304 tokens, 64 windows of 1,024 tokens, bf16 autocast over fp32 weights, TF32 allowed, torch.compile. Windows are passed in
micro-batches of the first size in the list that fits and runs.
"""

import json
import sys
import time

import torch
import torch.nn.functional as F

LAYERS, WIDTH, HEADS, FFN, VOCABULARY, ROWS, CONTEXT, STEPS = 12, 768, 12, 3072, 50304, 64, 1024, 4
torch.manual_seed(7)
torch.set_float32_matmul_precision("high")


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, FFN), torch.nn.Linear(FFN, WIDTH)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, HEADS, c // HEADS).transpose(1, 2) for part in self.qkv(self.norm_1(x)).split(c, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.positions = torch.nn.Embedding(VOCABULARY, WIDTH), torch.nn.Embedding(CONTEXT, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = torch.nn.LayerNorm(WIDTH)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.02)

    def forward(self, ids, targets):
        x = self.embed(ids) + self.positions(torch.arange(CONTEXT, device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.embed.weight)
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


class Run:
    def __init__(self, micro):
        self.micro = micro
        plain = Model().cuda()
        groups = [{"params": [p for p in plain.parameters() if p.dim() > 1], "weight_decay": 0.1},
                  {"params": [p for p in plain.parameters() if p.dim() == 1], "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True)
        self.parameters = list(plain.parameters())
        self.model = torch.compile(plain)
        self.ids = torch.randint(50257, (ROWS, CONTEXT), device="cuda")
        self.targets = torch.roll(self.ids, -1, 1)

    def steps(self, count):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            parts = ROWS // self.micro
            for i in range(parts):
                rows = slice(i * self.micro, (i + 1) * self.micro)
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = self.model(self.ids[rows], self.targets[rows])
                (loss / parts).backward()
            torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        loss.item()
        torch.cuda.synchronize()
        return count * ROWS * CONTEXT / (time.perf_counter() - start)


run = None
for micro in (64, 32, 16):
    try:
        run = Run(micro)
        run.steps(2)
        break
    except torch.cuda.OutOfMemoryError:
        run = None
        torch.cuda.empty_cache()
if run is None:
    sys.exit("train_gpt2_compiled.py: out of memory at every size")
run.steps(2)
print(json.dumps({"name": "PyTorch compiled", "version": torch.__version__,
                  "settings": f"torch.compile, bf16 autocast, fused AdamW, micro-batches of {micro} windows"}), flush=True)
for line in sys.stdin:
    if line.strip() == "run":
        print(json.dumps({"value": run.steps(STEPS)}), flush=True)
