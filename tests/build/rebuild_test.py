"""A prose edit compiles nothing and leaves CMake alone; a code edit compiles its unit; a new output makes CMake run once."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["ROSE_SOURCE"])
TANGLE = os.environ["ROSE_TANGLE"]
CHAPTER = "book/0-orientation/06-the-ground-floor.md"


def run(*command, cwd):
    done = subprocess.run([str(word) for word in command], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))} failed:\n{done.stdout}")
    return done.stdout


class Rebuilds(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not os.path.exists(TANGLE):
            raise unittest.SkipTest("the tangler is not built")
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name) / "checkout"
        listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=SOURCE)
        for name in filter(None, listed.split("\0")):
            if (SOURCE / name).is_file() and name.split("/")[0] in {"book", "generated", "cmake", "CMakeLists.txt", "tests"}:
                (cls.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(SOURCE / name, cls.root / name)
        cls.tangle()
        cls.tree = cls.root / "build" / "cpu"
        run("cmake", "-S", cls.root, "-B", cls.tree, "-G", "Ninja", "-DROSE_TESTS=OFF", "-DROSE_TORCH=OFF", "-DROSE_CUDA=OFF",
            "-DCMAKE_BUILD_TYPE=Debug", cwd=cls.root)
        cls.build()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def tangle(cls):
        run(TANGLE, "emit", "--quiet", cwd=cls.root)

    @classmethod
    def build(cls):
        return run("ninja", "-C", cls.tree, "-j", "2", "-v", "rose_core", cwd=cls.root)

    def edit(self, old, new):
        path = self.root / CHAPTER
        text = path.read_text(encoding="utf-8")
        self.assertRegex(text, old)
        path.write_text(re.sub(old, new, text, count=1), encoding="utf-8")
        self.tangle()
        before = (self.tree / "build.ninja").stat().st_mtime_ns
        output = self.build()
        after = (self.tree / "build.ninja").stat().st_mtime_ns
        return output, after != before

    def test_1_prose(self):
        output, configured = self.edit(r"\n(# [^\n]+\n)", r"\n\1\nA sentence more, and nothing else.\n")
        self.assertIn("no work to do", output)
        self.assertFalse(configured, "CMake ran again after a prose edit")

    def test_2_code(self):
        path = self.root / "generated" / "rose" / "core" / "error.cpp"
        anchor = re.search(r"^namespace rose::core \{$", path.read_text(encoding="utf-8"), re.M)
        self.assertTrue(anchor)
        output, configured = self.edit(r'(?s)(file="rose/core/error\.cpp".*?\nnamespace rose::core \{\n)', r"\1// An edit of code.\n")
        self.assertIn("An edit of code.", path.read_text(encoding="utf-8"))
        compiled = re.findall(r"-c \S*?([\w/.-]+\.cpp)", output)
        self.assertEqual([name.rsplit("/", 1)[1] for name in compiled], ["error.cpp"], output)
        self.assertFalse(configured, "CMake ran again after an edit of code")

    def test_3_a_new_output(self):
        chunk = '\n```cpp {#rebuild-test-file title="Add a file" file="rose/core/rebuild_test.cpp"}\nnamespace rose::core {}\n```\n'
        output, configured = self.edit(r"\Z", chunk.replace("\\", r"\\"))
        self.assertTrue(configured, "CMake did not run again for a new output")
        self.assertIn("rebuild_test.cpp", output)


if __name__ == "__main__":
    unittest.main()
