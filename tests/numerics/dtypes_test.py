"""Every pattern of the 16-bit and 8-bit formats, every midpoint between neighbours and ten million random
fp32 patterns, converted by the book's code and by PyTorch (and NumPy for fp16), must have the same bits."""
import os
import subprocess
import unittest

import numpy as np
import torch

FORMATS = {
    "f16": (np.uint16, torch.float16),
    "bf16": (np.uint16, torch.bfloat16),
    "e4m3": (np.uint8, torch.float8_e4m3fn),
    "e5m2": (np.uint8, torch.float8_e5m2),
}


def ours(direction, name, array, dtype):
    tool = os.path.join(os.environ["ROSE_BIN"], "convert_dtypes")
    out = subprocess.run([tool, direction, name], input=array.tobytes(), stdout=subprocess.PIPE, check=True)
    return np.frombuffer(out.stdout, dtype=dtype)


def bits_of(tensor, dtype):
    signed = {1: torch.int8, 2: torch.int16}[np.dtype(dtype).itemsize]
    return tensor.view(signed).numpy().view(dtype)


class Dtypes(unittest.TestCase):
    def test_decoding(self):
        for name, (dtype, torch_dtype) in FORMATS.items():
            with self.subTest(name):
                patterns = np.arange(2 ** (8 * np.dtype(dtype).itemsize), dtype=np.uint32).astype(dtype)
                signed = patterns.view({1: np.int8, 2: np.int16}[patterns.itemsize])
                theirs = torch.from_numpy(signed.copy()).view(torch_dtype).float().numpy()
                np.testing.assert_array_equal(ours("decode", name, patterns, np.float32), theirs)
                if name == "f16":
                    np.testing.assert_array_equal(theirs, patterns.view(np.float16).astype(np.float32))

    def test_encoding(self):
        random = np.random.default_rng(1).integers(0, 2**32, 10_000_000, dtype=np.uint32).view(np.float32)
        for name, (dtype, torch_dtype) in FORMATS.items():
            with self.subTest(name):
                patterns = np.arange(2 ** (8 * np.dtype(dtype).itemsize), dtype=np.uint32).astype(dtype)
                values = ours("decode", name, patterns, np.float32).astype(np.float64)
                values = np.unique(values[np.isfinite(values)])
                middle = ((values[1:] + values[:-1]) / 2).astype(np.float32)
                near = [np.nextafter(middle, np.float32(side)) for side in (-np.inf, np.inf)]
                numbers = np.concatenate([values.astype(np.float32), middle, *near, random]).astype(np.float32)
                mine = ours("encode", name, numbers, dtype)
                theirs = bits_of(torch.from_numpy(numbers).to(torch_dtype), dtype)
                both_nan = np.isnan(numbers)  # payloads of NaN are nobody's business
                np.testing.assert_array_equal(mine[~both_nan], theirs[~both_nan])
                self.assertTrue(np.isnan(ours("decode", name, mine[both_nan], np.float32)).all())


if __name__ == "__main__":
    unittest.main()
