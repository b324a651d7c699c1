"""`rose serve --prefill-engines 1`: the answers of one engine, before and after the reading engine is killed."""
import json
import os
import signal
import subprocess
import time
import unittest

from server import Server


def children(pid):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout
    return [int(p) for p in found.split()]


def ask(server, text):
    status, answer = server.post("/v1/completions", {
        "model": server.name, "prompt": text,
        "max_tokens": 12, "temperature": 0.7, "seed": 5, "logprobs": 1}, timeout=120)
    assert status == 200, answer
    choice = answer["choices"][0]
    return choice["text"], choice["logprobs"]["token_logprobs"], answer["usage"]


class Split(unittest.TestCase):
    def test_answers_are_those_of_one_engine(self):
        texts = [f"Story {n}. " + "The rose garden behind the old library was quiet in the morning. " * 20 for n in range(4)]
        servers = [Server("--prefill-engines", "1", parrot=False), Server(parrot=False)]
        try:

            for s in servers:
                s.name = json.loads(s.get("/v1/models")[1])["data"][0]["id"]
            split, single = servers
            engine = split.engine_pids()[0]
            end = time.monotonic() + 60
            while not children(engine) and time.monotonic() < end:
                time.sleep(0.05)
            reader = children(engine)[0]
            moved = 0
            for i, text in enumerate(texts):
                if i == 3:
                    os.kill(reader, signal.SIGKILL)
                elif i == 0:
                    time.sleep(3)  # until the reader has loaded
                ours, theirs = ask(split, text), ask(single, text)
                self.assertEqual(ours[:2], theirs[:2])
                moved += ours[2].get("prompt_tokens_details", {}).get("cached_tokens", 0) > 100
            self.assertGreater(moved, 0, "the detour was never taken")
            self.assertEqual(split.get("/health")[0], 200)
        finally:
            for s in servers:
                s.stop()


if __name__ == "__main__":
    unittest.main()
