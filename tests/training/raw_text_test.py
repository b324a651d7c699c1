"""From raw text to a chat, at a size that takes seconds: the novels are made up here, and packed as Debian and R pack the real ones."""
import io
import json
import os
import pathlib
import struct
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LAB = ROOT / "generated/labs/raw_text_to_chat"
sys.path.insert(0, str(LAB))
sys.dont_write_bytecode = True
import texts  # noqa: E402

FILLER = "The house stood upon a hill, and number {n} of its windows looked towards the sea, where a sail of that year was seen. "


def novel(number, chapters):
    """Chapters of three paragraphs of prose, and between them an exchange of three turns that names its chapter."""
    lines = [f"NOVEL {number}", "", "By Nobody", ""]
    for c in range(chapters):
        name = f"{number}-{c}"
        lines += [f"CHAPTER {c + 1}", ""]
        for part in range(3):
            lines += ["", *[FILLER.format(n=name)] * 4, ""]
            if part == 1:
                lines += [f'"Have you been to _{name}_ before," said Anne,', '"or is it the first time?"', "",
                          f'"I was at {name} in the spring," he answered.', "", f'"Then you know {name}."', ""]
    return lines


def database(novels):
    out = b""
    for lines in novels:
        data = b"X\n" + struct.pack(">III", 3, 0x40201, 0x30500) + struct.pack(">II", 16, len(lines))
        data += b"".join(struct.pack(">Ii", 0x40009, len(line.encode())) + line.encode() for line in lines)
        out += struct.pack(">I", len(data)) + zlib.compress(data)
    return out


