#!/usr/bin/env python3
"""Checks the stores under citations/ and how the book uses them: the form of every fact, duplicate and unsorted ids, inferences
from facts that do not exist, records that are not there, entries that nobody cites, terms of chapters that do not exist, and, in the parts 6 to 10, numbers with a
unit that are no fact, record or test value.

    scripts/check_citations.py [--root DIR]
"""
import argparse
import pathlib
import re
import sys

import jsonschema
import yaml

STRICT_PARTS = ("6-", "7-", "8-", "9-", "10-")
MEASURED_LINK = re.compile(r"\[[^\]]*\]\((?:fact|bench|test):[^)]*\)")
NOT_PROSE = re.compile(r"^---\n.*?^---\n|^(```+).*?^\1\s*$|<!--.*?-->|`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]+\$|\]\([^)]*\)", re.S | re.M)


class Dates(yaml.SafeLoader):
    """YAML without its guess that 2026-11-30 is a date object."""


Dates.yaml_implicit_resolvers = {
    first: [(tag, expression) for tag, expression in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load(path):
    data = yaml.load(path.read_text(encoding="utf-8"), Dates) if path.exists() else []
    return data if isinstance(data, list) else next(iter(data.values()))


def line_of(path, needle):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if needle in line:
            return number
    return 1


def check_facts(root, complain):
    schema = yaml.safe_load((root / "citations/schema/facts.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    facts = {}
    for path in sorted((root / "citations/facts").glob("*.yaml")):
        entries = load(path)
        for error in sorted(validator.iter_errors(entries), key=lambda e: str(e.path)):
            entry = entries[error.absolute_path[0]] if error.absolute_path else {}
            fact = entry.get("id", "?") if isinstance(entry, dict) else "?"
            complain(path, line_of(path, f"id: {fact}"), f"fact '{fact}': {error.message}")
        ids = [entry["id"] for entry in entries if "id" in entry]
        for fact in ids:
            if fact in facts:
                complain(path, line_of(path, f"id: {fact}"), f"fact '{fact}' exists twice")
            facts[fact] = path
        if ids != sorted(ids):
            first = next(b for a, b in zip(ids, ids[1:]) if b < a)
            complain(path, line_of(path, f"id: {first}"), f"facts are sorted by id, and '{first}' is out of order")
    for path in set(facts.values()):
        for entry in load(path):
            for base in entry.get("from", []):
                if base not in facts:
                    complain(path, line_of(path, f"id: {entry['id']}"), f"fact '{entry['id']}' rests on '{base}', which does not exist")
            if "record" in entry and not (root / entry["record"]).exists():
                complain(path, line_of(path, f"id: {entry['id']}"), f"fact '{entry['id']}': there is no {entry['record']}")
    return facts


def check_errata(root, complain):
    path = root / "citations/errata.yaml"
    if not path.exists():
        return
    entries = load(path)
    validator = jsonschema.Draft202012Validator(yaml.safe_load((root / "citations/schema/errata.schema.json").read_text()))
    for error in validator.iter_errors(entries):
        entry = entries[error.absolute_path[0]] if error.absolute_path else {}
        name = entry.get("id", "?") if isinstance(entry, dict) else "?"
        complain(path, line_of(path, f"id: {name}"), f"erratum '{name}': {error.message}")
    for entry in entries:
        if isinstance(entry, dict) and not (root / "book" / f"{entry.get('chapter')}.md").exists():
            complain(path, line_of(path, f"id: {entry.get('id')}"), f"erratum '{entry.get('id')}': there is no chapter '{entry.get('chapter')}'")


def check_uses(root, facts, complain):
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((root / "book").rglob("*.md")))
    used = set(re.findall(r"\(fact:([^)\s#]+)", text))
    for path in set(facts.values()):
        for entry in load(path):
            used.update(entry.get("from", []))
    for fact, path in facts.items():
        if fact not in used:
            complain(path, line_of(path, f"id: {fact}"), f"fact '{fact}' is cited nowhere")
    path = root / "citations/references.yaml"
    ids = [entry["id"] for entry in load(path)] if path.exists() else []
    for key, following in zip(ids, ids[1:]):
        if following <= key:
            complain(path, line_of(path, f"id: {following}"), f"references are sorted by id, and '{following}' is out of order or there twice")
    glossary = root / "citations/glossary.yaml"
    for entry in load(glossary):
        if not (root / "book" / f"{entry['chapter']}.md").exists():
            complain(glossary, line_of(glossary, f"id: {entry['id']},"), f"term '{entry['id']}': there is no chapter '{entry['chapter']}'")
    for key in ids:
        if not re.search(rf"@{re.escape(key)}(?![\w-])", text):
            complain(path, line_of(path, f"id: {key}"), f"reference '{key}' is cited nowhere")


def check_strict(root, complain):
    units = [name for unit in load(root / "citations/units.yaml") for name in [unit["id"], *unit["also"]]]
    words = "|".join(re.escape(name) for name in sorted(units, key=len, reverse=True))
    number = re.compile(rf"(?<![\w.])\d[\d.,]*(?:\s(?:thousand|million|billion|trillion)|[kMBT])?[\s-](?:{words})(?![\w/])")
    for path in sorted((root / "book").glob("*/*.md")):
        if not path.parent.name.startswith(STRICT_PARTS):
            continue
        text = path.read_text(encoding="utf-8")
        blank = lambda found: re.sub(r"[^\n]", " ", found[0])
        prose = NOT_PROSE.sub(blank, MEASURED_LINK.sub(blank, text))
        for found in number.finditer(prose):
            complain(path, prose.count("\n", 0, found.start()) + 1,
                     f"'{found[0].strip()}' needs a source: write it as a fact:, bench: or test: link")


def check(root):
    """All complaints about the tree at root, one line each, and the number of facts."""
    messages = []

    def complain(path, line, message):
        messages.append(f"{path.relative_to(root)}:{line}: error: {message}")

    facts = check_facts(root, complain)
    check_errata(root, complain)
    check_uses(root, facts, complain)
    check_strict(root, complain)
    return messages, len(facts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    messages, facts = check(parser.parse_args().root)
    for message in messages:
        print(message)
    print(f"citations: {facts} facts, {len(messages)} errors")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
