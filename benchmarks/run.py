#!/usr/bin/env python3
"""Runs a bench and writes its record, benchmarks/results/BENCH/DEVICE-DATE.json.

    run.py ID… [--tree build/cpu] [--samples N] [--no-record] [--verdict "…"] [--claims fact-id …]
    run.py --list            the registered benches, their floors and goals
    run.py --check           every record: its schema, its arithmetic, and whether the measured code has changed since

What a bench is, is registered in benches.yaml; README.md beside this file says how to write one. `make bench BENCH=id`
calls this with the pinned Python.
"""
import argparse
import datetime
import functools
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import shlex
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


class Refused(Exception):
    """A message for the person who ran this."""


def read_yaml(path):
    import yaml

    with open(path, encoding="utf-8") as file:
        return yaml.safe_load(file)


def output_of(*command, cwd=ROOT):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


# --- the machine ------------------------------------------------------------------------------------------------------


def cpu_name():
    for line in open("/proc/cpuinfo", encoding="utf-8"):
        if line.startswith("model name"):
            return re.sub(r"\s+", " ", line.split(":", 1)[1].strip())
    return platform.processor() or platform.machine()


def host():
    with open("/proc/meminfo", encoding="utf-8") as file:
        memory = int(file.readline().split()[1]) / 1e6
    return {"cpu": cpu_name(), "cores": len(os.sched_getaffinity(0)), "memory_gb": round(memory, 1), "kernel": platform.release()}


def gpus():
    query = output_of("nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,power.draw", "--format=csv,noheader,nounits")
    rows = [[field.strip() for field in line.split(",")] for line in query.splitlines() if line]
    if not rows:
        raise Refused("this bench needs a GPU, and nvidia-smi shows none")
    name, driver, clocks, power = rows[0]
    device = {"name": name, "count": len(rows), "driver": driver}
    for key, text in (("clocks_mhz", clocks), ("power_w", power)):
        try:
            device[key] = float(text)
        except ValueError:
            pass
    return device


def toolkit(tree, gpu):
    cache = {}
    if (tree / "CMakeCache.txt").exists():
        for line in (tree / "CMakeCache.txt").read_text().splitlines():
            found = re.match(r"(\w+):\w+=(.*)", line)
            if found:
                cache[found[1]] = found[2]
    words = [output_of(cache.get("CMAKE_CXX_COMPILER", "c++"), "--version").splitlines()[:1]]
    words = [words[0][0] if words[0] else "unknown compiler", cache.get("CMAKE_BUILD_TYPE", "")]
    if gpu:
        release = re.search(r"release ([\d.]+)", output_of("nvcc", "--version"))
        words.insert(0, "CUDA " + release[1] if release else "CUDA unknown")
    return ", ".join(word for word in words if word)


def slug(text):
    text = re.sub(r"\((?:r|tm)\)|\bcpu\b|@.*|\bprocessor\b", " ", text.lower())
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")


# --- the code that is measured ----------------------------------------------------------------------------------------


def linked_sources(program):
    """The file names of the sources whose objects the linker took into a program; none if it was stripped."""
    table = subprocess.run(["readelf", "-Ws", str(program)], capture_output=True, text=True, check=False).stdout
    files = (line.split() for line in table.splitlines())
    # nvcc compiles NAME.cu by way of tmpxft_…_NAME.cudafe1.cpp.
    return {re.sub(r"^tmpxft_\w+-\d+_(.*)\.cudafe1\.cpp$", r"\1.cu", f[7]) for f in files if len(f) == 8 and f[3] == "FILE"}


def code_of(tree, targets):
    """The files of the repository (less build/ and the harness) that the compiler read for what these targets contain,
    sorted. A library's objects count only if the linker took them."""
    objects = set()
    for target in targets:
        inputs = subprocess.run(["ninja", "-C", str(tree), "-t", "inputs", target], capture_output=True, text=True, check=False)
        if inputs.returncode != 0:
            raise Refused(f"{tree} does not build {target}: {inputs.stderr.strip() or inputs.stdout.strip()}")
        linked = linked_sources(tree / "bin" / target)
        for line in inputs.stdout.splitlines():
            name = line.strip()
            if name.endswith(".o") and (not linked or name.rsplit("/", 1)[-1][: -len(".o")] in linked):
                objects.add(name)
    listing = subprocess.run(["ninja", "-C", str(tree), "-t", "deps"], capture_output=True, text=True, check=True).stdout
    files = set()
    wanted = False
    for line in listing.splitlines():
        if line and not line[0].isspace():
            wanted = line.split(":", 1)[0] in objects
        elif wanted and line.strip():
            path = pathlib.Path(os.path.normpath(tree / line.strip()))
            if path.is_relative_to(ROOT):
                name = path.relative_to(ROOT).as_posix()
                if not name.startswith(("build/", "build-", "benchmarks/")):
                    files.add(name)
    if not files:
        raise Refused(f"no source of {', '.join(targets)} was found in {tree}: is it built?")
    return sorted(files)


