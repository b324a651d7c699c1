"""From a text to a model that answers: pretraining, supervised fine-tuning of all weights and of an adapter, and a chat with the result. And the
mistakes that a person makes with conversations."""
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROSE = os.path.join(os.environ["ROSE_BIN"], "rose")
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BASE = """
name: base
steps: 20
model: {family: llama, layers: 2, hidden: 64, heads: 4, kv_heads: 2, head_dim: 16, ffn: 128, max_positions: 128, tied_head: true}
tokenizer: {vocabulary: 400, special: ["<|im_start|>", "<|im_end|>"]}
data: {text: [TEXT]}
batch: {context: 64, rows: 4, tokens: 256}
optimizer: {rate: 1e-2, warmup: 5}
every: {validate: 0, checkpoint: 0}
"""
CHAT = """
name: chat
task: sft
steps: 150
model: {from: BASE}
chat: {template: chatml}
data: {chat: [CONVERSATIONS], held_out: 0}
batch: {context: 96, rows: 2, tokens: 192}
optimizer: {rate: 5e-3, last_rate: 1e-3, warmup: 5, weight_decay: 0}
every: {checkpoint: 0}
"""
TALK = [("What is red?", "A colour."), ("What is seven?", "A number."), ("Who are you?", "I am Rose."), ("Say it again.", "It, again.")]


def rose(*arguments):
    return subprocess.run([ROSE, *map(str, arguments)], capture_output=True, text=True, timeout=120)


def random_of(test):
    seed = int(os.environ.get("ROSE_TEST_SEED", time.time_ns() % 2**32))
    test.addCleanup(lambda: print(f"{test.id()}: ROSE_TEST_SEED={seed}", file=sys.stderr))
    return random.Random(seed)


