"""`rose models pull` against a hub of our own that does everything a hub and a network may do."""
import hashlib
import http.server
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
ROSE = os.path.join(os.environ["ROSE_BIN"], "rose")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
WEIGHTS = hashlib.sha256(b"w").digest() * 100_000  # 3.2 MB
FILES = {"config.json": b'{"model_type": "x"}', "tokenizer.json": b"{}", "a b%.json": b"[1]", "model.safetensors": WEIGHTS, "pytorch_model.bin": b"pickle" * 1000}


class Hub:
    """Serves FILES. `cut`: every answer ends after so many bytes; `slow`: seconds between pieces."""

    def __init__(self, token=None, cut=None, slow=0.0, ranges=True, wrong=None, elsewhere=None, refuse=0, names=None):
        hub = self
        self.requests, self.refuse, self.wrong = [], refuse, wrong

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                hub.requests.append((self.path, self.headers.get("range"), self.headers.get("authorization")))
                if token and self.headers.get("authorization") != f"Bearer {token}" and not self.path.startswith("/cdn/"):
                    return self.answer(401, b"")
                if hub.refuse > 0:
                    hub.refuse -= 1
                    return self.answer(503, b"")
                if self.path == "/api/models/org/model/revision/main?blobs=true":
                    return self.answer(200, json.dumps(hub.listing(names)).encode())
                found = re.fullmatch(f"/(?:cdn/)?org/model/resolve/{COMMIT}/(.*)", self.path)
                name = found and found[1].replace("%20", " ").replace("%25", "%")
                if name not in FILES:
                    return self.answer(404, b"")
                if elsewhere and not self.path.startswith("/cdn/"):
                    return self.answer(302, b"", location=f"{elsewhere()}/cdn{self.path}")
                self.send_file(name)

            def answer(self, status, body, **headers):
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def send_file(self, name):
                body = FILES[name]
                if name == hub.wrong:
                    body = body[:10] + b"\0" + body[11:]
                begin = 0
                asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("range") or "")
                if asked and ranges:
                    begin = int(asked[1])
                self.send_response(206 if asked and ranges else 200)
                self.send_header("content-length", str(len(body) - begin))
                if asked and ranges:
                    self.send_header("content-range", f"bytes {begin}-{len(body) - 1}/{len(body)}")
                self.end_headers()
                end = len(body) if cut is None else min(len(body), begin + cut)
                piece = 1 << 16
                for at in range(begin, end, piece):
                    self.wfile.write(body[at:min(end, at + piece)])
                    time.sleep(slow)
                if end < len(body):
                    self.close_connection = True
                    self.connection.close()

            def log_message(self, *_):
                pass

            def handle(self):
                try:
                    super().handle()
                except (OSError, ValueError):
                    pass

            def finish(self):
                try:
                    super().finish()
                except (OSError, ValueError):
                    pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @staticmethod
    def listing(names=None):
        files = []
        for name, body in FILES.items():
            one = {"rfilename": names.get(name, name) if names else name, "size": len(body),
                   "blobId": hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()}
            if len(body) > 1000:
                one["lfs"] = {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body), "pointerSize": 130}
            files.append(one)
        return {"id": "org/model", "sha": COMMIT, "siblings": files}


