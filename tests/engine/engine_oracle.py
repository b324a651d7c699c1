#!/usr/bin/env python3
"""The engine against other people's programs.

    engine_oracle.py families       greedy answers to 200 prompts for each of four small random checkpoints: transformers
    engine_oracle.py smollm2 N      the same for N prompts and the shipped GGUF file, which transformers dequantises
    engine_oracle.py schemas        documents written under random schemas by a small random model: jsonschema
    engine_oracle.py vanish         the model's file goes away while the engine has it, and before

All requests of a call run together in one engine. Where the oracle's best two logits are nearer than twice the error bound of
the logits, either is right.
"""
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

BOUND = 1e-4  # of a logit; tests/logits holds the forward pass to it
TOOL = pathlib.Path(os.environ.get("ROSE_BIN", "build/cpu/bin")) / "engine_tool"


def answers(model, requests, *options):
    ran = subprocess.run([str(TOOL), str(model), *options], input="\n".join(map(json.dumps, requests)), check=True,
                         capture_output=True, text=True, encoding="utf-8")
    got = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(got) == len(requests), (len(got), len(requests))
    return got, json.loads(ran.stderr.splitlines()[-1])


def judge(name, model, requests, got):
    """Every token must be the oracle's best after the tokens before it, or as good as that."""
    import torch

    near = 0
    for i, (request, answer) in enumerate(zip(requests, got)):
        assert answer["error"] is None and answer["finish"] == "length", f"{name}, prompt {i}: {answer}"
        prompt, ids = request["ids"], answer["ids"]
        assert len(ids) == request["max_tokens"], f"{name}, prompt {i}: {len(ids)} tokens"
        with torch.no_grad():
            rows = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
        best = rows.max(dim=-1)
        chosen = rows.gather(1, torch.tensor(ids)[:, None])[:, 0]
        for step in (best.values - chosen).nonzero()[:, 0].tolist():
            gap = float(best.values[step] - chosen[step])
            near += 1
            assert gap < 2 * BOUND, f"{name}, prompt {i}, token {step}: {ids[step]} is {gap} below {int(best.indices[step])}"
    tokens = sum(len(a["ids"]) for a in got)
    print(f"{name}: {len(got)} prompts, {tokens} tokens, {near} where the oracle's best two are as good")


def families():
    import torch
    from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config

    torch.set_num_threads(2)
    small = dict(vocab_size=211, hidden_size=64, intermediate_size=96, num_hidden_layers=2, max_position_embeddings=512,
                 num_attention_heads=4, num_key_value_heads=2, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    configs = {
        "gpt2": GPT2Config(vocab_size=211, n_embd=64, n_layer=2, n_head=4, n_positions=512, bos_token_id=1, eos_token_id=2),
        "llama": LlamaConfig(**small), "qwen2": Qwen2Config(**small), "qwen3": Qwen3Config(**small, head_dim=32),
    }
    r = random.Random(3)
    for seed, (name, config) in enumerate(configs.items()):
        generator = torch.Generator().manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        for parameter in model.parameters():  # nothing zero, nothing one
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.data = noise * 0.12 if parameter.dim() == 2 else parameter.data + 0.3 * noise
        requests = [{"ids": [r.randrange(211) for _ in range(r.choice([1, 2, 15, 16, 17, 40, 150]))],
                     "max_tokens": r.randrange(1, 33)} for _ in range(200)]
        with tempfile.TemporaryDirectory() as folder:
            model.float().eval().save_pretrained(folder)
            got, _ = answers(folder, requests)
        judge(name, model.double(), requests, got)


THINGS = ["the sea", "a violin", "Paris", "photosynthesis", "a black hole", "bread", "the number seven", "rain", "chess",
          "the Roman Empire", "a volcano", "honey bees", "the telephone", "gravity", "a good friend", "winter", "the Nile",
          "copper", "dreams", "a prime number"]
FORMS = ["Tell me about {}.", "What is {}?", "Write a short poem on {}.", "{} is", "Once upon a time there was {} and",
         "Why do people care about {}?", "List three facts about {}:\n1.", "Translate into French: {}", "def describe():\n    # {}\n",
         "Q: How would you explain {} to a child?\nA:"]


def smollm2(count):
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    path = pathlib.Path(os.environ.get("ROSE_MODEL", ""))
    if not path.is_file():
        print("there is no SmolLM2 here: ROSE_MODEL")
        sys.exit(77)
    torch.set_num_threads(2)
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = LlamaForCausalLM(LlamaConfig(**load_gguf_checkpoint(str(path))["config"], attn_implementation="eager")).float().eval()
    weights = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model, torch_dtype=torch.float32)["tensors"]
    model.load_state_dict(weights, strict=False)
    model.tie_weights()
    model.double()  # in fp32 the oracle's own rounding would be as large as ours
    prompts = [form.format(thing) for form in FORMS for thing in THINGS]
    random.Random(1).shuffle(prompts)
    requests = [{"ids": tokenizer(text).input_ids, "max_tokens": 24} for text in prompts[:count]]
    judge("SmolLM2", model, requests, answers(path, requests)[0])


