#!/usr/bin/env python3
"""Records what the figures of the engine show where none serves the page: a conversation, distributions, pages at work.

    engine.py FOLDER [--check]      FOLDER has `rose` and `rose-engine`; --check compares the distributions instead of writing
"""
import datetime
import http.client
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
MODEL = "SmolLM2-135M-Instruct"
SETTINGS = {"temperature": 1, "top_k": -1, "top_p": 1, "min_p": 0}
SAMPLES = [  # what the choice calls it, the text, and how the settings differ
    ("A capital, as the model is", "The capital of France is", {}),
    ("A story, as the model is", "Once upon a time there was a", {}),
    ("A story, cold", "Once upon a time there was a", {"temperature": 0.5}),
    ("A story, hot", "Once upon a time there was a", {"temperature": 1.5}),
    ("A story, hot, top-p 0.5", "Once upon a time there was a", {"temperature": 1.5, "top_p": 0.5}),
    ("A story, hot, min-p 0.1", "Once upon a time there was a", {"temperature": 1.5, "min_p": 0.1}),
    ("Arithmetic, top-k 5", "2 + 2 =", {"top_k": 5}),
]
QUESTIONS = ["What is the capital of France?", "And how many people live there?"]
GARDENER = "You are the gardener of an old rose garden behind a library. You answer visitors in two or three sentences, kindly and exactly, and you are never short of a story about the flowers, the wall, the bees, or the people who have planted something here in the last two hundred years. You do not give away what is behind the green door. "
VISITORS = ["Which rose is the oldest?", "When do you cut them?", "What do roses fear?", "Why is the wall so high?"]


class Engine:
    def __init__(self, folder):
        self.process = subprocess.Popen([os.path.join(folder, "rose"), "serve", "--port", "0"], stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            found = re.search(r"at http://[^:]+:(\d+)/", line)
            if found:
                self.port = int(found[1])
                break
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        while self.ask("GET", "/health", status=None) is None:
            time.sleep(0.1)

    def ask(self, method, path, body=None, status=200):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, path, body and json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200 and status is None:
            return None
        assert answer.status == 200, text
        return json.loads(text)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def distribution(engine, prompt, **given):
    answer = engine.ask("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 1, "logprobs": 20, **given})["choices"][0]["logprobs"]
    top = sorted(answer["top_logprobs"][0].items(), key=lambda one: -one[1])
    return [[token, round(math.exp(logprob), 6) if logprob > -9999 else 0] for token, logprob in top], answer["tokens"][0]


def samples(engine):
    out = []
    for name, prompt, changes in SAMPLES:
        settings = {**SETTINGS, **changes}
        raw, _ = distribution(engine, prompt, temperature=0)
        left, drawn = distribution(engine, prompt, **settings, processed_logprobs=True, seed=1)
        out.append({"name": name, "prompt": prompt, "settings": settings, "raw": raw, "left": left, "drawn": drawn})
    return out


def conversation(engine):
    messages = []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        answer = engine.ask("POST", "/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 80})
        messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
    return messages


def pages(engine):
    """What the engine did while it answered four visitors, once all of them were being answered."""
    def visit(words, tokens=120):
        messages = [{"role": "system", "content": GARDENER}, {"role": "user", "content": words}]
        engine.ask("POST", "/v1/chat/completions", {"messages": messages, "max_tokens": tokens, "seed": 1, "ignore_eos": True})

    visit("Good morning.", 1)
    threads = [threading.Thread(target=visit, args=(words,)) for words in VISITORS]
    for thread in threads:
        thread.start()
    best = None
    while any(thread.is_alive() for thread in threads):
        now = engine.ask("GET", "/debug/state")
        shown = [one for one in now["engines"][0]["sequences"] if one["tokens"] > one["prompt_tokens"] + 10]
        if len(shown) == len(VISITORS):
            best = now
    return best


def shown(token):
    return token.replace(" ", "·").replace("\n", "\\n")


def percent(p):
    return f"{100 * p:.3g} %" if p else "0"


def write(name, by, columns, rows, state):
    date = datetime.date.today().isoformat()
    text = json.dumps({"recorded": date, "by": by, "columns": columns, "rows": rows, "state": {"model": MODEL, "recorded": date, **state}}, ensure_ascii=False, separators=(",", ":"))
    (HERE / name).write_text(text.replace('],["', '],\n["').replace('},{"', '},\n{"') + "\n", encoding="utf-8")


def record(engine):
    taken = samples(engine)
    rows = [[one["name"], one["prompt"], [[shown(token), percent(p)] for token, p in one["raw"][:5]], [[shown(token), percent(p)] for token, p in one["left"][:5] if p]] for one in taken]
    write("sampling.json", "rose serve; POST /v1/completions", ["sample", "text", "the model says", "after the settings"], rows, {"samples": taken})
    messages = conversation(engine)
    write("chat.json", "rose serve; POST /v1/chat/completions", ["who", "words"], [["you" if one["role"] == "user" else "model", one["content"]] for one in messages],
          {"messages": messages, "try": "Write a short poem about a rose."})
    state = pages(engine)
    rows = []
    for one in state["engines"][0]["sequences"]:
        others = {page for other in state["engines"][0]["sequences"] if other is not one for page in other["pages"]}
        rows.append([str(one["request"]), one["state"], f'{one["prompt_tokens"]} + {one["tokens"] - one["prompt_tokens"]}', str(one["cached"]), str(len(one["pages"])), str(sum(page in others for page in one["pages"]))])
    write("pool.json", "rose serve; GET /debug/state", ["request", "state", "tokens of prompt and answer", "found in the cache", "pages", "of them shared"], rows, {"state": state})


def check(engine):
    kept = json.loads((HERE / "sampling.json").read_text(encoding="utf-8"))["state"]["samples"]
    wrong = []
    for old, new in zip(kept, samples(engine), strict=True):
        for key in ("raw", "left"):  # another processor may round the last digits otherwise
            now = dict(map(tuple, new[key]))
            wrong += [f'{old["name"]}: {shown(token)} {p} {now.get(token)}' for token, p in old[key][:10] if abs(now.get(token, -1) - p) > 1e-3]
    print("\n".join(["sampling.json: " + ("the engine says otherwise: run engine.py again" if wrong else "as the engine says today"), *wrong]))
    return 1 if wrong else 0


def main():
    engine = Engine(sys.argv[1])
    try:
        return check(engine) if "--check" in sys.argv else record(engine)
    finally:
        engine.end()


if __name__ == "__main__":
    sys.exit(main())
