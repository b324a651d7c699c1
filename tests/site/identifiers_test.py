#!/usr/bin/env python3
"""scripts/identifiers.py tells overloaded and qualified names apart, and reads again only what has changed."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts" / "identifiers.py"
HEADER = """#pragma once
#include <string>
namespace rose {
struct Box {
  int size() const;
};
int twice(int n);
std::string twice(const std::string& s);
}
"""
UNIT = """#include "rose/twice.h"
namespace rose {
int Box::size() const { return 1; }
int twice(int n) { return 2 * n; }
std::string twice(const std::string& s) { return s + s; }
int all(const Box& box, const std::string& s) {
  return twice(box.size()) + static_cast<int>(twice(s).size());
}
}
"""


def run(folder):
    done = subprocess.run([sys.executable, SCRIPT, "--jobs", "1", "--generated", folder / "generated", "--out", folder / "identifiers.json",
                           folder / "compile_commands.json"], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


class Identifiers(unittest.TestCase):
    def test_meanings(self):
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            code, said = run(folder)
            self.assertIn("there is no", said)
            self.assertEqual(code, 1)
            (folder / "generated" / "rose").mkdir(parents=True)
            (folder / "generated" / "rose" / "twice.h").write_text(HEADER)
            unit = folder / "generated" / "rose" / "twice.cpp"
            unit.write_text(UNIT)
            (folder / "compile_commands.json").write_text(json.dumps([{
                "directory": str(folder), "file": str(unit),
                "command": f"ccache /usr/bin/c++ -I{folder}/generated -std=c++20 -Winvalid-pch -include {folder}/cmake_pch.hxx -o x.o -c {unit}"}]))
            code, said = run(folder)
            if "not installed" in said:
                self.skipTest(said.strip())
            self.assertEqual(code, 0, said)
            self.assertIn("1 of 1 units", said)
            uses = json.loads((folder / "identifiers.json").read_text())["files"]["rose/twice.cpp"]["uses"]
            self.assertIn([7, 7, "twice", "rose/twice.h", 7], uses)
            self.assertIn([7, 44, "twice", "rose/twice.h", 8], uses)
            self.assertIn([7, 17, "size", "rose/twice.h", 5], uses)
            self.assertIn([7, 53, "size", "", 0], uses)  # std::string's
            self.assertIn([6, 14, "Box", "rose/twice.h", 4], uses)
            self.assertIn("0 of 1 units", run(folder)[1])
            unit.write_text(UNIT.replace("2 * n", "n + n"))
            self.assertIn("1 of 1 units", run(folder)[1])
            unit.write_text(UNIT.replace("return 1", "return nothing"))
            code, said = run(folder)
            self.assertEqual(code, 1)
            self.assertIn("rose/twice.cpp: not read", said)


if __name__ == "__main__":
    unittest.main()
