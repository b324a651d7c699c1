"""Three readers see the same fences: the tangler, Pandoc with the book's reader, and cmark-gfm, which is what the forge shows.

Pandoc must agree on language, id, classes, key-values and text; cmark-gfm on the language word and the text. Read are all
chapters and the awkward texts below."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

SOURCE, TANGLE = os.environ["ROSE_SOURCE"], os.environ["ROSE_TANGLE"]

AWKWARD = {
    "longer": "````cpp {.sketch #a}\n```\nnot a fence\n```\n````\n",
    "tilde": "~~~cpp {.sketch #b}\n``` inside\n~~~\n",
    "quoted-values": "```cpp {.sketch #c title=\"a {b} it's <d> & e = f\"}\nint x;\n```\n",
    "in-a-list": "- item\n\n  ```cpp {.sketch #d}\n  int x;\n\n    int y;\n  ```\n\n1. one\n\n   ```python {.sketch #e}\n   pass\n   ```\n",
    "launch": "```cuda {.sketch #f}\nkernel<<<grid, block>>>(x);\nstd::cout << x << y >> z;\n```\n",
    "unclosed-by-shorter": "`````text\n```\n`````\n",
    "indented-is-code": "    ```cpp {.sketch #not-a-fence}\n    int x;\n    ```\n",
    "in-html-comment": "<!--\n```cpp {.sketch #g}\n```\n-->\n\ntext\n",
    "after-math": "<!-- eq:x -->\n$$\na_i = \\max_j \\{ b_{ij} \\}\n$$\n\n```cpp {.sketch #h}\nint x;\n```\n",
    "in-a-div": "::: {.note #n}\nWords.\n\n```cpp {.sketch #i}\nint x;\n```\n:::\n",
    "blank-lines": "```cpp {.sketch #j}\n\n\nint x;\n\n```\n",
    "no-body": "```cpp {.sketch #k}\n```\n",
}


def run(*command, stdin=""):
    done = subprocess.run(command, input=stdin, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"{command}: {done.stderr}")
    return done.stdout


def ours(folder):
    """{chapter path: [fence]} and the reader's name, from the tangler."""
    book = json.loads(run(TANGLE, "book-json", "--book", folder))
    fences = {}
    for chapter in book["chapters"]:
        with open(chapter["path"], "rb") as file:
            text = file.read()
        fences[chapter["path"]] = []
        for fence in chapter["fences"]:
            lines = text[fence["body_begin"] : fence["body_end"]].decode().splitlines(keepends=True)
            strip = lambda line: line[min(fence["indent"], len(line) - len(line.lstrip(" "))) :]
            fences[chapter["path"]].append({**fence, "text": "".join(map(strip, lines))})
    return book["reader"], fences


def pandoc_blocks(reader, path):
    found = []

    def walk(node):
        if isinstance(node, dict):
            if node.get("t") == "CodeBlock":
                (identifier, classes, pairs), text = node["c"]
                found.append((identifier, classes, dict(pairs), text))
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(json.loads(run(PANDOC, "-f", reader, "-t", "json", path))["blocks"])
    return found


def without_front_matter(text):
    return text.split("\n---\n", 1)[1] if text.startswith("---\n") else text


def forge_blocks(path):
    with open(path) as file:
        tree = xml.fromstring(run("cmark-gfm", "-t", "xml", stdin=without_front_matter(file.read())))
    blocks = tree.iter("{http://commonmark.org/xml/1.0}code_block")
    return [(block.get("info", ""), block.text or "") for block in blocks]


def find_pandoc():
    import pypandoc

    return pypandoc.get_pandoc_path()


class Readers(unittest.TestCase):
    def compare(self, folder):
        reader, chapters = ours(folder)
        self.assertTrue(chapters)
        for path, fences in chapters.items():
            with self.subTest(path):
                self.compare_chapter(reader, path, fences)
        return sum(map(len, chapters.values()))

    def compare_chapter(self, reader, path, fences):
        attributed = [fence for fence in fences if fence["role"] != "listing"]
        theirs = [block for block in pandoc_blocks(reader, path) if block[0] or any(c in ROLES for c in block[1])]
        self.assertEqual([f.get("id", "") for f in attributed], [block[0] for block in theirs])
        for fence, (identifier, classes, pairs, text) in zip(attributed, theirs):
            self.assertEqual(classes[-1:], [fence["language"]], identifier)  # Pandoc puts it after the classes
            self.assertEqual(text, fence["text"].removesuffix("\n"), identifier)
            for key in ("title", "file", "ns"):
                self.assertEqual(pairs.get(key), fence.get(key), identifier)
        forge = [(info, text) for info, text in forge_blocks(path) if "{" in info]
        self.assertEqual(len(forge), len(attributed))
        for fence, (info, text) in zip(attributed, forge):
            self.assertEqual(info.split()[0], fence["language"])
            self.assertEqual(text, fence["text"])

    def test_awkward_texts(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in AWKWARD.items():
                with open(os.path.join(folder, name + ".md"), "w") as file:
                    file.write(f"# {name}\n\n{text}\nThe end.\n")
            self.compare(folder)

    def test_the_book(self):
        os.chdir(SOURCE)
        self.assertGreater(self.compare("book"), 100)

    def test_the_reader_keeps_mathematics_divs_and_links(self):
        reader, _ = ours(os.path.join(SOURCE, "book"))
        text = ("Let $a_i \\le b$ and [14.8](fact:x), see [@key, section 2].\n\n$$\na\n$$\n\n"
                "::: {.check #c answer=\"t\"}\nWhy?\n:::\n\n| a |\n|---|\n| 1 |\n")
        tree = run(PANDOC, "-f", reader, "-t", "json", stdin=text)
        for part in ('"InlineMath"', '"DisplayMath"', '"fact:x"', '["c",["check"],[["answer","t"]]]', '"Table"'):
            self.assertIn(part, tree)


ROLES = {"sketch", "test", "example", "fail", "exercise", "solution", "bench", "output", "plain", "append", "replace"}

if __name__ == "__main__":
    if not shutil.which("cmark-gfm"):
        print("cmark-gfm is not installed")
        sys.exit(77)
    PANDOC = find_pandoc()
    os.chdir(SOURCE)
    unittest.main(verbosity=2)
