#!/usr/bin/env python3
"""Cuts the faces down to the characters that the site uses.

    fonts.py SITE CACHE

Faces come from Debian's font packages, the tools from PyPI (fonttools, brotli). Without the tools, or where a face is not
installed, the pages use what the reader's system has, and this says so.
"""
import hashlib
import html
import pathlib
import re
import sys

FACES = {
    "text": "/usr/share/fonts/truetype/charis/CharisSIL-Regular.ttf",
    "text-italic": "/usr/share/fonts/truetype/charis/CharisSIL-Italic.ttf",
    "text-bold": "/usr/share/fonts/truetype/charis/CharisSIL-Bold.ttf",
    "mono": "/usr/share/fonts/truetype/inconsolata/Inconsolata.otf",
    "math": "/usr/share/texmf/fonts/opentype/public/lm-math/latinmodern-math.otf",
}
ALWAYS = {chr(c) for c in range(0x20, 0x7F)} | set("–—‘’“”…·×−≤≥≈→←↑↓⟨⟩°±µ€§¶†•")


def characters(site):
    """The characters of all pages, and those of their formulas. Whole files may hold tables of odd ones: they do not count."""
    used, formulas = set(ALWAYS), set()
    for page in site.rglob("*.html"):
        if page.relative_to(site).parts[0] in ("code", "source"):
            continue
        text = page.read_text(encoding="utf-8")
        for formula in re.findall(r"<math.*?</math>", text, re.S):
            formulas.update(html.unescape(re.sub(r"<[^>]*>", "", formula)))
        used.update(html.unescape(re.sub(r"<[^>]*>", "", text)))
    return used, formulas


def italic(c):
    """The letter into which a browser turns an identifier of one letter."""
    if c == "h":
        return "ℎ"
    for first, last, to in (("A", "Z", 0x1D434), ("a", "z", 0x1D44E), ("α", "ω", 0x1D6FC), ("Α", "Ω", 0x1D6E2)):
        if first <= c <= last:
            return chr(to + ord(c) - ord(first))
    return {"ϵ": "𝜖", "ϑ": "𝜗", "ϕ": "𝜙", "∂": "𝜕", "ϱ": "𝜚", "ϖ": "𝜛"}.get(c, c)


def mathematical(formulas):
    drawn = set("√‾¯ˉˆ˜∑∏∫(){}[]|‖⌊⌋⌈⌉⟨⟩→←−′. ")  # by elements such as msqrt, without being written
    return formulas | {italic(c) for c in formulas} | drawn


def subset(source, used, target, cache, features, tight):
    key = hashlib.sha256(("".join(sorted(used)) + str(source) + str(source.stat().st_size) + str(features) + str(tight) + "2").encode()).hexdigest()
    kept = cache / (key + ".woff2")
    if not kept.exists():
        from fontTools import subset as tool  # only now: the import takes longer than all else

        options = tool.Options()
        options.flavor = "woff2"
        options.layout_features = features
        options.drop_tables += ["Silf", "Sill", "Glat", "Gloc", "Feat", "FFTM", "DSIG"]
        options.hinting = False
        options.desubroutinize = False
        options.notdef_outline = True
        font = tool.load_font(str(source), options)
        if tight:  # a wide plus sign makes C++ fall apart
            advance, bearing = font["hmtx"]["plus"]
            font["hmtx"]["plus"] = (round(advance * 0.86), bearing - round(advance * 0.07))
        cutter = tool.Subsetter(options)
        cutter.populate(unicodes=[ord(c) for c in used])
        cutter.subset(font)
        cache.mkdir(parents=True, exist_ok=True)
        tool.save_font(font, str(kept) + ".part", options)
        pathlib.Path(str(kept) + ".part").rename(kept)
    target.write_bytes(kept.read_bytes())


def main():
    site, cache = map(pathlib.Path, sys.argv[1:3])
    fonts = site / "assets" / "fonts"
    fonts.mkdir(parents=True, exist_ok=True)
    faces = {name: pathlib.Path(path) for name, path in FACES.items()}
    missing = [str(path) for path in faces.values() if not path.exists()]
    if missing:
        print("not installed, so the reader's own faces are used: " + ", ".join(missing), file=sys.stderr)
    used, formulas = characters(site)
    for name, path in faces.items():
        if path.exists():
            math = name == "math"
            subset(path, mathematical(formulas) if math else used, fonts / (name + ".woff2"), cache, [] if math else ["kern", "liga", "ccmp", "mark", "mkmk"],
                   tight=name.startswith("text"))


if __name__ == "__main__":
    main()