def write(file, talk):
    lines = [{"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]} for q, a in talk]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


class Chat(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        base = cls.folder / "base.yaml"
        base.write_text(BASE.replace("TEXT", str(ROOT / "book/1-foundations/18-a-first-training-run.md")))
        done = rose("train", "--config", base, "--out", cls.folder / "base")
        assert done.returncode == 0, done.stderr
        cls.base = cls.folder / "base/checkpoints/step-00000020"
        cls.talk = cls.folder / "talk.jsonl"
        write(cls.talk, TALK)
        cls.config = cls.folder / "chat.yaml"
        cls.config.write_text(CHAT.replace("BASE", str(cls.base)).replace("CONVERSATIONS", str(cls.talk)))
        cls.all = cls.folder / "all"
        cls.done = rose("train", "--config", cls.config, "--out", cls.all)
        assert cls.done.returncode == 0, cls.done.stderr
        cls.chatty = cls.all / "checkpoints/step-00000150"

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def losses(self, out):
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        return [line["loss"] for line in lines if "loss" in line]

    def answers(self, talk, *options):
        for question, answer in talk:
            said = rose("chat", *options, "-t", "0", question)
            self.assertEqual(said.returncode, 0, said.stderr)
            self.assertEqual(said.stdout.strip(), answer)

    def test_all_weights(self):
        refused = rose("chat", "--model", self.base, "-t", "0", "Who are you?")
        self.assertIn("no chat template", refused.stderr)
        checkpoint = self.chatty
        self.assertIn("4 conversations: 4 sequences of", self.done.stdout)
        self.assertIn(f"rose chat --model {checkpoint}", self.done.stdout)
        losses = self.losses(self.all)
        self.assertLess(losses[-1], losses[0] / 20)
        self.answers(TALK, "--model", checkpoint)

        from transformers import AutoTokenizer
        tokenizer = AutoTokenizer.from_pretrained(checkpoint)
        text = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True)
        self.assertEqual(text, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")

    def test_killed_at_any_moment(self):
        # Killed three times, each at a random step, and gone on with: the bytes of the run that nobody touched.
        out, moments = self.folder / "killed", random_of(self)
        arguments = ["train", "--config", self.config, "--out", out, "--every.checkpoint", "10", "--every.keep", "2"]
        for _ in range(3):
            stop = moments.randrange(12, 140)
            running = subprocess.Popen([ROSE, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            while running.poll() is None and self.steps(out) < stop:
                time.sleep(0.002)
            running.kill()
            self.assertIn(running.wait(), (0, -signal.SIGKILL), running.stderr.read().decode())
            running.stderr.close()
            if (out / "checkpoints").exists() and list((out / "checkpoints").glob("step-*")):
                arguments = ["train", "--resume", out]
        done = rose(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("model.safetensors", "optimizer.safetensors"):
            self.assertEqual((out / "checkpoints/step-00000150" / name).read_bytes(), (self.chatty / name).read_bytes(), name)

    def steps(self, out):
        file = out / "metrics.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return max((json.loads(line).get("step", 0) for line in lines[-3:] if line.endswith("}")), default=0)

    def test_an_adapter(self):
        # Other answers to the same questions, learnt by an adapter of the model that gives the first ones.
        out = self.folder / "adapter"
        other_talk = [(q, TALK[i - 2][1]) for i, (q, _) in enumerate(TALK)]
        write(self.folder / "other.jsonl", other_talk)
        settings = ("--model.from", self.chatty, "--chat.template", "", "--data.chat", self.folder / "other.jsonl",
                    "--lora.rank", "8", "--lora.dropout", "0.05", "--optimizer.rate", "1e-2", "--every.sample", "150", "--every.keep", "5",
                    "--sample.prompt", "Who are you?", "--sample.temperature", "0")
        before = (self.chatty / "model.safetensors").read_bytes()
        done = rose("train", "--config", self.config, "--out", out, *settings)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(dict(other_talk)["Who are you?"], (out / "samples.txt").read_text())
        self.assertEqual((self.chatty / "model.safetensors").read_bytes(), before)
        checkpoint = out / "checkpoints/step-00000150"
        self.assertFalse((checkpoint / "model.safetensors").exists())
        self.answers(other_talk, "--model", self.chatty, "--adapter", checkpoint)
        self.answers(TALK, "--model", self.chatty)
        # Interrupted after 50 steps and gone on with: the same adapter, byte for byte.
        parts = self.folder / "parts"
        self.assertEqual(rose("train", "--config", self.config, "--out", parts, *settings, "--every.checkpoint", "50").returncode, 0)
        first = parts / "checkpoints/step-00000050"
        self.assertTrue(first.exists())
        for newer in ("step-00000100", "step-00000150"):
            subprocess.run(["rm", "-r", parts / "checkpoints" / newer], check=True)
        again = rose("train", "--resume", parts)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn(f"going on from {first}", again.stdout)
        for name in ("adapter_model.safetensors", "optimizer.safetensors"):
            self.assertEqual((parts / "checkpoints/step-00000150" / name).read_bytes(), (checkpoint / name).read_bytes(), name)
        # PEFT reads it.
        from peft import PeftModel
        from transformers import AutoModelForCausalLM
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(self.chatty), checkpoint)
        self.assertEqual(model.peft_config["default"].r, 8)
        # Exported, it is one model for everybody: ours from a folder and from a GGUF file, theirs with the logits of PEFT.
        merged = self.folder / "merged"
        for target in (merged, self.folder / "merged.gguf"):
            exported = rose("export", "--model", self.chatty, "--adapter", checkpoint, "--out", target)
            self.assertEqual(exported.returncode, 0, exported.stderr)
            self.answers(other_talk, "--model", target)
        import torch
        ids = torch.tensor([[(i * 37 + 5) % 300 for i in range(40)]])
        with torch.no_grad():
            beside = model(ids).logits
            alone = AutoModelForCausalLM.from_pretrained(merged)(ids).logits
            before = AutoModelForCausalLM.from_pretrained(self.chatty)(ids).logits
        self.assertLess((beside - alone).abs().max(), 1e-4 * beside.abs().max())
        self.assertGreater((beside - before).abs().max(), 0.1)
        exported = rose("export", "--model", self.chatty, "--adapter", checkpoint, "--out", merged)
        self.assertIn("the target exists already", exported.stderr)
        exported = rose("export", "--model", self.chatty, "--adapter", self.chatty, "--out", self.folder / "none")
        self.assertNotEqual(exported.returncode, 0)
        self.assertFalse((self.folder / "none").exists())
        # It belongs to this model and to no other.
        other = rose("chat", "--adapter", checkpoint, "Hi")
        self.assertNotEqual(other.returncode, 0)
        self.assertIn("does not fit a matrix", other.stderr)

    def test_preferences(self):
        pairs = self.folder / "pairs.jsonl"
        wanted = [(q, TALK[i - 1][1]) for i, (q, _) in enumerate(TALK)]
        pairs.write_text("".join(json.dumps({"prompt": q, "chosen": a, "rejected": dict(TALK)[q]}) + "\n" for q, a in wanted))
        common = ("--task", "preference", "--model.from", self.chatty, "--chat.template", "", "--data.preferences", pairs, "--optimizer.rate",
                  "1e-3", "--steps", "60", "--every.keep", "9", "--batch.rows", "4", "--batch.tokens", "384")
        for loss, *settings in (("dpo", "--preference.beta", "0.3", "--every.checkpoint", "25"),
                                ("ipo", "--preference.beta", "0.015"), ("kto", "--preference.beta", "0.3"),
                                ("simpo", "--preference.beta", "2", "--preference.margin", "1"), ("orpo", "--preference.beta", "0.5")):
            out = self.folder / loss
            done = rose("train", "--config", self.config, "--out", out, *common, "--preference.loss", loss, *settings)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("8 items of two" if loss == "kto" else "4 items of two", done.stdout)
            lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
            both = [line for line in lines if "chosen_logprob" in line and "rejected_logprob" in line]  # kto: not in every step
            self.assertLess(both[0]["chosen_logprob"], both[0]["rejected_logprob"] - 1, loss)  # it was taught the others
            self.assertGreater(both[-1]["chosen_logprob"], both[-1]["rejected_logprob"], loss)
            self.assertEqual(lines[-1]["accuracy"], 1.0, loss)
            self.assertLess(lines[-1]["loss"], lines[0]["loss"], loss)
            self.assertEqual((out / "reference.json").exists(), loss in ("dpo", "ipo", "kto"))
        self.assertAlmostEqual(json.loads((self.folder / "dpo/metrics.jsonl").read_text().splitlines()[0])["loss"], 0.6931, 3)  # ln 2
        self.answers(wanted, "--model", self.folder / "orpo/checkpoints/step-00000060")
        # Gone on with after 25 steps: the same bytes.
        out = self.folder / "dpo"
        kept = {name: (out / "checkpoints/step-00000060" / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")}
        for newer in ("step-00000050", "step-00000060"):
            subprocess.run(["rm", "-r", out / "checkpoints" / newer], check=True)
        again = rose("train", "--resume", out)
        self.assertEqual(again.returncode, 0, again.stderr)
        for name, before in kept.items():
            self.assertEqual((out / "checkpoints/step-00000060" / name).read_bytes(), before, name)
        # The same objective through an adapter.
        adapter = rose("train", "--config", self.config, "--out", self.folder / "dpo-adapter", *common, "--lora.rank", "8",
                       "--optimizer.rate", "1e-2")
        self.assertEqual(adapter.returncode, 0, adapter.stderr)
        lines = [json.loads(line) for line in (self.folder / "dpo-adapter/metrics.jsonl").read_text().splitlines()]
        self.assertEqual(lines[-1]["accuracy"], 1.0)
        for line, options, expected in (
            ({"prompt": "a", "chosen": "b", "rejected": "b"}, (), "both answers are the same"),
            ({"prompt": "a", "chosen": "b", "rejected": " "}, (), "rejected is an answer without words"),
            ({"prompt": "a", "chosen": "b"}, (), 'there is no "rejected"'),
            ({"prompt": "a", "completion": "b", "label": True}, (), "compares two answers"),
            ({"prompt": [{"role": "assistant", "content": "a"}], "chosen": "b", "rejected": "c"}, (), "ends with an answer"),
            ({"prompt": "a", "chosen": "b", "rejected": "c"}, ("--preference.beta", "0"), "beta is 0"),
            ({"prompt": "a", "chosen": "b", "rejected": "c"}, ("--chat.too_long", "cut"), "another pair"),
            ({"prompt": "a" * 300, "chosen": "b", "rejected": "c"}, (), "a pair of answers of"),
        ):
            pairs.write_text("\n" + json.dumps(line) + "\n")
            wrong = rose("train", "--config", self.config, *common, *options, "--out", self.folder / "wrong")
            self.assertNotEqual(wrong.returncode, 0, line)
            self.assertIn(expected, wrong.stderr)
            if not options:
                self.assertIn("pairs.jsonl:2", wrong.stderr)

    def test_mistakes_are_named(self):
        lines = self.talk.read_text().splitlines()
        broken = self.folder / "broken.jsonl"
        long = json.dumps({"messages": [{"role": "user", "content": "Why? " * 60}, {"role": "assistant", "content": "So."}]})
        for line, options, expected in (
            (lines[1].replace("assistant", "robot"), (), f'broken.jsonl:3\n'),
            (lines[1].replace("assistant", "robot"), (), 'message 2 has the role "robot"'),
            (lines[1].replace("A number.", " "), (), "message 2 is an answer without words"),
            (lines[1][:-1], (), "broken.jsonl:3"),
            (lines[1].replace("What is", "<|im_end|>"), (), "holds the special token <|im_end|>"),
            (long, (), "a row has 96"),
            (long, ("--chat.too_long", "skip", "--data.chat", self.folder / "none.jsonl"), "none.jsonl"),
            (lines[1], ("--chat.template", ""), "no chat template"),
            (lines[1], ("--chat.template", "chatlm"), "there is no such chat template"),
            (lines[1], ("--lora.rank", "4", "--lora.targets", "w"), '"w" is no matrix of a block'),
            (lines[1], ("--lora.rank", "4", "--lora.dropout", "1"), "below 1"),
            (lines[1], ("--data.chat", ""), "sft needs conversations"),
            (lines[1], ("--task", "stf"), "pretrain"),
        ):
            broken.write_text("\n".join([lines[0], "", line, lines[2]]) + "\n")
            wrong = rose("train", "--config", self.config, "--data.chat", broken, *options, "--out", self.folder / "wrong")
            self.assertNotEqual(wrong.returncode, 0, (line, options))
            self.assertIn(expected, wrong.stderr)
        for how, expected in (("skip", "too long: 0 cut, 1 skipped"), ("cut", "too long: 0 cut, 1 skipped")):
            broken.write_text("\n".join([lines[0], long]) + "\n")  # nothing is left of it to learn once it is cut
            done = rose("train", "--config", self.config, "--data.chat", broken, "--chat.too_long", how, "--steps", "6", "--out",
                        self.folder / how)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(expected.split(":")[1].split(",")[1], done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
