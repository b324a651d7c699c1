"""What the template tests share: Python's Jinja with Hugging Face's settings, and our renderer as a child process."""
import copy
import json
import os
import pathlib
import subprocess
import sys

import transformers.utils.chat_template_utils as hugging_face

HERE = pathlib.Path(__file__).resolve().parent


def compile_template(text):
    """Compiles exactly as transformers does (its cache left aside)."""
    return hugging_face._cached_compile_jinja_template(text)


def reference(text, context):
    """(True, output) or (False, message)."""
    try:
        return True, compile_template(text).render(**copy.deepcopy(context))  # some filters change lists in place
    except RecursionError as error:
        return None, f"recursion: {error}"
    except Exception as error:  # templates can raise anything that Python can
        return False, f"{type(error).__name__}: {error}"


def ours(cases):
    """Renders (template, context) pairs in one run of the driver."""
    program = os.environ.get("ROSE_TEMPLATE_DRIVER") or str(pathlib.Path(os.environ["ROSE_BIN"]) / "template_driver")
    lines = "".join(json.dumps({"template": t, "context": c}) + "\n" for t, c in cases)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, encoding="utf-8")
    if done.returncode != 0:
        sys.exit(f"the driver ended with {done.returncode}: {done.stderr}")
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert len(answers) == len(cases), f"{len(answers)} answers for {len(cases)} cases"
    return [(a["ok"], a["text"] if a["ok"] else a["error"]) for a in answers]


def compare(cases, show=10):
    """Counts the cases in which both render the same text or both refuse; prints the others."""
    agreed_text = agreed_error = 0
    differing = []
    for (text, context), mine in zip(cases, ours(cases)):
        theirs = reference(text, context)
        if theirs[0] is None or (theirs[0] and " at 0x" in theirs[1]):
            continue  # an address, or Python's own stack: nothing to compare
        if theirs[0] != mine[0] or (theirs[0] and theirs[1] != mine[1]):
            differing.append((text, context, theirs, mine))
        elif theirs[0]:
            agreed_text += 1
        else:
            agreed_error += 1
    for text, context, theirs, mine in differing[:show]:
        print(f"\ntemplate: {text!r}\ncontext:  {json.dumps(context, ensure_ascii=False)[:200]}\njinja2:   {theirs!r}\nours:     {mine!r}")
    return agreed_text, agreed_error, differing
