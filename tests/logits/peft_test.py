"""Adapters beside PEFT's: small models of each family by transformers, adapters made and saved by PEFT with every option that is understood.

Our logits must be PEFT's, for its file and for the file that we write of it; PEFT reads that file and must find the same logits again.
Tolerance: 1e-4 absolute, both in fp32.
"""
import os
import pathlib
import subprocess
import tempfile

import numpy as np

TOLERANCE = 1e-4
TOOL = pathlib.Path(os.environ.get("ROSE_BIN", "build/cpu/bin")) / "logits_tool"
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def run(*args):
    subprocess.run([str(TOOL), *map(str, args)], check=True)


def cases():
    from transformers import GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config

    small = dict(vocab_size=211, hidden_size=64, intermediate_size=96, num_hidden_layers=2, max_position_embeddings=256,
                 num_attention_heads=4, num_key_value_heads=2, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    gpt2 = dict(vocab_size=211, n_embd=64, n_layer=2, n_head=4, n_positions=256, bos_token_id=1, eos_token_id=2)
    yield "gpt2, every layer", GPT2Config(**gpt2), dict(r=8, lora_alpha=16, target_modules=["c_attn", "c_proj", "c_fc"],
                                                       fan_in_fan_out=True)
    yield "gpt2, attention only", GPT2Config(**gpt2), dict(r=4, lora_alpha=3, target_modules=["c_attn"], fan_in_fan_out=True)
    yield "llama, queries and values", LlamaConfig(**small), dict(r=8, lora_alpha=32, target_modules=["q_proj", "v_proj"])
    yield "llama, one layer, rank 3", LlamaConfig(**small), dict(r=3, lora_alpha=5, target_modules=ALL, layers_to_transform=[1])
    yield "qwen2, patterns", Qwen2Config(**small), dict(r=4, lora_alpha=8, target_modules=ALL, rank_pattern={"down_proj": 12},
                                                        alpha_pattern={"layers.0.self_attn.q_proj": 24})
    yield "qwen3, all, square root", Qwen3Config(**small, head_dim=32), dict(r=16, lora_alpha=8, target_modules="all-linear",
                                                                            use_rslora=True)


def main():
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(2)
    generator = torch.Generator().manual_seed(1)

    def noisy(parameters, spread):
        for parameter in parameters:
            parameter.data = torch.randn(parameter.shape, generator=generator) * spread

    for name, config, options in cases():
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            base = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
            noisy((p for p in base.parameters() if p.dim() == 2), 0.1)
            base.save_pretrained(folder / "model")
            ids = torch.randint(0, config.vocab_size, (90,), generator=generator)
            np.array(ids.tolist(), dtype=np.int32).tofile(folder / "ids")

            def ours(adapter):
                run("adapted", folder / "model", adapter, folder / "ids", folder / "out")
                return np.fromfile(folder / "out", dtype=np.float32).reshape(len(ids), -1)

            def theirs(model):
                with torch.no_grad():
                    return model(ids[None]).logits[0].numpy()

            plain = theirs(base)
            model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **options)).eval()
            noisy((p for n, p in model.named_parameters() if "lora_B" in n), 0.05)
            expected = theirs(model)
            model.save_pretrained(folder / "adapter")
            run("copy", folder / "model", folder / "adapter", folder / "copy")
            again = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder / "model", attn_implementation="eager"),
                                              folder / "copy").eval()
            errors = [float(np.abs(x - expected).max()) for x in (ours(folder / "adapter"), ours(folder / "copy"), theirs(again))]
            change = float(np.abs(plain - expected).max())
            print(f"{name}: the adapter changes logits by {change:.2f}; max |error| reading {errors[0]:.1e}, reading our copy "
                  f"{errors[1]:.1e}, PEFT reading our copy {errors[2]:.1e}")
            assert change > 0.1 and max(errors) < TOLERANCE, name


if __name__ == "__main__":
    main()
