"""Every operation of a GPU has a twin, and every twin a line: what the headers declare against what tests/gpu calls."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HEADERS = ROOT / "generated/rose/kernels/gpu"
TWINS = ROOT / "tests/gpu"

# Takes a stream and computes nothing: graphs and events, transfers, plans that are brought to the device; and what stands behind an
# operation, which is called through it.
NOT_AN_OPERATION = {
    "graph.h": None, "stopwatch.h": None, "stream.h": None, "buffer.h": None, "instruments.h": None,
    "linear_paths.h": None, "norm_arguments.h": None, "attention_arguments.h": None,
    "attention.h": {"upload"}, "attention_backward.h": {"upload"},
}
DECLARED = re.compile(r"\bvoid\s+(\w+)\(([^;{}]*?\bStream\b[^;{}]*?)\)\s*;")
COMMENT = re.compile(r"//[^\n]*")


def operations(headers):
    """Names of the functions that enqueue work, with the header of each."""
    found = {}
    for path in sorted(headers.glob("*.h")):
        without = NOT_AN_OPERATION.get(path.name, set())
        if without is None:
            continue
        for match in DECLARED.finditer(COMMENT.sub("", path.read_text(encoding="utf-8"))):
            if match.group(1) not in without:
                found.setdefault(match.group(1), path.name)
    return found


def called(text, name):
    return re.search(rf"(?<![\w:.]){name}\(", text) is not None


class Operations(unittest.TestCase):
    def setUp(self):
        self.twins = {p.name: COMMENT.sub("", p.read_text(encoding="utf-8")) for p in sorted(TWINS.glob("twin_*.h"))}
        self.lines = COMMENT.sub("", (TWINS / "twins_test.cpp").read_text(encoding="utf-8"))

    def test_every_operation_is_called_by_a_twin(self):
        found = operations(HEADERS)
        self.assertGreater(len(found), 40, "the headers are not where they were, or are written in another way")
        everything = "\n".join(self.twins.values())
        missing = [f"{header}: {name}" for name, header in found.items() if not called(everything, name)]
        self.assertEqual(missing, [], "operations without a twin in tests/gpu")

    def test_every_twin_has_a_line(self):
        for header, text in self.twins.items():
            for name in re.findall(r"^inline void (twin_\w+)\(Fuzz& ", text, re.M):
                self.assertRegex(self.lines, rf"ROSE_TWIN\(\w+, \d+, {name}\)", f"{header} has a twin that nobody runs")

    def test_every_twin_poisons_what_it_checks(self):
        # Outputs of the frame are poisoned and guarded; a twin without one poisons a buffer, or works on its inputs in place.
        for header, text in self.twins.items():
            for match in re.finditer(r"^inline void (twin_\w+)\(Fuzz& .*?^}", text, re.M | re.S):
                marks = ("fuzz.output", "Output ", ".poison()", "DeviceMatrix", ".current()", "Buffer::of", "OptimizerDraw")
                self.assertTrue(any(mark in match.group(0) for mark in marks), f"{header}: {match.group(1)}")

    def test_the_check_sees_what_is_missing(self):
        self.assertFalse(called("rmsnorm_backward(x); kernels::softmax(y);", "softmax"))
        self.assertTrue(called("  softmax(x.view(), {});", "softmax"))


if __name__ == "__main__":
    unittest.main()
