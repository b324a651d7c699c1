"""Steps of our Muon against torch.optim.Muon: with its rounding to bf16 replaced by float64, and as it is."""
import os
import subprocess
import sys
import tempfile
import unittest

import numpy
import torch

TOOL = os.path.join(os.environ["ROSE_BIN"], "muon_tool")
STEPS = 4


def ours(rows, cols, like_adamw):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "steps")
        subprocess.run([TOOL, str(rows), str(cols), str(STEPS), str(int(like_adamw)), path], check=True)
        values = torch.from_numpy(numpy.fromfile(path, numpy.float32)).view(STEPS + 2, rows, cols)
    return values[0], values[1:-1], values[-1]


def theirs(before, gradients, like_adamw, exact):
    weight = torch.nn.Parameter(before.to(torch.float64) if exact else before.clone())
    optimizer = torch.optim.Muon([weight], lr=0.02, weight_decay=0.1, momentum=0.95, nesterov=True,
                                 adjust_lr_fn="match_rms_adamw" if like_adamw else "original")
    rounding = torch.Tensor.bfloat16
    if exact:
        torch.Tensor.bfloat16 = lambda self: self.clone()
    try:
        for gradient in gradients:
            weight.grad = gradient.to(weight.dtype)
            optimizer.step()
    finally:
        torch.Tensor.bfloat16 = rounding
    return weight.detach().to(torch.float64)


class Muon(unittest.TestCase):
    def test_steps(self):
        for rows, cols in ((16, 16), (24, 40), (96, 33), (1, 50), (128, 352)):
            for like_adamw in (False, True):
                before, gradients, after = ours(rows, cols, like_adamw)
                for exact, bound in ((True, 2e-5), (False, 0.06)):
                    want = theirs(before, gradients, like_adamw, exact)
                    error = ((after.to(torch.float64) - want).norm() / (want - before).norm()).item()
                    print(f"{rows} x {cols}, like_adamw {like_adamw}, exact {exact}: {error:.2e}")
                    self.assertLess(error, bound)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
