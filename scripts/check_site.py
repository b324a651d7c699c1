#!/usr/bin/env python3
"""Checks the rendered site: links and fragments, ids, alternative texts, formulas, leftovers of the source, weights.

    check_site.py [SITE]          default: build/site

What a browser has to judge (contrast, overflow, keyboard) is in tests/site.
"""
import gzip
import html
import html.parser
import pathlib
import re
import statistics
import sys
import urllib.parse

SCRIPT_LIMIT = 12_000          # bytes, raw
PAGE_LIMITS = (150, 350)       # kB gzipped on a first visit: median and worst chapter
DOM_LIMITS = (2000, 6000)      # elements: median and worst chapter
API_LIMITS = (130, 250)        # kB gzipped on a first visit: median and heaviest page of the API
FILE_PAGES = ("code", "source")
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
LEFTOVERS = [
    (re.compile(r"\]\((?:fact|bench|test|term):"), "a link of the book's grammar"),
    (re.compile(r"\[-?@[a-z][\w-]*[\];,]"), "a citation"),
    (re.compile(r"<!-- ?(?:eq|fig|tbl):|\(#(?:eq|fig|tbl):"), "a label"),
    (re.compile(r"\\(?:frac|sum|mathbb|mathrm|text|sqrt|left|right|begin)\b|\$\$"), "TeX"),
    (re.compile(r"^:::", re.M), "a fence of a division"),
]
errors = []


class Page(html.parser.HTMLParser):
    """Links, ids, structure and prose of one page."""

    def __init__(self, path, root):
        super().__init__(convert_charrefs=True)
        self.path, self.root = path, root
        self.ids, self.links, self.resources, self.open = set(), [], [], []
        self.elements = self.headings = 0
        self.prose = []
        self.feed(path.read_text(encoding="utf-8"))
        for tag, line in self.open:
            self.error(line, f"<{tag}> is never closed")

    def error(self, line, text):
        errors.append(f"{self.path.relative_to(self.root)}:{line}: error: {text}")

    def handle_starttag(self, tag, attributes):
        line, given = self.getpos()[0], dict(attributes)
        self.elements += 1
        if len(given) != len(attributes):
            self.error(line, f"<{tag}> has an attribute twice")
        if "id" in given:
            if given["id"] in self.ids:
                self.error(line, f"the id '{given['id']}' exists twice")
            if not given["id"] or re.search(r"\s", given["id"]):
                self.error(line, f"'{given['id']}' is no id")
            self.ids.add(given["id"])
        if tag == "a" and given.get("href") is not None:
            self.links.append((line, given["href"]))
            if given["href"] == "":
                self.error(line, "an empty link")
        if tag == "img" and not given.get("alt"):
            self.error(line, "an image without alternative text")
        if tag == "svg" and given.get("aria-hidden") != "true" and given.get("role") == "img" and not given.get("aria-label"):
            self.error(line, "a drawing without alternative text")
        if tag == "h1":
            self.headings += 1
        for key in ("src", "href"):
            if tag in ("script", "link", "img", "source", "iframe") and given.get(key) and given.get("rel") != "canonical":
                self.resources.append((line, given[key]))
        if tag == "p" and any(t == "p" for t, _ in self.open[-1:]):
            self.error(line, "a paragraph in a paragraph")
        if tag not in VOID:
            self.open.append((tag, line))

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open[-1][0] != tag:
            self.error(self.getpos()[0], f"</{tag}> where <{self.open[-1][0] if self.open else 'nothing'}> is open")
            while self.open and self.open[-1][0] != tag:
                self.open.pop()
        if self.open:
            self.open.pop()

    def handle_data(self, data):
        if not any(tag in ("pre", "code", "script", "style", "kbd") for tag, _ in self.open):
            self.prose.append((self.getpos()[0], data))


