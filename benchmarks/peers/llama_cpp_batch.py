"""llama.cpp, answering 8 requests at once on all cores: the peer of engine-cpu-batch.

    llama_cpp_batch.py MODEL.gguf [REQUESTS] [TOKENS] [THREADS]

Speaks the pair protocol of benchmarks/README.md. A sample is the rate of all answers together, in tokens/s: REQUESTS prompts
are read in one batch, then each step decodes one token for every sequence, greedily; reading is timed, too, as in ours. Run it
with the Python of `scripts/setup.sh --profile bench`.
"""
import ctypes
import json
import os
import sys
import time

import llama_cpp
import numpy

model = sys.argv[1]
requests = int(sys.argv[2]) if len(sys.argv) > 2 else 8
tokens = int(sys.argv[3]) if len(sys.argv) > 3 else 64
threads = int(sys.argv[4]) if len(sys.argv) > 4 else len(os.sched_getaffinity(0))
TOPICS = ["printing press", "steam engine", "compass", "telescope", "bicycle", "piano", "lighthouse", "clock"]

quiet = llama_cpp.llama_log_callback(lambda *_: None)
llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
llama_cpp.llama_backend_init()
handle = llama_cpp.llama_model_load_from_file(model.encode(), llama_cpp.llama_model_default_params())
words = llama_cpp.llama_model_get_vocab(handle)
vocabulary = llama_cpp.llama_vocab_n_tokens(words)


def tokenize(text):
    room = (llama_cpp.llama_token * 64)()
    n = llama_cpp.llama_tokenize(words, text.encode(), len(text.encode()), room, len(room), False, False)
    return list(room[:n])


prompts = [tokenize(f"The history of the {TOPICS[i % len(TOPICS)]} begins") for i in range(requests)]
settings = llama_cpp.llama_context_default_params()
settings.n_ctx = 256 * requests
settings.n_batch = settings.n_ubatch = 512
settings.n_seq_max = requests
settings.n_threads = settings.n_threads_batch = threads
context = llama_cpp.llama_init_from_model(handle, settings)
batch = llama_cpp.llama_batch_init(512, 0, 1)


def put(entries):
    """entries: token, position, sequence, whether its logits are wanted."""
    batch.n_tokens = len(entries)
    for i, (token, position, sequence, wanted) in enumerate(entries):
        batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
        batch.seq_id[i][0], batch.logits[i] = sequence, wanted
    if llama_cpp.llama_decode(context, batch) != 0:
        raise SystemExit("llama_decode failed")
    at = [i for i, entry in enumerate(entries) if entry[3]]
    scores = [numpy.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, i), shape=(vocabulary,)) for i in at]
    return [int(row.argmax()) for row in scores]


def sample():
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
    start = time.perf_counter()
    chosen = put([(token, p, s, p + 1 == len(prompt)) for s, prompt in enumerate(prompts) for p, token in enumerate(prompt)])
    for step in range(tokens - 1):
        chosen = put([(token, len(prompts[s]) + step, s, True) for s, token in enumerate(chosen)])
    return requests * tokens / (time.perf_counter() - start)


print(json.dumps({
    "name": "llama.cpp", "version": f"llama-cpp-python {llama_cpp.__version__}",
    "settings": f"{threads} threads, {requests} sequences in one batch, built for this processor; greedy, {tokens} tokens each; "
                + llama_cpp.llama_print_system_info().decode().strip(),
}), flush=True)
for line in sys.stdin:
    if line.strip() == "run":
        print(json.dumps({"value": sample()}), flush=True)
