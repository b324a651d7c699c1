"""What a server must survive: clients that lie, vanish or wait, keys, drains, and an engine that is killed."""
import concurrent.futures
import hashlib
import json
import os
import random
import signal
import socket
import tempfile
import threading
import time
import unittest

import connections
from server import Server


def stream_body(text, **fields):
    return {"messages": [{"role": "user", "content": text}], "stream": True, **fields}


class Hostile(unittest.TestCase):
    def test_clients_that_vanish_at_any_byte(self):
        server = Server("--max-num-seqs", 8, "--parrot-step-us", 300)
        body = json.dumps({"prompt": "forever", "max_tokens": 4000, "ignore_eos": True, "stream": True}).encode()
        request = b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        draw = random.Random(1)
        for i in range(60):
            with server.raw() as s:
                s.sendall(request[: draw.randrange(len(request) + 1)] if i % 2 else request)
                if i % 2 == 0:
                    s.recv(draw.randrange(1, 3000))
        end = time.monotonic() + 20
        while time.monotonic() < end and (server.metric("rose_kv_pages_referenced") or server.metric("rose_requests_running")):
            time.sleep(0.1)
        self.assertEqual(server.metric("rose_requests_running"), 0, "their answers were stopped")
        self.assertEqual(server.metric("rose_kv_pages_referenced"), 0, "and their pages given back")
        # not streamed, and gone before the answer
        slow = json.dumps({"prompt": "forever", "max_tokens": 7000, "ignore_eos": True}).encode()
        with server.raw() as s:
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(slow) + slow)
            time.sleep(0.7)
            self.assertEqual(server.metric("rose_requests_running"), 1)
        end = time.monotonic() + 10
        while time.monotonic() < end and server.metric("rose_requests_running"):
            time.sleep(0.1)
        self.assertEqual(server.metric("rose_requests_running"), 0)
        self.assertEqual(server.stop(), 0)

    def test_a_full_queue_says_when_to_come_back(self):
        server = Server("--max-num-seqs", 1, "--max-waiting", 1, "--parrot-step-us", 2000)
        answers = []

        def ask():
            answers.append(server.request("POST", "/v1/completions", {"prompt": "x", "max_tokens": 150, "ignore_eos": True}))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        statuses = sorted(a[0] for a in answers)
        self.assertEqual(set(statuses), {200, 429})
        full = next(a for a in answers if a[0] == 429)
        self.assertGreaterEqual(int(full[1]["retry-after"]), 1)
        self.assertEqual(json.loads(full[2])["error"]["type"], "rate_limit_error")
        self.assertEqual(server.stop(), 0)

    def test_an_engine_that_is_killed(self):
        server = Server("--parrot-step-us", 1000)
        long = {"prompt": "x", "max_tokens": 5000, "ignore_eos": True}
        with server.raw() as s, concurrent.futures.ThreadPoolExecutor(1) as pool:
            body = json.dumps({**long, "stream": True}).encode()
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            heard = b""
            while heard.count(b"data:") < 3:
                heard += s.recv(4096)
            whole = pool.submit(server.post, "/v1/completions", long)
            time.sleep(0.3)
            (pid,) = server.engine_pids()
            os.kill(pid, signal.SIGKILL)
            while not heard.endswith(b"0\r\n\r\n"):
                piece = s.recv(4096)
                self.assertTrue(piece, "the stream is ended, not the connection")
                heard += piece
            last = [line for line in heard.split(b"\n") if line.startswith(b"data: ")][-1]
            self.assertEqual(json.loads(last[6:])["error"]["code"], "engine_unavailable")
            self.assertNotIn(b"[DONE]", heard)
            status, answer = whole.result()
            self.assertEqual((status, answer["error"]["code"]), (503, "engine_unavailable"))
            self.assertEqual(server.get("/health")[0], 503)
            self.assertEqual(server.post("/v1/completions", long)[0], 503)
            self.assertEqual(server.post("/tokenize", {"prompt": "still here"})[0], 200)
        server.wait_until_healthy()
        self.assertEqual(server.metric("rose_engine_restarts_total"), 1)
        self.assertNotEqual(server.engine_pids(), [pid])
        self.assertEqual(server.post("/v1/completions", {"prompt": "x", "max_tokens": 3})[0], 200)
        pids = server.engine_pids()
        server.process.kill()  # and the other way: the engine does not outlive its front
        server.process.wait()
        end = time.monotonic() + 10
        while time.monotonic() < end and os.path.exists(f"/proc/{pids[0]}") and "Z" not in open(f"/proc/{pids[0]}/stat").read().split()[2]:
            time.sleep(0.05)
        self.assertTrue(not os.path.exists(f"/proc/{pids[0]}") or open(f"/proc/{pids[0]}/stat").read().split()[2] == "Z")

    def test_keys_origins_pages_and_a_drain(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "site"))
            for name, text in (("site/index.html", "<p>The book"), ("secret", "secret"), ("keys", "# ours\nabc\nsha256:" + hashlib.sha256(b"def").hexdigest() + "\n")):
                with open(os.path.join(folder, name), "w") as f:
                    f.write(text)
            server = Server("--site", os.path.join(folder, "site"), "--api-key-file", os.path.join(folder, "keys"), "--cors-origin", "https://a.example", "--parrot-step-us", 1000)
            ask = {"prompt": "x", "max_tokens": 2}
            self.assertEqual(server.post("/v1/completions", ask)[1]["error"]["code"], "missing_api_key")
            for key, status in (("abc", 200), ("def", 200), ("abd", 401), ("", 401), ("# ours", 401)):
                self.assertEqual(server.post("/v1/completions", ask, {"authorization": f"Bearer {key}"})[0], status, key)
            self.assertEqual(server.request("GET", "/v1/models")[0], 401)
            status, headers, body = server.request("GET", "/")
            self.assertEqual((status, body, headers["content-type"]), (200, b"<p>The book", "text/html; charset=utf-8"))
            for path in ("/../secret", "/%2e%2e/secret", "/..%2fsecret", "//secret", "/%2e%2e%2f%2e%2e%2fetc/passwd"):
                self.assertNotEqual(server.request("GET", path)[2], b"secret")
            status, headers, _ = server.request("OPTIONS", "/v1/chat/completions", headers={"origin": "https://a.example"})
            self.assertEqual((status, headers["access-control-allow-origin"]), (204, "https://a.example"))
            self.assertNotIn("access-control-allow-origin", server.request("OPTIONS", "/v1/models", headers={"origin": "https://b.example"})[1])
            self.assertEqual(server.request("POST", "/tokenize", b"a=b", {"content-type": "text/plain", "authorization": "Bearer abc"})[0], 415)
            evil = server.request("GET", "/health", headers={"x-request-id": "a b<script>"})[1]["x-request-id"]
            self.assertNotIn("<", evil)
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                running = pool.submit(server.post, "/v1/completions", {"prompt": "x", "max_tokens": 800, "ignore_eos": True}, {"authorization": "Bearer abc"})
                time.sleep(0.5)
                server.process.send_signal(signal.SIGTERM)
                status, answer = running.result()
            self.assertEqual((status, answer["usage"]["completion_tokens"]), (200, 800), "what had begun was finished")
            self.assertEqual(server.process.wait(20), 0)

    def test_idle_connections_and_streams_side_by_side(self):
        """1,000 idle connections and 64 streams lose nothing, a reader that does not read blocks nobody, and the front stays small."""
        peak, most, wrong, lost, ended = connections.measure(Server)
        self.assertEqual((wrong, lost, ended), (0, 0, 0))
        self.assertGreater(most, 40, "they were answered together")
        self.assertLess(peak, 200, "megabytes of the API process")


if __name__ == "__main__":
    unittest.main()
