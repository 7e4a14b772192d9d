# Everything a newcomer needs: `make demo` shows it, `make test` proves it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEV    := $(VENV)/.dev-installed

.PHONY: help demo test check bench serve fmt clean system-packages

help:
	@echo "make demo    start a server and train a small two-worker job on it"
	@echo "make serve   start a server on http://127.0.0.1:8470"
	@echo "make test    run every test (installs the servers they need when root)"
	@echo "make check   ruff and mypy --strict"
	@echo "make bench   measure the hot paths against their bare limits"

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("Trackside needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": set PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

$(DEV): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev --group demo
	touch $@

check: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

fmt: $(DEV)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
