# Two commands on a fresh machine: `make demo` and `make test`. Both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOWEST := .venv-lowest
JOBS ?= auto
ATTACK_OUT ?= build/attack
PIP := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadscope --durations=10

.PHONY: help demo test test-lowest test-all attack docs release-check lint types check clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(VENV)/.installed: pyproject.toml
	@echo "Setting up $(VENV): fusehash and its dependencies (one or two minutes, once)."
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	@touch $@

$(VENV)/.installed-demo: $(VENV)/.installed
	@echo "Adding what the demo needs: the web server and the emoji set."
	$(PIP) --editable ".[demo]"
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Adding what the tests need (one or two minutes, once)."
	$(PIP) --editable ".[dev]"
	@touch $@

$(VENV)/.installed-torch: $(VENV)/.installed-dev
	@echo "Adding PyTorch for the CPU."
	$(PIP) torch==2.13.0
	@touch $@

$(VENV)/.installed-adapters: $(VENV)/.installed-torch
	@echo "Adding the tools that fusehash has adapters for."
	$(PIP) --editable ".[adapters]"
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed-dev
	@echo "Adding what the documentation site needs."
	$(PIP) --editable ".[docs]"
	@touch $@

$(LOWEST)/.installed: pyproject.toml
	@echo "Setting up $(LOWEST): the lowest versions that pyproject.toml allows."
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip install --disable-pip-version-check --progress-bar off "uv>=0.8"
	$(LOWEST)/bin/uv pip install --python $(LOWEST)/bin/python --resolution lowest-direct --editable ".[test]"
	@touch $@

demo: $(VENV)/.installed-demo  ## set up, learn from the emoji set, print scores, answer three queries, offer a page
	$(BIN)/fusehash demo

test: $(VENV)/.installed-dev  ## set up and run the tests that a newcomer needs (at most five minutes)
	$(PYTEST) -m "not slow" $(PYTEST_ARGS)

test-lowest: $(LOWEST)/.installed  ## the same tests with the lowest versions that pyproject.toml allows
	$(LOWEST)/bin/python -m pytest -n $(JOBS) --dist loadscope -m "not slow" $(PYTEST_ARGS)

test-all: $(VENV)/.installed-adapters  ## set up, PyTorch and adapted tools included, and run every test
	$(PYTEST) $(PYTEST_ARGS)

attack: $(VENV)/.installed-dev  ## hostile files, requests, processes and loss of power: the whole campaign (about an hour)
	@mkdir -p $(ATTACK_OUT)
	FUSEHASH_ATTACK=1 FUSEHASH_ATTACK_OUT=$(abspath $(ATTACK_OUT)) $(BIN)/python -m pytest -n $(JOBS) --durations=20 \
	  tests/hostile tests/search/test_crash.py tests/search/test_damage.py tests/search/test_file.py \
	  tests/search/test_properties.py tests/collection/test_crash.py tests/collection/test_damage.py \
	  tests/collection/test_generations.py tests/app/test_schema.py tests/numerics/test_compiled.py $(PYTEST_ARGS)

docs: $(VENV)/.installed-docs  ## build the documentation site into build/site and look at it in Chromium; examples and notebooks run
	$(BIN)/mkdocs build --strict
	$(BIN)/python tools/site/widths.py build/site

release-check:  ## build sdist and wheel, check them, try the wheel on every Python found (RELEASE_PYTHONS: only these)
	$(PYTHON) tools/release_check.py

lint: $(VENV)/.installed-dev  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev  ## mypy, strict on src
	$(BIN)/mypy

check: test lint types test-all docs release-check  ## everything CI checks; tests of what is not on this machine are skipped

clean:  ## remove what make created
	rm -rf $(VENV) $(LOWEST) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
