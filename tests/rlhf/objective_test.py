"""Policy objectives and their gradients, beside the same formulas in PyTorch under autograd."""
import json
import os
import subprocess

import torch

TOLERANCE = 1e-12


def average(terms, mask, rows, mode, length=8):
    terms = torch.where(mask, terms, torch.zeros_like(terms))
    sums = torch.stack([terms[a:b].sum() for a, b in rows])
    counts = torch.stack([mask[a:b].sum() for a, b in rows])
    if mode == "token":
        return sums.sum() / counts.sum()
    if mode == "sequence":
        return (sums / counts).mean()
    return sums.mean() if mode == "sum" else (sums / length).mean()


def clipped(r, a, low=.2, high=.2, dual=0):
    term = torch.minimum(r * a, r.clamp(1 - low, 1 + high) * a)
    return torch.where(a < 0, torch.maximum(term, dual * a), term) if dual else term


def objectives(b, mask, rows):
    now, old, drawn, ref, a = (b[k] for k in ("current", "old", "behaviour", "reference", "advantage"))
    r, u, k = (now - old).exp(), (now - drawn).exp(), (old - drawn).exp()
    sequence = torch.cat([((now - old)[s:e][mask[s:e]].mean()).exp().expand(e - s) for s, e in rows])
    carrier = sequence.detach() * (now - now.detach()).exp()
    tau = torch.where(a > 0, torch.full_like(a, 1.0), torch.full_like(a, 1.05))
    kl = (ref - now).exp() - (ref - now) - 1
    moved = (now.exp() - old.exp()).detach()
    far = (a * moved > 0) & (moved.abs() > .05)
    inside = (u.detach() > .7) & (u.detach() < 1.5)
    none = torch.zeros_like(a)
    keep = ((k >= .9) & (k <= 1.1)).to(a.dtype)
    return {
        "reinforce": (a * now, "sum"),
        "ppo": (clipped(r, a), "token"),
        "dual": (clipped(r, a, dual=3), "token"),
        "grpo": (clipped(r, a) - .04 * kl, "sequence"),
        "dapo": (clipped(r, a, .2, .28), "token"),
        "dr_grpo": (clipped(r, a), "constant"),
        "gspo": (clipped(sequence, a, .02, .03), "sequence"),
        "gspo_token": (clipped(carrier, a, .02, .03), "sequence"),
        "sapo": (4 / tau * torch.sigmoid(tau * (r - 1)) * a, "sequence"),
        "cispo": (r.detach().clamp(0, 1.2) * a * now, "token"),
        "dis": (torch.where(inside, u.detach() * a * now, none), "token"),
        "dis_attached": (torch.where(inside, u * a * now, none), "token"),
        "aipo": (u.clamp(max=1.2) * a, "token"),
        "decoupled": (k * clipped(r, a), "token"),
        "dppo": (torch.where(far, none, r.detach().clamp(max=1.1) * a * now), "token"),
        "up_grpo": (torch.where(a > 0, (now - now.detach()).exp() * a, clipped(r, a, dual=1.3)), "token"),
        "tis": (k.clamp(max=1.02) * clipped(r, a), "token"),
        "icepop": (keep * k * clipped(r, a), "token"),
    }


def main():
    torch.manual_seed(1)
    batches, lines = [], []
    for _ in range(60):
        lengths = torch.randint(2, 9, (5,)).tolist()
        starts = [0]
        for n in lengths:
            starts.append(starts[-1] + n)
        n = starts[-1]
        mask = torch.rand(n) < .7
        for s in starts[:-1]:
            mask[s] = True
        draw = lambda spread: (old + spread * torch.randn(n, dtype=torch.float64)).clamp(max=-1e-3)
        old = -.1 - 2.5 * torch.rand(n, dtype=torch.float64)
        batch = dict(current=draw(.2), old=old, behaviour=draw(.08), reference=draw(.3),
                     advantage=torch.randn(n, dtype=torch.float64))
        batches.append((batch, mask, list(zip(starts, starts[1:]))))
        lines.append(json.dumps(dict({k: v.tolist() for k, v in batch.items()}, starts=starts, mask=mask.int().tolist())))
    tool = os.path.join(os.environ["ROSE_BIN"], "objective_tool")
    answers = subprocess.run([tool], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True).stdout
    worst, closed = 0.0, {}
    for (batch, mask, rows), line in zip(batches, answers.splitlines(), strict=True):
        ours = json.loads(line)
        names = objectives(batch, mask, rows).keys()
        assert set(names) == set(ours), set(names) ^ set(ours)
        for name in names:
            batch["current"] = batch["current"].detach().requires_grad_()
            terms, mode = objectives(batch, mask, rows)[name]
            value = average(terms, mask, rows, mode)
            value.backward()
            gradient = torch.tensor(ours[name]["weights"], dtype=torch.float64)
            error = max(abs(value.item() - ours[name]["value"]), (batch["current"].grad - gradient).abs().max().item())
            worst = max(worst, error)
            assert error < TOLERANCE, (name, error)
            closed[name] = closed.get(name, 0) + int((gradient[mask] == 0).sum())
    for name in ("ppo", "dual", "dapo", "gspo", "dis", "aipo", "dppo", "up_grpo", "icepop"):
        assert closed[name] > 0, f"no gate of {name} ever closed"
    print(f"{len(closed)} objectives, {len(batches)} batches, largest error {worst:.1e}")


if __name__ == "__main__":
    main()
