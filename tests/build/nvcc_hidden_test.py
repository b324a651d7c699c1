"""Without nvcc everything else builds: a CUDA LibTorch links and runs on a machine that has no CUDA Toolkit."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent


def cuda_folders():
    """Every folder in which CMake could find an nvcc."""
    found = {"/usr/local/cuda/bin", "/opt/cuda/bin"}
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if os.path.exists(os.path.join(folder, "nvcc")):
            found.add(folder)
    return found


class HiddenNvcc(unittest.TestCase):
    def test_a_libtorch_program_links_and_runs(self):
        hidden = cuda_folders()
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("CUDA", "NVCC"))}
        # drop the folder, unless it is one that holds the compiler too: then CMake is told to ignore nvcc there
        environment["PATH"] = os.pathsep.join(f for f in environment["PATH"].split(os.pathsep) if f not in hidden or f == "/usr/bin")
        self.assertIn(shutil.which("nvcc", path=environment["PATH"]), {None, "/usr/bin/nvcc"})
        with tempfile.TemporaryDirectory() as folder:
            configure = subprocess.run(
                ["cmake", "-S", str(HERE / "torch_program"), "-B", folder, "-G", "Ninja", "-DROSE_CUDA=AUTO", "-DROSE_TORCH=ON",
                 f"-DROSE_SOURCE={os.environ['ROSE_SOURCE']}", f"-DCMAKE_CXX_COMPILER={os.environ['ROSE_CXX']}",
                 f"-DCMAKE_IGNORE_PATH={';'.join(sorted(hidden - {'/usr/bin'}))}"],
                env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.assertEqual(configure.returncode, 0, configure.stdout)
            if shutil.which("nvcc", path=environment["PATH"]) is None:
                self.assertIn("cuda: OFF", configure.stdout)
            for command in (["ninja", "-C", folder], [f"{folder}/torch_program"]):
                done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn("sum 6", done.stdout)


if __name__ == "__main__":
    unittest.main()
