"""llama.cpp, decoding one sequence greedily on all cores: the peer of cpu-decode-smollm2.

    llama_cpp_decode.py MODEL.gguf [TOKENS] [THREADS]

Speaks the pair protocol of benchmarks/README.md. A sample is the rate of decoding TOKENS tokens after a short prompt, in
tokens/s; the prompt is not timed. Run it with the Python of `scripts/setup.sh --profile bench`.
"""
import json
import os
import sys
import time

import llama_cpp
import numpy

model = sys.argv[1]
tokens = int(sys.argv[2]) if len(sys.argv) > 2 else 128
threads = int(sys.argv[3]) if len(sys.argv) > 3 else len(os.sched_getaffinity(0))
llama = llama_cpp.Llama(model_path=model, n_ctx=1024, n_threads=threads, n_threads_batch=threads, n_batch=512, verbose=False)
vocabulary = llama.n_vocab()
prompt = llama.tokenize("The history of the printing press begins".encode(), add_bos=False)


def sample():
    llama.reset()
    llama.eval(prompt)
    start = time.perf_counter()
    for _ in range(tokens):
        # the token of the largest logit, as the C API gives it, so that no Python sampler is timed
        scores = llama_cpp.llama_get_logits_ith(llama.ctx, -1)
        best = int(numpy.ctypeslib.as_array(scores, shape=(vocabulary,)).argmax())
        llama.eval([best])
    return tokens / (time.perf_counter() - start)


print(json.dumps({
    "name": "llama.cpp", "version": f"llama-cpp-python {llama_cpp.__version__}",
    "settings": f"{threads} threads, built for this processor, repacked weights where it does so by itself; greedy, {tokens} tokens "
                f"after a prompt of {len(prompt)}; " + llama_cpp.llama_print_system_info().decode().strip(),
}), flush=True)
for line in sys.stdin:
    if line.strip() == "run":
        print(json.dumps({"value": sample()}), flush=True)
