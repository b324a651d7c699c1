#!/usr/bin/env python3
"""Ask the tokenizers package what each code point is, and write the tables of rose/text/unicode_data.cpp.

The character classes of a tokenizer are those of the regular-expression engine behind it, and its normal form is that
of the library it links: two sources that follow different versions of Unicode. This script derives every table from
the behaviour of the installed `tokenizers`, so that ours are the oracle's by construction.

    make_unicode_tables.py            print them
    make_unicode_tables.py --check F  exit 1 when chapter F does not contain exactly these
    make_unicode_tables.py --write F  replace those of chapter F
"""
import sys
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
DIGITS64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
BEGIN, END = "<!-- tables made by tests/tokenizer/make_unicode_tables.py from tokenizers", "<!-- end of the tables -->"


def varint(value):
    """Five bits a character, low bits first; 32 marks that more follow."""
    assert value >= 0
    out = ""
    while value >= 32:
        out += DIGITS64[32 | (value & 31)]
        value >>= 5
    return out + DIGITS64[value]


def signed(value):
    return varint(value * 2 if value >= 0 else -value * 2 - 1)


def by_regex(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    return {c for c in POINTS if not split.pre_tokenize_str(chr(c))}


def with_added(**flags):
    t = Tokenizer(models.BPE(vocab={"Y": 0}, merges=[]))
    t.add_tokens([AddedToken("X", normalized=False, **flags)])
    return t


def classes():
    """Letter, number, space (the regex engine), numeric (the Digits splitter), word (added tokens' single_word)."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    single, strip = with_added(single_word=True), with_added(rstrip=True)
    sets = [
        by_regex(r"\p{L}"),
        by_regex(r"\p{N}"),
        by_regex(r"\s"),
        {c for c in POINTS if len(digits.pre_tokenize_str("a" + chr(c) + "a")) > 1},
        {c for c in POINTS if not single.encode("X" + chr(c)).ids},
    ]
    stripped = {c for c in POINTS if strip.encode("X" + chr(c) + "Y").offsets[0][1] == 2}
    assert stripped == sets[2], "lstrip/rstrip and the regex engine disagree on white space"
    bits = [0] * 0x110000
    for i, s in enumerate(sets):
        for c in s:
            bits[c] |= 1 << i
    kinds = sorted(set(bits))
    runs, out, start, last = 0, "", 0, 0
    for c in range(1, 0x110001):
        if c == 0x110000 or bits[c] != bits[start]:
            if bits[start]:
                out += varint(start - last) + varint(c - start - 1) + varint(bits[start])
                last = c
                runs += 1
            start = c
    sizes = dict(zip(("letter", "number", "space", "numeric", "word"), map(len, sets)))
    return out, runs, sizes, kinds


HANGUL = range(0xAC00, 0xAC00 + 11172)


def normal_form():
    nfc, nfd = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str
    full = {c: nfd(chr(c)) for c in POINTS if c not in HANGUL}
    full = {c: d for c, d in full.items() if d != chr(c)}
    first_with = {}
    for c, d in full.items():
        first_with.setdefault(d, c)
    pairs, last = "", 0
    flags = 0
    for c, d in sorted(full.items()):
        if len(d) == 1:
            first, second = ord(d), 0
        else:
            head = d[:-1]
            whole = nfc(head)
            first = ord(head) if len(head) == 1 else ord(whole) if len(whole) == 1 else first_with[head]
            second = ord(d[-1])
        composes = nfc(d) == chr(c)
        assert not (composes and second == 0)
        flags += composes
        # the code point's distance with the flag; first relative to it; second relative to U+0300, 0 for none
        pairs += varint((c - last) * 2 + composes) + signed(first - c) + (signed(second - 0x2FF) if second else "A")
        last = c
    return full, pairs, flags


def combining():
    """Canonical combining classes, as the order in which NFD sorts marks shows them."""
    nfd = normalizers.NFD().normalize_str
    low, high = chr(0x334), chr(0x345)  # classes 1 and 240, the ends of the scale
    decomposed = {c for c in POINTS if nfd(chr(c)) != chr(c)}

    def reorders(a, b):
        return nfd("a" + a + b) != "a" + a + b

    marks = [c for c in POINTS if c not in decomposed and (reorders(high, chr(c)) or reorders(chr(c), low))]
    marks += [c for c in (0x334, 0x345) if c not in marks]
    # A representative of each class whose number Python's own (older) tables know; each mark is placed by comparing.
    reps = {}
    for c in marks:
        k = unicodedata.combining(chr(c))
        if k:
            reps.setdefault(k, chr(c))
    order = sorted(reps)
    result = {}
    for c in marks:
        # equal class: neither order is changed
        same = [k for k in order if not reorders(reps[k], chr(c)) and not reorders(chr(c), reps[k])]
        assert len(same) == 1, (hex(c), same)
        result[c] = same[0]
    out, last, runs, items = "", 0, 0, sorted(result.items())
    i = 0
    while i < len(items):
        j = i
        while j + 1 < len(items) and items[j + 1] == (items[j][0] + 1, items[i][1]):
            j += 1
        out += varint(items[i][0] - last) + varint(j - i) + varint(items[i][1])
        last, runs, i = items[j][0], runs + 1, j + 1
    return result, out, runs


def literal(identity, title, name, data, width=92, lines_each=40):
    """A string constant as chunks of the chapter, none of them long."""
    lines = [f'    "{data[i:i + width]}"' for i in range(0, len(data), width)]
    lines = [f"constexpr std::string_view {name} =", *lines[:-1], lines[-1] + ";"]
    parts = [lines[i:i + lines_each] for i in range(0, len(lines), lines_each)]
    heads = [f'```cpp {{#{identity} title="{title}"}}'] + [f"```cpp {{#{identity}}}"] * (len(parts) - 1)
    return "\n\n".join("\n".join([head, *part, "```"]) for head, part in zip(heads, parts))


def body():
    class_data, runs, sizes, _ = classes()
    full, pair_data, composing = normal_form()
    marks, mark_data, mark_runs = combining()
    differ = [c for c in full if unicodedata.normalize("NFD", chr(c)) != full[c]]
    assert not differ, differ
    return "\n\n".join([
        f"{BEGIN} {tokenizers.__version__} -->",
        f"The classes, in {runs} runs: " + ", ".join(f"{n:,} {k}" for k, n in sizes.items()) + " code points.",
        literal("text-unicode-classes", "List the runs of code points of one class", "class_runs", class_data),
        f"{len(full):,} canonical decompositions, {composing} of which compose again.",
        literal("text-unicode-decompositions", "List the canonical decompositions", "decompositions", pair_data),
        f"{len(marks)} marks with a combining class, in {mark_runs} runs.",
        literal("text-unicode-combining", "List the combining classes", "combining_runs", mark_data),
        END,
    ])


if __name__ == "__main__":
    text = body()
    if len(sys.argv) == 3:
        path = sys.argv[2]
        old = open(path, encoding="utf-8").read()
        begin, end = old.index(BEGIN), old.index(END) + len(END)
        if sys.argv[1] == "--check":
            if old[begin:end] != text:
                sys.exit(f"{path}: the Unicode tables are not those of tokenizers {tokenizers.__version__}")
        elif sys.argv[1] == "--write":
            open(path, "w", encoding="utf-8").write(old[:begin] + text + old[end:])
    else:
        print(text)
