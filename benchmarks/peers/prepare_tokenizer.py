"""Writes what tokenizer-encode reads: tokenizer.json, a byte-level BPE trained on the book, and book.txt, the book's text.

    prepare_tokenizer.py FOLDER

Both are made from the checkout, so the two sides encode the same bytes with the same vocabulary. The training is that of
Hugging Face `tokenizers`, with the split rule of GPT-2 and 8,192 entries.
"""
import pathlib
import sys

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

root = pathlib.Path(__file__).resolve().parents[2]
folder = pathlib.Path(sys.argv[1])
text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((root / "book").glob("*/*.md")))
(folder / "book.txt").write_text(text, encoding="utf-8")
tokenizer = tokenizers.Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.train_from_iterator([text], trainers.BpeTrainer(
    vocab_size=8192, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
tokenizer.save(str(folder / "tokenizer.json"))
