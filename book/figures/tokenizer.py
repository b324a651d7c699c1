#!/usr/bin/env python3
"""Records what the tokenizer's live figure shows where no engine serves the page: samples, cut by `rose tokenize`.

    tokenizer.py ROSE [--check]      ROSE is the program; --check compares instead of writing
"""
import datetime
import json
import pathlib
import re
import subprocess
import sys

FILE = pathlib.Path(__file__).with_suffix(".json")
SAMPLES = [  # what the choice calls it, and the text
    ("English", "The tokenizer tokenizes untokenizable tokens."),
    ("Code", "for (int i = 0; i < n; ++i)\n    sum += x[i];"),
    ("Numbers", "2 + 2 = 4, 1234 + 8765 = 9999, pi is 3.14159"),
    ("German", "Die Straßenbahn fährt über die Brücke."),
    ("Greek", "Η γλώσσα είναι σύστημα."),
    ("Chinese", "语言模型读的是词元。"),
    ("Hindi", "भाषा एक पुल है।"),
    ("Arabic", "اللغة جسر"),
    ("Emoji", "A family: 👩‍👩‍👧, a flag: 🇪🇺, a rose: 🌹"),
    ("Blanks", "one  two   three\n\n\tfour"),
]
ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|.)")


def bytes_of(quoted):
    """The bytes behind the program's quoting: \\n, \\t, \\", \\\\ and \\xHH."""
    plain = {b"n": b"\n", b"t": b"\t", b'"': b'"', b"\\": b"\\"}
    return ESCAPE.sub(lambda m: plain[m[1]] if m[1] in plain else bytes([int(m[1][1:], 16)]), quoted.encode())


def shown(token):
    """A token for the table: blanks made visible, and bytes that are no whole character in hexadecimal."""
    try:
        return token.decode().replace(" ", "·").replace("\n", "\\n").replace("\t", "\\t")
    except UnicodeDecodeError:
        return "⟨" + token.hex(" ") + "⟩"


def cut(rose, text):
    printed = subprocess.run([rose, "tokenize", "--no-special", text], capture_output=True, text=True, check=True).stdout
    tokens = [re.match(r'\s*(\d+)  "(.*)"$', line) for line in printed.splitlines()]
    tokens = [(int(found[1]), bytes_of(found[2])) for found in tokens]
    assert b"".join(token for _, token in tokens).decode() == text, text
    return tokens


def main():
    rose = sys.argv[1]
    rows, samples = [], []
    for name, text in SAMPLES:
        tokens = cut(rose, text)
        count = len(text.encode())
        rows.append([name, [[shown(token), str(number)] for number, token in tokens], f"{len(tokens)} tokens, {len(text)} code points, {count} bytes"])
        samples.append([text, [[number, token.hex()] for number, token in tokens], name])
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    same = kept.get("rows") == rows and kept["state"]["samples"] == samples
    if "--check" in sys.argv:
        print(f"{FILE.name}: " + ("as the program cuts today" if same else "the program cuts otherwise: run tokenizer.py again"))
        return 0 if same else 1
    date = kept["recorded"] if same else datetime.date.today().isoformat()
    model = "SmolLM2's vocabulary of 49,152 tokens"
    FILE.write_text(json.dumps({
        "recorded": date, "by": "rose tokenize --no-special", "columns": ["sample", "tokens, each with its id", "size"], "rows": rows,
        "state": {"model": model, "recorded": date, "samples": samples},
    }, ensure_ascii=False, indent=None, separators=(",", ":")).replace('],["', '],\n["') + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
