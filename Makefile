# `make demo` and `make test` need Python 3.11 or newer and a package index, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed

.PHONY: demo test lint format benchmark clean

demo: $(INSTALLED)
	@$(BIN)/idml demo

test: lint
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

lint: $(INSTALLED)
	@$(BIN)/ruff format --check --quiet . || { echo "formatting differs: run 'make format'"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@report=$$($(BIN)/pyright --level error) || { echo "$$report"; exit 1; }

format: $(INSTALLED)
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .

benchmark: $(INSTALLED)
	@$(BIN)/python benchmarks/losses.py

# Installed again only when pyproject.toml changes.
$(INSTALLED): pyproject.toml
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'idml needs Python 3.11 or newer: set PYTHON=/path/to/python3.11')"
	@test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing (PyTorch is large: a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
