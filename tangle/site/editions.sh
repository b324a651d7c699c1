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
# A device shows MathML itself: of a display's two forms it gets that one. Buttons and boxes are of no use there.
python3 - "$folder/book.html" "$folder/epub.html" <<'PYTHON'
import re, sys
text = open(sys.argv[1], encoding="utf-8").read()
text = re.sub(r'<span class="katex-display">.*?(<math.*?</math>).*?(?=</div>|<a class="number")', r"\1", text, flags=re.S)
text = re.sub(r'<input type="checkbox"[^>]*>|<label for="[^"]*"[^>]*>[^<]*</label>|<a class="anchor"[^>]*>#</a>|<nav class="toc-plain">.*?</nav>', "", text, flags=re.S)
text = re.sub(r'<details[^>]*>.*?</details>', lambda m: "".join(re.findall(r"<summary>(.*?)</summary>", m[0])[:1]), text, flags=re.S)
# Chapters are files of their own, which Pandoc makes of headings that stand in nothing else.
text = re.sub(r'<header class="cover">.*?</header>|</?main>|</article>', "", text, flags=re.S)
text = re.sub(r'<article id="([^"]*)"><header class="head"><p class="kicker">.*?</p><h1>(.*?)</h1></header>', r'<h1 id="\1">\2</h1>', text, flags=re.S)
open(sys.argv[2], "w", encoding="utf-8").write(text)
PYTHON
"$pandoc" -f html -t epub3 --mathml --toc --toc-depth=2 --split-level=1 --metadata title=RoseLLM --metadata lang=en \
  --metadata author="The RoseLLM authors" --metadata rights="CC BY 4.0, code MIT" -o build/book.epub "$folder/epub.html" 2>build/edition.log ||
  { cat build/edition.log >&2; exit 1; }
echo "book: build/book.epub, $(wc -c <build/book.epub) bytes"
