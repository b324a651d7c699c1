#!/usr/bin/env python3
"""Random traffic with everything that goes wrong, against `rose serve` with two engines of a toy model: nothing may leak, hang or lie.

    soak.py [--requests N] [--seconds S] [--seed N] [--streams N] [--kill-every S] [--bin FOLDER]

Ends at whichever of N and S comes first. The toy model is the parrot over a vocabulary of bytes: its keys and values are the tokens, so a
page that is shared, freed or copied wrongly makes a wrong answer. Requests are right ones (whole and streamed, one or several answers,
cut short, tokenised), clients that leave in the middle of an answer or of a request, bodies that are no JSON or no request, and lines that
are no HTTP; engines are killed now and then. Prints one line of JSON (a bench of benchmarks/benches.yaml), and every failure.
"""
import argparse
import asyncio
import collections
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import time

parser = argparse.ArgumentParser()
parser.add_argument("--requests", type=int, default=1 << 60)
parser.add_argument("--seconds", type=float, default=20.0)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--streams", type=int, default=32)
parser.add_argument("--kill-every", type=float, default=6.0)
parser.add_argument("--bin", default=os.environ.get("ROSE_BIN"))
options = parser.parse_args()
os.environ["ROSE_BIN"] = options.bin
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent)]
from server import Server  # noqa: E402

LOST = {"engine_unavailable"}
WORDS = "a rose is what the garden had when nobody was there to see it and the wall stood high in rain".split()


