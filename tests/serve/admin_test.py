"""The operator's address, and limits: adapters, profiles, keys, and what a web page must not be able to do."""
import json
import os
import signal
import sys
import tempfile
import time
import unittest

import openai
from server import Server

KEY = "rose-operator"


def say(text):
    return [{"role": "user", "content": text}]


class Limits(unittest.TestCase):
    def test_each_key_has_its_own(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = os.path.join(folder, "keys")
            with open(keys, "w", encoding="utf-8") as file:
                file.write("few name=a requests=3\nsmall name=b tokens=300\nplenty name=c\n")
            server = Server("--api-key-file", keys, "--requests-per-minute", 1000)
            try:
                client = lambda key: openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key=key, max_retries=0)
                ask = lambda key, text="hi", **f: client(key).chat.completions.with_raw_response.create(model=server.name, messages=say(text), **f)
                left = [ask("few").headers["x-ratelimit-remaining-requests"] for _ in range(3)]
                self.assertEqual(left, ["2", "1", "0"])
                with self.assertRaises(openai.RateLimitError) as refused:
                    ask("few")
                self.assertEqual((refused.exception.code, refused.exception.type), ("rate_limit_exceeded", "requests"))
                self.assertEqual(refused.exception.response.headers["x-ratelimit-remaining-requests"], "0")
                self.assertTrue(15 <= int(refused.exception.response.headers["retry-after"]) <= 20)
                self.assertEqual(ask("plenty").headers["x-ratelimit-limit-requests"], "1000")
                self.assertNotIn("x-ratelimit-limit-tokens", ask("plenty").headers)
                used = ask("small", "word " * 100).parse().usage
                self.assertGreater(used.total_tokens, 200)
                with self.assertRaises(openai.RateLimitError) as refused:
                    ask("small", "word " * 100)
                self.assertEqual(refused.exception.type, "tokens")
                with self.assertRaises(openai.RateLimitError) as refused:
                    ask("small", "word " * 400)
                self.assertIn("never", str(refused.exception))
                self.assertNotIn("retry-after", refused.exception.response.headers)
            finally:
                self.assertEqual(server.stop(), 0)

    def test_a_line_that_is_none_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = os.path.join(folder, "keys")
            with open(keys, "w", encoding="utf-8") as file:
                file.write("key speed=3\n")
            with self.assertRaises(AssertionError) as failed:
                Server("--api-key-file", keys)
            self.assertIn("speed=3", str(failed.exception))


