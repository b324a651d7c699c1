"""llama.cpp, reading one prompt in one batch on all cores: the peer of cpu-prefill-smollm2.

    llama_cpp_prefill.py MODEL.gguf [TOKENS] [THREADS]

Speaks the pair protocol of benchmarks/README.md. A sample is the rate of reading TOKENS tokens up to the logits of the last
one, in tokens/s. Run it with the Python of `scripts/setup.sh --profile bench`.
"""
import json
import os
import sys
import time

import llama_cpp

model = sys.argv[1]
tokens = int(sys.argv[2]) if len(sys.argv) > 2 else 512
threads = int(sys.argv[3]) if len(sys.argv) > 3 else len(os.sched_getaffinity(0))
llama = llama_cpp.Llama(model_path=model, n_ctx=2 * tokens, n_threads=threads, n_threads_batch=threads, n_batch=tokens,
                        n_ubatch=tokens, verbose=False)
prompt = list(range(1000, 1000 + tokens))


def sample():
    llama.reset()
    start = time.perf_counter()
    llama.eval(prompt)
    llama_cpp.llama_get_logits_ith(llama.ctx, -1)  # waits for the result
    return tokens / (time.perf_counter() - start)


print(json.dumps({
    "name": "llama.cpp", "version": f"llama-cpp-python {llama_cpp.__version__}",
    "settings": f"{threads} threads, built for this processor, repacked weights where it does so by itself; one batch of {tokens} tokens; "
                + llama_cpp.llama_print_system_info().decode().strip(),
}), flush=True)
for line in sys.stdin:
    if line.strip() == "run":
        print(json.dumps({"value": sample()}), flush=True)
