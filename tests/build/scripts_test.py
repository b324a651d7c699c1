"""The set-up script's refusals, the bench runner's rules, and the checker of the book."""
import importlib.util
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["ROSE_SOURCE"])


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class SetUp(unittest.TestCase):
    def set_up(self, *arguments, shims=(), **environment):
        with tempfile.TemporaryDirectory() as folder:
            shim = pathlib.Path(folder) / "bin"
            shim.mkdir()
            for name, text in shims:
                (shim / name).write_text("#!/bin/sh\n" + text + "\n")
                (shim / name).chmod(stat.S_IRWXU)
            done = subprocess.run(["bash", str(SOURCE / "scripts" / "setup.sh"), *arguments], capture_output=True, text=True,
                                  env={"PATH": f"{shim}:/usr/bin:/bin", "ROSE_CACHE": f"{folder}/cache", **environment})
            return done.returncode, done.stdout + done.stderr

    def test_help_and_mistakes(self):
        code, text = self.set_up("--help")
        self.assertEqual(code, 0)
        self.assertIn("--profile", text)
        code, text = self.set_up("--profile", "everything")
        self.assertEqual(code, 1)
        self.assertIn("unknown profile 'everything'", text)

    def test_without_root_it_says_what_is_lacking(self):
        shims = [("dpkg-query", "exit 1"), ("apt-get", "echo never >&2; exit 9"), ("id", "echo 1000"), ("sudo", "exit 1")]
        code, text = self.set_up("--profile", "build", shims=shims)
        self.assertEqual(code, 1)
        self.assertIn("apt-get install --no-install-recommends", text)
        self.assertIn("libspdlog-dev", text)
        self.assertNotIn("never", text)

    def test_a_dry_run_says_how_much_and_changes_nothing(self):
        shims = [("dpkg-query", "sed 's/.*//' </dev/null; for p in \"$@\"; do echo \"installed $p\"; done")]
        code, text = self.set_up("--profile", "build", "--dry-run", shims=shims)
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"download: [5-9]\d\d MB")


class Runner(unittest.TestCase):
    def setUp(self):
        self.run = load(SOURCE / "benchmarks" / "run.py")

    def record(self, **changes):
        record = {"bench": "x", "metric": "rate", "unit": "MB/s", "better": "higher", "median": 30.0, "min": 29.0, "max": 31.0,
                  "samples": 3, "warmup": 1, "device": {"name": "cpu", "count": 1}, "host": {"cpu": "cpu", "cores": 2},
                  "toolkit": "g++", "libraries": {}, "command": "x", "config": {}, "seed": 0, "commit": "0" * 40, "clean": True,
                  "code_hash": "0" * 64, "date": "2026-11-30", "verdict": "recorded"}
        record.update(changes)
        return {key: value for key, value in record.items() if value is not None}

    def test_a_complete_record_is_valid(self):
        self.assertEqual(self.run.problems_of(self.record()), [])

    def test_what_a_record_must_not_be(self):
        peer = {"name": "p", "version": "1", "settings": "best", "median": 10.0}
        for changes, word in [({"verdict": None}, "verdict"), ({"ratio": 3.0}, "peer"), ({"ratio": 2.0, "peer": peer}, "ratio"),
                              ({"median": 40.0}, "between"), ({"date": "yesterday"}, "date"),
                              ({"fraction_of_limit": 1.2, "limit": {"name": "copy", "value": 25.0}}, "fraction_of_limit"),
                              ({"correct": {"against": "float64", "error": 2.0, "bound": 1.0}}, "bound")]:
            problems = self.run.problems_of(self.record(**changes))
            self.assertTrue(any(word in problem for problem in problems), f"{changes}: {problems}")
        self.assertEqual(self.run.problems_of(self.record(ratio=3.0, peer=peer)), [])

    def test_only_what_is_linked_counts_as_measured(self):
        sources = {"main.cpp": "int used(); int main() { return used(); }", "used.cpp": "int used() { return 0; }",
                   "spare.cpp": "int spare() { return 1; }"}
        with tempfile.TemporaryDirectory() as folder:
            for name, text in sources.items():
                (pathlib.Path(folder) / name).write_text(text, encoding="utf-8")
            subprocess.run("c++ -c main.cpp used.cpp spare.cpp && ar rc l.a used.o spare.o && c++ main.o l.a -o program",
                           shell=True, cwd=folder, check=True)
            linked = self.run.linked_sources(pathlib.Path(folder) / "program")
        self.assertLessEqual({"main.cpp", "used.cpp"}, linked)
        self.assertNotIn("spare.cpp", linked)
        self.assertEqual(self.run.linked_sources("nowhere"), set())

    def test_pairs_are_interleaved_and_disagreement_is_refused(self):
        side = ("import sys, json\nprint(json.dumps({'name': 'p', 'version': '1', 'settings': 's', 'checksum': sys.argv[2]}), flush=True)\n"
                "for line in sys.stdin:\n  print(json.dumps({'value': float(sys.argv[1])}), flush=True)\n")
        ours, same, other = ([sys.executable, "-c", side, *rest] for rest in (["6", "a"], ["3", "a"], ["3", "b"]))
        result = self.run.run_pair(ours, same, samples=3, warmup=1)
        self.assertEqual((result["median"], result["peer"]["median"], len(result["values"])), (6.0, 3.0, 3))
        with self.assertRaises(self.run.Refused):
            self.run.run_pair(ours, other, samples=1, warmup=0)


class Book(unittest.TestCase):
    def check(self, text, **files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "book" / "0-x").mkdir(parents=True)
            chapter = root / "book" / "0-x" / "01-a.md"
            chapter.write_text("---\ndifficulty: introductory\n---\n" + text, encoding="utf-8")
            for name, content in files.items():
                path = root / name.replace("__", "/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content, encoding="utf-8")
            module = load(SOURCE / "scripts" / "check_book.py")
            module.ROOT = root
            module.check(chapter)
            return module.errors

    def test_links_and_fragments(self):
        self.assertEqual(self.check("# A b\n\n[here](#a-b) and [there](01-a.md#a-b), `[not](a.md)`\n\n```sh\n[no](x.md)\n```\n"), [])
        self.assertIn("01-a.md:6: error: the link 'gone.md' leads nowhere", self.check("# A\n\n[x](gone.md)\n")[0])
        self.assertIn("has no '#c'", self.check("# A\n\n[x](#c)\n")[0])

    def test_numbers_are_compared_as_written(self):
        values = {"build__values__v.json": json.dumps({"ratio": 0.3721})}
        self.assertEqual(self.check("[0.37](test:v#ratio) and [37 %](test:v#ratio)\n", **values), [])
        self.assertIn("is not what the test wrote", self.check("[0.38](test:v#ratio)\n", **values)[0])
        self.assertIn("no record of bench", self.check("[801](bench:gone#median)\n")[0])

    def test_mathematics_that_the_forge_mangles(self):
        self.assertEqual(self.check("$a + b$, and 5 $ or 6 $\n"), [])
        self.assertIn("GitHub mangles", self.check("$a\\,b$\n")[0])

    def test_citations(self):
        references = {"citations__references.yaml": "references:\n  - id: dao2022\n    type: article\n"}
        self.assertEqual(self.check("so it is [@dao2022, section 3], write to a@b.c\n", **references), [])
        self.assertIn("no reference 'gone2020'", self.check("so it is [@dao2022; @gone2020]\n", **references)[0])


if __name__ == "__main__":
    unittest.main()
