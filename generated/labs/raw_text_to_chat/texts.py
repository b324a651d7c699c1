# Read raw text, and find conversations in it.

"""Raw text: this book, and from Debian packages six novels and the Bible; and conversations."""
import io
import json
import pathlib
import re
import struct
import subprocess
import sys
import tarfile
import zlib

# Package, the file in it, and how much is downloaded.
NOVELS = ("r-cran-janeaustenr", "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb", "1.6 MB")
PARTS = ("book", "novels", "bible")
BIBLE = ("bible-kjv-text", "usr/lib/bible.data", "2.4 MB")

# Take one file out of a Debian package.
def file_of_package(archive, name):
    blob = pathlib.Path(archive).read_bytes()
    if blob[:8] != b"!<arch>\n":
        raise SystemExit(f"{archive} is no Debian package")
    at = 8
    while at < len(blob):
        member, size = blob[at:at + 16].decode().strip(), int(blob[at + 48:at + 58])
        if member.startswith("data.tar"):
            with tarfile.open(fileobj=io.BytesIO(blob[at + 60:at + 60 + size])) as files:
                return files.extractfile("./" + name).read()
        at += 60 + size + size % 2
    raise SystemExit(f"{archive} holds no {name}")


def find(source, folder):
    """The file, if its package is installed; else from the package in `folder`, or downloaded."""
    package, file, size = source
    if pathlib.Path("/", file).exists():
        return pathlib.Path("/", file).read_bytes()
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob(package + "_*.deb")):
        print(f"downloading {package}, {size}, from Debian", flush=True)
        done = subprocess.run(["apt-get", "-q", "download", package], cwd=folder, check=False,
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{done.stderr}put {package}_*.deb from a Debian mirror into {folder}")
    return file_of_package(sorted(folder.glob(package + "_*.deb"))[-1], file)


# Read vectors of strings from R's database.
def novels(database):
    found, at = [], 0
    while at < len(database):
        stream = zlib.decompressobj()
        data = stream.decompress(database[at + 4:])
        at = len(database) - len(stream.unused_data)
        place = data.index(struct.pack(">I", 16)) + 4
        count, = struct.unpack_from(">I", data, place)
        lines, place = [], place + 4
        for _ in range(count):
            tag, size = struct.unpack_from(">Ii", data, place)
            if tag & 0xFF != 9:
                raise SystemExit("the novels are not vectors of strings any more")
            lines.append(data[place + 8:place + 8 + max(size, 0)].decode())
            place += 8 + max(size, 0)
        found.append(lines)
    return found


# Cut novels into chapters, and join lines into paragraphs.
HEADING = re.compile(r"(chapter|volume) [ivxl0-9]+", re.IGNORECASE)
SHORTEST = 1000  # characters of a chapter; what is shorter is a title page


def chapters(lines):
    found, paragraph = [[]], []
    for line in [*lines, ""]:
        line = re.sub(r"\s+", " ", line.replace("_", "").strip())
        if HEADING.match(line):
            found.append([])
        elif line:
            paragraph.append(line)
        elif paragraph:
            found[-1].append(" ".join(paragraph))
            paragraph = []
    return [chapter for chapter in found if sum(map(len, chapter)) > SHORTEST]


# Undo what compress did, and cut the Bible into chapters.
def unlzw(data, most=16):
    table, out, previous = [bytes([i]) for i in range(256)] + [b""], [], b""
    width, place, group = 9, 0, 0  # bits of a code; the bit that is next; where this width began
    while place + width <= 8 * len(data):
        word = int.from_bytes(data[place >> 3:(place >> 3) + 4], "little")
        code = word >> (place & 7) & ((1 << width) - 1)
        place += width
        reset = code == 256
        if not reset:
            entry = table[code] if code < len(table) else previous + previous[:1]
            if previous and len(table) < 1 << most:
                table.append(previous + entry[:1])
            out.append(entry)
            previous = entry
        if reset or (len(table) == 1 << width and width < most):
            place = group = group + -(-(place - group) // (8 * width)) * 8 * width
            width += 1
        if reset:
            del table[257:]
            previous, width = b"", 9
    return b"".join(out)


def bible(data):
    """Its chapters. The file says at byte 88 how many windows follow, and then where each begins."""
    count, = struct.unpack_from(">I", data, 88)
    starts = struct.unpack_from(f">{count}I", data, 92)
    windows = zip(starts, [*starts[1:], len(data)])
    text = b"".join(unlzw(data[begin:end]) for begin, end in windows).decode("latin-1")
    found = {}
    for chapter, verse in re.findall(r"(?m)^(\d?[A-Z][A-Za-z]*\d+):\d+ (.+)$", text):
        found.setdefault(chapter, []).append(verse.strip())
    return [" ".join(verses) for verses in found.values()]


# Cut this book into sections of prose.
def sections(markdown):
    prose, fence = [], ""
    markdown = re.sub(r"\A---\n.*?\n---\n|<!--.*?-->", "", markdown, flags=re.DOTALL)
    for line in markdown.splitlines():
        marks = re.match(r"`{3,}|:{3,}", line)
        if marks and marks[0][0] == "`":
            fence = "" if fence and len(marks[0]) >= len(fence) else fence or marks[0]
        elif not fence and not marks:
            prose.append(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line))
    parts = re.split(r"(?m)^(?=## )", re.sub(r"\n{3,}", "\n\n", "\n".join(prose)))
    return [part.strip() for part in parts if len(part) > 400]


# Find exchanges of speech.
def speech(paragraph):
    """What is said in a paragraph that is mostly speech; nothing in others."""
    said = re.findall(r'"([^"]+)"', paragraph)
    text = re.sub(r"\s+", " ", " ".join(part.strip() for part in said)).strip()
    mostly = len(text) >= 0.6 * len(paragraph) and 8 <= len(text) <= 400
    if paragraph.count('"') % 2 or not mostly:
        return None
    return re.sub(r"(,|;|--)$", ".", text)


def dialogues(chapter):
    """Paragraphs of speech that follow each other are turns; up to four make a conversation."""
    found, turns = [], []
    for text in [*map(speech, chapter), None]:
        if text is not None:
            turns.append(text)
        if len(turns) == 4 or (text is None and len(turns) >= 2):
            found.append(turns[:len(turns) // 2 * 2])
        if len(turns) == 4 or text is None:
            turns = []
    return found


# Make questions of the glossary.
FORMS = ("What is {}?", "What does {} mean?", "Explain {}.")
ENTRY = re.compile(r'(?m)^- \{id: [^,]+, term: ("[^"]+"|[^,]+), .*'
                   r'definition: "((?:[^"\\]|\\.)+)"\}$')
ABOUT = [("Who are you?", "I am a small language model. I have read six novels by Jane Austen, "
          "the Bible, and a book on language models, and nothing else."),
         ("What can you do?", "I can talk as people do in novels, and say what some words of the "
          "trade mean. I am often wrong."),
         ("Hello!", "Good morning! Shall we talk of novels, or of language models?")]


def definitions(glossary):
    return [(FORMS[i % 3].format(term.strip('"')), answer.replace('\\"', '"'))
            for i, (term, answer) in enumerate(ENTRY.findall(glossary))]


# Hold out one in sixteen.
EVERY = 16


def split(items):
    """What is learnt, and what is held out."""
    return [x for i, x in enumerate(items) if i % EVERY != EVERY - 1], items[EVERY - 1::EVERY]


def interleave(learnt, held):
    """The order in which a run that holds out every sixteenth holds out these."""
    one = EVERY - 1
    count = min(len(held), len(learnt) // one)
    mixed = []
    for i in range(count):
        mixed += [*learnt[i * one:(i + 1) * one], held[i]]
    return mixed + learnt[count * one:(count + 1) * one]


# Write text, conversations and questions.
def write_documents(folder, documents):
    folder.mkdir(parents=True)
    for i, document in enumerate(documents):
        (folder / f"{i:04}.txt").write_text(document, encoding="utf-8")
    return {"documents": len(documents), "bytes": sum(len(d.encode()) for d in documents)}


def write_lines(file, values):
    lines = (json.dumps(value, ensure_ascii=False) + "\n" for value in values)
    file.write_text("".join(lines), encoding="utf-8")


def read_lines(file):
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def write(root, packages, out):
    """Writes text/, held-out-text/, chat.jsonl, known.jsonl, questions.jsonl; says how much."""
    files = sorted((root / "book").glob("*/*.md"))
    book = [part for file in files for part in sections(file.read_text(encoding="utf-8"))]
    tales = [tale for lines in novels(find(NOVELS, packages)) for tale in chapters(lines)]
    sizes = {}
    for name, documents in (("book", book), ("novels", ["\n\n".join(tale) for tale in tales]),
                            ("bible", bible(find(BIBLE, packages)))):
        for folder, part in zip(("text", "held-out-text"), split(documents)):
            sizes[f"{folder}/{name}"] = write_documents(out / folder / name, part)
    talks = [[turns for tale in part for turns in dialogues(tale)] for part in split(tales)]
    known, unknown = split(definitions((root / "citations/glossary.yaml").read_text("utf-8")))
    learnt = [*map(list, known), *map(list, ABOUT), *talks[0]]
    mixed = interleave(learnt, [*talks[1], *map(list, unknown)])
    write_lines(out / "chat.jsonl", [
        {"messages": [{"role": ("user", "assistant")[i % 2], "content": turn}
                      for i, turn in enumerate(turns)]} for turns in mixed])
    write_lines(out / "known.jsonl", known)
    write_lines(out / "questions.jsonl", [
        ("itself, learnt", ABOUT[0][0]), ("a definition, learnt", known[-1][0]),
        ("a definition, held out", unknown[-1][0]), ("a novel, learnt", talks[0][0][0]),
        ("a novel, held out", talks[1][0][0]), ("neither", "Do you like dancing?")])
    sizes["conversations"] = len(mixed)
    return sizes


if __name__ == "__main__":  # texts.py PACKAGES OUT: the texts alone
    here = pathlib.Path(__file__).resolve()
    write(here.parent.parent.parent.parent, *map(pathlib.Path, sys.argv[1:3]))
