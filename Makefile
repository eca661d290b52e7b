# Two commands on a fresh machine: `make demo` and `make test`. Both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= auto

.PHONY: help demo test test-torch stress lint types check clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-demo: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable ".[demo]"
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	@touch $@

demo: $(VENV)/.installed-demo  ## set up, learn from the emoji set, print scores, answer three queries, offer a page
	$(BIN)/fusehash demo

test: $(VENV)/.installed-dev  ## set up and run the tests
	$(BIN)/python -m pytest -n $(JOBS) --dist loadscope $(PYTEST_ARGS)

$(VENV)/.installed-torch: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet torch==2.13.0
	@touch $@

TORCH_TESTS := tests/numerics/test_backends.py tests/search/test_torch.py
test-torch: $(VENV)/.installed-torch  ## set up PyTorch as well (for the CPU) and run the tests of other array libraries
	$(BIN)/python -m pytest -n $(JOBS) $(TORCH_TESTS) $(PYTEST_ARGS)

stress: $(VENV)/.installed-dev  ## the long property and crash tests
	FUSEHASH_STRESS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadscope $(PYTEST_ARGS)

lint: $(VENV)/.installed-dev  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev  ## mypy, strict on src
	$(BIN)/mypy

check: lint types test-torch  ## everything CI checks; tests of what is not on this machine are skipped
	$(MAKE) test PYTEST_ARGS="$(TORCH_TESTS:%=--ignore=%) $(PYTEST_ARGS)"

clean:  ## remove what make created
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
