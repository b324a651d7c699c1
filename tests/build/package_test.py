"""`cmake --install`, then a stranger's project finds the package, builds against it and runs."""
import os
import pathlib
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
BUILD = os.environ["ROSE_BUILD"]


def run(*command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))} failed:\n{done.stdout}")
    return done.stdout


class Package(unittest.TestCase):
    def test_an_installed_package_is_found_and_works(self):
        with tempfile.TemporaryDirectory() as folder:
            prefix = pathlib.Path(folder) / "prefix"
            run("cmake", "--install", BUILD, "--prefix", prefix)
            self.assertTrue((prefix / "include" / "rose" / "core" / "error.h").exists())
            run("cmake", "-S", HERE / "consumer", "-B", f"{folder}/build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}",
                f"-DCMAKE_CXX_COMPILER={os.environ['ROSE_CXX']}")
            run("cmake", "--build", f"{folder}/build")
            self.assertIn("not here", run(f"{folder}/build/consumer"))
            for program in (prefix / "bin").glob("rose*"):  # an installed program finds its libraries
                run(program, "--help")


if __name__ == "__main__":
    unittest.main()