def toy_model(folder):
    """A vocabulary of 256 bytes and two marks, and the configuration of a model that nobody computes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelt = {b: chr(b) for b in printable}
    for i, b in enumerate(b for b in range(256) if b not in spelt):
        spelt[b] = chr(256 + i)
    vocabulary = {spelt[b]: b for b in range(256)}
    marks = [{"id": 256 + i, "content": mark, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
             for i, mark in enumerate(("<|im_start|>", "<|im_end|>"))]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    template = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}{{ '<|im_start|>assistant\n' }}"
    files = {
        "tokenizer.json": {"version": "1.0", "added_tokens": marks, "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
                           "model": {"type": "BPE", "vocab": vocabulary, "merges": [], "byte_fallback": False, "ignore_merges": False}},
        "tokenizer_config.json": {"eos_token": "<|im_end|>", "chat_template": template},
        "config.json": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 258, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
                        "num_attention_heads": 1, "num_key_value_heads": 1, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
                        "tie_word_embeddings": True, "eos_token_id": 257, "hidden_act": "silu"},
    }
    for name, value in files.items():
        (pathlib.Path(folder) / name).write_text(json.dumps(value))


class Wrong(Exception):
    pass


class Soak:
    def __init__(self, server):
        self.server, self.random = server, random.Random(options.seed)
        self.done, self.kinds, self.failures = 0, collections.Counter(), []
        self.killed = []  # when
        self.deadline = time.monotonic() + options.seconds
        self.longest = 0.0

    # --- HTTP over one connection -------------------------------------------------------------------------------------

    async def open(self):
        return await asyncio.open_connection("127.0.0.1", self.server.port)

    async def ask(self, pipe, method, path, body):
        reader, writer = pipe
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
        writer.write(b"%s %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (method.encode(), path.encode(), len(data)) + data)
        return await self.answer(reader)

    async def answer(self, reader):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        status = int(head.split(" ", 2)[1])
        fields = {line.split(": ")[0].lower(): line.split(": ", 1)[1] for line in head.split("\r\n")[1:] if ": " in line}
        if "content-length" in fields:
            return status, fields, await reader.readexactly(int(fields["content-length"]))
        whole = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            whole += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
        return status, fields, whole

    # --- what is asked ------------------------------------------------------------------------------------------------

    def words(self, most=12):
        return " ".join(self.random.choice(WORDS) for _ in range(self.random.randint(1, most)))

    def excused(self, start, code):
        """An engine that was killed since, or shortly before, may have had it."""
        return code in LOST and any(at > start - 3 for at in self.killed[-3:])

    def check(self, condition, what):
        if not condition:
            raise Wrong(what)

    async def chat(self, pipe, stream):
        start, n = time.monotonic(), self.random.choice((1, 1, 1, 3))
        messages = [{"role": "system", "content": WORDS[self.random.randrange(4)] * 40}] if self.random.random() < 0.5 else []
        text = self.words()
        body = {"messages": [*messages, {"role": "user", "content": text}], "n": n, "stream": stream}
        cut = self.random.random() < 0.2
        if cut:
            body["max_tokens"] = self.random.randint(1, len(text))
        if stream:
            body["stream_options"] = {"include_usage": True}
        status, _, answer = await self.ask(pipe, "POST", "/v1/chat/completions", body)
        if status == 429:
            return "full"
        if status != 200:
            error = json.loads(answer)["error"]
            self.check(self.excused(start, error["code"]), f"status {status}: {error}")
            return "lost"
        said, finish, usage = [""] * n, [None] * n, None
        if stream:
            pieces = [line[6:] for line in answer.decode().split("\n") if line.startswith("data: ")]
            events = [json.loads(piece) for piece in pieces if piece != "[DONE]"]
            for event in events:
                if "error" in event:
                    self.check(self.excused(start, event["error"]["code"]), f"in a stream: {event}")
                    return "lost"
                usage = event.get("usage") or usage
                for choice in event["choices"]:
                    said[choice["index"]] += choice["delta"].get("content") or ""
                    finish[choice["index"]] = choice["finish_reason"] or finish[choice["index"]]
            self.check(pieces[-1] == "[DONE]", "a stream without its end")
        else:
            whole = json.loads(answer)
            usage = whole["usage"]
            for choice in whole["choices"]:
                said[choice["index"]], finish[choice["index"]] = choice["message"]["content"], choice["finish_reason"]
        right = text[: body["max_tokens"]] if cut else text
        self.check(said == [right] * n, f"{said} for {right!r}")
        self.check(finish == ["length" if cut else "stop"] * n, f"{finish} for {right!r}, cut: {cut}")
        self.check(usage["completion_tokens"] == n * (len(right) + (0 if cut else 1)), f"{usage} for {right!r}, n = {n}")
        return "streamed" if stream else "whole"

    async def complete(self, pipe):
        start, n = time.monotonic(), self.random.randint(1, 30)
        status, _, answer = await self.ask(pipe, "POST", "/v1/completions", {"prompt": self.words(40), "max_tokens": n, "ignore_eos": True, "logprobs": 2})
        whole = json.loads(answer)
        if status == 429:
            return "full"
        if status != 200:
            self.check(self.excused(start, whole["error"]["code"]), f"status {status}: {whole}")
            return "lost"
        self.check(whole["usage"]["completion_tokens"] == n and len(whole["choices"][0]["logprobs"]["tokens"]) == n, f"{whole} for {n} tokens")
        return "completed"

    async def small(self, pipe):
        text = self.words()
        status, _, answer = await self.ask(pipe, "POST", "/tokenize", {"prompt": text})
        self.check((status, json.loads(answer).get("tokens")) == (200, list(text.encode())), f"{status} {answer[:200]}")
        path = self.random.choice(("/metrics", "/health", "/v1/models", "/debug/state", "/nothing"))
        status, _, answer = await self.ask(pipe, "GET", path, None)
        self.check(status == {"/nothing": 404}.get(path, 200) or (path == "/health" and self.killed), f"{path}: {status}")
        return "small"

    async def malformed(self, pipe):
        body = bytearray(json.dumps({"messages": [{"role": "user", "content": self.words()}], "max_tokens": 5, "temperature": 0.5, "stop": ["x"]}).encode())
        way = self.random.randrange(5)
        if way == 0:
            for _ in range(self.random.randint(1, 6)):
                body[self.random.randrange(len(body))] = self.random.randrange(256)
        elif way == 1:
            del body[self.random.randrange(len(body)):]
        elif way == 2:
            body = b"[" * self.random.randint(1, 5000)
        elif way == 3:
            body = json.dumps({"messages": self.random.choice((None, 3, "x", [], [{}], [{"role": "nobody", "content": 1}])), "n": self.random.choice((-1, 1e9, "two"))}).encode()
        else:
            body = os.urandom(self.random.randint(0, 200))
        start = time.monotonic()
        status, _, answer = await self.ask(pipe, "POST", "/v1/chat/completions", bytes(body))
        code = {} if status == 200 else json.loads(answer)["error"]
        self.check(status in (200, 400, 404, 429) or self.excused(start, code.get("code")), f"{bytes(body[:200])}: {status} {answer[:200]}")
        return "malformed"

    async def leave(self):
        """A client that goes in the middle of an answer, of a request, or of nonsense."""
        reader, writer = await self.open()
        data = json.dumps({"prompt": self.words(), "max_tokens": 400, "ignore_eos": True, "stream": self.random.random() < 0.7}).encode()
        request = b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(data) + data
        way = self.random.randrange(4)
        if way == 0:
            request = request[: self.random.randrange(len(request))]
        elif way == 1:
            request = bytes(self.random.randrange(256) for _ in range(self.random.randint(1, 300))) + b"\r\n\r\n"
        writer.write(request)
        try:
            if way >= 1:
                await asyncio.wait_for(reader.read(self.random.randint(1, 3000)), 0.3 if way == 1 else 5)
        except (TimeoutError, ConnectionError):
            pass
        if self.random.random() < 0.5:
            writer.transport.abort()  # a reset
        writer.close()
        return "left"

    # --- running it ---------------------------------------------------------------------------------------------------

    async def client(self):
        pipe = None
        while time.monotonic() < self.deadline and self.done < options.requests:
            self.done += 1
            draw, start = self.random.random(), time.monotonic()
            try:
                if draw < 0.12:
                    self.kinds[await asyncio.wait_for(self.leave(), 60)] += 1
                    continue
                if pipe is None:
                    pipe = await self.open()
                what = (self.chat(pipe, True) if draw < 0.45 else self.chat(pipe, False) if draw < 0.7 else self.complete(pipe) if draw < 0.8
                        else self.malformed(pipe) if draw < 0.92 else self.small(pipe))
                self.kinds[await asyncio.wait_for(what, 60)] += 1
                if self.random.random() < 0.02:
                    pipe[1].close()
                    pipe = None
            except Wrong as wrong:
                self.fail(str(wrong))
            except (TimeoutError, asyncio.IncompleteReadError, ConnectionError, OSError, ValueError, KeyError, TypeError) as error:
                self.fail(f"{type(error).__name__} {error} after {time.monotonic() - start:.1f} s, draw {draw:.2f}")
                if pipe:
                    pipe[1].close()
                pipe = None
            self.longest = max(self.longest, time.monotonic() - start)
        if pipe:
            pipe[1].close()

    def fail(self, words):
        self.failures.append(words)
        print(f"WRONG: {words}", file=sys.stderr)

    async def killer(self):
        while time.monotonic() < self.deadline and self.done < options.requests:
            await asyncio.sleep(self.random.uniform(0.5, 1.5) * options.kill_every)
            pids = await asyncio.to_thread(self.server.engine_pids)
            if len(pids) == 2 and time.monotonic() < self.deadline and self.done < options.requests:
                self.killed.append(time.monotonic())
                os.kill(self.random.choice(pids), signal.SIGKILL)
                self.kinds["killed"] += 1

    async def run(self):
        print_every, last = 60, time.monotonic()
        tasks = [asyncio.create_task(self.client()) for _ in range(options.streams)]
        killer = asyncio.create_task(self.killer())
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0.5)
            if time.monotonic() - last > print_every:
                last = time.monotonic()
                print(f"{self.done} requests, {len(self.failures)} wrong, {dict(self.kinds)}, front {resident(self.server.process.pid)} kB, descriptors {descriptors(self.server.process.pid)}", file=sys.stderr, flush=True)
        killer.cancel()
        await asyncio.gather(*tasks)


def resident(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def wait_for(condition, words, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return [words]
        time.sleep(0.1)
    return []


def main():
    with tempfile.TemporaryDirectory() as folder:
        toy_model(folder)
        server = Server("--model", folder, "--data-parallel-size", 2, "--max-num-seqs", 24, "--max-waiting", 64)
        try:
            wrong = wait_for(lambda: server.metric("rose_engine_up") == 2, "two engines")
            warm = Soak(server)
            warm.deadline, seconds = time.monotonic() + min(4.0, options.seconds / 4), options.seconds
            asyncio.run(asyncio.wait_for(warm.run(), 120))
            before = (resident(server.process.pid), descriptors(server.process.pid))
            soak = Soak(server)
            soak.deadline, begun = time.monotonic() + seconds, time.monotonic()
            soak.killed = list(warm.killed)
            soak.done = warm.done
            soak.kinds = warm.kinds
            soak.failures = warm.failures
            asyncio.run(asyncio.wait_for(soak.run(), seconds + 300))
            took = time.monotonic() - begun
            wrong += soak.failures
            # What is left when everybody has gone.
            wrong += wait_for(lambda: server.metric("rose_engine_up") == 2, "both engines are back", 90)
            wrong += wait_for(lambda: server.metric("rose_requests_running") + server.metric("rose_requests_waiting") == 0, "somebody is still answered")
            wrong += wait_for(lambda: server.metric("rose_kv_pages_referenced") == 0, "pages that nobody gave back")
            state = json.loads(server.get("/debug/state")[1])
            for engine in state["engines"]:
                counted = collections.Counter()
                for name, n in engine["page_states"]:
                    counted[name] += n
                if set(counted) - {"free", "cached", "scratch"} or engine["sequences"]:
                    wrong.append(f"pages at the end: {counted}, {engine['sequences']}")
            wrong += wait_for(lambda: server.metric("rose_connections") <= 1, "connections that nobody has closed", 90)
            wrong += wait_for(lambda: descriptors(server.process.pid) <= before[1] + 2, f"descriptors: {descriptors(server.process.pid)}, {before[1]} before", 10)
            after = resident(server.process.pid)
            if after > max(before[0] * 1.5, before[0] + 40_000) or after > 200_000:
                wrong.append(f"memory of the front: {after} kB, {before[0]} kB before")
            pids = server.engine_pids()
            if len(pids) != 2:
                wrong.append(f"processes: {pids}")
            restarts = server.metric("rose_engine_restarts_total")
            if restarts != soak.kinds["killed"]:
                wrong.append(f"{restarts} restarts for {soak.kinds['killed']} kills")
        finally:
            status = server.stop()
        if status != 0:
            wrong.append(f"the server ended with {status}")
        if any(os.path.exists(f"/proc/{pid}") for pid in pids):
            wrong.append("engines that outlived the server")
        print("\n".join(f"WRONG: {one}" for one in wrong[:50]), file=sys.stderr)
        print(json.dumps({
            "metric": "requests", "unit": "requests", "better": "higher", "median": soak.done, "min": soak.done, "max": soak.done, "samples": 1, "warmup": 0, "seed": options.seed,
            "correct": {"against": "the question itself, counts of pages, descriptors, processes and memory", "error": len(wrong), "bound": 0},
            "config": {"streams": options.streams, "engines": 2, "kinds": dict(sorted(soak.kinds.items())), "seconds": round(took, 1), "rate": round(soak.done / took, 1), "longest_s": round(soak.longest, 2),
                       "front_kb": [before[0], after]},
        }))
        return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
