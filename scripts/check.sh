#!/usr/bin/env bash
# `make check`: everything that is wrong without a test failing. Runs every step, then says which failed.
#
#   scripts/check.sh [--static]     --static leaves out what needs a build: the values that tests write, the site, and clang-tidy
#
# Steps: drift (book against generated/), format, shell, book (links, citations, numbers), citations (the stores), records,
# site (the rendered pages), tidy.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tangle=build/bin/tangle
tree=${TREE:-build/cpu}
jobs=${JOBS:-$(nproc)}
static=0
[ "${1:-}" = --static ] && static=1
cache=${ROSE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rosellm}
python=$cache/venv/bin/python
failed=()

step() {
  local name=$1 start=$SECONDS
  shift
  printf 'check: %s\n' "$name"
  if "$@"; then
    printf 'check: %s: good (%d s)\n' "$name" $((SECONDS - start))
  else
    printf 'check: %s: FAILED\n' "$name"
    failed+=("$name")
  fi
}

# Our C++ that is kept formatted: what the book tangles into, the tangler, the tests, the bench harness.
sources() { git ls-files -- 'generated/*.h' 'generated/*.cpp' 'generated/*.cu' 'generated/*.cuh' 'tangle/*.h' 'tangle/*.cpp' \
  'tests/*.h' 'tests/*.cpp' 'benchmarks/*.h' 'benchmarks/*.cpp' | grep -v -e '^tests/tangle/golden/' -e '/corpus/'; }

drift() { [ ! -x $tangle ] || $tangle check; }

format() {
  local wrong
  wrong=$(sources | xargs -r clang-format-16 --dry-run 2>&1 | sed -n 's/^\([^: ]*\):\([0-9]*\):[0-9]*: warning: .*/\1 \2/p' |
    awk '!($1 in first) { first[$1] = $2; order[n++] = $1 } { count[$1]++ }
         END { for (i = 0; i < n; i++) printf "%s:%s: error: not formatted, here and in %d places\n", order[i], first[order[i]], count[order[i]] }')
  [ -z "$wrong" ] && return
  printf '%s\nclang-format-16 -i, or for what the book tangles into `make fmt`, puts it right\n' "$wrong"
  return 1
}

shell() { local file ok=0; for file in scripts/*.sh .ci/run $(git ls-files 'tests/*.sh'); do bash -n "$file" || ok=1; done; return $ok; }

# The compiler's flags name a precompiled header of g++; clang-tidy reads the headers themselves.
tidy() {
  local database=$tree/tidy
  mkdir -p "$database"
  sed -E 's/ -include [^ ]*cmake_pch\.hxx//g; s/ -fpch-preprocess//g; s/ -Winvalid-pch//g; s/ -Wno-restrict//g; s/ -Xclang -fno-pch-timestamp//g' \
    "$tree/compile_commands.json" >"$database/compile_commands.json" || return 1
  "$python" scripts/tidy.py "$database" "$jobs" generated/rose
}

step drift drift
step format format
step shell shell
step book "$python" scripts/check_book.py $([ $static = 0 ] || echo --static)
step citations "$python" scripts/check_citations.py
step records "$python" benchmarks/run.py --check
if [ $static = 0 ]; then
  step site python3 scripts/check_site.py
  step tidy tidy
fi

if [ ${#failed[@]} -gt 0 ]; then
  printf 'check: FAILED: %s\n' "${failed[*]}"
  exit 1
fi
echo 'check: all good'
