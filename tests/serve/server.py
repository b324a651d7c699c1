"""Starts `rose serve` for a test, with the parrot unless weights are asked for, and ends it."""
import atexit
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

ROSE = os.path.join(os.environ["ROSE_BIN"], "rose")


class Server:
    def __init__(self, *arguments, parrot=True, env=None, wait=True):
        self.process = subprocess.Popen(
            [ROSE, "serve", "--port", "0", *(["--parrot"] if parrot else []), *map(str, arguments)],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env={**os.environ, **(env or {})})
        atexit.register(self.process.kill)  # a test that failed leaves nothing behind
        self.log = []
        self.port = self.admin_port = self.name = None
        listening = threading.Event()

        def read():
            for line in self.process.stderr:
                self.log.append(line)
                operators = re.match(r"operators at https?://[^:]+:(\d+)/", line)
                if operators:
                    self.admin_port = int(operators[1])
                found = not operators and re.match(r"(.*) at https?://[^:]+:(\d+)/", line)
                if found:
                    self.name = found[1]
                    self.port = int(found[2])
                    listening.set()
            listening.set()

        threading.Thread(target=read, daemon=True).start()
        listening.wait(60)
        assert self.port, "".join(self.log)
        if wait:
            self.wait_until_healthy()

    def wait_until_healthy(self, seconds=60):
        end = time.monotonic() + seconds
        while self.get("/health")[0] != 200:
            assert time.monotonic() < end and self.process.poll() is None, "".join(self.log)
            time.sleep(0.05)

    def request(self, method, path, body=None, headers=None, timeout=30, port=None):
        """(status, headers in lower case, body as bytes)"""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=timeout)
        try:
            given = {"content-type": "application/json", **(headers or {})} if body is not None else headers or {}
            connection.request(method, path, body if isinstance(body, (bytes, str, type(None))) else json.dumps(body), given)
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def get(self, path, headers=None):
        status, _, body = self.request("GET", path, headers=headers)
        return status, body

    def post(self, path, body, headers=None, timeout=30):
        status, _, answer = self.request("POST", path, body, headers, timeout)
        return status, json.loads(answer) if answer else None

    def raw(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def metric(self, name):
        page = self.get("/metrics")[1].decode()
        return float(re.search(rf"^{re.escape(name)} (\S+)$", page, re.M)[1])

    def engine_pids(self):
        found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True).stdout
        return [int(p) for p in found.split()]

    def stop(self):
        """Ends it as a deployment would; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