class Pull(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.cache = self.folder.name
        self.root = os.path.join(self.cache, "models--org--model")

    def tearDown(self):
        self.folder.cleanup()

    def start(self, hub, *arguments, **env):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
        environment.update({"HF_HUB_CACHE": self.cache, **({"HF_ENDPOINT": hub.url} if hub else {}), **env})
        return subprocess.Popen([ROSE, "models", "pull", "org/model", *arguments], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def pull(self, hub, *arguments, **env):
        process = self.start(hub, *arguments, **env)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def check(self, names=("config.json", "tokenizer.json", "model.safetensors")):
        snapshot = os.path.join(self.root, "snapshots", COMMIT)
        self.assertEqual(sorted(os.listdir(snapshot)), sorted(names))
        for name in names:
            with open(os.path.join(snapshot, name), "rb") as file:
                self.assertEqual(file.read(), FILES[name])
        with open(os.path.join(self.root, "refs", "main"), encoding="utf-8") as file:
            self.assertEqual(file.read(), COMMIT)
        self.assertEqual([f for f in os.listdir(os.path.join(self.root, "blobs")) if "incomplete" in f], [])

    def test_a_model_arrives_where_others_look_for_it(self):
        code, out, err = self.pull(Hub())
        self.assertEqual(code, 0, err)
        self.assertIn(os.path.join(self.root, "snapshots", COMMIT), out)
        self.check()
        code, _, _ = self.pull(hub := Hub())
        self.assertEqual((code, len(hub.requests)), (0, 1), "what is here is not fetched again")
        oracle = ("import sys, huggingface_hub as h; p = h.snapshot_download('org/model', cache_dir=sys.argv[1], local_files_only=True);"
                  "print(h.try_to_load_from_cache('org/model', 'model.safetensors', cache_dir=sys.argv[1]) == p + '/model.safetensors')")
        said = subprocess.run([sys.executable, "-c", oracle, self.cache], capture_output=True, text=True, timeout=120, env={**os.environ, "HF_HUB_OFFLINE": "1"})
        self.assertEqual(said.stdout.strip(), "True", said.stderr)
        listed = subprocess.run([ROSE, "models"], capture_output=True, text=True, env={**os.environ, "HF_HUB_CACHE": self.cache})
        self.assertIn("org/model", listed.stdout)

    def test_a_wire_that_is_cut_again_and_again(self):
        code, _, err = self.pull(hub := Hub(cut=700_000, refuse=2))
        self.assertEqual(code, 0, err)
        self.check()
        ranges = [r for p, r, _ in hub.requests if p.endswith("model.safetensors")]
        self.assertGreaterEqual(len(ranges), 5)
        self.assertTrue(all(r for r in ranges[1:]), ranges)

    def test_killed_in_the_middle_and_run_again(self):
        process = self.start(slow := Hub(slow=0.1))
        blob = os.path.join(self.root, "blobs", hashlib.sha256(WEIGHTS).hexdigest() + ".incomplete")
        end = time.monotonic() + 30
        while not (os.path.exists(blob) and os.path.getsize(blob) > 500_000):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        code, _, err = self.pull(slow)
        self.assertEqual(code != 0 and "another program" in err, True, err)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        self.assertFalse(os.path.exists(os.path.join(self.root, "snapshots")), "nothing appears before everything is there")
        here = os.path.getsize(blob)
        self.assertLess(here, len(WEIGHTS))
        code, _, err = self.pull(fast := Hub())
        self.assertEqual(code, 0, err)
        self.check()
        self.assertIn(f"bytes={here}-", [r for _, r, _ in fast.requests])

    def test_a_part_that_is_wrong_or_a_hub_without_ranges(self):
        os.makedirs(os.path.join(self.root, "blobs"))
        blob = os.path.join(self.root, "blobs", hashlib.sha256(WEIGHTS).hexdigest() + ".incomplete")
        with open(blob, "wb") as file:
            file.write(b"x" * 1_000_000)  # a disk has lied
        code, _, err = self.pull(Hub())
        self.assertEqual(code, 0, err)
        self.check()
        os.remove(os.path.join(self.root, "blobs", hashlib.sha256(WEIGHTS).hexdigest()))
        with open(blob, "wb") as file:
            file.write(WEIGHTS[:1_000_000])
        code, _, err = self.pull(Hub(ranges=False))
        self.assertEqual(code, 0, err)
        self.check()

    def test_a_wrong_byte_is_found(self):
        for name in ("model.safetensors", "config.json"):
            code, _, err = self.pull(Hub(wrong=name))
            self.assertNotEqual(code, 0)
            self.assertIn("hash", err)
        self.assertFalse(os.path.exists(os.path.join(self.root, "snapshots")))
        code, _, err = self.pull(Hub())
        self.assertEqual(code, 0, err)

    def test_tokens_go_to_the_hub_and_no_further(self):
        code, _, err = self.pull(Hub(token="t"))
        self.assertIn("HF_TOKEN", err)
        cdn = Hub()
        code, _, err = self.pull(hub := Hub(token="t", elsewhere=lambda: cdn.url), HF_TOKEN="t")
        self.assertEqual(code, 0, err)
        self.check()
        self.assertEqual({a for _, _, a in hub.requests}, {"Bearer t"})
        self.assertEqual({a for _, _, a in cdn.requests}, {None})

    def test_choices_and_refusals(self):
        code, _, err = self.pull(Hub(), "--include", "a *", "--include", "*.bin")
        self.assertEqual(code, 0, err)
        self.check(("a b%.json", "pytorch_model.bin"))
        for arguments, env, said in ((["--include", "*.gguf"], {}, "no file fits"), (["--revision", "../x"], {}, "revision"), (["--revision", "other"], {}, "404"),
                                     ([], {"HF_ENDPOINT": "ftp://h"}, "http"), ([], {"HF_ENDPOINT": "http://127.0.0.1:1"}, "connecting")):
            code, _, err = self.pull(Hub(), *arguments, **env)
            self.assertNotEqual(code, 0)
            self.assertIn(said, err)
        code, _, err = self.pull(None)
        self.assertIn("HF_ENDPOINT", err)
        code, _, err = self.pull(Hub(names={"config.json": "../../../climbed"}))
        self.assertIn("would leave its folder", err)
        self.assertFalse(os.path.exists(os.path.join(self.cache, "..", "climbed")))


if __name__ == "__main__":
    unittest.main()
