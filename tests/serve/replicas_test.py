"""`rose serve --data-parallel-size`: conversations stay where they were read, and one engine's death is no one else's."""
import concurrent.futures
import json
import os
import signal
import threading
import time
import unittest

from server import Server


def pieces(answer):
    return [line[6:] for line in answer.decode().split("\n") if line.startswith("data: ")]


def said(answer):
    return "".join(choice["delta"].get("content", "") for piece in pieces(answer)[:-1] for choice in json.loads(piece)["choices"])


class Replicas(unittest.TestCase):
    def engines(self, server):
        return json.loads(server.get("/debug/state")[1])["engines"]

    def both_ready(self, server):
        end = time.monotonic() + 60
        while server.metric("rose_engine_up") < 2:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)

    def test_conversations_stay_at_home(self):
        server = Server("--data-parallel-size", 2)
        try:
            self.both_ready(server)
            talks = [[{"role": "user", "content": f"Conversation {i}: " + f"word{i} " * 80}] for i in range(8)]
            for turn in range(4):
                for talk in talks:
                    status, answer = server.post("/v1/chat/completions", {"messages": talk})
                    self.assertEqual(status, 200)
                    self.assertEqual(answer["choices"][0]["message"]["content"], talk[-1]["content"])
                    used = answer["usage"]
                    if turn:
                        self.assertGreater(used["prompt_tokens_details"]["cached_tokens"], 100, "the engine that has read it was asked")
                    talk += [{"role": "assistant", "content": talk[-1]["content"]}, {"role": "user", "content": f"And {turn}?"}]
            steps = [engine["steps"] for engine in self.engines(server)]
            self.assertGreater(min(steps), max(steps) / 4, "both had something to do")
        finally:
            self.assertEqual(server.stop(), 0)

    def test_the_death_of_one_ends_its_streams_alone(self):
        server = Server("--data-parallel-size", 2, "--parrot-step-us", 1000)
        try:
            self.both_ready(server)
            text = "A rose is a rose is a rose. " * 30
            answers = [None] * 12

            def ask(i):
                body = {"messages": [{"role": "user", "content": f"{i}: {text}"}], "stream": True, "max_tokens": 600}
                answers[i] = server.request("POST", "/v1/chat/completions", body)

            threads = [threading.Thread(target=ask, args=(i,)) for i in range(12)]
            for t in threads:
                t.start()
            end = time.monotonic() + 20
            while time.monotonic() < end and server.metric("rose_requests_running") < 12:
                time.sleep(0.02)
            pids = server.engine_pids()
            self.assertEqual(len(pids), 2)
            os.kill(pids[0], signal.SIGKILL)
            for t in threads:
                t.join()
            whole = [i for i, answer in enumerate(answers) if pieces(answer[2])[-1] == "[DONE]"]
            ended = [i for i in range(12) if i not in whole]
            self.assertTrue(whole and ended, "one had some of the streams, and the other the rest")
            for i in whole:
                self.assertEqual(said(answers[i][2]), f"{i}: {text}")
            for i in ended:
                self.assertEqual(json.loads(pieces(answers[i][2])[-1])["error"]["code"], "engine_unavailable")
            self.assertEqual(server.get("/health")[0], 200, "one engine can answer")
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                for status, _ in pool.map(lambda i: server.post("/v1/completions", {"prompt": f"{i}", "max_tokens": 3}), range(20)):
                    self.assertEqual(status, 200)
            self.both_ready(server)
            self.assertEqual(server.metric("rose_engine_restarts_total"), 1)
            self.assertEqual(len(self.engines(server)), 2)
            state = json.loads(server.get("/debug/state")[1])
            self.assertEqual(sum(n for _, n in state["engines"][0]["page_states"]), sum(n for _, n in state["engines"][1]["page_states"]))
        finally:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
