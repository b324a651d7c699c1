#!/bin/sh
# A copy of the checkout in WORK/tree, rendered once, for the benches of the weaver.
#   weave_tree.sh ROOT WORK      then  weave_tree.sh ROOT WORK render  renders it (no search index, as after each saved change)
set -eu
root=$1 work=$2
cd "$root"
if [ "${3:-}" != render ]; then
  mkdir -p "$work/tree"
  git ls-files -z -- book citations benchmarks generated tangle/site tests scripts cmake README.md CONTRIBUTING.md Makefile | xargs -0 cp --parents -t "$work/tree"
fi
cd "$work/tree"
"$root/build/bin/tangle" book-json | "$root/build/bin/weave" --python "${ROSE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rosellm}/venv-site/bin/python" >/dev/null
