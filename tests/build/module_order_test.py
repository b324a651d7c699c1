"""Modules include only modules above them, and only the modules that stand on LibTorch name it."""
import os
import pathlib
import re
import tempfile
import unittest

# The table of the design, top to bottom: a module may include itself and what stands before it.
ORDER = ["core", "text", "kernels", "dist", "model/files", "model", "trainer", "infer", "serve", "rlhf", "eval", "agent", "media", "app"]
# Not everything above is fair: the part of `model` that reads files, and `serve`, link no LibTorch.
NEVER = {"model/files": {"dist"}, "serve": {"dist", "model", "trainer"}}
TORCH_MODULES = {"dist", "model", "trainer", "infer", "rlhf"}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
MOST_TORCH_UNITS = 100


def module_of(path):
    """The module of rose/MODULE/…, where model/files is one of its own."""
    parts = path.split("/")
    return "model/files" if parts[1:3] == ["model", "files"] and len(parts) > 3 else parts[1]


def offences(generated):
    found = []
    torch_units = set()
    for path in sorted((generated / "rose").rglob("*")):
        if path.suffix not in {".h", ".cpp", ".cu", ".cuh", ".inl"}:
            continue
        name = path.relative_to(generated).as_posix()
        module = module_of(name)
        if module not in ORDER:
            found.append(f"generated/{name}:1: '{module}' is not a module of the design: {', '.join(ORDER)}")
            continue
        # the engine's half of the program, and wrappers of kernels, may use LibTorch
        torch_here = module in TORCH_MODULES or path.stem.endswith("_torch") or re.match(r"rose/app/engine", name)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            include = INCLUDE.match(line)
            if not include:
                continue
            where = f"generated/{name}:{number}: "
            target = include[1]
            if re.match(r"(ATen|torch|c10|caffe2)/", target):
                if path.suffix in {".cpp", ".cu"}:
                    torch_units.add(name)
                if not torch_here:
                    found.append(f"{where}'{module}' must not include LibTorch ({target}); a file named *_torch.cpp may")
            if target.startswith("labs/"):
                found.append(f"{where}the library must not include a lab ({target})")
            if not target.startswith("rose/"):
                continue
            other = module_of(target)
            if other not in ORDER:
                found.append(f"{where}'{target}' is in no module of the design")
            elif ORDER.index(other) > ORDER.index(module) or other in NEVER.get(module, ()):
                found.append(f"{where}'{module}' must not include '{other}' ({target}): a module uses only those above it")
    if len(torch_units) > MOST_TORCH_UNITS:
        found.append(f"{len(torch_units)} units include LibTorch; at most {MOST_TORCH_UNITS} may")
    return found


class ModuleOrder(unittest.TestCase):
    def test_the_book_keeps_the_order(self):
        found = offences(pathlib.Path(os.environ["ROSE_SOURCE"]) / "generated")
        self.assertEqual(found, [], "\n" + "\n".join(found))

    def broken(self, name, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rose" / name
            path.parent.mkdir(parents=True)
            path.write_text(text)
            return offences(pathlib.Path(folder))

    def test_a_lower_module_is_named_with_its_line(self):
        found = self.broken("text/a.cpp", '#include <vector>\n#include "rose/model/forward.h"\n')
        self.assertEqual(len(found), 1)
        self.assertIn("generated/rose/text/a.cpp:2: 'text' must not include 'model'", found[0])

    def test_files_of_model_stand_above_the_rest_of_it(self):
        self.assertTrue(self.broken("model/files/a.cpp", '#include "rose/model/forward.h"\n'))
        self.assertFalse(self.broken("model/forward.cpp", '#include "rose/model/files/config.h"\n'))

    def test_libtorch_stays_behind_its_boundary(self):
        self.assertTrue(self.broken("kernels/linear.cpp", "#include <ATen/core/Tensor.h>\n"))
        self.assertTrue(self.broken("serve/http.cpp", "#include <torch/torch.h>\n"))
        self.assertTrue(self.broken("model/files/gguf.cpp", "#include <c10/core/ScalarType.h>\n"))
        self.assertFalse(self.broken("kernels/linear_torch.cpp", "#include <ATen/core/Tensor.h>\n"))
        self.assertFalse(self.broken("model/weights.cpp", "#include <ATen/core/Tensor.h>\n"))

    def test_labs_stay_outside(self):
        self.assertTrue(self.broken("core/a.h", '#include "labs/autodiff/tape.h"\n'))


if __name__ == "__main__":
    unittest.main()
