"""Checkpoints written by `transformers` and by the `gguf` writer are read back weight by weight; configurations mean the same rotation;
conversions lose nothing that they were not asked to lose."""
import json
import os
import resource
import shutil
import signal

import gguf
import numpy as np
import torch
import transformers
from gguf.quants import dequantize, quantize

from oracle import canonical, dump, families, main, pair, probe, random_model, require_equal, sha

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


def hugging_face_folders_are_read(folder):
    for number, (name, config) in enumerate(families().items()):
        model = random_model(config, number)
        model.save_pretrained(folder / name)
        require_equal(folder / name, canonical(model), name)


def half_precision_and_shards_are_read(folder):
    for name in ("gpt2", "llama-gqa-tied", "qwen3"):
        for dtype in (torch.bfloat16, torch.float16):
            model = random_model(families()[name], 3, dtype)
            where = folder / f"{name}-{dtype}"
            model.save_pretrained(where, max_shard_size="60KB")
            assert (where / "model.safetensors.index.json").exists()
            require_equal(where, canonical(model), name)


def old_layouts_are_read(folder):
    """No prefix, causal masks, rotary tables, a copy of the tied head, a header without padding: as early checkpoints have them."""
    from safetensors.torch import save
    model = random_model(families()["gpt2"], 4)
    model.save_pretrained(folder / "old")
    state = {k.removeprefix("transformer."): v.clone() for k, v in model.state_dict().items()}
    state["h.0.attn.bias"], state["h.1.attn.masked_bias"] = torch.ones(1, 1, 8, 8), torch.tensor(-1e4)
    raw = save(state)
    size = int.from_bytes(raw[:8], "little")
    text = json.dumps(json.loads(raw[8:8 + size]), separators=(",", ":"))
    text += " " * ((3 - len(text)) % 8)  # 3 more than a multiple of 8: nothing after it is aligned
    (folder / "old" / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text.encode() + raw[8 + size:])
    require_equal(folder / "old", canonical(model), "old gpt2")

    model = random_model(families()["llama-gqa-tied"], 4)
    model.save_pretrained(folder / "llama")
    state = {k: v.clone() for k, v in model.state_dict().items()}
    state["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
    (folder / "llama" / "model.safetensors").write_bytes(save(state))
    require_equal(folder / "llama", canonical(model), "old llama")


def rotation(config):
    module = {"llama": transformers.models.llama.modeling_llama.LlamaRotaryEmbedding,
              "qwen2": transformers.models.qwen2.modeling_qwen2.Qwen2RotaryEmbedding,
              "qwen3": transformers.models.qwen3.modeling_qwen3.Qwen3RotaryEmbedding}[config.model_type](config)
    return module.inv_freq.numpy(), module.attention_scaling


def configurations_mean_the_same(folder):
    for name, config in families().items():
        model = random_model(config, 5)
        model.save_pretrained(folder / name)
        written = json.loads((folder / name / "config.json").read_text())
        spellings = {"new": written}
        if "rope_parameters" in written:
            rope = dict(written["rope_parameters"])
            old = {k: v for k, v in written.items() if k != "rope_parameters"}
            old["rope_theta"] = rope.pop("rope_theta")
            rope["type"] = rope.pop("rope_type")
            if rope["type"] != "default":
                old["rope_scaling"] = rope
            spellings["old"] = old
        for spelling, content in spellings.items():
            (folder / name / "config.json").write_text(json.dumps(content))
            (folder / "again").mkdir(exist_ok=True)
            (folder / "again" / "config.json").write_text(json.dumps(dump(folder / name)["config"]))
            again = transformers.AutoConfig.from_pretrained(folder / "again")
            for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
                        "intermediate_size", "max_position_embeddings", "rms_norm_eps", "layer_norm_epsilon", "tie_word_embeddings",
                        "attention_bias", "mlp_bias", "n_inner", "activation_function", "hidden_act", "bos_token_id", "eos_token_id"):
                a, b = getattr(config, key, None), getattr(again, key, None)
                if key == "n_inner" and a is None and config.model_type == "gpt2":
                    a = 4 * config.n_embd
                if key == "head_dim" and a is None and b is not None:
                    a = config.hidden_size // config.num_attention_heads
                assert a == b, (name, spelling, key, a, b)
            if config.model_type != "gpt2":
                (f1, s1), (f2, s2) = rotation(config), rotation(again)
                assert np.array_equal(f1, f2) and abs(s1 - s2) < 1e-7, (name, spelling)