def hash_of(files):
    """sha256 over "path NUL sha256-of-content LF" of each file."""
    total = hashlib.sha256()
    for name in files:
        try:
            content = (ROOT / name).read_bytes()
        except FileNotFoundError:
            content = b""
        total.update(f"{name}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return total.hexdigest()


# --- running ----------------------------------------------------------------------------------------------------------


def fill(words, tree, work):
    """The command with its placeholders replaced: {root}, {tree}, {bin}, {tangle}, {work}, {model}, {python}, {peers}."""
    cache = pathlib.Path(os.environ.get("ROSE_CACHE") or
                         pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "rosellm")
    names = {
        "root": ROOT, "tree": tree, "bin": tree / "bin", "tangle": ROOT / "build/bin/tangle", "work": work,
        "model": os.environ.get("ROSE_MODEL") or cache / "models/SmolLM2-135M-Instruct.Q4_1.gguf",
        "python": sys.executable, "peers": os.environ.get("ROSE_PEERS") or cache / "venv-peers/bin/python",
    }
    return [re.sub(r"\{(\w+)\}", lambda m: str(names[m[1]]) if m[1] in names else m[0], str(word)) for word in words]


def last_json(text, command):
    lines = [line for line in text.splitlines() if line.strip()]
    try:
        value = json.loads(lines[-1])
        assert isinstance(value, dict)
        return value
    except (IndexError, ValueError, AssertionError):
        raise Refused(f"`{shlex.join(command)}` did not end with a line of JSON") from None


class Side:
    """One side of a pair: a process that is asked for one sample at a time."""

    def __init__(self, command):
        self.command = command
        try:
            self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        except OSError as problem:
            raise Refused(f"`{shlex.join(command)}` did not start: {problem.strerror}") from None
        self.about = self.answer("start")

    def answer(self, what):
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise Refused(f"`{shlex.join(self.command)}` ended (status {self.process.wait()}) when asked to {what}")

    def sample(self):
        self.process.stdin.write("run\n")
        self.process.stdin.flush()
        return float(self.answer("run")["value"])

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()


def summary(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "values": values}


def run_program(command):
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise Refused(f"`{shlex.join(command)}` failed with status {done.returncode}")
    return last_json(done.stdout, command)


def run_pair(ours, peer, samples, warmup):
    sides = [Side(ours), Side(peer)]
    values = [[], []]
    for round_number in range(warmup + samples):
        # alternate who goes first, so that neither always has the warmer machine
        for index in (0, 1) if round_number % 2 == 0 else (1, 0):
            value = sides[index].sample()
            if round_number >= warmup:
                values[index].append(value)
    for side in sides:
        side.close()
    about = sides[1].about
    for key in ("name", "version", "settings"):
        if key not in about:
            raise Refused(f"the peer did not say its {key}")
    result = {**sides[0].about, **summary(values[0]), "samples": samples, "warmup": warmup}
    result["peer"] = {"name": about["name"], "version": about["version"], "settings": about["settings"], **summary(values[1])}
    for key in ("checksum",):  # both did the same work, if both say what they made
        if key in about and key in sides[0].about and about[key] != sides[0].about[key]:
            raise Refused(f"the sides disagree: {key} is {sides[0].about[key]} here and {about[key]} for {about['name']}")
    return result


def run_timed(template, before, samples, warmup, work):
    """Wall time of whole processes, in milliseconds, and their largest resident memory. {n} is the number of the sample."""
    stopwatch = os.path.join(work, "stopwatch")  # says why it, and not Python, starts the process
    subprocess.run(["c++", "-std=c++20", "-O1", "-o", stopwatch, str(ROOT / "benchmarks/harness/stopwatch.cpp")], check=True)
    values, peak = [], 0
    for number in range(warmup + samples):
        command = [word.replace("{n}", str(number)) for word in template]
        if before:
            subprocess.run(before, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
        measured = run_program([stopwatch, *command])
        if number >= warmup:
            values.append(measured["ms"])
            peak = max(peak, measured["bytes"])
    return {**summary(values), "samples": samples, "warmup": warmup, "peak_memory_mb": round(peak / 1e6, 1)}


def ratio_of(record):
    mine, other = record["median"], record["peer"]["median"]
    return mine / other if record["better"] == "higher" else other / mine


def judged(entry, record):
    """Floor and goal in words."""
    key = entry.get("judge", "median")
    value = record.get(key)
    if value is None or ("floor" not in entry and "goal" not in entry):
        return "recorded; this bench has no floor"
    unit = "" if key in ("ratio", "fraction_of_limit") else " " + record["unit"]
    words = []
    for name, mark in (("at least", entry.get("floor")), ("goal", entry.get("goal"))):
        if mark is not None:
            met = value >= mark if record["better"] == "higher" or key in ("ratio", "fraction_of_limit") else value <= mark
            words.append(f"{'at most' if not (record['better'] == 'higher' or unit == '') and name == 'at least' else name} "
                         f"{mark:g}{unit}: {'reached' if met else 'not reached'}")
    return f"{key} {value:.4g}{unit}; " + "; ".join(words)


def run(bench, entry, options):
    tree = (ROOT / entry.get("tree", options.tree)).resolve()
    gpu = bool(entry.get("gpu"))
    samples = options.samples or entry.get("samples", 15)
    warmup = entry.get("warmup", 3)
    targets = entry.get("measures") or [entry["program"]]
    build = [entry["program"]] if "program" in entry else []
    if build or "measures" in entry:
        print(f"{bench}: building {' '.join(build + targets)} in {tree.relative_to(ROOT)}", file=sys.stderr)
        if subprocess.run(["ninja", "-C", str(tree), "--quiet", *dict.fromkeys(build + targets)], check=False).returncode != 0:
            raise Refused(f"{bench} does not build")
    if "{peers}" in entry.get("peer", []) and not pathlib.Path(fill(["{peers}"], tree, "")[0]).exists():
        subprocess.run([str(ROOT / "scripts" / "setup.sh"), "--profile", "bench"], check=True)
    # in memory where there is such a folder: a bench that means to measure a disk names its own
    with tempfile.TemporaryDirectory(prefix="rose-bench-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as work:
        if "prepare" in entry:
            subprocess.run(fill(entry["prepare"], tree, work), cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        if "program" in entry:
            command = [f"{{bin}}/{entry['program']}", *entry.get("args", [])]
        else:
            command = entry["command"]
        full = fill(command, tree, work)
        print(f"{bench}: {samples} samples, {warmup} warm-up; {entry['what']}", file=sys.stderr)
        if "peer" in entry:
            result = run_pair(full + (["--serve"] if "program" in entry else []), fill(entry["peer"], tree, work), samples, warmup)
        elif entry.get("mode") == "time":
            result = run_timed(full, fill(entry["before"], tree, work) if "before" in entry else None, samples, warmup, work)
        else:
            result = run_program(full)
    if result.get("ratio") and not result.get("peer"):
        raise Refused(f"{bench} reports a ratio without its peer: both sides of a ratio come from one run")
    record = {"bench": bench}
    for key in ("metric", "unit", "better"):
        record[key] = result.pop(key, entry.get(key))
        if record[key] is None:
            raise Refused(f"neither {bench} nor benches.yaml says its {key}")
    result.pop("bench", None)
    record.update(result)
    record.setdefault("samples", 1)
    record.setdefault("warmup", 0)
    for key in ("min", "max"):
        record.setdefault(key, record["median"])
    if "peer" in record:
        record["ratio"] = round(ratio_of(record), 4)
    if "limit" in record and "fraction_of_limit" not in record:
        fraction = record["median"] / record["limit"]["value"]
        record["fraction_of_limit"] = round(fraction if record["better"] == "higher" else 1 / fraction, 4)
    libraries = dict(record.pop("libraries", {}))
    for name in entry.get("libraries", []):
        try:
            libraries[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    files = code_of(tree, targets)
    spelled = {"{bin}": str((tree / "bin").relative_to(ROOT)), "{tree}": str(tree.relative_to(ROOT)), "{tangle}": "build/bin/tangle",
               "{root}/": "", "{python}": "python"}
    printable = shlex.join(functools.reduce(lambda text, pair: text.replace(*pair), spelled.items(), str(word)) for word in command)
    record.update({
        "device": gpus() if gpu else {"name": cpu_name(), "count": 1},
        "host": host(), "toolkit": toolkit(tree, gpu), "libraries": libraries, "command": printable,
        "config": {**entry.get("config", {}), **record.pop("config", {})}, "seed": record.pop("seed", entry.get("seed", 0)),
        "commit": output_of("git", "rev-parse", "HEAD"),
        "clean": output_of("git", "status", "--porcelain", "--untracked-files=no", "--", ":!benchmarks/results") == "",
        "code_hash": hash_of(files), "code": files, "date": datetime.date.today().isoformat(),
    })
    if options.claims:
        record["claims"] = options.claims
    record["verdict"] = options.verdict or judged(entry, record)
    problems = problems_of(record)
    if problems:
        raise Refused(f"the record of {bench} is not valid:\n  " + "\n  ".join(problems))
    show(record)
    if not options.no_record:
        path = RESULTS / bench / f"{slug(record['device']['name'])}-{record['date']}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        temporary.replace(path)
        print(f"{bench}: wrote {path.relative_to(ROOT)}", file=sys.stderr)
        if not record["clean"]:
            print(f"{bench}: note: the checkout has uncommitted changes, and the record says so", file=sys.stderr)


def show(record):
    line = f"{record['bench']}: median {record['median']:.5g} {record['unit']} ({record['min']:.5g} to {record['max']:.5g})"
    if "peer" in record:
        line += f"; {record['peer']['name']} {record['peer']['median']:.5g}; ratio {record['ratio']:.3f}"
    if "fraction_of_limit" in record:
        line += f"; {record['fraction_of_limit']:.1%} of {record['limit']['name']}"
    if "peak_memory_mb" in record:
        line += f"; peak memory {record['peak_memory_mb']:g} MB"
    print(line)
    print(f"{record['bench']}: {record['verdict']}")


# --- checking records -------------------------------------------------------------------------------------------------


def problems_of(record):
    import jsonschema

    schema = json.loads((ROOT / "benchmarks" / "record.schema.json").read_text())
    problems = [f"{'/'.join(map(str, error.path)) or 'record'}: {error.message}"
                for error in jsonschema.Draft202012Validator(schema).iter_errors(record)]
    if problems:
        return problems
    if not record["min"] <= record["median"] <= record["max"]:
        problems.append("the median does not lie between min and max")
    if "ratio" in record and abs(record["ratio"] / ratio_of(record) - 1) > 0.002:
        problems.append(f"ratio {record['ratio']} is not that of the medians, {ratio_of(record):.4f}")
    correct = record.get("correct", {})
    if "error" in correct and "bound" in correct and not correct["error"] <= correct["bound"]:
        problems.append(f"wrong result: error {correct['error']} exceeds its bound {correct['bound']}")
    return problems


def check():
    benches = read_yaml(ROOT / "benchmarks" / "benches.yaml")
    bad = stale = count = 0
    for path in sorted(RESULTS.glob("*/*.json")):
        name = path.relative_to(ROOT)
        count += 1
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as problem:
            print(f"{name}:1: error: not JSON: {problem}")
            bad += 1
            continue
        problems = problems_of(record)
        if record.get("bench") != path.parent.name:
            problems.append(f"it lies in {path.parent.name}/ and says bench {record.get('bench')!r}")
        if path.parent.name not in benches:
            problems.append("its bench is not in benches.yaml")
        for problem in problems:
            print(f"{name}:1: error: {problem}")
        bad += bool(problems)
        if record.get("code") and hash_of(record["code"]) != record.get("code_hash"):
            print(f"{name}:1: note: the measured code has changed since")
            stale += 1
    print(f"records: {count} checked, {bad} wrong, {stale} older than their code")
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="*")
    parser.add_argument("--tree", default="build/cpu")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--no-record", action="store_true")
    parser.add_argument("--verdict")
    parser.add_argument("--claims", nargs="*")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--gpu", action="store_true", help="all GPU benches")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.check:
        return check()
    benches = read_yaml(ROOT / "benchmarks" / "benches.yaml")
    if options.gpu:
        options.ids = [bench for bench, entry in benches.items() if entry.get("gpu") and "verb" not in entry]
        if not options.ids:
            print("no GPU bench is registered yet")
            return 0
    if options.list or not options.ids:
        for bench, entry in benches.items():
            marks = ", ".join(f"{name} {entry[name]:g}" for name in ("floor", "goal") if name in entry)
            print(f"{bench:24} {entry['what']} ({entry.get('unit', '')}{'; ' + entry['judge'] if 'judge' in entry else ''}"
                  f"{'; ' + marks if marks else ''})")
        return 0 if options.list else 2
    for bench in options.ids:
        if bench not in benches:
            raise Refused(f"there is no bench '{bench}'; `make bench` lists them")
        run(bench, benches[bench], options)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Refused as message:
        print(f"bench: {message}", file=sys.stderr)
        sys.exit(1)
