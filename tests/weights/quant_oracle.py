"""Block formats, decoded and encoded, against the `gguf` package."""
import numpy as np
import gguf
from gguf.quants import dequantize, quantize

from oracle import main, probe

DECODE = ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k"]
ENCODE = ["f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1"]


def kind(name):
    return gguf.GGMLQuantizationType[name.upper()]


def decoding_is_bit_identical(folder):
    random = np.random.default_rng(1)
    for name in DECODE:
        block, size = gguf.GGML_QUANT_SIZES[kind(name)]
        raw = random.integers(0, 256, size=(max(8, 65536 // size * 4) * size,), dtype=np.uint8)  # scales of every kind, NaN included
        raw.tofile(folder / "in")
        probe("decode", name, folder / "in", folder / "out")
        ours = np.fromfile(folder / "out", dtype=np.float32)
        with np.errstate(all="ignore"):
            theirs = dequantize(raw.reshape(1, -1), kind(name)).ravel().astype(np.float32)
        nan = np.isnan(theirs)
        assert ours.size == theirs.size and (np.isnan(ours) == nan).all(), name
        same = ours.view(np.uint32)[~nan] == theirs.view(np.uint32)[~nan]
        assert same.all(), (name, np.flatnonzero(~same)[:4])


def encoding_is_identical(folder):
    random = np.random.default_rng(2)
    rows = [random.normal(0, 0.02, 32 * 4096), random.uniform(-1, 1, 32 * 512), random.standard_cauchy(32 * 512),
            np.zeros(64), np.full(32, 0.7), np.full(32, -3.0), np.linspace(-1, 1, 32 * 8), random.integers(-127, 128, 32 * 64) / 64.0,
            np.where(np.arange(64) % 32 == 5, 1.0, 0.0), np.repeat(random.normal(0, 1, 64), 32)]
    values = np.concatenate(rows).astype(np.float32)
    values.tofile(folder / "in")
    for name in ENCODE:
        probe("encode", name, folder / "in", folder / "out")
        ours = np.fromfile(folder / "out", dtype=np.uint8)
        theirs = quantize(values.reshape(1, -1), kind(name)).view(np.uint8).ravel()
        differ = np.flatnonzero(ours != theirs)
        assert ours.size == theirs.size and differ.size == 0, (name, differ.size, differ[:4])


if __name__ == "__main__":
    main([decoding_is_bit_identical, encoding_is_identical])
