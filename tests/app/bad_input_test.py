"""Each bad input ends in one message that says what is wrong, where and what would help, and leaves no file behind."""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

from rose_process import ROSE, rose

MODEL = os.environ["ROSE_MODEL"]


class BadInput(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="rose-bad-")
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def refused(self, result, status, *words):
        """stderr is one message of at most four lines that contains the words; stdout is empty."""
        stderr = result.stderr if isinstance(result.stderr, str) else result.stderr.decode()
        self.assertEqual(result.returncode, status, stderr)
        self.assertFalse(result.stdout)
        self.assertTrue(stderr.startswith("rose: "), stderr)
        self.assertLessEqual(len(stderr.strip().splitlines()), 4, stderr)
        for word in words:
            self.assertIn(word, stderr)

    def test_unknown_model(self):
        self.refused(rose("generate", "-m", "no-such-model", "x"), 3, "no-such-model", "known here")

    def test_invalid_utf8_on_the_command_line_and_in_a_pipe(self):
        self.refused(rose("tokenize", b"caf\xe9", stdin=b""), 2, "argument 2", "0xe9")
        self.refused(rose("generate", b"caf\xe9", stdin=b""), 2, "0xe9")
        self.refused(rose("tokenize", "--ids", stdin=b"ok \xff"), 2, "standard input", "byte 3")

    def test_prompt_longer_than_the_context(self):
        self.refused(rose("generate", "--max-model-len", "16", "word " * 40), 2, "context")

    def test_empty_prompt(self):
        self.refused(rose("generate", stdin=""), 2, "prompt", "nothing to continue")

    def test_wrong_sampling(self):
        self.refused(rose("generate", "--top-p", "1.5", "x"), 2, "top_p")
        self.refused(rose("generate", "-t", "-1", "x"), 2, "temperature")

    def test_truncated_model(self):
        with open(MODEL, "rb") as whole, open(self.path("cut.gguf"), "wb") as cut:
            cut.write(whole.read(50_000_000))
        self.refused(rose("generate", "-m", self.path("cut.gguf"), "x"), 4, "cut.gguf")

    def test_not_a_model(self):
        with open(self.path("text.gguf"), "w") as file:
            file.write("hello, I am text\n" * 10)
        self.refused(rose("generate", "-m", self.path("text.gguf"), "x"), 4, "text.gguf")

    def test_safetensors_that_lies_about_its_header(self):
        folder = self.path("liar")
        os.mkdir(folder)
        self.config(folder)
        with open(os.path.join(folder, "model.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", 1 << 60) + b"{}")
        self.refused(rose("generate", "-m", folder, "x"), 4, "model.safetensors")

    def config(self, folder, **more):
        values = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 64, "hidden_size": 32,
                  "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
                  "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": True, **more}
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(values, file)

    def test_architectures_we_do_not_have_are_named(self):
        for model_type, more, word in (("mixtral", {"num_local_experts": 8}, "mixture-of-experts"),
                                       ("mamba", {}, "mamba")):
            folder = self.path(model_type)
            os.mkdir(folder)
            self.config(folder, model_type=model_type, **more)
            self.refused(rose("generate", "-m", folder, "x"), 5, word)

    def test_missing_tokenizer(self):
        folder = self.path("bare")
        converted = rose("convert", MODEL, folder)
        self.assertEqual(converted.returncode, 0, converted.stderr)
        os.remove(os.path.join(folder, "tokenizer.json"))
        self.refused(rose("generate", "-m", folder, "x"), 3, "tokenizer")

    def test_tokenizer_of_another_model(self):
        folder = self.path("mismatched")
        self.assertEqual(rose("convert", MODEL, folder).returncode, 0)
        path = os.path.join(folder, "tokenizer.json")
        with open(path) as file:
            tokenizer = json.load(file)
        tokenizer["model"]["vocab"].update({f"extra{i}": 49152 + i for i in range(8)})
        with open(path, "w") as file:
            json.dump(tokenizer, file)
        self.refused(rose("generate", "-m", folder, "x"), 4, "another model")

    def test_a_template_that_fails_or_loops(self):
        folder = self.path("templates")
        self.assertEqual(rose("convert", MODEL, folder).returncode, 0)
        for name in os.listdir(folder):  # whichever file holds the template
            if name == "chat_template.jinja":
                os.remove(os.path.join(folder, name))
        config_path = os.path.join(folder, "tokenizer_config.json")
        with open(config_path) as file:
            config = json.load(file)
        for template, word in (("{{ raise_exception('no such role') }}", "no such role"),
                               ("{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}", "limit"),
                               ("{% if %}", "chat template:1:7")):
            config["chat_template"] = template
            with open(config_path, "w") as file:
                json.dump(config, file)
            result = rose("chat", "-m", folder, "Hello")
            self.assertIn(result.returncode, (2, 4, 6), result.stderr)
            self.assertIn(word, result.stderr)
            self.assertEqual(result.stdout, "")

    def test_full_disk_leaves_no_partial_file(self):
        mount = self.path("small")
        os.mkdir(mount)
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "none", mount], capture_output=True).returncode:
            self.skipTest("a small file system cannot be mounted here")
        self.addCleanup(subprocess.run, ["umount", mount])
        self.refused(rose("convert", MODEL, os.path.join(mount, "out.gguf"), "--type", "f32"), 6, "540 MB", "free some space")
        self.assertEqual(os.listdir(mount), [])

    def test_full_output(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([ROSE, "tokenize", "hello"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(result.returncode, 6, result.stderr)
        self.assertIn("standard output", result.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
