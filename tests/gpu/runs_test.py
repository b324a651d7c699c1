"""runs.py reads what GoogleTest and compute-sanitizer write, and sees what is wrong; a stand-in plays the tools, so no GPU is needed."""
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

import runs

TOOL = """#!/bin/sh
# compute-sanitizer --print-limit 3 --tool TOOL PROGRAM ARGUMENT
case "$5 $6" in
  */gpu_faulty*) [ "$BLIND" = "$4" ] && n=0 || n=1 ;;
  *Bad) n=2 ;;
  *) n=0 ;;
esac
case "$4" in
  racecheck) echo "========= RACECHECK SUMMARY: $n hazards displayed ($n errors, 0 warnings)" ;;
  *) echo "========= ERROR SUMMARY: $n errors" ;;
esac
"""
PROGRAM = """#!/bin/sh
printf 'GpuTwin.\\n  add\\n  %s\\n' "$TWIN"
"""


def script(path, text):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


class Runs(unittest.TestCase):
    def sanitizers(self, **environment):
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder)
            (tree / "bin").mkdir()
            script(tree / "compute-sanitizer", TOOL)
            script(tree / "bin/test_gpu_twins", PROGRAM)
            return subprocess.run([sys.executable, runs.__file__, "sanitizers", "--tree", folder], capture_output=True, text=True, check=False,
                                  env={**os.environ, "TWIN": "rope", **environment, "PATH": f"{folder}:{os.environ['PATH']}"})

    def test_clean_runs_are_counted(self):
        record = json.loads(self.sanitizers().stdout.splitlines()[-1])
        self.assertEqual(record["median"], 0)
        self.assertEqual(record["config"]["runs"], {"memcheck": 2, "racecheck": 2, "initcheck": 2})
        self.assertIn("test_gpu_attention", record["config"]["not_built"])

    def test_findings_are_found(self):
        record = json.loads(self.sanitizers(TWIN="Bad").stdout.splitlines()[-1])
        self.assertEqual(record["median"], 6)
        self.assertEqual(record["config"]["wrong"], ["memcheck GpuTwin.Bad", "racecheck GpuTwin.Bad", "initcheck GpuTwin.Bad"])

    def test_a_blind_tool_is_refused(self):
        done = self.sanitizers(BLIND="racecheck")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("racecheck does not find the fault", done.stderr)

    def test_cases_of_a_report(self):
        report = {"testsuites": [{"testsuite": [
            {"status": "RUN", "result": "COMPLETED"}, {"status": "RUN", "result": "SKIPPED"},
            {"status": "RUN", "result": "COMPLETED", "failures": [{}]}, {"status": "NOTRUN", "result": "SUPPRESSED"}]}]}
        self.assertEqual(runs.cases_of(report), {"passed": 1, "failed": 1, "skipped": 1})


if __name__ == "__main__":
    unittest.main()
