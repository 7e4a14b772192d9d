# Everything a newcomer needs: `make demo` shows it, `make test` proves it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   := $(VENV)/.demo-installed
DEV    := $(VENV)/.dev-installed
TORCH  := $(VENV)/.torch-installed
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help demo serve test check fmt bench soak torch

help:
	@echo "make demo    start a server and train a small two-worker job on it"
	@echo "make serve   start a server on http://127.0.0.1:8470"
	@echo "make test    run every test (as root it installs the servers they need)"
	@echo "make check   ruff and mypy --strict"
	@echo "make bench   measure the hot paths against their bare limits and their peers"
	@echo "make torch   install PyTorch, which one test and one comparison use"
	@echo "make soak    the long form of the crash tests, attacks and churn of jobs"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Trackside needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade 'pip>=25.1'

$(DEMO): pyproject.toml | $(BIN)/python
	@echo "Installing Trackside into $(VENV) (about a minute the first time)"
	$(PIP) --editable . --group demo
	@touch $@

$(DEV): pyproject.toml | $(BIN)/python
	@echo "Installing Trackside and its tools into $(VENV) (about a minute the first time)"
	$(PIP) --editable . --group demo --group dev
	@touch $@ $(DEMO)

$(TORCH): pyproject.toml | $(DEV)
	@echo "Installing PyTorch into $(VENV)"
	$(PIP) --group torch
	@touch $@

torch: $(TORCH)

demo: $(DEMO)
	$(BIN)/trackside demo

serve: $(DEMO)
	$(BIN)/trackside serve

check: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

fmt: $(DEV)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: $(DEV)
	@scripts/install-test-servers
	@scripts/run-tests $(ARGS)

bench: $(DEV)
	$(BIN)/python -m benchmarks $(ARGS)

soak: $(DEV)
	TRACKSIDE_SOAK=1 $(BIN)/python -m pytest tests/e2e/test_crashes.py tests/e2e/test_campaign.py tests/e2e/test_bad_input.py tests/unit/metricstore/test_churn.py $(ARGS)
