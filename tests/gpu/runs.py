"""Runs the tests that need a GPU, plainly or under compute-sanitizer, and prints what a record of the run keeps.

    runs.py tests --tree build/cuda         every case for a GPU of every test program
    runs.py sanitizers --tree build/cuda    memcheck, racecheck and initcheck over small draws of every operation

`make test-gpu` and `make sanitize-gpu` call it through benchmarks/run.py, which writes benchmarks/results/gpu-tests/ and gpu-sanitizers/.
The last line is JSON whose median counts what went wrong; programs that are not built are named in it.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

# Small draws: a tool slows a kernel down ten to a hundred times.
DRAWS = "5"
TOOLS = ("memcheck", "racecheck", "initcheck")
# Programs whose cases each run under the tools; with a filter where only some are small.
SMALL = {
    "test_gpu_twins": "GpuTwin.*",
    "test_gpu_special_values": "*Gpu*",
    "test_gpu_attention": "GpuAttention.ABadPage*",
    "test_4-kernels_14-kv-cache-and-paged-decode": "KvCacheGpu.*",
}


def registered(tree):
    """The tests with label gpu: name, command, environment."""
    listing = subprocess.run(["ctest", "--test-dir", str(tree), "-L", "gpu", "--show-only=json-v1"],
                             capture_output=True, text=True, check=True)
    found = []
    for test in json.loads(listing.stdout)["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        environment = dict(line.split("=", 1) for line in properties.get("ENVIRONMENT", []))
        found.append((test["name"], test.get("command", []), environment, properties.get("TIMEOUT", 600)))
    return found


def run(command, environment, limit):
    """Return code and output; None in place of the code where the limit was reached."""
    try:
        done = subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=limit, check=False)
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        return None, (late.stdout or b"").decode(errors="replace")


def cases_of(report):
    """Passed, failed and skipped cases of GoogleTest's JSON report."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for suite in report["testsuites"]:
        for case in suite["testsuite"]:
            failed = "failures" in case
            counts["failed" if failed else "skipped" if case.get("result") == "SKIPPED" else "passed"] += case.get("status") == "RUN"
    return counts


def findings_of(tool, output):
    """What the tool's last summary counts; None where it wrote none."""
    pattern = r"RACECHECK SUMMARY: (\d+) hazard" if tool == "racecheck" else r"ERROR SUMMARY: (\d+) error"
    found = re.findall(pattern, output)
    return int(found[-1]) if found else None


def say(text):
    print(text, file=sys.stderr, flush=True)


def run_tests(tree):
    total = {"programs": 0, "passed": 0, "failed": 0, "skipped": 0}
    missing, wrong = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name, command, environment, limit in registered(tree):
            if not command or not os.access(command[0], os.X_OK):
                missing.append(name)
                continue
            report = pathlib.Path(folder) / f"{name}.json"
            start = time.monotonic()
            code, output = run([*command, f"--gtest_output=json:{report}"], environment, limit)
            counts = cases_of(json.loads(report.read_text())) if report.exists() else {"failed": 1}
            if code != 0 and not counts["failed"]:
                counts["failed"] = 1  # it ended badly after its last case
            total["programs"] += 1
            for key, count in counts.items():
                total[key] += count
            if counts["failed"]:
                wrong.append(name)
                say(output)
            say(f"{name}: {counts}, {time.monotonic() - start:.1f} s, status {code}")
    if total["programs"] == 0:
        sys.exit("gpu-tests: no test program is built; `make test-gpu` builds them")
    return {"median": total["failed"], "metric": "failed cases", "unit": "cases",
            "correct": {"against": f"{total['passed']} cases of {total['programs']} programs passed", "error": total["failed"], "bound": 0},
            "config": {**total, "not_built": missing, "wrong": wrong}}


def jobs_of(tree):
    """(program, case) for each case that runs under the tools, and the programs that are not built."""
    jobs, missing = [], []
    for program, pattern in SMALL.items():
        path = tree / "bin" / program
        if not path.exists():
            missing.append(program)
            continue
        listing = subprocess.run([path, "--gtest_list_tests", f"--gtest_filter={pattern}"], capture_output=True, text=True, check=True)
        suite = ""
        for line in listing.stdout.splitlines():
            if re.match(r"\S+\.$", line):
                suite = line
            elif suite and line.startswith("  "):
                jobs.append((program, suite + line.split("#")[0].strip()))
    return jobs, missing


def run_sanitizers(tree, limit, at_once):
    environment = {"ROSE_TWIN_CASES": DRAWS, "ROSE_REQUIRE_GPU": "1", "ROSE_SOURCE": os.getcwd(), "ROSE_BUILD": str(tree),
                   "ROSE_BIN": str(tree / "bin")}
    sanitizer = ["compute-sanitizer", "--print-limit", "3", "--tool"]
    for tool in TOOLS:
        _, output = run([*sanitizer, tool, str(tree / "bin/gpu_faulty"), tool], environment, limit)
        if not findings_of(tool, output):
            sys.exit(f"gpu-sanitizers: {tool} does not find the fault that gpu_faulty commits for it:\n{output[-2000:]}")
    jobs, missing = jobs_of(tree)
    if not jobs:
        sys.exit("gpu-sanitizers: no test program is built; `make sanitize-gpu` builds them")

    def one(job):
        tool, program, case = job
        start = time.monotonic()
        code, output = run([*sanitizer, tool, str(tree / "bin" / program), f"--gtest_filter={case}"], environment, limit)
        return job, code, findings_of(tool, output), time.monotonic() - start, output

    runs, findings, unfinished, wrong = {tool: 0 for tool in TOOLS}, 0, [], []
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        for job, code, found, seconds, output in pool.map(one, [(tool, *job) for tool in TOOLS for job in jobs]):
            what = f"{job[0]} {job[2]}"
            runs[job[0]] += 1
            if found is None or code is None:
                unfinished.append(what)
            elif found or code != 0:
                findings += max(found, 1)
                wrong.append(what)
                say(output[-6000:])
            say(f"{what}: {'not finished' if found is None else found}, {seconds:.1f} s, status {code}")
    return {"median": findings + len(unfinished), "metric": "findings", "unit": "findings",
            "correct": {"against": "each tool finds the fault made for it", "error": findings + len(unfinished), "bound": 0},
            "config": {"runs": runs, "cases": len(jobs), "draws": int(DRAWS), "not_built": missing, "unfinished": unfinished,
                       "wrong": wrong}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("tests", "sanitizers"))
    parser.add_argument("--tree", default="build/cuda")
    parser.add_argument("--limit", type=float, default=180, help="seconds for one run under a tool")
    parser.add_argument("--at-once", type=int, default=3, help="runs beside each other: each spends most of its time on the host")
    options = parser.parse_args()
    tree = pathlib.Path(options.tree).resolve()
    result = run_tests(tree) if options.what == "tests" else run_sanitizers(tree, options.limit, options.at_once)
    print(json.dumps({**result, "better": "lower", "samples": 1, "warmup": 0}))


if __name__ == "__main__":
    main()