def check_links(page, pages):
    for line, href in page.links + page.resources:
        parts = urllib.parse.urlsplit(href)
        if parts.scheme or parts.netloc:
            if (line, href) in page.resources:
                page.error(line, f"a request to another place: {href}")
            continue
        there = (page.path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else page.path
        if there.is_dir():
            there = there / "index.html"
        if not there.exists():
            page.error(line, f"'{href}' leads nowhere")
        elif parts.fragment and there in pages and urllib.parse.unquote(parts.fragment) not in pages[there].ids:
            page.error(line, f"'{href}': the page has no such fragment")


def check_text(page):
    for line, text in page.prose:
        for pattern, what in LEFTOVERS:
            found = pattern.search(text)
            if found:
                page.error(line, f"{what} was not resolved: {text.strip()[:80]}")
    raw = page.path.read_text(encoding="utf-8")
    if "katex-error" in raw:
        page.error(1, "a formula was not rendered")
    for found in re.finditer(r"<script\b[^>]*>", raw):
        source = re.search(r'src="([^"?]*)', found[0])
        if source and not source[1].endswith(("assets/site.js", "assets/figures.js")):
            page.error(1, f"a script that is not ours: {source[1]}")


def check_api(api, pages, site):
    """Each page of the API leads to a chapter, and what the tag file promises to other projects is there."""
    for page in api:
        there = [(page.path.parent / href.partition("#")[0]).resolve() for _, href in page.links]
        if page.path.name != "index.html" and not any(path.with_suffix(".md").exists() for path in there):
            page.error(1, "no link to the chapter that defines any of this")
    tags = (site / "api" / "rosellm.tag").read_text(encoding="utf-8")
    promised = re.findall(r"<filename>([^<]*)()</filename>", tags) + re.findall(r"<anchorfile>([^<]*)</anchorfile>\s*<anchor>([^<]*)</anchor>", tags)
    for name, anchor in promised:
        there = pages.get(site / "api" / name)
        if there is None or (anchor and html.unescape(anchor) not in there.ids):
            errors.append(f"api/rosellm.tag: error: '{name}#{anchor}' is not there")
    if len(promised) < len(api):
        errors.append("api/rosellm.tag: error: it names fewer things than there are pages")


def weight(page, site):
    """Bytes of a first visit, gzipped: the page, the style, the script, and the faces that the page uses."""
    raw = page.path.read_text(encoding="utf-8")
    fonts = ["text", "text-italic", "text-bold", "mono"]
    if "<math" in raw:
        fonts.append("math")
    size = sum((site / "assets" / "fonts" / (name + ".woff2")).stat().st_size for name in fonts if (site / "assets" / "fonts" / (name + ".woff2")).exists())
    for path in (page.path, site / "assets" / "style.css", site / "assets" / "site.js"):
        size += len(gzip.compress(path.read_bytes(), 6))
    return size / 1000


def limits(what, values, median, worst):
    ordered = sorted(values.items(), key=lambda item: item[1])
    name, most = ordered[-1]
    print(f"site: {what}: median {statistics.median(values.values()):.0f}, worst {most:.0f} ({name})")
    if statistics.median(values.values()) > median:
        errors.append(f"site: error: {what}: the median is above {median}")
    if most > worst:
        errors.append(f"site: error: {what}: {name} is above {worst}")


def main():
    site = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/site").resolve()
    if not (site / "index.html").exists():
        print(f"{site}: there is no site; run `make site`")
        return 1
    pages = {path: Page(path, site) for path in sorted(site.rglob("*.html")) if "pagefind" not in path.parts}
    for page in pages.values():
        check_links(page, pages)
        if page.headings != 1:
            page.error(1, f"a page has one <h1>, not {page.headings}")
        if page.path.relative_to(site).parts[0] not in FILE_PAGES:
            check_text(page)
    chapters = [page for page in pages.values() if "data-pagefind-body" in page.path.read_text() and page.path.with_suffix(".md").exists()]
    name = lambda page: str(page.path.relative_to(site))
    limits("kB of a chapter, gzipped, with faces", {name(p): weight(p, site) for p in chapters}, *PAGE_LIMITS)
    limits("elements of a chapter", {name(p): p.elements for p in chapters}, *DOM_LIMITS)
    api = [page for page in pages.values() if page.path.relative_to(site).parts[0] == "api"]
    if api:
        check_api(api, pages, site)
        limits("kB of a page of the API, gzipped, with faces", {name(p): weight(p, site) for p in api}, *API_LIMITS)
    script = (site / "assets" / "site.js").stat().st_size
    print(f"site: script: {script} bytes")
    if script > SCRIPT_LIMIT:
        errors.append(f"site: error: the script has {script} bytes, above {SCRIPT_LIMIT}")
    for message in errors[:100]:
        print(message)
    print(f"site: {len(pages)} pages, {sum(len(p.links) for p in pages.values())} links, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
