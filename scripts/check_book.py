#!/usr/bin/env python3
"""Checks what chapters refer to: relative links and their fragments, citations, terms, facts, records, test values.

    check_book.py [--static] [FILE…]      default: every Markdown file of the repository

--static does not ask for the values that tests write.

Messages are a compiler's: file:line: error: …  A number in the text is compared with the record or the value that it
links to, at the precision that it is written with.
"""
import functools
import json
import pathlib
import re
import subprocess
import sys
import unicodedata

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<!\\)(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
CITE = re.compile(r"(?<![\w\[\\])\[(?:[^\[\]]*?[\s;(])?-?@[^\[\]]+\](?!\()")
KEY = re.compile(r"-?@([A-Za-z0-9_][\w:.#$%&+?<>~/-]*)")
GITHUB_MANGLES = re.compile(r"\\[,{}]|\\\\")
errors = []
STATIC = "--static" in sys.argv[1:]


def report(path, line, text):
    errors.append(f"{path.relative_to(ROOT)}:{line}: error: {text}")


def blank(match):
    return re.sub(r"[^\n]", " ", match[0])


def prose_of(text):
    """The text with fences, code spans and comments blanked, at the same offsets."""
    text = re.sub(r"\A---\n.*?\n---\n", blank, text, flags=re.S)
    text = re.sub(r"^( {0,3})(`{3,}|~{3,})[^\n]*\n.*?^ {0,3}\2[`~]*[ \t]*$", blank, text, flags=re.S | re.M)
    text = re.sub(r"<!--(?! (?:eq|fig|tbl):).*?-->", blank, text, flags=re.S)
    return re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", blank, text, flags=re.S)


@functools.cache
def fragments(path):
    text = path.read_text(encoding="utf-8")
    found = set(re.findall(r"\{#([\w:.-]+)", text)) | set(re.findall(r"<!-- ((?:eq|fig|tbl):[\w.-]+) -->", text))
    found |= set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))
    for heading in re.findall(r"^#{1,6}\s+(.+?)\s*#*$", prose_of(text), re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        kept = (c for c in heading.lower() if c in " -_" or unicodedata.category(c)[0] in "LN")
        found.add("".join(kept).strip().replace(" ", "-"))
    return found


@functools.cache
def store(name):
    """citations/NAME, or an empty list where there is none yet."""
    path = ROOT / "citations" / name
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path] if path.exists() else []
    entries = []
    for file in files:
        data = yaml.safe_load(file.read_text(encoding="utf-8")) or []
        entries += data if isinstance(data, list) else next((v for v in data.values() if isinstance(v, list)), [])
    return {entry["id"]: entry for entry in entries}


@functools.cache
def record(bench):
    files = sorted((ROOT / "benchmarks" / "results" / bench).glob("*.json"), key=lambda f: json.loads(f.read_text())["date"])
    return json.loads(files[-1].read_text()) if files else None


def dig(value, path):
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


def number(text):
    """(value, half a unit in the last place written) of a number such as 14.8 trillion, 1,284, 3.1e-4, 96 %."""
    scales = {"thousand": 1e3, "k": 1e3, "million": 1e6, "M": 1e6, "billion": 1e9, "trillion": 1e12, "%": 1e-2}
    found = re.match(r"\s*([−-]?)(?:about |≈ ?)?(\d[\d,_   ]*(?:\.\d+)?)(?:[eE]([+-]?\d+)|\s*[×x·]\s*10\^?\{?(-?\d+)\}?)?(?:\s*(\w+|%))?", text)
    if not found:
        return None
    digits = re.sub(r"[,_   ]", "", found[2])
    scale = 10.0 ** int(found[3] or found[4] or 0)
    decimals = len(digits.split(".")[1]) if "." in digits else 0
    value = float(digits) * scale * (-1 if found[1] else 1)
    half = 0.5 * 10.0 ** -decimals * scale
    word = scales.get(found[5] or "", 1)
    return value, half, word


def agrees(text, stored):
    parsed = number(text)
    if parsed is None or not isinstance(stored, (int, float)):
        return str(stored) == text.strip()
    value, half, word = parsed
    return any(abs(value * w - stored) <= half * w * 1.0001 for w in {1, word})


