#!/usr/bin/env bash
# `make demo`: a short tour that asks nothing. It needs what `make demo` builds, and no network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bin=${TREE:-build/cpu}/bin
cache=${ROSE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rosellm}
model=${ROSE_MODEL:-$cache/models/SmolLM2-135M-Instruct.Q4_1.gguf}

title() { printf '\n\033[1m%s\033[0m\n' "$1" | if [ -t 1 ]; then cat; else sed 's/\x1b\[[0-9;]*m//g'; fi; }
shown() { printf '$ %s\n' "$*" | sed "s|$cache|~/.cache/rosellm|; s|$bin/||"; "$@"; }

# A chapter is found by its name, whatever its number.
piece() { printf '  %-46s %s\n' "$1" book/*/[0-9]*-"$2".md; }

title "1. A model answers"
echo "SmolLM2-135M-Instruct, 135 million parameters in 4 bits, on this machine's processor, by the code of the book:"
shown "$bin/rose" chat --model "$model" --temperature 0 --stats "Explain in two sentences why the sky is blue."

title "2. A model learns"
echo "A transformer small enough to watch, on the text of this book. The loss is in nats per token; it should fall:"
shown "$bin/rose" train --demo

title "3. An agent learns"
echo "A small agent with a tool, several turns and a verdict at the end. The share of successes should rise to 0.95:"
shown "$bin/rose" rl toy

title "4. Where each piece is explained"
piece "how text becomes numbers, and numbers text" tokenization
piece "how a chat becomes one text" chat-templates
piece "what a transformer computes" the-transformer
piece "what lies in a model file" weights-on-disk
piece "how the next word is chosen" first-words
piece "how derivatives are computed" automatic-differentiation
piece "how a model is trained" a-first-training-run
piece "how an agent is trained" a-whole-loop
piece "how all this is a book" how-the-book-tangles
echo 'Change a number in a chapter, run `make test`, and see what it does.'
