"""`rose eval` beside Hugging Face: the same log-probabilities, choices, losses and bits per byte from transformers and tokenizers."""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

ROSE = os.path.join(os.environ["ROSE_BIN"], "rose")
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def rose_eval(*arguments):
    return subprocess.run([ROSE, "eval", *map(str, arguments)], capture_output=True, text=True, timeout=120)


def measured(*arguments):
    done = rose_eval(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def make_model(folder, seed):
    """A random Llama whose logits are far from flat, with a byte-level vocabulary learnt from a chapter."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train([str(ROOT / "book/2-training/09-evaluating-a-language-model.md")], trainer)
    torch.manual_seed(seed)
    config = LlamaConfig(vocab_size=tokenizer.get_vocab_size(), hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=128, bos_token_id=0, eos_token_id=0)
    model = LlamaForCausalLM(config).double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.25)
                parameter.copy_(parameter.float())
    LlamaForCausalLM.from_pretrained(None, config=config, state_dict=model.state_dict()).float().save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}))
    return model.eval(), tokenizer


def log_probs(model, ids):
    """Of ids[1:], each given what is before it."""
    with torch.no_grad():
        rows = torch.log_softmax(model(torch.tensor([ids])).logits[0, :-1], -1)
    return rows.gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()


class Eval(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        for name, seed in (("one", 1), ("two", 2)):
            (cls.folder / name).mkdir()
        cls.model, cls.tokenizer = make_model(cls.folder / "one", 1)
        make_model(cls.folder / "two", 2)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def test_choices(self):
        items = [json.loads(line) for line in rose_eval("--show").stdout.splitlines() if line]
        self.assertEqual(len(items), 40)
        for blind in (False, True):
            result = measured("--model", self.folder / "one", "--task", "endings", "--items", *(["--blind"] if blind else []))["models"][0]["choices"]
            right = {"undivided": 0, "per_token": 0, "per_byte": 0}
            for item, ours in zip(items, result["each"], strict=True):
                values = {name: [] for name in right}
                for ending, given in zip(item["endings"], ours["log_probs"], strict=True):
                    # As EleutherAI's harness: encode the whole, and take what is behind the context's tokens.
                    context = "" if blind else item["context"]
                    whole, before = self.encode(context + " " + ending), self.encode(context)
                    total = sum(log_probs(self.model, [0, *whole])[len(before) :])
                    self.assertAlmostEqual(given, total, delta=1e-3)
                    values["undivided"].append(total)
                    values["per_token"].append(total / (len(whole) - len(before)))
                    values["per_byte"].append(total / len(ending.encode()))
                for name, list_of in values.items():
                    right[name] += max(range(4), key=list_of.__getitem__) == item["label"]
            for name, count in right.items():
                self.assertEqual(result[name]["right"], count, name)
            self.assertEqual(result["straddled"], 0)

    def test_text(self):
        texts = ["A model reads a text, token by token.\nIt is surprised, or it is not. " * 9, "ein kurzer Text mit ä, ö und 語", "third", "a", "b c d"]
        paths = []
        for number, text in enumerate(texts):
            paths.append(self.folder / f"{number}.txt")
            paths[-1].write_text(text)
        for context, stride in ((64, 64), (64, 16), (100, 37)):
            result = measured("--model", self.folder / "one", "--data", *paths, "--context", context, "--stride", stride)["models"][0]["text"]
            total = tokens = 0
            for text in texts:
                ids = [0, *self.encode(text)]
                scored, begin = 1, 0
                while scored < len(ids):
                    window = ids[begin : begin + context + 1]
                    total -= sum(log_probs(self.model, window)[scored - begin - 1 :])
                    scored = max(scored, begin + len(window))
                    begin += stride
                tokens += len(ids) - 1
            size = sum(len(text.encode()) for text in texts)
            self.assertEqual((result["tokens"], result["bytes"]), (tokens, size))
            self.assertAlmostEqual(result["loss"], total / tokens, delta=1e-5)
            self.assertAlmostEqual(result["perplexity"], math.exp(total / tokens), delta=1e-3 * math.exp(total / tokens))
            self.assertAlmostEqual(result["bits_per_byte"], total / math.log(2) / size, delta=1e-4)
            low, high = result["bits_per_byte_95"]
            self.assertTrue(low <= result["bits_per_byte"] <= high)

    def test_two_models(self):
        data = ROOT / "book/2-training/09-evaluating-a-language-model.md"
        same = measured("--model", self.folder / "one", "--against", self.folder / "one", "--task", "endings", "--data", data)["difference"]
        self.assertEqual((same["bits_per_byte"], same["accuracy"], same["accuracy_95"]), (0, 0, [0, 0]))
        self.assertNotIn("bits_per_byte_95", same, "one document says nothing of how documents vary")
        other = measured("--model", self.folder / "one", "--against", self.folder / "two", "--task", "endings")
        rates = [model["choices"]["per_byte"]["accuracy"] for model in other["models"]]
        self.assertAlmostEqual(other["difference"]["accuracy"], rates[0] - rates[1])
        self.assertIn("paired", rose_eval("--model", self.folder / "one", "--against", self.folder / "two", "--task", "endings").stdout)

    def test_mistakes_are_named(self):
        broken = self.folder / "broken.jsonl"
        broken.write_text('{"context": "a", "endings": ["b", "c"], "label": 0}\n{"context": "a"}\n')
        model = ("--model", self.folder / "one")
        for arguments, expected in (
            ((), "nothing says what to measure on"),
            (("--task", broken), "broken.jsonl:2"),
            (("--task", self.folder / "none"), "none"),
            (("--data", self.folder / "none.txt"), "there is no text"),
            (("--data", broken, "--context", 64, "--stride", 65), "cannot advance by 65"),
            (("--data", broken, "--context", 1000), "128 positions"),
            (("--task", "endings", "--device", "cpu", "--precision", "bf16"), "fp32"),
        ):
            wrong = rose_eval(*model, *arguments)
            self.assertNotEqual(wrong.returncode, 0, arguments)
            self.assertIn(expected, wrong.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