def check_number(path, line, label, target):
    kind, _, rest = target.partition(":")
    name, _, key = rest.partition("#")
    label = re.sub(r"[*_$`]", "", label)
    if kind == "fact":
        if name not in store("facts"):
            return report(path, line, f"there is no fact '{name}' in citations/facts/")
        stored = store("facts")[name].get("value")
        if stored is not None and number(label) and not agrees(label, float(stored) if isinstance(stored, str) else stored):
            report(path, line, f"'{label}' is not what the fact says: {stored}")
    elif kind == "bench":
        found = record(name)
        if found is None:
            return report(path, line, f"there is no record of bench '{name}' in benchmarks/results/")
        try:
            stored = dig(found, key or "median")
        except (KeyError, IndexError, ValueError, TypeError):
            return report(path, line, f"the record of '{name}' has no '{key}'")
        if not agrees(label, stored):
            report(path, line, f"'{label}' is not what the record says: {stored}")
    elif kind == "test":
        values = ROOT / "build" / "values" / f"{name}.json"
        if STATIC:
            return None
        if not values.exists():
            return report(path, line, f"no test has written build/values/{name}.json (run `make test`)")
        try:
            stored = dig(json.loads(values.read_text()), key)
        except (KeyError, IndexError, ValueError, TypeError):
            return report(path, line, f"build/values/{name}.json has no '{key}'")
        if not agrees(label, stored):
            report(path, line, f"'{label}' is not what the test wrote: {stored}")
    elif kind == "term" and (ROOT / "citations" / "glossary.yaml").exists() and rest not in store("glossary.yaml"):
        report(path, line, f"there is no term '{rest}' in citations/glossary.yaml")


def check_link(path, line, label, target):
    if re.match(r"(fact|bench|test|term):", target):
        return check_number(path, line, label, target)
    if re.match(r"[a-z][a-z+.-]*:", target):
        return None
    name, _, fragment = target.partition("#")
    there = (path.parent / name).resolve() if name else path
    if not there.is_relative_to(ROOT) or not there.exists():
        return report(path, line, f"the link '{target}' leads nowhere")
    if fragment and there.suffix == ".md" and fragment not in fragments(there):
        return report(path, line, f"'{name or path.name}' has no '#{fragment}'")
    return None


def check(path):
    text = path.read_text(encoding="utf-8")
    prose = prose_of(text)

    def line_of(offset):
        return prose.count("\n", 0, offset) + 1

    for found in LINK.finditer(prose):
        check_link(path, line_of(found.start()), found[2], found[3])
    if path.is_relative_to(ROOT / "book"):
        if not re.match(r"---\n(?:.*\n)*?difficulty: (?:introductory|intermediate|advanced)\n(?:.*\n)*?---\n", text):
            report(path, 1, "the front matter has no difficulty: introductory, intermediate or advanced")
        for found in CITE.finditer(prose):
            for key in KEY.findall(found[0]):
                if key.rstrip(".,;:") not in store("references.yaml"):
                    report(path, line_of(found.start()), f"there is no reference '{key}' in citations/references.yaml")
        inline = re.sub(r"\$\$.*?\$\$", blank, prose, flags=re.S)
        for found in re.finditer(r"(?<![\\$])\$(?![\s$])([^$\n]+?)(?<!\s)\$(?!\d)", inline):
            mangled = GITHUB_MANGLES.search(found[1])
            if mangled:
                advice = {"\\,": "a plain space", "\\{": "\\lbrace", "\\}": "\\rbrace", "\\\\": "a display"}[mangled[0]]
                report(path, line_of(found.start()), f"inline mathematics with '{mangled[0]}', which GitHub mangles: write {advice}")


def main():
    named = [name for name in sys.argv[1:] if name != "--static"]
    if named:
        files = [pathlib.Path(name).resolve() for name in named]
    else:
        listed = subprocess.run(["git", "ls-files", "-z", "--", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        files = [ROOT / name for name in listed.split("\0") if name and not name.startswith("tests/")]
    for path in files:
        if path.exists():
            check(path)
    for message in errors:
        print(message)
    print(f"book: {len(files)} files, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
