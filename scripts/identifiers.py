#!/usr/bin/env python3
"""Asks libclang what the names in generated/ mean, and leaves build/identifiers.json for the site.

    identifiers.py [--jobs N] [DATABASE]          default: build/cpu/compile_commands.json

Without this file `weave` links names by a reading of its own, which leaves overloaded and ambiguous ones alone; with it, names
lead to exactly what the compiler takes them for. A file counts as long as it is what it was. Units whose files have not
changed are not read again. Needs clang 16's library and its Python bindings (the set-up's profile `test`).
"""
import argparse
import concurrent.futures
import glob
import hashlib
import json
import os
import pathlib
import re
import shlex
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "identifiers.json"
RELEASE = 1  # of what this file writes
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
LEFT_OUT = {"-c", "-Winvalid-pch", "-fpch-preprocess", "-Wno-restrict"}


def library():
    found = sorted(glob.glob("/usr/lib/llvm-16/lib/libclang-16.so*") + glob.glob("/usr/lib/*/libclang-16.so*"))
    return found[0] if found else None


def arguments(entry):
    """The compiler's flags, without its name, files, and the precompiled header, which is g++'s."""
    given, kept = entry.get("arguments") or shlex.split(entry["command"]), ["-w"]
    while given and not given[0].startswith("-"):  # a launcher, the compiler
        given = given[1:]
    skip = False
    for i, each in enumerate(given):
        if skip:
            skip = False
        elif each in ("-o", "-MF", "-MT", "-MQ"):
            skip = True
        elif each == "-include" and "cmake_pch" in given[i + 1]:
            skip = True
        elif each not in LEFT_OUT and not each.endswith(entry["file"]):
            kept.append(each)
    return kept


def closure(path, generated, seen):
    """The unit and the headers of the book that it includes."""
    if path in seen or not path.exists():
        return
    seen.add(path)
    for name in INCLUDE.findall(path.read_text(encoding="utf-8")):
        closure(generated / name, generated, seen)


def read_unit(entry, generated):
    """{path: {(line, offset, name, path there, line there)}} of the book's files in one unit, or what went wrong.

    An offset counts from the first character of a line that is no space: chapters indent code in their own way."""
    import clang.cindex as cindex

    if not cindex.Config.loaded:
        cindex.Config.set_library_file(library())
    kinds = cindex.CursorKind
    uses_kinds = {kinds.DECL_REF_EXPR, kinds.MEMBER_REF_EXPR, kinds.MEMBER_REF, kinds.TYPE_REF, kinds.TEMPLATE_REF, kinds.OVERLOADED_DECL_REF}
    path = os.path.normpath(os.path.join(entry["directory"], entry["file"]))
    os.chdir(entry["directory"])
    unit = cindex.Index.create().parse(path, args=arguments(entry))
    fatal = [d for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]
    if fatal:
        return str(fatal[0])
    inside, found, indents = {}, {}, {}
    prefix = str(generated) + os.sep

    def ours(location):
        if location.file is None:
            return None
        name = location.file.name
        if name not in inside:
            whole = os.path.realpath(name)
            inside[name] = whole[len(prefix):] if whole.startswith(prefix) else None
        return inside[name]

    def indent(name, line):
        if name not in indents:
            indents[name] = [len(each) - len(each.lstrip()) for each in (generated / name).read_bytes().split(b"\n")]
        return indents[name][line - 1]

    stack = [cursor for cursor in unit.cursor.get_children() if ours(cursor.location) is not None]
    while stack:
        cursor = stack.pop()
        if cursor.kind in uses_kinds:
            here, there = cursor.location, cursor.referenced
            mine = ours(here)
            if mine is not None and there is not None:
                there = there.canonical
                name = re.split(r"[<(]", there.spelling, maxsplit=1)[0]
                target = ours(there.location)
                if name.isidentifier() and (target != mine or there.location.line != here.line):
                    found.setdefault(mine, set()).add((here.line, here.column - 1 - indent(mine, here.line), name, target or "", there.location.line if target else 0))
        stack.extend(cursor.get_children())
    return found


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--jobs", type=int, default=os.cpu_count())
    options.add_argument("--generated", type=pathlib.Path, default=ROOT / "generated")
    options.add_argument("--out", type=pathlib.Path, default=OUT)
    options.add_argument("--only", default="", help="a folder below generated/, such as rose/core")
    options.add_argument("database", nargs="?", type=pathlib.Path, default=ROOT / "build" / "cpu" / "compile_commands.json")
    given = options.parse_args()
    generated = given.generated.resolve()
    if not given.database.exists():
        sys.exit(f"identifiers: there is no {given.database}: run `make build`")
    try:
        import clang.cindex  # noqa: F401
    except ImportError:
        sys.exit("identifiers: clang's Python bindings are not installed: scripts/setup.sh --profile test")
    if library() is None:
        sys.exit("identifiers: libclang 16 is not installed (Debian: libclang1-16)")
    memory = given.out.with_suffix(".units.json")
    old = json.loads(memory.read_text()) if memory.exists() else {}
    known = old.get("units", {}) if old.get("release") == RELEASE else {}
    units, todo = {}, {}
    for entry in json.loads(given.database.read_text()):
        path = pathlib.Path(os.path.normpath(os.path.join(entry["directory"], entry["file"]))).resolve()
        if path.suffix != ".cpp" or not path.is_relative_to(generated / given.only):
            continue
        seen = set()
        closure(path, generated, seen)
        state = hashlib.sha256()
        for each in sorted(seen):
            state.update(str(each.relative_to(generated)).encode() + each.read_bytes())
        name, state = str(path.relative_to(generated)), state.hexdigest()
        if known.get(name, {}).get("state") == state:
            units[name] = known[name]
        else:
            todo[name] = (entry, state)
    print(f"identifiers: {len(todo)} of {len(units) + len(todo)} units", flush=True)
    wrong = 0
    with concurrent.futures.ProcessPoolExecutor(given.jobs) as pool:
        answers = {name: pool.submit(read_unit, entry, generated) for name, (entry, _) in todo.items()}
        for name, answer in answers.items():
            uses = answer.result()
            if isinstance(uses, str):
                wrong += 1
                print(f"identifiers: {name}: not read: {uses}", flush=True)
                continue
            units[name] = {"state": todo[name][1], "uses": {path: sorted(each) for path, each in uses.items()}}
    files = {}
    for unit in units.values():
        for path, uses in unit["uses"].items():
            files.setdefault(path, set()).update(map(tuple, uses))
    out = {"files": {
        path: {"sha256": hashlib.sha256((generated / path).read_bytes()).hexdigest(), "uses": sorted(uses)}
        for path, uses in sorted(files.items()) if (generated / path).exists()}}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    for target, content in ((memory, {"release": RELEASE, "units": units}), (given.out, out)):
        part = target.with_suffix(".part")
        part.write_text(json.dumps(content, separators=(",", ":"), sort_keys=True))
        part.rename(target)
    print(f"identifiers: {sum(len(f['uses']) for f in out['files'].values())} uses in {len(files)} files: {given.out}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
