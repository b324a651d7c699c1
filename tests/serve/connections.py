#!/usr/bin/env python3
"""1,000 connections that are idle, 64 streams at a time, and a client that asks for much and reads nothing: what it costs, and whether
anything is lost.

    connections.py [--bin FOLDER]      prints one line of JSON: a bench of benchmarks/benches.yaml
"""
import argparse
import concurrent.futures
import json
import os
import sys
import threading
import time

IDLE, STREAMS, ANSWERS = 1000, 64, 128


def measure(Server):
    """(megabytes of the API process at most, streams seen running at once, answers that were wrong, idle connections that were lost)"""
    server = Server("--max-num-seqs", STREAMS + 16, "--max-connections", 2 * IDLE)
    idle = [server.raw() for _ in range(IDLE)]
    lazy = server.raw()
    body = json.dumps({"prompt": "x", "max_tokens": 8000, "ignore_eos": True, "stream": True}).encode()
    lazy.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    texts = [f"Message number {i} of many. " + "A rose is a rose. " * 6 for i in range(ANSWERS)]
    together, most = threading.Barrier(STREAMS), 0

    def read(text):
        if text in texts[:STREAMS]:
            together.wait(60)
        _, _, answer = server.request("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "stream": True}, timeout=120)
        lines = [line[6:] for line in answer.decode().split("\n") if line.startswith("data: ")]
        said = "".join(choice["delta"].get("content", "") for line in lines[:-1] for choice in json.loads(line)["choices"])
        return said == text and lines[-1] == "[DONE]"

    with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
        reading = [pool.submit(read, text) for text in texts]
        while not all(answer.done() for answer in reading):
            most = max(most, int(server.metric("rose_requests_running")))
            time.sleep(0.1)
    wrong = sum(not answer.result() for answer in reading)
    lost = int(server.metric("rose_connections_refused_total"))
    for s in idle:  # they are still served
        s.sendall(b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n")
        lost += not s.recv(4096).startswith(b"HTTP/1.1 200 ")
    with open(f"/proc/{server.process.pid}/status") as file:
        peak = next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1000
    for s in (*idle, lazy):
        s.close()
    ended = server.stop()
    return peak, most, wrong, lost, ended


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default=os.environ.get("ROSE_BIN"))
    os.environ["ROSE_BIN"] = parser.parse_args().bin
    sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]
    from server import Server
    peaks = [measure(Server) for _ in range(3)]
    values = sorted(peak for peak, *_ in peaks)
    wrong = sum(lost + bad + (ended != 0) for _, _, bad, lost, ended in peaks)
    print(json.dumps({"metric": "memory", "unit": "MB", "better": "lower", "median": values[1], "min": values[0], "max": values[2], "samples": 3, "warmup": 0, "values": values,
                      "correct": {"against": "each stream says its question, each idle connection is answered", "error": wrong, "bound": 0},
                      "config": {"idle": IDLE, "streams": STREAMS, "answers": ANSWERS, "seen_running": [most for _, most, *_ in peaks]}}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
