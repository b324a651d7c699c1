#!/usr/bin/env python3
"""Structured output against other people's programs: `jsonschema` says whether documents that were written at random under a
schema's masks are valid, Python's `re` whether texts written under a pattern match. The tokenizer is SmolLM2's."""
import json
import os
import random
import re
import subprocess
import sys
import warnings

import jsonschema

from random_schemas import Random

warnings.filterwarnings("ignore")
model = os.environ.get("ROSE_MODEL", "")
if not model or not os.path.exists(model):
    print("there is no SmolLM2 here: ROSE_MODEL")
    sys.exit(77)

tool = subprocess.Popen([os.path.join(os.environ["ROSE_BIN"], "structured_tool"), model], stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE, text=True, encoding="utf-8")
failures = 0
FORMATS = jsonschema.Draft202012Validator.FORMAT_CHECKER


def ask(**request):
    tool.stdin.write(json.dumps(request) + "\n")
    tool.stdin.flush()
    return json.loads(tool.stdout.readline())


def wrong(message):
    global failures
    failures += 1
    print("WRONG:", message)


def check_schema(schema, walks, seed, texts=(), may_refuse=False):
    """Walks must be valid; texts, pairs (text, written?), must be in the language or not."""
    answer = ask(schema=json.dumps(schema), walks=walks, seed=seed, texts=[t for t, _ in texts])
    if "error" in answer:
        if not may_refuse or answer["error"] not in ("unsupported", "invalid_argument", "resource_exhausted"):
            wrong(f"{json.dumps(schema)} is refused: {answer}")
        return 0
    validator = jsonschema.Draft202012Validator(schema, format_checker=FORMATS)
    for walk in answer["walks"]:
        try:
            document = json.loads(walk)
        except ValueError as error:
            wrong(f"{json.dumps(schema)} gives {walk!r}, which does not parse: {error}")
            continue
        problem = next(validator.iter_errors(document), None)
        if problem:
            wrong(f"{json.dumps(schema)} gives {walk!r}, which is not valid: {problem.message}")
    for (text, expected), written in zip(texts, answer["texts"]):
        if written != expected:
            wrong(f"{json.dumps(schema)}: {text!r} is {'not ' * expected}written")
    if answer["masks"]:
        wrong(f"{json.dumps(schema)}: {answer['masks']} bits of masks differ from what is accepted")
    return len(answer["walks"])


PERSON = {
    "type": "object", "title": "Person",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "email": {"type": "string", "format": "email"}, "since": {"type": "string", "format": "date-time"},
        "id": {"type": "string", "format": "uuid"}, "height": {"type": "number", "exclusiveMinimum": 0.3, "maximum": 2.8},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-zé]+$"}, "minItems": 1, "maxItems": 3},
        "address": {"$ref": "#/$defs/address"}, "manager": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
    "required": ["name", "age", "tags"], "additionalProperties": False,
    "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "zip": {"type": "string",
              "pattern": "^\\d{5}$"}}, "required": ["street", "zip"], "additionalProperties": False}}}
EVENT = {"oneOf": [
    {"type": "object", "properties": {"kind": {"const": "click"}, "x": {"type": "integer"}}, "required": ["kind", "x"]},
    {"type": "object", "properties": {"kind": {"const": "key"}, "key": {"enum": ["a", "ß", "\n"]}}, "required": ["kind"]},
    {"type": "null"}]}
TREE = {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {
    "v": {"type": "number", "multipleOf": 3}, "kids": {"type": "array", "items": {"$ref": "#/$defs/n"}, "maxItems": 2}},
    "required": ["v", "kids"], "additionalProperties": False}}}
HAND = [
    (PERSON, [('{"name":"A","age":3,"tags":["é"]}', True), ('{"name":"","age":3,"tags":["é"]}', False),
              ('{"name": "A", "age": 151, "tags": ["a"]}', False)]),
    (EVENT, [('{"kind": "click", "x": -3}', True), ('{"kind": "key", "x": -3}', False), ("null", True)]),
    (TREE, [('{"v": 3, "kids": [{"v": -6, "kids": []}]}', True), ('{"v": 4, "kids": []}', False)]),
    (True, [('[1, {"a": "\\u00e9"}]', True), ('["\\ud800"]', False), ("01", False)]),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, [('{"a": 1}', True), ('{"a": "1"}', False)]),
    ({"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "boolean"}},
     [('{"a": null, "ab": true}', True), ('{"\\u0061": true}', False)]),
    ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {"type": "boolean"}},
     [('[1, "a", true, false]', True), ("[1, true]", False)]),
    ({"enum": [1, "two", None, {"three": [3]}]}, [('"two"', True), ('{"three":[3]}', True), ("2", False)]),
    ({"type": "string", "format": "time"}, []), ({"type": "string", "format": "date"}, []),
    ({"type": "string", "format": "ipv4"}, []), ({"type": "string", "format": "ipv6"}, []),
    ({"type": "string", "format": "hostname"}, []), ({"type": "string", "format": "duration"}, []),
    ({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"properties": {"b": {"type": "string"}}, "required": ["b"]}]}, [('{"a":1,"b":""}', True), ('{"a":1}', False)]),
]


def schemas():
    walked = sum(check_schema(schema, 12, i, texts) for i, (schema, texts) in enumerate(HAND))
    random_walks = refused = 0
    for seed in range(int(os.environ.get("ROSE_SCHEMAS", "150"))):
        n = check_schema(Random(seed).schema(3), 4, seed, may_refuse=True)
        random_walks += n
        refused += n == 0
    print(f"{walked} documents of {len(HAND)} schemas, {random_walks} of random ones ({refused} refused) are valid")
    if refused > 40:
        wrong(f"{refused} random schemas are refused")


PATTERNS = ["[a-z]+@[a-z]+\\.(com|org)", "(19|20)\\d{2}-(0[1-9]|1[0-2])", "\\(?\\d{3}\\)?[- ]\\d{4}", "(a|b)*abb", "[^a-z]{1,8}",
            "é?[\\u4e00-\\u4eff]{2}|\\x41+", "x{3}(y{0,2}z)+?", "\\w+\\s\\W\\S\\D", "(?:ab|a)(?<n>c|bcd)(d*)", "[\\]\\-a-c]{2,3}", ".{3}"]


def patterns():
    for i, pattern in enumerate(PATTERNS):
        python = re.compile(pattern.replace("?<n>", "?P<n>"))
        r = random.Random(i)
        texts = ["".join(r.choice("abcdxyz019-@. é一丁A()") for _ in range(r.randrange(9))) for _ in range(200)]
        answer = ask(regex=pattern, walks=15, seed=i, texts=texts)
        if "error" in answer:
            wrong(f"{pattern} is refused: {answer}")
            continue
        for text in answer["walks"]:
            if not python.fullmatch(text):
                wrong(f"{pattern} gives {text[-200:]!r}")
        for text, written in zip(texts, answer["texts"]):
            if written and not python.fullmatch(text):
                wrong(f"{pattern} admits {text!r}")
            if not written and python.fullmatch(text) and text.isascii():
                wrong(f"{pattern} does not admit {text!r}")
    print(f"{len(PATTERNS)} patterns agree with re")


schemas()
patterns()
tool.stdin.close()
tool.wait()
sys.exit(1 if failures or tool.returncode else 0)
