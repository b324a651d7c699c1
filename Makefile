# The verbs of RoseLLM. `make help` prints them. Everything made lands in build/, which is safe to delete.
#
# Variables: PRESET (cpu), JOBS (all cores), ROSE_CACHE (where set-up keeps what it downloads), SETUP=0 (skip set-up).

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

PRESET ?= cpu
JOBS ?= $(shell nproc)
SETUP ?= 1
TREE := build/$(PRESET)
TANGLE := build/bin/tangle

# Compiler messages, test failures and backtraces get the chapter line added to each generated/file:line, where the tangler can.
RESOLVE = if $(TANGLE) resolve --help >/dev/null 2>&1; then exec $(TANGLE) resolve; else exec cat; fi

.PHONY: help
help: ## what can be made
	@echo "RoseLLM: a book that is also a program. Verbs:"
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

.PHONY: setup-build setup-test
setup-build setup-test: setup-%:
	@if [ "$(SETUP)" != 0 ] && [ -x scripts/setup.sh ]; then scripts/setup.sh --profile $*; fi

.PHONY: tangle
tangle: ## turn the chapters into generated/
	@if [ -f tangle/CMakeLists.txt ]; then \
	  [ -f build/tangle/build.ninja ] || cmake -S tangle -B build/tangle -G Ninja -DCMAKE_BUILD_TYPE=Release \
	    -DCMAKE_RUNTIME_OUTPUT_DIRECTORY="$(CURDIR)/build/bin" -Wno-dev >/dev/null; \
	  ninja -C build/tangle -j $(JOBS) --quiet tangle; \
	  $(TANGLE) emit; \
	fi

.PHONY: configure
configure: tangle
	@[ -f $(TREE)/build.ninja ] || cmake --preset $(PRESET)

.PHONY: build
build: setup-build configure ## compile everything that the book and the tests contain
	@ninja -C $(TREE) -j $(JOBS) 2>&1 | { $(RESOLVE); }

.PHONY: test
test: setup-test configure ## set up, build, and run every test that needs no GPU
	@ninja -C $(TREE) -j $(JOBS) 2>&1 | { $(RESOLVE); }
	@ctest --preset $(PRESET) -j $(JOBS) $(CTEST) 2>&1 | { $(RESOLVE); }

.PHONY: clean
clean: ## delete build/
	rm -rf build
