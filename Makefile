# The verbs of RoseLLM. `make help` prints them. Everything that is made lands in build/, which is safe to delete.
#
# Variables: JOBS (all cores), PRESET (cpu), CTEST (further ctest arguments), ROSE_CACHE (where set-up keeps what it
# downloads), SETUP=0 (skip set-up), BASE_URL and ISSUES (where the site will stand, and where its readers report problems).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory
.NOTPARALLEL:

PRESET ?= cpu
JOBS ?= $(shell nproc)
SETUP ?= 1
CTEST ?=
TREE := build/$(PRESET)
TANGLE := build/bin/tangle
PYTHON := $${ROSE_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/rosellm}/venv/bin/python
export JOBS TREE

# Compiler messages, failed tests and backtraces get the chapter line added to each generated/file:line.
RESOLVE = if $(TANGLE) resolve --help >/dev/null 2>&1; then exec $(TANGLE) resolve; else exec cat; fi

.PHONY: help
help: ## what can be made
	@echo "RoseLLM: a book that is also a program."
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

.PHONY: setup-site setup-build setup-test
setup-site setup-build setup-test: setup-%:
	@[ "$(SETUP)" = 0 ] || scripts/setup.sh --profile $*

.PHONY: $(TANGLE)
$(TANGLE):
	@[ -f build/tangle/build.ninja ] || cmake -S tangle -B build/tangle -G Ninja -DCMAKE_BUILD_TYPE=Release \
	  -DCMAKE_CXX_COMPILER_LAUNCHER="$$(command -v ccache)" -DCMAKE_RUNTIME_OUTPUT_DIRECTORY="$(CURDIR)/build/bin" >/dev/null
	@ninja -C build/tangle -j $(JOBS) --quiet tangle

# The weaver is a target of the same project, asked for only where the site is made: it needs libraries, the tangler none.
WEAVE := build/bin/weave
SITE_VENV := $${ROSE_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/rosellm}/venv-site
BASE_URL ?=
ISSUES ?=

.PHONY: $(WEAVE)
$(WEAVE): $(TANGLE)
	@grep -qs '^WEAVE:BOOL=ON' build/tangle/CMakeCache.txt || cmake -S tangle -B build/tangle -DWEAVE=ON >/dev/null
	@ninja -C build/tangle -j $(JOBS) --quiet weave

.PHONY: site
site: setup-site $(WEAVE) ## render the book into build/site (needs neither LibTorch nor a GPU toolkit)
	@$(TANGLE) emit --quiet
	@$(TANGLE) book-json | $(WEAVE) --python $(SITE_VENV)/bin/python --pagefind $$(echo $(SITE_VENV)/lib/python3*/site-packages/pagefind_bin/pagefind) \
	  --commit "$$(git rev-parse --short HEAD 2>/dev/null)" --base-url "$(BASE_URL)" --issues "$(ISSUES)"

.PHONY: identifiers
identifiers: setup-test build ## ask libclang what each name in the code means, for exact links in the next `make site`
	@$(PYTHON) scripts/identifiers.py --jobs $(JOBS) $(TREE)/compile_commands.json

.PHONY: serve
serve: setup-build site | $(TREE)/build.ninja ## the book and the model on one address: http://127.0.0.1:8888 (PORT= chooses another)
	@ninja -C $(TREE) -j $(JOBS) rose rose-engine 2>&1 | { $(RESOLVE); }
	@exec $(TREE)/bin/rose serve --site build/site --port "$${PORT:-8888}"

.PHONY: site-serve
site-serve: site ## render the book and serve it on http://localhost:8000
	@echo "http://localhost:$${PORT:-8000}/ (ctrl-c ends it)"
	@python3 -m http.server --directory build/site --bind 127.0.0.1 "$${PORT:-8000}" >/dev/null 2>&1

.PHONY: book
book: setup-site $(WEAVE) ## make build/book.pdf (printed by Chromium) and build/book.epub
	@$(TANGLE) emit --quiet
	@$(TANGLE) book-json | $(WEAVE) --one-page --out build/edition --python $(SITE_VENV)/bin/python --commit "$$(git rev-parse --short HEAD 2>/dev/null)"
	@tangle/site/editions.sh build/edition $(SITE_VENV)

.PHONY: tangle
tangle: setup-build $(TANGLE) ## turn the chapters into generated/
	@$(TANGLE) emit

.PHONY: stitch
stitch: setup-build $(TANGLE) ## take edits made in generated/ back into the chapters
	@$(TANGLE) stitch

.PHONY: fmt
fmt: setup-test $(TANGLE) ## format the C++ of the chapters and of the tests
	@git ls-files -- 'tangle/*.h' 'tangle/*.cpp' 'tests/*.h' 'tests/*.cpp' 'benchmarks/*.h' | grep -v '/corpus/\|/golden/' | \
	  xargs -r clang-format-16 -i
	@$(TANGLE) fmt

$(TREE)/build.ninja: | tangle
	@cmake --preset $(PRESET)

.PHONY: build
build: tangle | $(TREE)/build.ninja ## compile everything that the book and the tests contain
	@ninja -C $(TREE) -j $(JOBS) 2>&1 | { $(RESOLVE); }

.PHONY: test
test: setup-test build ## set up, build, and run every test that needs no GPU
	@ctest --preset $(PRESET) -j $(JOBS) $(CTEST) 2>&1 | { $(RESOLVE); }

.PHONY: test-gpu
test-gpu: setup-test tangle ## build with CUDA, run the tests that need a GPU, and record the run
	@[ -f build/cuda/build.ninja ] || cmake --preset cuda
	@ninja -C build/cuda -j $(JOBS) 2>&1 | { $(RESOLVE); }
	@if [ -n "$(CTEST)" ]; then ctest --preset cuda --no-tests=ignore $(CTEST); \
	  else $(PYTHON) benchmarks/run.py --tree build/cuda gpu-tests; fi 2>&1 | { $(RESOLVE); }

.PHONY: sanitize-gpu
sanitize-gpu: setup-test tangle ## run small draws of every GPU operation under compute-sanitizer, and record the run
	@[ -f build/cuda/build.ninja ] || cmake --preset cuda
	@$(PYTHON) benchmarks/run.py --tree build/cuda gpu-sanitizers 2>&1 | { $(RESOLVE); }

.PHONY: bench
bench: setup-test tangle | $(TREE)/build.ninja ## run one bench and record it: make bench BENCH=id (without an id: list them)
	@$(PYTHON) benchmarks/run.py --tree $(TREE) $(or $(BENCH),--list)

.PHONY: bench-gpu
bench-gpu: setup-test tangle ## run and record the benches that need a GPU
	@[ -f build/cuda/build.ninja ] || cmake --preset cuda
	@$(PYTHON) benchmarks/run.py --tree build/cuda --gpu

.PHONY: check
check: setup-test build site ## find drift, broken links, wrong numbers, format and lint errors
	@scripts/check.sh 2>&1 | { $(RESOLVE); }

.PHONY: demo
demo: setup-build tangle | $(TREE)/build.ninja ## a short tour: a model answers, a small one learns
	@ninja -C $(TREE) -j $(JOBS) rose rose-engine 2>&1 | { $(RESOLVE); }
	@scripts/demo.sh

.PHONY: clean
clean: ## delete build/
	rm -rf build
