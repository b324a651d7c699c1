"""`rose train` by several processes: the bytes of a run do not depend on how many take its steps, nor on their number changing half-way."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROSE = os.path.join(os.environ["ROSE_BIN"], "rose")
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CONFIG = """
name: shared
steps: 12
device: cpu
model: {family: llama, layers: 1, hidden: 32, heads: 2, kv_heads: 1, head_dim: 16, ffn: 64, max_positions: 64, tied_head: true}
tokenizer: {vocabulary: 320}
data: {text: [TEXT]}
batch: {context: 32, rows: 2, tokens: 512, grad_groups: 4}
optimizer: {rate: 1e-2, warmup: 2}
every: {validate: 6, checkpoint: 4, keep: 9}
"""


class Train(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.config = cls.folder / "shared.yaml"
        cls.config.write_text(CONFIG.replace("TEXT", str(ROOT / "book/1-foundations/18-a-first-training-run.md")))
        cls.whole = cls.folder / "whole"
        done = cls.train(1, "--config", cls.config, "--out", cls.whole)
        assert done.returncode == 0, done.stderr

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    @staticmethod
    def train(processes, *arguments):
        return subprocess.run([ROSE, "launch", "-n", str(processes), "--", "train", *map(str, arguments)], capture_output=True, text=True,
                              timeout=100)

    def same(self, out, step=12):
        for name in ("model.safetensors", "optimizer.safetensors"):
            there = f"checkpoints/step-{step:08}/{name}"
            self.assertEqual((out / there).read_bytes(), (self.whole / there).read_bytes(), (out, there))
        values = [[{k: line[k] for k in ("step", "loss", "gradient_norm") if k in line} for line in
                   map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())] for folder in (out, self.whole)]
        self.assertEqual(*values)

    def test_any_number_of_processes(self):
        for processes in (2, 4):
            out = self.folder / str(processes)
            done = self.train(processes, "--config", self.config, "--out", out)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(done.stdout.count("done: loss"), 1, done.stdout)
            self.assertIn(f"{processes} processes", done.stdout)
            self.same(out)

    def test_their_number_may_change(self):
        out = self.folder / "changing"
        done = self.train(1, "--config", self.config, "--out", out, "--steps", "4")
        self.assertEqual(done.returncode, 0, done.stderr)
        for processes, steps in ((2, 8), (4, 12)):
            done = self.train(processes, "--resume", out, "--steps", steps)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for name in ("model.safetensors",):  # the schedule's end differs, its first steps do not: compare with a run of the same pieces
            one = self.folder / "changing-one"
            for arguments in (("--config", self.config, "--out", one, "--steps", "4"), ("--resume", one, "--steps", "8"),
                              ("--resume", one, "--steps", "12")):
                done = self.train(1, *arguments)
                self.assertEqual(done.returncode, 0, done.stderr)
            there = f"checkpoints/step-00000012/{name}"
            self.assertEqual((out / there).read_bytes(), (one / there).read_bytes())

    def test_a_process_that_dies_takes_the_others_along_and_the_run_goes_on(self):
        out = self.folder / "killed"
        running = subprocess.Popen([ROSE, "launch", "-n", "2", "--", "train", "--config", str(self.config), "--out", str(out), "--steps",
                                    "12"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        while not (out / "checkpoints/step-00000004").exists() and running.poll() is None:
            time.sleep(0.002)
        children = subprocess.run(["pgrep", "-P", str(running.pid)], capture_output=True, text=True).stdout.split()
        start = time.monotonic()
        if children:
            try:
                os.kill(int(children[-1]), signal.SIGKILL)
            except ProcessLookupError:
                pass
        said, _ = running.communicate(timeout=60)
        self.assertLess(time.monotonic() - start, 15)
        if running.returncode != 0:
            if "step 12:" not in said:
                self.assertRegex(said, r"rank \d has gone during")
            done = self.train(4, "--resume", out)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.same(out)

    def test_what_cannot_be_shared_is_said_by_all(self):
        done = self.train(3, "--config", self.config, "--out", self.folder / "three")
        self.assertEqual(done.returncode, 2)
        self.assertIn("3 processes cannot share 4 groups equally", done.stdout)
        done = subprocess.run([ROSE, "launch", "-n", "2", "--", "sh", "-c",
                               f'exec {ROSE} train --config {self.config} --out {self.folder}/differ --seed $RANK'], capture_output=True,
                              text=True, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stdout.count("rank 1 runs"), 2, done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
