"""Hugging Face `tokenizers`, encoding the text of the book on one thread: the peer of tokenizer-encode.

    tokenizers_encode.py TOKENIZER_JSON TEXT_FILE

Speaks the pair protocol of benchmarks/README.md. A sample is the rate of one encoding of the whole text, in MB/s.
"""
import hashlib
import json
import os
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
import tokenizers  # noqa: E402  (after the variables that it reads)

tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1])
with open(sys.argv[2], encoding="utf-8") as file:
    text = file.read()
size = len(text.encode())
ids = tokenizer.encode(text, add_special_tokens=False).ids
print(json.dumps({
    "name": "tokenizers", "version": tokenizers.__version__, "settings": "encode_batch_fast (no offsets), one thread, no special tokens added",
    "checksum": hashlib.sha256(" ".join(map(str, ids)).encode()).hexdigest(),
}), flush=True)
for line in sys.stdin:
    if line.strip() == "run":
        start = time.perf_counter()
        tokenizer.encode_batch_fast([text], add_special_tokens=False)
        print(json.dumps({"value": size / 1e6 / (time.perf_counter() - start)}), flush=True)