GGUF_NAMES = {"attn_norm": "attn_norm", "attn.q": "attn_q", "attn.k": "attn_k", "attn.v": "attn_v", "attn.o": "attn_output",
              "attn.q_norm": "attn_q_norm", "attn.k_norm": "attn_k_norm", "ffn_norm": "ffn_norm", "ffn.gate": "ffn_gate",
              "ffn.up": "ffn_up", "ffn.down": "ffn_down"}


def gguf_tensors(model):
    """The tensors that llama.cpp's converter would write: name -> fp32 array."""
    config, weights, out = model.config, canonical(model), {}
    for name, value in weights.items():
        stem, kind = name.rsplit(".", 1)
        if not stem.startswith("layers."):
            out[{"embed": "token_embd", "pos_embed": "position_embd", "norm": "output_norm", "head": "output"}[stem] + "." + kind] = value
            continue
        _, layer, rest = stem.split(".", 2)
        if config.model_type == "llama" and rest in ("attn.q", "attn.k"):
            value = pair(value, config.num_attention_heads if rest == "attn.q" else config.num_key_value_heads)
        if config.model_type == "gpt2" and rest in ("attn.q", "attn.k", "attn.v"):
            if rest == "attn.q":
                rows = [weights[f"layers.{layer}.attn.{part}.{kind}"] for part in "qkv"]
                out[f"blk.{layer}.attn_qkv.{kind}"] = np.concatenate(rows)
            continue
        out[f"blk.{layer}.{GGUF_NAMES[rest]}.{kind}"] = value
    return out


