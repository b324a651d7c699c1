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
        server = Server("--max-num-seqs", 80, "--max-connections", 2000)
        idle = [server.raw() for _ in range(1000)]
        lazy = server.raw()
        body = json.dumps({"prompt": "x", "max_tokens": 8000, "ignore_eos": True, "stream": True}).encode()
        lazy.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        texts = [f"Message number {i} of many. " + "A rose is a rose. " * 6 for i in range(128)]
        together, most = threading.Barrier(64), 0

        def read(text):
            if text in texts[:64]:
                together.wait(30)
            _, _, answer = server.request("POST", "/v1/chat/completions", stream_body(text))
            lines = [l[6:] for l in answer.decode().split("\n") if l.startswith("data: ")]
            self.assertEqual(lines[-1], "[DONE]")
            return "".join(c["delta"].get("content", "") for l in lines[:-1] for c in json.loads(l)["choices"])

        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            reading = [pool.submit(read, text) for text in texts]
            while not all(answer.done() for answer in reading):
                most = max(most, server.metric("rose_requests_running"))
                time.sleep(0.1)
            self.assertEqual([answer.result() for answer in reading], texts)
        self.assertGreater(most, 40, "they were answered together")
        self.assertEqual(server.metric("rose_connections_refused_total"), 0)
        for s in idle[::50]:  # they are still served
            s.sendall(b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n")
            self.assertTrue(s.recv(4096).startswith(b"HTTP/1.1 200 "))
        with open(f"/proc/{server.process.pid}/status") as f:
            peak = next(int(line.split()[1]) for line in f if line.startswith("VmHWM"))
        self.assertLess(peak, 200_000, "kilobytes of the API process")
        print(f"the API process with 1,000 idle connections and 64 streams: {peak / 1000:.0f} MB at most, {most:.0f} streams seen running")
        for s in (*idle, lazy):
            s.close()
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