class Operators(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.server = Server("--admin-port", 0, "--profile-dir", os.path.join(cls.folder.name, "profiles"), parrot=False)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0
        cls.folder.cleanup()

    def admin(self, path, body=None, method="POST", **headers):
        return self.server.request(method, path, body, headers, port=self.server.admin_port)

    def make_adapter(self, name):
        """An adapter as peft writes it, of random numbers that matter."""
        import torch
        from safetensors.torch import save_file

        folder = os.path.join(self.folder.name, name)
        os.makedirs(folder, exist_ok=True)
        torch.manual_seed(len(name))
        rank, hidden, kv, layers = 4, 576, 192, 30
        tensors = {}
        for layer in range(layers):
            for projection, out in (("q_proj", hidden), ("v_proj", kv)):
                at = f"base_model.model.model.layers.{layer}.self_attn.{projection}"
                tensors[f"{at}.lora_A.weight"] = torch.randn(rank, hidden) * 0.3
                tensors[f"{at}.lora_B.weight"] = torch.randn(out, rank) * 0.3
        save_file(tensors, os.path.join(folder, "adapter_model.safetensors"))
        with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as file:
            json.dump({"peft_type": "LORA", "r": rank, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "bias": "none",
                       "task_type": "CAUSAL_LM", "base_model_name_or_path": "x"}, file)
        return folder

    def answer(self, model):
        status, body = self.server.post("/v1/completions", {"model": model, "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}, timeout=120)
        return body["choices"][0]["text"] if status == 200 else status

    def test_adapters_come_and_go(self):
        name = self.server.name
        plain = self.answer(name)
        folder = self.make_adapter("a")
        self.assertEqual(self.answer("a"), 404)
        status, _, said = self.admin("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": folder})
        self.assertEqual((status, said), (200, b"Success: LoRA adapter 'a' added successfully.\n"))
        adapted = self.answer("a")
        self.assertNotEqual(adapted, plain)
        self.assertEqual(self.answer(name), plain)
        models = {m["id"]: m for m in json.loads(self.server.get("/v1/models")[1])["data"]}
        self.assertEqual((set(models), models["a"]["parent"]), ({name, "a"}, name))
        refusals = [("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": folder}, 400, "lora_name"),
                    ("/v1/load_lora_adapter", {"lora_name": name, "lora_path": folder}, 400, "lora_name"),
                    ("/v1/load_lora_adapter", {"lora_name": "b", "lora_path": "/nowhere"}, 404, None),
                    ("/v1/load_lora_adapter", {"lora_path": folder}, 400, "lora_name"),
                    ("/v1/load_lora_adapter", {"lora_name": "b"}, 400, "lora_path"),
                    ("/v1/load_lora_adapter", {"lora_name": "b", "lora_path": folder, "x": 1}, 400, "x"),
                    ("/v1/unload_lora_adapter", {"lora_name": "b"}, 404, "lora_name")]
        for path, body, code, param in refusals:
            status, _, said = self.admin(path, body)
            error = json.loads(said)["error"]
            self.assertEqual((status, error["param"] if param else None), (code, param), (body, error))
        # the engine that follows one that died has the adapter, too
        os.kill(self.server.engine_pids()[0], signal.SIGKILL)
        end = time.monotonic() + 60
        while not (self.server.get("/health")[0] == 200 and json.loads(self.server.get("/health")[1])["restarts"] == 1):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        self.assertEqual(self.answer("a"), adapted)
        self.assertEqual(self.admin("/v1/unload_lora_adapter", {"lora_name": "a"})[0], 200)
        self.assertEqual(self.answer("a"), 404)
        self.assertEqual(self.answer(name), plain)

    def test_a_profile(self):
        self.assertEqual(self.admin("/stop_profile")[0], 409)
        self.assertEqual(self.admin("/start_profile")[0], 200)
        self.assertEqual(self.admin("/start_profile")[0], 409)
        self.answer(self.server.name)
        status, _, said = self.admin("/stop_profile", {})
        self.assertEqual(status, 200)
        with open(json.loads(said)["files"][0], encoding="utf-8") as file:
            self.assertGreater(len(json.load(file)["traceEvents"]), 8)

    def test_what_is_only_here_and_for_whom(self):
        for path in ("/start_profile", "/v1/load_lora_adapter"):
            self.assertEqual(self.server.post(path, {})[0], 404, "not on the address that clients know")
        self.assertEqual(self.admin("/debug/state", method="GET")[0], 200)
        self.assertEqual(self.admin("/metrics", method="GET")[0], 200)
        self.assertEqual(self.admin("/start_profile", method="GET")[0], 405)
        self.assertEqual(self.admin("/v1/chat/completions", {})[0], 404)
        for headers in ({"origin": "https://example.org"}, {"origin": "null"}, {"host": "example.org"}, {"host": "evil.example:8889"}):
            self.assertEqual(self.admin("/stop_profile", {}, **headers)[0], 403, headers)
        self.assertEqual(self.admin("/stop_profile", "a=b", **{"content-type": "text/plain"})[0], 415)
        self.assertEqual(self.admin("/stop_profile", b"{")[0], 400)

    def test_the_operators_key(self):
        server = Server("--admin-port", 0, env={"ROSE_ADMIN_KEY": KEY, "ROSE_API_KEY": "client"}, wait=False)
        try:
            ask = lambda key: server.request("GET", "/metrics", headers={"authorization": f"Bearer {key}"} if key else {}, port=server.admin_port)[0]
            self.assertEqual([ask(None), ask("client"), ask(KEY)], [401, 401, 200])
        finally:
            self.assertEqual(server.stop(), 0)
        with self.assertRaises(AssertionError) as failed:
            Server("--admin-port", 0, "--admin-host", "0.0.0.0")
        self.assertIn("ROSE_ADMIN_KEY", str(failed.exception))


if __name__ == "__main__":
    unittest.main()
