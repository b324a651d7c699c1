#!/usr/bin/env python3
"""What weave says of faulty books, and what becomes of small right ones.

Each file of golden/ is a transcript: `== file PATH` writes a file, `== run` renders the book and is followed by what weave
prints, `== page PATH TEXT` asks for a text in a rendered page. ROSE_UPDATE_GOLDEN=1 rewrites what follows `== run`.
"""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GOLDEN = pathlib.Path(__file__).resolve().parent / "golden"
BIN = pathlib.Path(os.environ.get("ROSE_BIN", ROOT / "build" / "bin"))
CACHE = pathlib.Path(os.environ.get("ROSE_CACHE") or pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "rosellm")
FRONT = "---\ntitle: First\npart: one\nprerequisites: []\nunlocks: []\nquestions: [Why?]\ntangles: []\n---\n\n# First\n\n"


def steps_of(text):
    steps = []
    for line in text.splitlines(keepends=True):
        if line.startswith("== "):
            verb, _, argument = line[3:].rstrip("\n").partition(" ")
            steps.append([verb, argument, ""])
        elif steps:
            steps[-1][2] += line
        else:
            steps.append(["", "", line])
    return steps


def render(folder):
    described = subprocess.run([BIN / "tangle", "book-json"], cwd=folder, capture_output=True, text=True)
    if described.returncode:
        return f"tangle: exit {described.returncode}\n{described.stdout}{described.stderr}"
    subprocess.run([BIN / "tangle", "emit", "--quiet"], cwd=folder, capture_output=True)
    python = CACHE / "venv-site" / "bin" / "python"
    woven = subprocess.run([BIN / "weave", "--site", ROOT / "tangle" / "site", "--python", python if python.exists() else "python3", "--commit", "0"],
                           cwd=folder, input=described.stdout, capture_output=True, text=True)
    printed = re.sub(r"\d+ pages", "N pages", woven.stdout + woven.stderr)
    return f"{printed}(exit {woven.returncode})\n"


@unittest.skipUnless((BIN / "weave").exists(), "weave is not built: make site")
@unittest.skipUnless(shutil.which("node"), "there is no node")
@unittest.skipUnless(shutil.which("doxygen"), "there is no doxygen")
class Messages(unittest.TestCase):
    maxDiff = None

    def test_transcripts(self):
        for path in sorted(GOLDEN.glob("*.txt")):
            with self.subTest(transcript=path.name), tempfile.TemporaryDirectory() as temporary:
                folder = pathlib.Path(temporary)
                steps = steps_of(path.read_text(encoding="utf-8"))
                changed = False
                for step in steps:
                    verb, argument, body = step
                    if verb == "file":
                        target = folder / argument
                        target.parent.mkdir(parents=True, exist_ok=True)
                        target.write_text(body.replace("@front\n", FRONT), encoding="utf-8")
                    elif verb == "run":
                        printed = render(folder)
                        if os.environ.get("ROSE_UPDATE_GOLDEN"):
                            step[2], changed = printed, True
                        else:
                            self.assertEqual(printed, body)
                    elif verb == "page":
                        page, _, text = argument.partition(" ")
                        rendered = (folder / "build" / "site" / page).read_text(encoding="utf-8")
                        self.assertIn(text, rendered)
                    elif verb == "absent":
                        self.assertFalse((folder / argument).exists(), argument)
                if changed:
                    out = "".join(body if not verb else f"== {verb}{' ' + argument if argument else ''}\n{body}" for verb, argument, body in steps)
                    path.write_text(out, encoding="utf-8")


if __name__ == "__main__":
    unittest.main()
