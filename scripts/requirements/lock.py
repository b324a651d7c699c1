#!/usr/bin/env python3
"""Rewrites build.txt, test.txt, vocabularies.txt, site.txt, browser.txt and axe.txt: every package pinned, with the hashes of its wheels for the Pythons below.

    python3 scripts/requirements/lock.py [--only-site] [NAME==VERSION ...]

Asks pip to resolve the .in files without installing anything. The arguments add constraints. Needs pip 23 or later.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
PYTHONS = ["3.11", "3.12", "3.13"]
# Not needed to import torch and run it on a CPU: compilers for GPUs and bindings to them, and the meta package that
# only names the other CUDA packages. Together about 200 MB.
LEFT_OUT = {"triton", "cuda-bindings", "cuda-pathfinder", "cuda-toolkit"}


def normal(name):
    return name.lower().replace("_", "-").replace(".", "-")


def resolve(source, python, constraints, deps):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        limits = pathlib.Path(folder) / "constraints.txt"
        limits.write_text("\n".join(constraints) + "\n")
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", str(report),
             "--only-binary", ":all:", "--python-version", python, "--target", folder, "-c", str(limits),
             *([] if deps else ["--no-deps"]), "-r", str(source)], check=True)
        return json.loads(report.read_text())["install"]


def size_of(url):
    if url.startswith("file:"):
        return pathlib.Path(urllib.request.url2pathname(url[len("file://"):])).stat().st_size
    with urllib.request.urlopen(urllib.request.Request(url, method="HEAD")) as answer:
        return int(answer.headers["Content-Length"])


def lock(name, constraints, deps, elsewhere=()):
    """Writes NAME.txt from NAME.in, less the pins of another file, and returns its pins."""
    pins = {}  # (package, version) -> {"hashes": set, "pythons": set, "bytes": int}
    for python in PYTHONS:
        for item in resolve(HERE / f"{name}.in", python, constraints, deps):
            package = normal(item["metadata"]["name"])
            if package in LEFT_OUT or f"{package}=={item['metadata']['version']}" in elsewhere:
                continue
            pin = pins.setdefault((package, item["metadata"]["version"]), {"hashes": set(), "pythons": set(), "bytes": 0})
            archive = item["download_info"]
            pin["hashes"].add("sha256:" + archive["archive_info"]["hashes"]["sha256"])
            pin["pythons"].add(python)
            if not pin["bytes"]:
                pin["bytes"] = size_of(archive["url"])
    versions = {}
    for package, version in pins:
        versions.setdefault(package, []).append(version)
    lines = [f"# Written by lock.py from {name}.in. Each line ends with the size of the download, in bytes."]
    for (package, version), pin in sorted(pins.items()):
        marker = ""
        if len(versions[package]) > 1:
            marker = " ; " + " or ".join(f'python_version == "{p}"' for p in sorted(pin["pythons"]))
        hashes = " ".join(f"--hash={h}" for h in sorted(pin["hashes"]))
        lines.append(f"{package}=={version}{marker} {hashes}  # {pin['bytes']}")
    (HERE / f"{name}.txt").write_text("\n".join(lines) + "\n")
    print(f"{name}.txt: {len(pins)} packages, {sum(p['bytes'] for p in pins.values()) / 1e6:.0f} MB")
    return [f"{package}=={version}" for (package, version) in pins if len(versions[package]) == 1]


def pinned(name):
    """The pins that NAME.txt holds now."""
    lines = (HERE / f"{name}.txt").read_text().splitlines()
    return [line.split(" ")[0] for line in lines if "==" in line and "python_version" not in line]


def main():
    given = [argument for argument in sys.argv[1:] if argument != "--only-site"]
    if "--only-site" in sys.argv[1:]:
        pins = pinned("build") + pinned("test")
    else:
        pins = lock("build", given, deps=False)
        pins += lock("test", given + pins, deps=True, elsewhere=pins)
        lock("vocabularies", given, deps=False)
    lock("site", given, deps=False)
    lock("browser", given + pins, deps=True, elsewhere=pins)
    lock("axe", given, deps=False)


if __name__ == "__main__":
    main()
