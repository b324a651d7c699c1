"""Shards hold what the `tokenizers` package makes of the same text, NumPy reads them by llm.c's description, and `rose data show`
reads what NumPy writes by it. A `rose data tokenize` that is killed and run again leaves the same files."""
import json
import os
import pathlib
import random
import subprocess
import tempfile
import time
import unittest

import numpy as np
import tokenizers

ROSE = os.path.join(os.environ["ROSE_BIN"], "rose")
BOOK = pathlib.Path(os.environ["ROSE_SOURCE"]) / "book" / "1-foundations"


def rose(*arguments, **kwargs):
    return subprocess.run([ROSE, "data", *map(str, arguments)], capture_output=True, text=True, timeout=200, **kwargs)


def llmc_shard(path, dtype):
    """As llm.c's reader does it: 256 words of header, then as many tokens as the third word says, and nothing more."""
    header = np.fromfile(path, dtype="<i4", count=256)
    assert (header[0], header[1]) == {"<u2": (20240520, 1), "<u4": (20240801, 7)}[dtype]
    tokens = np.fromfile(path, dtype=dtype, offset=1024)
    assert len(tokens) == header[2]
    return tokens


def write_llmc(path, tokens):
    header = np.zeros(256, dtype="<i4")
    header[:3] = 20240520, 1, len(tokens)
    path.write_bytes(header.tobytes() + np.array(tokens, dtype="<u2").tobytes())


class Shards(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        learnt = rose("vocabulary", BOOK, "-o", cls.folder / "tokenizer", "-n", 1500)
        assert learnt.returncode == 0, learnt.stderr
        cls.theirs = tokenizers.Tokenizer.from_file(str(cls.folder / "tokenizer" / "tokenizer.json"))
        cls.theirs.encode_special_tokens = True  # a page that spells a control token holds text
        cls.files = sorted(BOOK.glob("*.md"))

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def documents(self, tokens):
        """The documents between separators (id 0), each of which stands before its document."""
        cuts = np.flatnonzero(tokens == 0)
        self.assertEqual(cuts[0], 0)
        return [tuple(part[1:].tolist()) for part in np.split(tokens, cuts[1:])]

    def test_the_tokens_are_those_of_the_tokenizers_package(self):
        out = self.folder / "shards"
        done = rose("tokenize", BOOK, "-o", out, "-m", self.folder / "tokenizer", "--held-out", "0.2")
        self.assertEqual(done.returncode, 0, done.stderr)
        train = self.documents(llmc_shard(out / "train-00000.bin", "<u2"))
        held = self.documents(llmc_shard(out / "val-00000.bin", "<u2"))
        expected = {tuple(self.theirs.encode(f.read_text(encoding="utf-8")).ids) for f in self.files}
        self.assertTrue(set(train) | set(held) == expected)
        self.assertEqual(set(train) & set(held), set())
        self.assertEqual(len(train) + len(held), len(self.files))
        shown = rose("show", out, "--verify").stdout
        self.assertIn(f"train: 1 shard, {len(train)} documents", shown)
        self.assertIn("checksums fit", shown)

    def test_files_of_llmc_and_nanogpt_are_read(self):
        tokens = [0, 5, 6, 0, 7]
        write_llmc(self.folder / "llmc.bin", tokens)
        np.array(tokens, dtype="<u2").tofile(self.folder / "nano.bin")
        for name in ("llmc.bin", "nano.bin"):
            self.assertIn("1 documents, 5 tokens", rose("show", self.folder / name).stdout)
        (self.folder / "llmc.bin").write_bytes((self.folder / "llmc.bin").read_bytes()[:-1])
        torn = rose("show", self.folder / "llmc.bin")
        self.assertEqual(torn.returncode, 4)
        self.assertIn("llmc.bin", torn.stderr)

    def test_killed_and_run_again_it_leaves_the_same_files(self):
        texts = self.folder / "lines.jsonl"
        rng = random.Random(1)
        words = BOOK.joinpath("08-the-transformer.md").read_text(encoding="utf-8").split()
        with texts.open("w") as out:
            for _ in range(3000):
                out.write(json.dumps({"text": " ".join(rng.choices(words, k=120))}) + "\n")
        options = [texts, "-m", self.folder / "tokenizer", "--dedup", "near", "--shard-tokens", 40000, "--batch-bytes", 60000]
        self.assertEqual(rose("tokenize", *options, "-o", self.folder / "whole").returncode, 0)
        killed = 0
        for attempt in range(40):
            process = subprocess.Popen([ROSE, "data", "tokenize", *map(str, options), "-o", str(self.folder / "again")],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(rng.uniform(0.02, 0.15) * (1 + attempt / 4))
            process.kill()
            if process.wait() == 0:
                break
            killed += 1
        self.assertEqual(process.returncode, 0, f"{killed} times killed")

        def contents(folder):
            return {f.name: f.read_bytes() for f in folder.iterdir() if f.suffix in (".bin", ".idx", ".keys")}
        self.assertTrue(contents(self.folder / "again") == contents(self.folder / "whole"), f"{killed} times killed")
        self.assertGreater(len(contents(self.folder / "whole")), 8)


if __name__ == "__main__":
    unittest.main()
