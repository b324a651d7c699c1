"""Traces, lines and metrics of a running server, with a collector of our own; and TLS, with a certificate of our own."""
import http.server
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest

from server import ROSE, Server

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"


class Collector:
    """Keeps the spans that are posted to it, by their trace."""

    def __init__(self, hangs=False):
        collector = self
        self.spans, self.resource, self.headers = {}, None, None

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if hangs:
                    time.sleep(3600)
                collector.headers = self.headers
                for resource in body["resourceSpans"]:
                    collector.resource = {a["key"]: a["value"]["stringValue"] for a in resource["resource"]["attributes"]}
                    for scope in resource["scopeSpans"]:
                        for span in scope["spans"]:
                            collector.spans.setdefault(span["traceId"], []).append(span)
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1/traces"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def trace(self, trace_id, spans=1, seconds=15):
        end = time.monotonic() + seconds
        while len(self.spans.get(trace_id, [])) < spans and time.monotonic() < end:
            time.sleep(0.05)
        return self.spans.get(trace_id, [])


def chat(text, **fields):
    return {"messages": [{"role": "user", "content": text}], **fields}


def attributes(span):
    return {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}


class Observed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.log = os.path.join(cls.folder.name, "requests.jsonl")
        cls.collector = Collector()
        keys = os.path.join(cls.folder.name, "keys")
        with open(keys, "w", encoding="utf-8") as file:
            file.write("secret name=alice\n")
        cls.server = Server("--otlp-endpoint", cls.collector.url, "--request-log", cls.log, "--api-key-file", keys, "--parrot-step-us", 2000,
                            env={"OTEL_SERVICE_NAME": "test", "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=42"})

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0
        cls.folder.cleanup()

    def ask(self, path, body, **headers):
        return self.server.request("POST", path, body, {"authorization": "Bearer secret", **headers})

    def tree(self, trace_id, count):
        spans = self.collector.trace(trace_id, count)
        self.assertEqual(len(spans), count, [s["name"] for s in spans])
        root = next(s for s in spans if s["kind"] == 2)
        children = {s["name"]: s for s in spans if s is not root}
        for child in children.values():
            self.assertEqual(child["parentSpanId"], root["spanId"])
            self.assertLessEqual(int(root["startTimeUnixNano"]), int(child["startTimeUnixNano"]))
            self.assertLessEqual(int(child["endTimeUnixNano"]), int(root["endTimeUnixNano"]))
        return root, children

    def test_a_tree_below_the_callers_span(self):
        for stream in (False, True):
            parent = PARENT.replace("0af7", "1af7" if stream else "2af7") + "1"
            status, headers, _ = self.ask("/v1/chat/completions", chat("one two three four", stream=stream), traceparent=parent, **{"x-request-id": f"r{stream}"})
            self.assertEqual(status, 200)
            trace = parent.split("-")[1]
            root, children = self.tree(trace, 4)
            self.assertEqual((root["parentSpanId"], root["name"], root["status"]["code"]), ("b7ad6b7169203331", "POST /v1/chat/completions", 1))
            self.assertEqual(headers["traceparent"], f"00-{trace}-{root['spanId']}-01")
            self.assertEqual(set(children), {"queue", "prefill", "decode"})
            for before, after in (("queue", "prefill"), ("prefill", "decode")):
                self.assertEqual(children[before]["endTimeUnixNano"], children[after]["startTimeUnixNano"])
            a = attributes(root)
            self.assertEqual((a["http.response.status_code"], a["gen_ai.response.finish_reason"], a["rose.request.id"]), ("200", "stop", f"r{stream}"))
            self.assertGreater(int(a["gen_ai.usage.input_tokens"]), int(a["gen_ai.usage.output_tokens"]))
        self.assertEqual(self.collector.resource["service.name"], "test")
        self.assertEqual(self.collector.headers["x-tenant"], "42")

    def test_who_is_recorded(self):
        self.ask("/v1/completions", {"prompt": "x", "max_tokens": 1}, traceparent=PARENT.replace("0af7", "3af7") + "0")  # the caller records nothing
        _, headers, _ = self.ask("/v1/completions", {"prompt": "x", "max_tokens": 1}, traceparent="nonsense")
        trace = headers["traceparent"].split("-")[1]
        root, _ = self.tree(trace, 4)
        self.assertNotIn("parentSpanId", root)
        self.assertEqual(self.collector.spans.get(PARENT.replace("0af7", "3af7").split("-")[1]), None)

    def test_refusals_and_failures(self):
        parent = PARENT.replace("0af7", "4af7") + "1"
        self.assertEqual(self.ask("/v1/completions", {"prompt": "x", "n": 0}, traceparent=parent)[0], 400)
        root, children = self.tree(parent.split("-")[1], 1)
        self.assertEqual((attributes(root)["error.type"], root["status"]["code"], children), ("integer_below_min_value", 1, {}))
        self.assertEqual(self.server.request("POST", "/v1/completions", {"prompt": "x"}, {"traceparent": PARENT.replace("0af7", "5af7") + "1"})[0], 401)
        root, _ = self.tree(PARENT.replace("0af7", "5af7").split("-")[1], 1)
        self.assertEqual(attributes(root)["http.response.status_code"], "401")
        page = self.server.get("/metrics", {"authorization": "Bearer secret"})[1].decode()
        self.assertIn('rose_errors_total{status="400",code="integer_below_min_value"}', page)
        self.assertIn('rose_errors_total{status="401",code="missing_api_key"}', page)

    def test_an_engine_that_dies(self):
        parent = PARENT.replace("0af7", "6af7") + "1"
        result = []
        asking = threading.Thread(target=lambda: result.append(self.ask("/v1/completions", {"prompt": "x", "max_tokens": 2000, "ignore_eos": True}, traceparent=parent)))
        asking.start()
        time.sleep(0.3)
        os.kill(self.server.engine_pids()[0], signal.SIGKILL)
        asking.join(30)
        self.assertEqual(result[0][0], 503)
        root, children = self.tree(parent.split("-")[1], 4)
        self.assertEqual((root["status"]["code"], root["status"]["message"]), (2, "engine_unavailable"))
        self.server.wait_until_healthy()

    def test_lines(self):
        self.ask("/v1/chat/completions", chat("count me"), **{"x-request-id": "line-1"})
        self.ask("/v1/completions", {"prompt": "x", "n": 0}, **{"x-request-id": "line-2"})
        os.rename(self.log, self.log + ".1")
        time.sleep(1.1)
        self.ask("/v1/completions", {"prompt": "x", "max_tokens": 1}, **{"x-request-id": "line-3"})
        lines = {}
        for name in (self.log + ".1", self.log):
            with open(name, encoding="utf-8") as file:
                for line in map(json.loads, file):
                    lines[line["request"]] = (name, line)
        one, two, three = lines["line-1"][1], lines["line-2"][1], lines["line-3"]
        self.assertEqual((one["status"], one["key"], one["finish"], one["path"]), (200, "alice", "stop", "/v1/chat/completions"))
        self.assertLessEqual(one["queue_ms"], one["first_token_ms"])
        self.assertLessEqual(one["first_token_ms"], one["ms"])
        self.assertNotIn("count me", json.dumps(one))
        self.assertEqual((two["status"], two["code"]), (400, "integer_below_min_value"))
        self.assertEqual(three[0], self.log, "a renamed file is opened anew")

    def test_a_collector_that_hangs_slows_nobody(self):
        stuck = Collector(hangs=True)
        server = Server("--otlp-endpoint", stuck.url)
        try:
            begin = time.monotonic()
            for _ in range(700):
                self.assertEqual(server.post("/v1/completions", {"prompt": "x", "max_tokens": 1})[0], 200)
            self.assertLess(time.monotonic() - begin, 60)
            self.assertGreater(server.metric("rose_spans_dropped_total"), 0)
            self.assertGreaterEqual(server.metric("rose_queue_seconds_count"), 700)
        finally:
            server.process.kill()  # its last attempt would wait for the collector
            server.process.wait()


