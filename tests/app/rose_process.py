"""Runs `rose` and keeps what it said."""
import os
import subprocess

ROSE = os.path.join(os.environ["ROSE_BIN"], "rose")


def rose(*arguments, stdin="", env=None, timeout=120):
    """The finished process; stdout and stderr are text."""
    binary = isinstance(stdin, bytes)
    return subprocess.run(
        [ROSE, *arguments],
        input=stdin,
        capture_output=True,
        text=not binary,
        timeout=timeout,
        env={**os.environ, **(env or {})},
    )
