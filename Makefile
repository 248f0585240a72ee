# Every verb of the project. `make` alone lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup fix check test ci

help: ## list the verbs
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## make .venv with all that is needed

# Reinstalls only when pyproject.toml changed.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "tidelog needs Python 3.11 or newer: run make PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

fix: $(STAMP) ## format, and mend what ruff can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

check: $(STAMP) ## ruff, mypy, import-linter, the repo's own shape
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/pytest tests/repo

test: $(STAMP) ## the tests, in parallel
	$(BIN)/pytest -n 2 -m 'not slow'

ci: check test ## what .ci/run calls
