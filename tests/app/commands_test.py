"""What the commands print, where, and with which status. The model is the embedded one."""
import json
import os
import pty
import select
import subprocess
import sys
import tempfile
import time
import unittest

from rose_process import ROSE, rose


class Help(unittest.TestCase):
    def test_every_command_explains_itself_and_its_statuses(self):
        top = rose("--help")
        self.assertEqual(top.returncode, 0)
        for command in ("generate", "chat", "train", "tokenize", "convert", "models", "doctor"):
            self.assertIn(command, top.stdout)
            help_text = rose(command, "--help")
            self.assertEqual(help_text.returncode, 0, command)
            self.assertIn("Exit status", help_text.stdout, command)

    def test_no_command_and_unknown_words_are_usage_errors(self):
        for arguments in ((), ("frobnicate",), ("models", "--nope"), ("generate", "--top-k", "many", "x")):
            result = rose(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertEqual(result.stdout, "")
            self.assertNotEqual(result.stderr, "")


class Tokenize(unittest.TestCase):
    def test_ids_go_there_and_back(self):
        text = "Grüße, 你好 🌹!\n  two  spaces 12345 don't"
        ids = rose("tokenize", "--ids", stdin=text)
        self.assertEqual(ids.returncode, 0, ids.stderr)
        back = rose("tokenize", "--decode", stdin=ids.stdout)
        self.assertEqual(back.stdout, text + "\n")

    def test_pieces_on_stdout_counts_on_stderr(self):
        result = rose("tokenize", "Hello world")
        self.assertEqual(len(result.stdout.splitlines()), 2)
        self.assertIn("2 tokens", result.stderr)


class Generate(unittest.TestCase):
    def test_greedy_is_deterministic_and_output_is_only_the_answer(self):
        runs = [rose("generate", "-n", "12", "The capital of France is") for _ in range(2)]
        for run in runs:
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual(run.stderr, "")
        self.assertEqual(runs[0].stdout, runs[1].stdout)
        self.assertIn("Paris", runs[0].stdout)

    def test_a_file_of_prompts_is_answered_in_order_and_errors_stay_alone(self):
        lines = [{"id": "a", "prompt": "The capital of France is"}, {"prompt": ""}, "no JSON",
                 {"prompt": "Once upon a time", "n": 2, "temperature": 0.8, "seed": 3, "max_tokens": 5}]
        with tempfile.TemporaryDirectory() as folder:
            prompts, out = os.path.join(folder, "in.jsonl"), os.path.join(folder, "out.jsonl")
            with open(prompts, "w", encoding="utf-8") as file:
                file.writelines((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
            run = rose("generate", "--device", "cpu", "-n", "12", "--prompts", prompts, "--out", out)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn("written per second", run.stderr)
            with open(out, encoding="utf-8") as file:
                answers = [json.loads(line) for line in file]
        self.assertEqual([answer["index"] for answer in answers], [0, 1, 2, 3])
        alone = rose("generate", "-n", "12", "The capital of France is").stdout
        self.assertEqual(answers[0]["choices"][0]["text"] + "\n", alone)
        self.assertIn("nothing to continue", answers[1]["error"])
        self.assertIn("in.jsonl:3", answers[2]["error"])
        self.assertEqual([choice["finish_reason"] for choice in answers[3]["choices"]], ["length", "length"])
        self.assertEqual(answers[3]["usage"]["completion_tokens"], 10)

    def test_guesses_change_no_answer_and_are_counted(self):
        model, prompt = "SmolLM2-135M-Instruct.Q4_1", "1, 2, 3, 4, 1, 2, 3, 4, 1, 2,"
        alone = rose("generate", "-n", "10", prompt).stdout
        for guesses in (("--num-speculative-tokens", "3"),
                        ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 2}'),
                        ("--speculative-model", model, "--num-speculative-tokens", "3")):
            run = rose("generate", "--device", "cpu", "-n", "10", *guesses, prompt)
            self.assertEqual(run.stdout, alone, run.stderr)
            self.assertRegex(run.stderr, r"[1-9]\d* of \d+ guesses were right")
        self.assertIn("(100.0 %)", run.stderr, "the model guesses itself")
        refused = rose("generate", "--speculative-config", "{", prompt)
        self.assertIn(refused.returncode, (2, 4), refused.stderr)
        self.assertIn("speculative-config", refused.stderr)

    def test_a_seed_decides(self):
        def run(seed):
            return rose("generate", "-n", "24", "-t", "1.5", "--seed", str(seed), "Once upon a time").stdout

        self.assertEqual(run(1), run(1))
        self.assertNotEqual(run(1), run(2))

    def test_prompt_from_a_pipe_and_a_reader_that_leaves(self):
        piped = rose("generate", "-n", "8", stdin="The capital of France is")
        self.assertEqual(piped.stdout, rose("generate", "-n", "8", "The capital of France is").stdout)
        process = subprocess.Popen([ROSE, "generate", "-n", "200", "--ignore-eos", "Once"], stdout=subprocess.PIPE)
        process.stdout.read(1)
        process.stdout.close()
        self.assertNotEqual(process.wait(60), 0)


class Chat(unittest.TestCase):
    def test_one_question(self):
        result = rose("chat", "-n", "40", "-t", "0", "What is the capital of France?")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("Paris", result.stdout)
        self.assertNotIn("<|im_end|>", result.stdout)

    def test_lines_of_a_pipe_are_turns_and_clear_forgets(self):
        script = "My name is Ada.\n/clear\nWhat is the capital of France?\n/exit\nnever read\n"
        result = rose("chat", "-n", "40", "-t", "0", stdin=script)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn(">", result.stderr)  # no prompt in a pipe
        alone = rose("chat", "-n", "40", "-t", "0", "What is the capital of France?")
        self.assertTrue(result.stdout.endswith(alone.stdout), "after /clear the answer is that of a fresh conversation")

    def test_a_terminal_sees_the_answer_grow_and_ctrl_c_stops_it(self):
        master, slave = pty.openpty()
        process = subprocess.Popen([ROSE, "chat", "-n", "400", "--ignore-eos", "-t", "0"], stdin=slave, stdout=slave,
                                   stderr=slave, start_new_session=True,
                                   preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0))
        os.close(slave)

        def read_until(condition, seconds=60):
            seen, deadline = b"", time.monotonic() + seconds
            while not condition(seen):
                self.assertGreater(deadline, time.monotonic(), f"nothing more came: {seen!r}")
                if select.select([master], [], [], 0.5)[0]:
                    seen += os.read(master, 4096)
            return seen

        read_until(lambda seen: seen.rstrip().endswith(b">"))
        os.write(master, b"Tell me a long story.\n")
        pieces = 0
        deadline = time.monotonic() + 60
        while pieces < 5 and time.monotonic() < deadline:  # the echo is one read, then the answer comes in pieces
            if select.select([master], [], [], 0.5)[0]:
                os.read(master, 4096)
                pieces += 1
        self.assertGreaterEqual(pieces, 5, "the answer is streamed")
        os.write(master, b"\x03")
        read_until(lambda seen: b"> " in seen)
        os.write(master, b"/exit\n")
        self.assertEqual(process.wait(30), 0)
        os.close(master)


class Models(unittest.TestCase):
    def test_the_default_is_listed_with_its_shape(self):
        result = rose("models")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("(default)", result.stdout)
        self.assertIn("30 layers, hidden 576, vocabulary 49152", result.stdout)

    def test_an_empty_machine_says_what_would_help(self):
        result = rose("models", env={"ROSE_MODEL": "", "ROSE_CACHE": "/nonexistent", "HF_HOME": "/nonexistent", "HF_HUB_CACHE": ""})
        self.assertEqual(result.returncode, 3)
        self.assertIn("make demo", result.stderr)


class Doctor(unittest.TestCase):
    def test_this_machine_can_run_a_model(self):
        result = rose("doctor")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("LibTorch 2.11", result.stdout)
        self.assertNotIn("BAD", result.stdout)

    def test_a_machine_without_a_model_is_told_so(self):
        result = rose("doctor", env={"ROSE_MODEL": "/nonexistent.gguf"})
        self.assertEqual(result.returncode, 3)
        self.assertIn("BAD", result.stdout)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
