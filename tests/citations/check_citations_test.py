"""Every refusal of scripts/check_citations.py, provoked in a small book."""
import pathlib
import shutil
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_citations  # noqa: E402

GOOD = """\
- id: a-layers
  subject: A
  topic: architecture
  claim: A has 12 layers.
  value: 12
  unit: layers
  grade: C
  source: example.org/a@1234
  locator: config.json, num_layers
  checked: primary
  verified: 2026-11
- id: b-cost
  subject: B
  topic: training
  claim: B cost twice as much.
  grade: I
  from: [a-layers]
  assumptions: Costs grow with layers.
  verified: 2026-11
"""
CHAPTER = "# T\n\n[12 layers](fact:a-layers), [twice](fact:b-cost), [@one] and [@two].\n"
REFERENCES = "references:\n  - id: one\n  - id: two\n"


class Checker(unittest.TestCase):
    def messages(self, facts=GOOD, chapter=CHAPTER, references=REFERENCES, part="6-agentic-rl", glossary="[]\n", errata="[]\n"):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "citations/facts").mkdir(parents=True)
            (root / "citations/facts/x.yaml").write_text(facts)
            (root / "citations/references.yaml").write_text(references)
            (root / "citations/glossary.yaml").write_text(glossary)
            (root / "citations/errata.yaml").write_text(errata)
            shutil.copytree(ROOT / "citations/schema", root / "citations/schema")
            shutil.copy(ROOT / "citations/units.yaml", root / "citations/units.yaml")
            (root / "book" / part).mkdir(parents=True)
            (root / "book" / part / "01-t.md").write_text(chapter)
            return check_citations.check(root)[0]

    def refused(self, expected, **changes):
        messages = self.messages(**changes)
        self.assertEqual(len(messages), 1, messages)
        self.assertIn(expected, messages[0])

    def test_good(self):
        self.assertEqual(self.messages(), [])

    def test_errata(self):
        good = "- {id: 2026-12-24-sign, chapter: 6-agentic-rl/01-t, was: The sign was wrong., now: It is right., commit: 0123abc}\n"
        self.assertEqual(self.messages(errata=good), [])
        self.refused("'now' is a required property", errata=good.replace("now: It is right., ", ""))
        self.refused("there is no chapter", errata=good.replace("01-t", "02-t"))

    def test_what_a_grade_demands(self):
        self.refused("'locator' is a required property", facts=GOOD.replace("  locator: config.json, num_layers\n", ""))
        self.refused("'assumptions' is a required property", facts=GOOD.replace("  assumptions: Costs grow with layers.\n", ""))
        self.refused("'record' is a required property", facts=GOOD.replace("grade: I", "grade: R"))
        self.refused("'from' is a required property", facts=GOOD.replace("  from: [a-layers]\n", ""))
        self.refused("'secondary' was expected", facts=GOOD.replace("config.json, num_layers", "not found"))

    def test_the_form_of_a_fact(self):
        self.refused("'locater' was unexpected", facts=GOOD.replace("  checked", "  locater: x\n  checked"))
        self.refused("does not match", facts=GOOD.replace("12 layers.\n", "12 layers\n"))
        self.refused("x.yaml:12: error: facts are sorted by id", facts=GOOD.replace("b-cost", "0-cost"),
                     chapter=CHAPTER.replace("b-cost", "0-cost"))
        self.refused("exists twice", facts=GOOD.replace("b-cost", "a-layers"), chapter=CHAPTER.replace("b-cost", "a-layers"))

    def test_what_must_exist(self):
        self.refused("rests on 'c', which does not exist", facts=GOOD.replace("[a-layers]", "[c]"))
        recorded = GOOD.replace("grade: I", "grade: R\n  record: benchmarks/results/x/y.json")
        self.refused("there is no benchmarks/results/x/y.json", facts=recorded)

    def test_what_nobody_cites(self):
        self.refused("fact 'b-cost' is cited nowhere", chapter=CHAPTER.replace("(fact:b-cost)", "(x.md)"))
        self.refused("reference 'two' is cited nowhere", chapter=CHAPTER.replace("@two", "two"))

    def test_the_glossary(self):
        term = "- {id: kv, term: KV, chapter: 6-agentic-rl/01-t, definition: A cache.}\n"
        self.assertEqual(self.messages(glossary=term), [])
        self.refused("there is no chapter '6-agentic-rl/02-u'", glossary=term.replace("01-t", "02-u"))

    def test_numbers_without_a_source(self):
        for number in ("14.8 trillion tokens", "671B parameters", "2.5 GPU-hours", "96 %", "61 layers"):
            self.refused(f"'{number}' needs a source", chapter=CHAPTER + f"\nIt has {number} in all.\n")
        self.assertEqual(self.messages(chapter=CHAPTER + "\nIt has 61 layers.\n", part="1-foundations"), [])
        self.assertEqual(self.messages(chapter=CHAPTER + "\nVersion 3.1, `61 layers`, $61$ of 2025.\n"), [])


if __name__ == "__main__":
    unittest.main()