def write_gguf(path, model, kind):
    """By the reference writer. Returns the canonical weights as they are after quantisation."""
    config = model.config
    writer = gguf.GGUFWriter(path, config.model_type)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_head_count(config.num_attention_heads)
    if config.model_type == "gpt2":
        writer.add_feed_forward_length(config.n_inner or 4 * config.n_embd)
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
    else:
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        rope = config.rope_parameters
        writer.add_rope_freq_base(rope["rope_theta"])
        if getattr(config, "head_dim", None):
            writer.add_key_length(config.head_dim)
            writer.add_value_length(config.head_dim)
            writer.add_rope_dimension_count(config.head_dim)
        if rope["rope_type"] == "linear":
            writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(rope["factor"])
        if rope["rope_type"] == "yarn":
            writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
            writer.add_rope_scaling_factor(rope["factor"])
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
            if "beta_fast" in rope:
                writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
    stored = {}
    for name, value in gguf_tensors(model).items():
        block, _ = gguf.GGML_QUANT_SIZES[kind]
        plain = value.ndim == 1 or value.shape[-1] % block != 0
        use = gguf.GGMLQuantizationType.F32 if plain else kind
        data = quantize(np.ascontiguousarray(value), use)
        writer.add_tensor(name, data, raw_dtype=use)
        stored[name] = dequantize(data, use).reshape(value.shape).astype(np.float32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return stored


def unpaired(stored, model):
    """canonical name -> what a reader must find, from the stored arrays."""
    config, out = model.config, {}
    for name, like in canonical(model).items():
        stem, kind = name.rsplit(".", 1)
        if not stem.startswith("layers."):
            out[name] = stored[{"embed": "token_embd", "pos_embed": "position_embd", "norm": "output_norm", "head": "output"}[stem] + "." + kind]
            continue
        _, layer, rest = stem.split(".", 2)
        if config.model_type == "gpt2" and rest in ("attn.q", "attn.k", "attn.v"):
            out[name] = np.split(stored[f"blk.{layer}.attn_qkv.{kind}"], 3)["qkv".index(rest[-1])]
            continue
        value = stored[f"blk.{layer}.{GGUF_NAMES[rest]}.{kind}"]
        if config.model_type == "llama" and rest in ("attn.q", "attn.k"):
            heads = config.num_attention_heads if rest == "attn.q" else config.num_key_value_heads
            value = value.reshape(heads, like.shape[0] // heads // 2, 2, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)
        out[name] = value
    return out


def gguf_files_are_read(folder):
    kinds = [gguf.GGMLQuantizationType[k] for k in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")]
    for number, (name, config) in enumerate(families().items()):
        if name == "llama-llama3":
            continue  # needs rope_freqs: see below
        model = random_model(config, number + 20)
        for kind in kinds:
            path = folder / "model.gguf"
            stored = write_gguf(path, model, kind)
            got = require_equal(path, unpaired(stored, model), (name, kind.name))
            if config.model_type != "gpt2":
                (folder / "again").mkdir(exist_ok=True)
                (folder / "again" / "config.json").write_text(json.dumps(got["config"]))
                (f1, s1), (f2, s2) = rotation(config), rotation(transformers.AutoConfig.from_pretrained(folder / "again"))
                assert np.array_equal(f1, f2) and abs(s1 - s2) < 1e-6, (name, kind)


def the_embedded_model_is_read(folder):
    path = os.environ.get("ROSE_MODEL")
    if not path or not os.path.exists(path):
        print("   (no ROSE_MODEL: skipped)")
        return
    reader, got = gguf.GGUFReader(path), dump(path)
    heads = {"attn_q": 9, "attn_k": 3}
    back = {v: k for k, v in GGUF_NAMES.items()}
    assert got["vocab"] == 49152 and len(got["tensors"]) == len(reader.tensors) == 272
    for tensor in reader.tensors:
        value = dequantize(tensor.data, tensor.tensor_type).reshape(list(reversed(tensor.shape.tolist())))
        parts = tensor.name.split(".")
        name = {"token_embd": "embed", "output_norm": "norm"}.get(parts[0])
        if name is None:
            name = f"layers.{parts[1]}.{back[parts[2]]}"
            if parts[2] in heads:
                value = value.reshape(heads[parts[2]], 32, 2, -1).swapaxes(1, 2).reshape(value.shape)
        assert got["tensors"][name + ".weight"]["sha256"] == sha(value), tensor.name


def conversions_round_trip(folder):
    """Hugging Face → GGUF → Hugging Face: the GGUF file is what the reference's would be, the folder loads and computes the same."""
    for number, (name, config) in enumerate(families().items()):
        for dtype in (torch.float32, torch.bfloat16):
            model = random_model(config, number + 40, dtype)
            source, middle, target = folder / "source", folder / "middle.gguf", folder / "target"
            for path in (source, target):
                shutil.rmtree(path, ignore_errors=True)
            middle.unlink(missing_ok=True)
            model.save_pretrained(source)
            probe("convert", source, middle, "")
            reader = gguf.GGUFReader(middle)
            expected = gguf_tensors(model)
            got = {t.name: dequantize(t.data, t.tensor_type).reshape(list(reversed(t.shape.tolist()))) for t in reader.tensors}
            got.pop("rope_freqs.weight", None)
            assert got.keys() == expected.keys(), (name, got.keys() ^ expected.keys())
            for key, value in expected.items():
                assert np.array_equal(got[key], value), (name, key)
            before, after = dump(source), dump(middle)
            assert before["config"] == after["config"], (name, before["config"], after["config"])
            probe("convert", middle, target, {torch.float32: "f32", torch.bfloat16: "bf16"}[dtype])
            again = transformers.AutoModelForCausalLM.from_pretrained(target, dtype=dtype).eval()
            for key, value in model.state_dict().items():
                assert torch.equal(value, again.state_dict()[key]), (name, key)
            ids = torch.arange(24).reshape(1, -1) * 7 % config.vocab_size
            with torch.no_grad():
                worst = (model(ids).logits - again(ids).logits).abs().max().item()  # the bits may depend on where weights lie in memory
            assert worst < (1e-5 if dtype == torch.float32 else 1e-2), (name, worst)


def conversions_quantise_as_the_reference_does(folder):
    for name in ("gpt2", "llama", "qwen3-bias-tied"):
        model = random_model(families()[name], 60)
        model.save_pretrained(folder / name)
        for kind in ("f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"):
            path = folder / f"{name}-{kind}.gguf"
            probe("convert", folder / name, path, kind)
            expected = gguf_tensors(model)
            for tensor in gguf.GGUFReader(path).tensors:
                value = expected[tensor.name]
                use = kind if value.ndim == 2 and tensor.name != "position_embd.weight" else "f32"
                if tensor.name in ("token_embd.weight", "output.weight") and kind[1] in "45":
                    use = "q8_0"
                assert tensor.tensor_type.name.lower() == use, (name, tensor.name, tensor.tensor_type.name, use)
                assert np.array_equal(tensor.data.view(np.uint8).ravel(), quantize(np.ascontiguousarray(value), tensor.tensor_type).view(np.uint8).ravel()), tensor.name


TEXTS = ["Hello, world! It's 2026.", "  spaces\n\n\tand tabs", "naïve café, 東京, 🦙🦙", "<|im_start|>user\nhi<|im_end|>", "def f(x):\n    return x ** 2"]


def tokenizers_round_trip(folder):
    """A tokenizer trained by `tokenizers` goes with its model into a GGUF file and out again."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(TEXTS * 4, trainer)
    config = transformers.GPT2Config(vocab_size=416, n_embd=64, n_layer=1, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2)
    model = random_model(config, 80)  # 16 rows more than tokens
    model.save_pretrained(folder / "source")
    template = "{% for m in messages %}<|im_start|>{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}"
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|im_start|>", eos_token="<|im_end|>", chat_template=template)
    fast.save_pretrained(folder / "source")
    probe("convert", folder / "source", folder / "middle.gguf", "q8_0")
    reader = gguf.GGUFReader(folder / "middle.gguf")
    tokens = reader.get_field("tokenizer.ggml.tokens").contents()
    assert len(tokens) == 416 and [t for t in tokens if t in special] == special
    for token, number in tokenizer.get_vocab().items():
        assert tokens[number] == token, (number, token)
    assert reader.get_field("tokenizer.chat_template").contents() == template
    assert reader.get_field("tokenizer.ggml.eos_token_id").contents() == 2
    seen = dump(folder / "middle.gguf")
    assert (seen["bos_token"], seen["eos_token"], seen["chat_template"]) == ("<|im_start|>", "<|im_end|>", template)
    assert seen["config"]["eos_token_id"] == 2 and seen["config"]["bos_token_id"] == 1
    probe("convert", folder / "middle.gguf", folder / "target", "")
    again = transformers.AutoTokenizer.from_pretrained(folder / "target")
    for text in TEXTS:
        assert fast(text).input_ids == again(text).input_ids, text
        assert again.decode(again(text).input_ids) == fast.decode(fast(text).input_ids), text
    chat = [{"role": "user", "content": "hi"}]
    assert again.apply_chat_template(chat, tokenize=False) == fast.apply_chat_template(chat, tokenize=False)
    assert (again.bos_token, again.eos_token) == ("<|im_start|>", "<|im_end|>")
    transformers.AutoModelForCausalLM.from_pretrained(folder / "target")


def the_embedded_model_becomes_a_folder(folder):
    path = os.environ.get("ROSE_MODEL")
    if not path or not os.path.exists(path):
        print("   (no ROSE_MODEL: skipped)")
        return
    probe("convert", path, folder / "smol", "bf16")
    before, after = dump(path), dump(folder / "smol")
    assert before["config"] == after["config"] and before["chat_template"] == after["chat_template"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "smol")
    tokens = gguf.GGUFReader(path).get_field("tokenizer.ggml.tokens").contents()
    assert len(tokenizer) == 49152 and all(tokenizer.convert_tokens_to_ids(tokens[i]) == i for i in range(0, 49152, 97))
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "Name a color."}], add_generation_prompt=True, return_tensors="pt", return_dict=False)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "smol", dtype=torch.float32)
    with torch.no_grad():
        answer = tokenizer.decode(model.generate(ids, max_new_tokens=16, do_sample=False)[0, ids.shape[1]:], skip_special_tokens=True)
    assert answer.strip() and answer.isascii(), answer
    print("   SmolLM2, carried into transformers, says:", answer)


def failures_leave_nothing(folder):
    model = random_model(families()["llama"], 70)
    model.save_pretrained(folder / "source")
    before = sorted(p.name for p in folder.iterdir())

    def small_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    for target in ("out.gguf", "out"):
        done = probe("convert", folder / "source", folder / target, "", check=False, preexec_fn=small_files)
        assert done.returncode == 6 and "File too large" in done.stderr, (done.returncode, done.stderr)
        assert sorted(p.name for p in folder.iterdir()) == before, list(folder.iterdir())
    for target, kind, code in (("out.gguf", "q4_k", 5), ("out", "q8_0", 5), ("source", "f32", 2), ("no/such/out.gguf", "", 3)):
        done = probe("convert", folder / "source", folder / target, kind, check=False)
        assert done.returncode == code and "help:" in done.stderr or code == 3, (target, kind, done.returncode, done.stderr)
        assert sorted(p.name for p in folder.iterdir()) == before


def a_full_disk_leaves_nothing(folder):
    """A real one, where this user may mount: half a megabyte that fills up under the writer."""
    import subprocess
    disk = folder / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", disk], capture_output=True).returncode != 0:
        print("   (cannot mount a small disk: skipped)")
        return
    try:
        random_model(families()["llama"], 71).save_pretrained(folder / "source")
        (disk / "ballast").write_bytes(bytes(400_000))
        for target in ("out.gguf", "out"):
            done = probe("convert", folder / "source", disk / target, "", check=False)
            assert done.returncode == 6, (done.returncode, done.stderr)
            assert [p.name for p in disk.iterdir()] == ["ballast"], list(disk.iterdir())
    finally:
        subprocess.run(["umount", disk], check=True)


if __name__ == "__main__":
    main([hugging_face_folders_are_read, half_precision_and_shards_are_read, old_layouts_are_read, configurations_mean_the_same,
          gguf_files_are_read, the_embedded_model_is_read, conversions_round_trip, conversions_quantise_as_the_reference_does, tokenizers_round_trip, the_embedded_model_becomes_a_folder,
          failures_leave_nothing, a_full_disk_leaves_nothing])
