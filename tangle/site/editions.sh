#!/bin/sh
# The editions for paper and for readers' devices, from the one page that `weave --one-page` writes.
#   editions.sh FOLDER VENV       writes build/book.pdf and build/book.epub
set -eu
folder=$(cd "$1" && pwd)
pandoc=$(echo "$2"/lib/python3*/site-packages/pypandoc/files/pandoc)
browser=$(command -v chromium || command -v chromium-browser || true)
if [ -n "$browser" ]; then
  "$browser" --headless=new --no-sandbox --disable-gpu --no-pdf-header-footer --print-to-pdf=build/book.pdf --virtual-time-budget=60000 \
    "file://$folder/book.html" >build/edition.log 2>&1 || { cat build/edition.log >&2; exit 1; }
  echo "book: build/book.pdf, $(wc -c <build/book.pdf) bytes"
else
  echo "book: no PDF, Chromium is not installed (Debian: chromium)"
fi
# Buttons, boxes and scripts are of no use on a reader's device.
python3 - "$folder/book.html" "$folder" <<'PYTHON'
import pathlib, re, sys
folder = pathlib.Path(sys.argv[2])
text = open(sys.argv[1], encoding="utf-8").read()
text = re.sub(r'<input type="checkbox"[^>]*>|<label for="[^"]*"[^>]*>[^<]*</label>|<a class="anchor"[^>]*>#</a>|<nav class="toc-plain">.*?</nav>', "", text, flags=re.S)
text = re.sub(r'<details[^>]*>.*?</details>', lambda m: "".join(re.findall(r"<summary>(.*?)</summary>", m[0])[:1]), text, flags=re.S)
# A live figure is its recorded table.
text = re.sub(r'<script type="application/json">.*?</script>|</?rose-figure[^>]*>', "", text, flags=re.S)
# Pandoc knows the ids of divisions, not those of figures, when it divides the book into files.
text = re.sub(r'<figure([^>]*?)(?: (id="[^"]*"))?>', lambda m: f"<div {m[2] or ''}><figure{m[1]}>", text).replace("</figure>", "</figure></div>")
# Drawings become files, which Pandoc takes as they are.
plot = ".plot{font:13px serif}.plot text{text-anchor:end}.plot .value{text-anchor:start}.plot .ours{fill:#a8234a}.plot .other{fill:#b8b0aa}.plot path{stroke:#000}"
def drawing(match):
    svg = match[0] if " xmlns=" in match[1] else match[0].replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    if 'class="plot"' in match[1]:
        svg = re.sub(r"(<svg[^>]*>)", r"\1<style>" + plot + "</style>", svg, count=1)
    about = re.search(r'aria-label="([^"]*)"', match[1])
    drawing.count += 1
    name = folder / f"drawing-{drawing.count}.svg"
    name.write_text(svg, encoding="utf-8")
    return f'<img src="{name}" alt="{about[1] if about else ""}">'
drawing.count = 0
text = re.sub(r"<svg([^>]*)>.*?</svg>", drawing, text, flags=re.S)
# Chapters are files of their own, which Pandoc makes of headings that stand in nothing else.
text = re.sub(r'<header class="cover">.*?</header>|</?main>|</article>', "", text, flags=re.S)
text = re.sub(r'<article id="([^"]*)"><header class="head"><p class="kicker">.*?</p><h1>(.*?)</h1></header>', r'<h1 id="\1">\2</h1>', text, flags=re.S)
(folder / "epub.html").write_text(text, encoding="utf-8")
PYTHON
"$pandoc" -f html -t epub3 --mathml --toc --toc-depth=2 --split-level=1 --metadata title=RoseLLM --metadata lang=en \
  --metadata author="The RoseLLM authors" --metadata rights="CC BY 4.0, code MIT" -o build/book.epub "$folder/epub.html" 2>build/edition.log ||
  { cat build/edition.log >&2; exit 1; }
echo "book: build/book.epub, $(wc -c <build/book.epub) bytes"
# Where the validator is installed (Debian: epubcheck, which brings a Java runtime), it has the last word.
if [ -e /usr/share/java/epubcheck.jar ] && command -v java >/dev/null; then
  java -jar /usr/share/java/epubcheck.jar --quiet build/book.epub || { echo "book: build/book.epub is not valid" >&2; exit 1; }
  echo "book: build/book.epub is valid"
fi
