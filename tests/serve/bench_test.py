"""`rose bench serve` against `rose serve` with the parrot: started by it and running already, results, tables, pictures, merging."""
import json
import os
import subprocess
import tempfile
import unittest
import xml.dom.minidom

from server import ROSE, Server


def bench(*arguments, status=0):
    done = subprocess.run([ROSE, "bench", "serve", *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


class Bench(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def test_a_server_that_it_starts(self):
        out = bench("--start", "rose", "--model", "SmolLM2-135M-Instruct.Q4_1", "--offline", "--rates", "20,40", "--requests", 12,
                    "--prompt-tokens", "20:40", "--answer-tokens", "5:9", "--seeds", "1,2", "--slo", "ttft:5000",
                    "--out", self.path("r.json"), "--svg", self.path("r.svg"), "--markdown", self.path("r.md"),
                    "--server-arguments=--parrot")
        self.assertIn("| rose | poisson, 20 a second", out)
        results = json.load(open(self.path("r.json")))["results"]
        self.assertEqual([r["workload"]["arrivals"] for r in results], ["all", "poisson", "poisson"] * 2)
        for r in results:
            self.assertEqual((r["summary"]["answered"], r["summary"]["ended_early"], r["summary"]["errors"]), (12, 0, {}))
            self.assertEqual(r["summary"]["output_tokens"], sum(q["wanted"] for q in r["requests"]))
            self.assertIsNotNone(r["summary"]["itl_ms"])
        xml.dom.minidom.parse(self.path("r.svg"))
        bench("merge", self.path("r.json"), "--out", self.path("m.json"))
        merged = json.load(open(self.path("m.json")))["results"]
        self.assertEqual([r["summary"]["answered"] for r in merged], [24, 24, 24])
        self.assertIn("there twice", bench("merge", self.path("r.json"), self.path("r.json"), status=2))

    def test_conversations_with_a_server_that_runs(self):
        server = Server()
        try:
            name = json.loads(server.get("/v1/models")[1])["data"][0]["id"]
            bench("--port", server.port, "--served-model-name", name, "--chat", "--turns", 3, "--concurrency", 2, "--requests", 4,
                  "--prompt-tokens", 10, "--answer-tokens", 6, "--out", self.path("c.json"), "--label", "mine")
            result = json.load(open(self.path("c.json")))["results"][0]
            self.assertEqual((result["label"], result["summary"]["answered"]), ("mine", 12))
            prompts = [q["prompt"] for q in result["requests"]]
            self.assertTrue(prompts[0] < prompts[1] < prompts[2], prompts)
            out = bench("--port", server.port, "--served-model-name", "nobody", "--requests", 2, "--warmup", 0)
            self.assertIn("Failed: 2 × status 404", out)
        finally:
            server.stop()

    def test_servers_that_are_not_there(self):
        self.assertIn("rose", bench("servers"))
        self.assertIn("known: rose", bench("--start", "nothing", "--model", "x", status=3))


if __name__ == "__main__":
    unittest.main()