def package(name, content):
    files = io.BytesIO()
    with tarfile.open(fileobj=files, mode="w:xz") as archive:
        info = tarfile.TarInfo("./" + name)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    out = b"!<arch>\n"
    for name, member in (("debian-binary", b"2.0\n"), ("control.tar.xz", b"odd"), ("data.tar.xz", files.getvalue())):
        out += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(member):<10}`\n".encode() + member + b"\n" * (len(member) % 2)
    return out


def codes(text, most=16):
    """Text as compress writes it, each byte by itself; after a while the table is dropped."""
    bits, width, entries, begun, first = "", 9, 257, 0, True
    for code in [*text, 256, *text[:10]]:
        bits = f"{code:0{width}b}" + bits  # the first code lies lowest
        entries += not first and code != 256 and entries < 1 << most
        first = code == 256
        if first or entries == 1 << width and width < most:
            bits = bits.zfill(begun + -(-(len(bits) - begun) // (8 * width)) * 8 * width)
            begun = len(bits)
            entries, width = (257, 9) if first else (entries, width + 1)
    return int(bits, 2).to_bytes(-(-len(bits) // 8), "little")


def scripture(chapters):
    """Windows of verses, with a table of where they begin."""
    windows = [codes(b"\n" * 10 + "".join(f"Ge{c}:{v} In verse {v} of chapter {c} it is written.\n" for v in range(1, 30)).encode())
               for c in range(1, chapters + 1)]
    starts = [92 + 4 * chapters + sum(map(len, windows[:i])) for i in range(chapters)]
    return b"EC02".ljust(88, b"\0") + struct.pack(f">{chapters + 1}I", chapters, *starts) + b"".join(windows)


class RawText(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.packages = cls.folder / "packages"
        cls.packages.mkdir()
        for (name, file, _), content in ((texts.NOVELS, database([novel(1, 30), novel(2, 34)])), (texts.BIBLE, scripture(32))):
            (cls.packages / f"{name}_1_all.deb").write_bytes(package(file, content))

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def run_it(self, *options):
        return subprocess.run([sys.executable, LAB / "run.py", "--size", "tiny", "--device", "cpu", "--bin", os.environ["ROSE_BIN"],
                               "--packages", self.packages, *options], capture_output=True, text=True, timeout=280)

    def test_speech(self):
        self.assertEqual(texts.speech('"I do not," said he, "believe it,"'), "I do not, believe it.")
        self.assertIsNone(texts.speech('He said "yes" and went away over the fields, as he did on every day of that summer.'))
        self.assertIsNone(texts.speech('"This speech is not closed, and who knows where it ends'))
        turns = ['"One turn of it."', '"Two turns of it."', "Nobody speaks here.", '"Three turns of it."']
        self.assertEqual(texts.dialogues(turns), [["One turn of it.", "Two turns of it."]])
        self.assertEqual(texts.sections("---\ntitle: x\n---\n# A\n\n" + "Of [it](x.md). " * 80 + "\n````cpp {#x}\n```\nint a;\n````\n"),
                         ["# A\n\n" + ("Of it. " * 80).strip()])

    def test_from_text_to_chat(self):
        if any(pathlib.Path("/", file).exists() for _, file, _ in (texts.NOVELS, texts.BIBLE)):
            self.skipTest("the real texts are installed, and would be taken")
        out = self.folder / "run"
        done = self.run_it("--out", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        record = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual(record, json.loads((out / "record.json").read_text()))
        self.assertEqual(sorted(record["steps"]), sorted(["text and vocabulary", "pretraining", "fine-tuning", "evaluation", "conversation"]))
        self.assertEqual(record["texts"]["text/novels"]["documents"] + record["texts"]["held-out-text/novels"]["documents"], 64)
        self.assertEqual(record["texts"]["held-out-text/novels"]["documents"], 4)
        self.assertEqual(record["texts"]["held-out-text/bible"]["documents"], 2)
        self.assertEqual(record["tokens"], 30 * 256)
        self.assertEqual([step for step, _ in record["curve"]["held_out"]], [10, 20, 30])
        self.assertEqual(record["best"]["loss"], min(loss for _, loss in record["curve"]["held_out"]))
        self.assertLess(record["curve"]["training"][-1][1], record["curve"]["training"][0][1])
        self.assertEqual(len(record["answers"]), 6)
        self.assertLess(record["loading"]["stalled_seconds"], record["loading"]["step_seconds"])
        self.assertEqual(record["recall"]["of"], 64)
        self.assertGreater(record["scores"]["xz/book"]["bits_per_byte"], 1.0)
        self.assertGreaterEqual(record["median"], record["cost"]["device_seconds"])

        # Nothing that is held out was read, and the run holds out just these conversations.
        held = [file.read_text() for file in (out / "held-out-text/novels").iterdir()]
        names = {text.split("number ")[1].split(" of")[0] for text in held}
        read = "".join(file.read_text() for file in (out / "text/novels").iterdir())
        for name in names:
            self.assertNotIn(f"number {name} of", read)
        for i, line in enumerate((out / "chat.jsonl").read_text().splitlines()):
            talk = json.loads(line)["messages"]
            self.assertEqual([message["role"] for message in talk[:2]], ["user", "assistant"])
            if "been to" in talk[0]["content"]:
                name = talk[0]["content"].split("been to ")[1].split(" ")[0]
                self.assertEqual(name in names, i % 16 == 15, name)

        again = self.run_it("--out", out)
        self.assertNotEqual(again.returncode, 0)
        self.assertIn("exists", again.stderr)

    def test_compress(self):
        text = b"In the beginning was the word. " * 300
        packed = b"\x1f\x9d\x90" + codes(text)
        expected = subprocess.run(["gzip", "-dc"], input=packed, capture_output=True, check=True).stdout
        self.assertEqual(expected, text + text[:10])
        self.assertEqual(texts.unlzw(packed[3:]), expected)
        self.assertEqual(texts.unlzw(bytes([0x61, 0x02, 0x0A])), b"aaa")  # the code that is not in the table yet: 97, 257
        self.assertTrue(texts.bible(scripture(3))[2].startswith("In verse 1 of chapter 3 it is written. In verse 2"))

    def test_what_is_no_package(self):
        wrong = self.folder / "wrong.deb"
        wrong.write_bytes(b"PK not a package")
        for content, expected in ((b"PK not a package", "is no Debian package"), (b"!<arch>\n", "holds no")):
            wrong.write_bytes(content)
            with self.assertRaises(SystemExit) as refused:
                texts.file_of_package(wrong, texts.NOVELS[1])
            self.assertIn(expected, str(refused.exception))
        numbers = struct.pack(">I", 3) + zlib.compress(struct.pack(">IIIi", 16, 1, 13, 0))
        with self.assertRaises(SystemExit):
            texts.novels(numbers)


if __name__ == "__main__":
    unittest.main()