def schemas():
    import jsonschema

    path = os.environ.get("ROSE_MODEL", "")
    if not os.path.isfile(path):
        print("there is no SmolLM2 here: ROSE_MODEL")
        sys.exit(77)
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "structured"))
    from random_schemas import Random

    made = [Random(seed).schema(3) for seed in range(1000, 1000 + int(os.environ.get("ROSE_SCHEMAS", "120")))]
    requests = [{"ids": [1 + i, 7, 9], "max_tokens": 900, "temperature": 0.9, "seed": i, "schema": json.dumps(schema)}
                for i, schema in enumerate(made)]
    got, _ = answers(path, requests, "random")
    finished = refused = 0
    for schema, answer in zip(made, got):
        if answer["finish"] in ("unsupported", "invalid_argument", "resource_exhausted"):
            refused += 1
        elif answer["finish"] == "stop":
            document = json.loads(answer["text"])
            problem = next(jsonschema.Draft202012Validator(schema).iter_errors(document), None)
            assert problem is None, f"{json.dumps(schema)} gives {answer['text']!r}: {problem.message}"
            finished += 1
        else:  # a text that found no end in time is a beginning: no token of it was forbidden
            assert answer["finish"] == "length", answer
    print(f"{finished} documents of {len(made)} random schemas parse and are valid; {refused} schemas are refused")
    assert finished >= len(made) // 2 and refused < len(made) // 4
    drafted = right = 0  # alone, a request's forced text is guessed, which must change nothing
    for request, answer in list(zip(requests, got))[:8]:
        (alone,), s = answers(path, [request], "random")
        assert alone == answer, f"{request['schema']}: {alone['text']!r} alone, {answer['text']!r} in company"
        drafted, right = drafted + s["drafted"], right + s["right"]
    print(f"alone, {right} of {drafted} guesses of forced text were right")
    assert right > 0


def vanish():
    path = os.environ.get("ROSE_MODEL", "")
    if not os.path.isfile(path):
        print("there is no SmolLM2 here: ROSE_MODEL")
        sys.exit(77)
    requests = [{"ids": [504, 260, 282, 253], "max_tokens": 12}, {"ids": [504, 999999], "max_tokens": 3}]
    kept, _ = answers(path, requests)
    assert kept[1]["finish"] == "out_of_range" and kept[0]["finish"] == "length", kept
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "model.gguf"
        shutil.copy(path, copy)
        tool = subprocess.Popen([str(TOOL), str(copy)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert "is there" in tool.stderr.readline()
        copy.unlink()
        out, _ = tool.communicate("\n".join(map(json.dumps, requests)))
        assert [json.loads(line) for line in out.splitlines()] == kept and tool.returncode == 0
        tool = subprocess.run([str(TOOL), str(copy)], capture_output=True, text=True)
        assert tool.returncode == 1 and "model.gguf" in tool.stderr, (tool.returncode, tool.stderr)
    print("a file that vanishes is missed by the next engine and by no request")


if __name__ == "__main__":
    {"vanish": vanish, "families": families, "smollm2": lambda: smollm2(int(sys.argv[2])), "schemas": schemas}[sys.argv[1]]()
