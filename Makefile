# `make help` lists the targets. Set-up is automatic, in .venv of this clone, and instant when nothing changed.

PYTHON ?=
TEST_WORKERS ?= 2
BENCH_JSON ?= build/bench-engine.json
PEERS_JSON ?= build/bench-peers.json

export PYTHON
BIN := .venv/bin
# A test worker is one process with one thread: more only fight over the cores. What tests import is compiled once,
# whatever the caller keeps Python from: processes that they start would each compile all of it again.
TEST_ENV := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
# pyright's wheel holds pyright itself; where the machine has no node, its own lands in .venv.
PYRIGHT_ENV := PYRIGHT_PYTHON_IGNORE_WARNINGS=1 PYRIGHT_PYTHON_CACHE_DIR=$(CURDIR)/.venv/pyright
NATIVE_SOURCES = $(shell git ls-files -co --exclude-standard -- '*.cpp' '*.cc' '*.h' '*.hpp' '*.cu' '*.cuh')

.DEFAULT_GOAL := help
.PHONY: help demo setup setup-run test native-check fuzz neon-check avx512-check amx-check triton-check wheel wheel-check lint format types contracts check bench bench-peers gpu-check clean distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup-run ## show within about a minute what Tandem is for
	@$(BIN)/tandem demo

setup-run:
	@scripts/setup_env.sh run

setup: ## set up .venv for tests and tools
	@scripts/setup_env.sh dev

# By name: files with few tests, some of which take minutes, would come last otherwise.
test: setup ## run all tests
	@$(TEST_ENV) $(BIN)/python -m pytest -q -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

native-check: setup ## test the cores of the CPU kernels and of the planner under address, undefined-behaviour and thread sanitizers
	@for kind in address,undefined thread; do \
	  $(BIN)/cmake -S native -B build/native/$$kind -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	    -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTANDEM_NATIVE_TESTS=ON -DTANDEM_SANITIZE=$$kind >/dev/null \
	  && $(BIN)/cmake --build build/native/$$kind \
	  && $(BIN)/ctest --test-dir build/native/$$kind --output-on-failure --timeout 300 || exit 1; \
	done

fuzz: setup ## look for block tables that break attention, with clang's libFuzzer (FUZZ_SECONDS=60)
	@scripts/fuzz.sh

neon-check: ## compile the core for AArch64, and test it where qemu-aarch64 is at hand
	@scripts/check_neon.sh

avx512-check: setup ## test AVX-512's kernels without AVX-512, over SIMDe where it is at hand (SIMDE=folder)
	@scripts/check_avx512.sh

amx-check: setup ## test AMX's kernels without AMX, over emulated tiles
	@scripts/check_amx.sh

triton-check: setup ## compile the Triton kernels for every generation of GPU, without one
	@$(BIN)/python -W ignore scripts/check_triton.py

wheel: ## build the source archive and a manylinux wheel for $PYTHON, into dist/
	@scripts/build_wheel.sh

wheel-check: wheel ## install the wheel where there is no compiler, and generate text with it
	@$(or $(PYTHON),python3) scripts/check_wheel.py

lint: setup ## ruff and clang-format, without changing anything
	@$(BIN)/python -m ruff check
	@$(BIN)/python -m ruff format --check
	@$(if $(NATIVE_SOURCES),$(BIN)/clang-format --dry-run --Werror $(NATIVE_SOURCES),true)

format: setup ## format the sources and apply safe lint fixes
	@$(BIN)/python -m ruff check --fix --exit-zero --quiet
	@$(BIN)/python -m ruff format
	@$(if $(NATIVE_SOURCES),$(BIN)/clang-format -i $(NATIVE_SOURCES),true)

types: setup ## pyright: strict for the pure rooms, basic elsewhere
	@$(PYRIGHT_ENV) $(BIN)/python -m pyright

contracts: setup ## import-linter: a row imports only rows below it
	@$(BIN)/lint-imports --no-logo

check: lint types contracts ## lint, types, contracts

bench: setup-run ## measure the engine on this machine (BENCH_JSON=path)
	@mkdir -p $(dir $(BENCH_JSON))
	@$(BIN)/tandem bench engine --json $(BENCH_JSON)

bench-peers: setup-run ## compare with llama.cpp, OpenVINO and transformers (PEERS_JSON=path, PEERS_ARGS=options)
	@benchmarks/peers/set_up.sh
	@PYTHONPATH=src $(BIN)/python -m benchmarks.peers.run --json $(PEERS_JSON) $(PEERS_ARGS)

gpu-check: ## smoke tests on a GPU machine, with its own Python and torch, offline
	@PYTHONPATH=src HF_HUB_OFFLINE=1 $(or $(PYTHON),python3) scripts/gpu_check.py

clean: ## remove caches and build outputs
	@rm -rf build dist .pytest_cache .hypothesis .ruff_cache .import_linter_cache
	@find src tests scripts -type d -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## remove .venv and all that was compiled too
	@rm -rf .venv src/tandem/kernels/_native.*.so src/tandem/planner/_loops.*.so
