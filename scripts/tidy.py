#!/usr/bin/env python3
"""Runs clang-tidy over the units of a compile database that lie under a folder, and remembers the clean ones.

    tidy.py DATABASE_FOLDER JOBS FOLDER…

A unit is skipped when it, every header of the repository that it includes and .clang-tidy are as they were when it was
last found clean; the list of those is DATABASE_FOLDER/clean.json.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
database, jobs, folders = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def closure(path, seen):
    if path in seen or not path.exists():
        return
    seen.add(path)
    for name in INCLUDE.findall(path.read_text(encoding="utf-8")):
        closure(ROOT / "generated" / name, seen)


def state(unit):
    seen = set()
    closure(unit, seen)
    total = hashlib.sha256((ROOT / ".clang-tidy").read_bytes())
    for path in sorted(seen):
        total.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return total.hexdigest()


def lint(unit):
    return subprocess.run(["clang-tidy-16", "-p", str(database), "--quiet", "--warnings-as-errors=*", str(unit)],
                          capture_output=True, text=True, cwd=ROOT)


units = []
for entry in json.loads((database / "compile_commands.json").read_text()):
    path = pathlib.Path(os.path.normpath(pathlib.Path(entry["directory"]) / entry["file"]))
    if path.suffix == ".cpp" and any(path.is_relative_to(ROOT / folder) for folder in folders):
        units.append(path)
memory = database / "clean.json"
clean = json.loads(memory.read_text()) if memory.exists() else {}
todo = [(unit, state(unit)) for unit in sorted(set(units)) if clean.get(str(unit.relative_to(ROOT))) != state(unit)]
print(f"clang-tidy: {len(todo)} of {len(set(units))} units", flush=True)
bad = 0
with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
    for (unit, digest), done in zip(todo, pool.map(lambda item: lint(item[0]), todo)):
        name = str(unit.relative_to(ROOT))
        if done.returncode == 0:
            clean[name] = digest
        else:
            bad += 1
            errors = "\n".join(line for line in done.stderr.splitlines() if " error: " in line)
            print((done.stdout or errors or done.stderr).rstrip(), flush=True)
memory.write_text(json.dumps(clean, indent=0, sort_keys=True))
sys.exit(1 if bad else 0)
