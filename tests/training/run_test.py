"""`rose train` as a person uses it: a configuration, a mistake, Ctrl-C, going on, a full disk, and a model to talk to."""
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import unittest

ROSE = os.path.join(os.environ["ROSE_BIN"], "rose")
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CONFIG = """
name: tiny
steps: 30
model: {family: llama, layers: 1, hidden: 32, heads: 2, kv_heads: 1, head_dim: 16, ffn: 64, max_positions: 64, tied_head: true}
tokenizer: {vocabulary: 320}
data: {text: [TEXT]}
batch: {context: 32, rows: 2, tokens: 128}
optimizer: {rate: 1e-2, warmup: 5}
every: {validate: 10, checkpoint: 10}
"""


def train(*arguments, **options):
    return subprocess.run([ROSE, "train", *map(str, arguments)], capture_output=True, text=True, timeout=120, **options)


class Train(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)
        text = ROOT / "book/1-foundations/18-a-first-training-run.md"
        self.config = self.folder / "tiny.yaml"
        self.config.write_text(CONFIG.replace("TEXT", str(text)))

    def tearDown(self):
        self.scratch.cleanup()

    def test_a_run_leaves_a_model_that_generates(self):
        out = self.folder / "run"
        done = train("--config", self.config, "--out", out, "--optimizer.rate=2e-2", "--set", "seed=5")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("done: loss", done.stdout)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        losses = [line["loss"] for line in lines if "loss" in line]
        self.assertEqual(len(losses), 30)
        self.assertLess(losses[-1], losses[0])
        self.assertIn("  rate: 0.02", (out / "config.yaml").read_text())
        self.assertIn("<svg", (out / "loss.svg").read_text())
        self.assertTrue(list(out.glob("events.out.tfevents.*")))
        checkpoint = out / "checkpoints" / "step-00000030"
        self.assertTrue((checkpoint / "model.safetensors").exists(), done.stdout)
        said = subprocess.run([ROSE, "generate", "--model", checkpoint, "-n", "4", "The loss"], capture_output=True, text=True, timeout=60)
        self.assertEqual(said.returncode, 0, said.stderr)
        again = train("--config", self.config, "--out", out)
        self.assertEqual(again.returncode, 2)
        self.assertIn("already holds a run", again.stderr)

    def test_mistakes_are_named(self):
        for arguments, expected in (
            (("--config", self.config, "--set", "optimizer.weight_deacy=1"), 'did you mean "optimizer.weight_decay"?'),
            (("--config", self.config, "--batch.tokens", "100"), "64 or 128 would be"),
            (("--config", self.config, "--data.text", self.folder / "nowhere"), "there is no text to train on"),
            (("--config", self.folder / "none.yaml"), "none.yaml"),
            (("--config", self.config, "--batch.context=64", "--data.train=[]", "--precision", "bf16"), "precision"),
            ((), "rose train --config FILE"),
        ):
            wrong = train(*arguments, "--out", self.folder / "wrong") if arguments else train()
            self.assertNotEqual(wrong.returncode, 0, arguments)
            self.assertIn(expected, wrong.stderr)

    def test_ctrl_c_saves_and_says_how_to_go_on(self):
        out = self.folder / "parts"
        process = subprocess.Popen([ROSE, "train", "--config", str(self.config), "--set", "steps=5000", "--out", str(out)],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in process.stdout:
            if "validation loss" in line:
                process.send_signal(signal.SIGINT)
                break
        rest, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, errors)
        self.assertIn(f"Go on with: rose train --resume {out}", rest)
        steps = len((out / "metrics.jsonl").read_text().splitlines())
        went_on = train("--resume", out, "--set", f"steps={steps + 20}")
        self.assertEqual(went_on.returncode, 0, went_on.stderr)
        self.assertIn("going on from", went_on.stdout)

    def test_a_full_disk_keeps_the_checkpoint_before(self):
        out = self.folder / "full"
        self.assertEqual(train("--config", self.config, "--out", out).returncode, 0)
        limit = 40_000  # bytes of a file: the logs fit, the weights do not

        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        full = train("--resume", out, "--steps=60", preexec_fn=small_files)
        self.assertEqual(full.returncode, 6, full.stdout + full.stderr)
        self.assertIn("step-00000030 is complete", full.stderr)
        self.assertEqual(train("--resume", out, "--steps=40").returncode, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
