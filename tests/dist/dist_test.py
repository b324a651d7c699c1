"""`rose launch` and groups of processes: sums with the same bits on any number of ranks, and everybody gone, with a reason, when one rank dies, hangs,
does something else or is another program."""
import os
import re
import signal
import socket
import subprocess
import sys
import time
import unittest

BIN = os.environ["ROSE_BIN"]
ROSE, TOOL = os.path.join(BIN, "rose"), os.path.join(BIN, "dist_tool")


def launch(ranks, *command, options=()):
    start = time.monotonic()
    done = subprocess.run([ROSE, "launch", "-n", str(ranks), *options, "--", *command], capture_output=True, text=True, timeout=60)
    return done, time.monotonic() - start


class Launch(unittest.TestCase):
    def test_every_process_knows_who_it_is(self):
        done, _ = launch(3, "sh", "-c", "echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE at $MASTER_ADDR")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), [f"[{r}] {r} of 3, {r} of 3 at 127.0.0.1" for r in range(3)])
        done, _ = launch(2, "sh", "-c", "echo $RANK of $WORLD_SIZE", options=("--nodes", "2", "--node", "1", "--port", "4711"))
        self.assertEqual(sorted(done.stdout.splitlines()), ["[2] 2 of 4", "[3] 3 of 4"])
        done, _ = launch(1, "models", "--help")  # a command of rose's own, and no prefix where there is one process
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("rose models", done.stdout)

    def test_one_failure_ends_all_with_its_status(self):
        done, took = launch(3, "sh", "-c", "if [ $RANK = 1 ]; then exit 7; fi; sleep 50")
        self.assertEqual(done.returncode, 7)
        self.assertIn("rank 1 ended with status 7", done.stderr)
        self.assertLess(took, 15)
        done, took = launch(2, "sh", "-c", "trap '' TERM; if [ $RANK = 1 ]; then exit 3; fi; exec sleep 50", options=("--grace", "1"))
        self.assertEqual(done.returncode, 3)
        self.assertLess(took, 15)
        done, _ = launch(2, "/no/such/program")
        self.assertEqual(done.returncode, 3)
        self.assertIn("/no/such/program", done.stderr)
        done, _ = launch(2, "true", options=("--nodes", "2"))
        self.assertEqual(done.returncode, 2)
        self.assertIn("--port", done.stderr)


class Processes(unittest.TestCase):
    def test_sums_are_canonical_on_any_number_of_ranks(self):
        for ranks in (1, 2, 3, 4):
            done, _ = launch(ranks, TOOL, "sums")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertRegex(done.stdout, r"sums [0-9a-f]{16}")

    def gone(self, what, bound, *expected, status=6):
        done, took = launch(3, *what)
        said = done.stdout + done.stderr
        self.assertNotEqual(done.returncode, 0, said)
        self.assertLess(took, bound, said)
        for words in expected:
            self.assertRegex(said, words)
        return said

    def test_a_rank_that_is_killed_is_named_by_all_others(self):
        said = self.gone((TOOL, "die", "1"), 15, r"rank 1 was ended by signal 9")
        for rank in (0, 2):
            self.assertRegex(said, rf"\[{rank}\] .*rank 1 has gone.*all_reduce f32\[2000000\] at dist_main\.cpp:\d+")

    def test_a_rank_that_hangs_is_named(self):
        start = time.monotonic()
        process = subprocess.Popen([ROSE, "launch", "-n", "3", "--grace", "1", "--", TOOL, "hang", "2"], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        said, _ = process.communicate(timeout=40)
        self.assertNotEqual(process.returncode, 0)
        self.assertLess(time.monotonic() - start, 25, said)
        self.assertRegex(said, r"all_reduce f32\[2000000\] at dist_main\.cpp:\d+ .*has waited 3 s; missing: rank 2")

    def test_ranks_that_call_different_things_are_told_both(self):
        said = self.gone((TOOL, "differ"), 5, r"all_reduce f32\[1000\] at dist_main\.cpp", r"broadcast f32\[1000\] at dist_main\.cpp")
        self.assertEqual(len(re.findall(r"\[\d\] .*calls", said)), 3, said)

    def test_another_version_is_refused_by_all(self):
        said = self.gone((TOOL, "version", "2"), 10, r'rank 2 runs "rose 2", rank 0 runs "rose 1"')
        self.assertEqual(len(re.findall(r'runs "rose 2"', said)), 3, said)

    def test_a_port_in_use_and_a_rank_that_is_missing(self):
        with socket.socket() as taken:
            taken.bind(("0.0.0.0", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            done, _ = launch(1, TOOL, options=("--nodes", "2", "--node", "0", "--port", port))
            self.assertEqual(done.returncode, 6)
            self.assertIn(f"port {port} is in use", done.stderr)
        half = subprocess.run([TOOL], env={**os.environ, "RANK": "0"}, capture_output=True, text=True, timeout=30)
        self.assertEqual(half.returncode, 2)
        self.assertIn("WORLD_SIZE", half.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