@unittest.skipUnless(shutil.which("openssl"), "no openssl to make a certificate with")
class Encrypted(unittest.TestCase):
    def test_https(self):
        with tempfile.TemporaryDirectory() as folder:
            cert, key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                            "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert], check=True, capture_output=True)
            with self.assertRaises(AssertionError):
                Server("--tls-cert", key, "--tls-key", cert)
            server = Server("--tls-cert", cert, "--tls-key", key, wait=False)
            try:
                context = ssl.create_default_context(cafile=cert)
                self.talk(server, context)
                strangers = socket.create_connection(("127.0.0.1", server.port), timeout=10)
                strangers.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")  # no TLS: nothing is told
                self.assertNotIn(b"HTTP/1.1 200", strangers.recv(100))
                strangers.close()
                # our own client: trusts whom it is told to trust, for the name that it asked for, and nobody else
                pull = lambda host, **env: subprocess.run([ROSE, "models", "pull", "a/b"], capture_output=True, text=True, timeout=60,
                                                          env={**os.environ, "HF_HUB_CACHE": folder, "HF_ENDPOINT": f"https://{host}:{server.port}", **env})
                self.assertIn("handshake", pull("localhost").stderr)
                self.assertIn("404", pull("localhost", SSL_CERT_FILE=cert).stderr)
            finally:
                self.assertEqual(server.stop(), 0)

    def talk(self, server, context):
        import http.client

        def ask(method, path, body=None, connection=None):
            c = connection or http.client.HTTPSConnection("localhost", server.port, context=context, timeout=30)
            c.request(method, path, json.dumps(body) if body else None, {"content-type": "application/json"} if body else {})
            answer = c.getresponse()
            return answer.status, answer.read()

        end = time.monotonic() + 60
        while ask("GET", "/health")[0] != 200:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        kept = http.client.HTTPSConnection("localhost", server.port, context=context, timeout=30)
        for i in range(5):
            status, body = ask("POST", "/v1/chat/completions", chat(f"number {i}"), kept)
            self.assertEqual((status, json.loads(body)["choices"][0]["message"]["content"]), (200, f"number {i}"))
        status, body = ask("POST", "/v1/chat/completions", chat("a stream " * 200, stream=True))
        self.assertTrue(body.endswith(b"data: [DONE]\n\n"))
        big = json.dumps(chat("x" * 300_000, max_tokens=1))
        self.assertEqual(ask("POST", "/v1/chat/completions", json.loads(big))[0], 400, "longer than the context, and whole")
        raw = context.wrap_socket(socket.create_connection(("127.0.0.1", server.port), timeout=30), server_hostname="localhost")
        raw.sendall(b"GET /health HTTP/1.1\r\nHost: h\r\n\r\nGET /version HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")  # two at once
        got = b""
        while piece := raw.recv(4096):  # to the end, with TLS's own goodbye: else this raises
            got += piece
        self.assertEqual((got.count(b"HTTP/1.1 200"), b"version" in got), (2, True))
        gone = context.wrap_socket(socket.create_connection(("127.0.0.1", server.port), timeout=30), server_hostname="localhost")
        body = json.dumps({"prompt": "x", "max_tokens": 3000, "ignore_eos": True, "stream": True}).encode()
        gone.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        gone.recv(100)
        gone.close()
        end = time.monotonic() + 20
        while json.loads(ask("GET", "/debug/state")[1])["running"] > 0:
            self.assertLess(time.monotonic(), end, "somebody who left is noticed")
            time.sleep(0.1)


if __name__ == "__main__":
    unittest.main()
