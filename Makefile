# Everything a developer or a curious reader needs; python3 >= 3.11 and make are all it assumes.
# Another interpreter: PYTHON=python3.12 make test

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -q -c constraints.txt
DEMO := llama3-70b-h100-512

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-slow test-all check format golden bench ratios docs clean

help:  ## Show these targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  make \1\t/' | expand -t 18

demo: $(VENV)/.installed  ## Train Llama 3 70B on 512 H100s, on paper
	@$(BIN)/clustersim run $(DEMO)
	@echo
	@echo "Plots:    runs/$(DEMO)/*/plots/"
	@echo "Timeline: runs/$(DEMO)/*/trace.json.gz (open it at https://ui.perfetto.dev)"

test: $(VENV)/.installed-dev  ## Run the tests that a clone should pass
	@$(BIN)/python -m pytest -q -n auto --dist loadgroup -m "not slow"

test-slow: $(VENV)/.installed-dev  ## Run the tests that take long
	@$(BIN)/python -m pytest -q -n auto --dist loadgroup -m slow

test-all: $(VENV)/.installed-dev  ## Run all tests, property tests on inputs that no run drew before; a failure prints its seed
	@$(BIN)/python -m pytest -q -n auto --dist loadgroup --hypothesis-profile=new

check: $(VENV)/.installed-dev  ## Check format, style, floors and types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports
	@$(BIN)/basedpyright --level error

format: $(VENV)/.installed-dev  ## Format the code and mend what can be mended
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

golden: $(VENV)/.installed-dev  ## Write error bars, golden files and shown outputs anew; review the diff
	@$(BIN)/python -m pytest -q -n 0 tests/published/test_error_bars.py tests/published --update-golden || true
	@$(BIN)/python -m pytest -q -n 0 tests/golden tests/unit/test_documentation.py --update-golden

bench: $(VENV)/.installed-dev  ## Time what must be fast, and write docs/reference/benchmarks.md
	@mkdir -p .benchmarks
	@status=0; $(BIN)/python -m pytest -q -p no:xdist --benchmark-only --benchmark-json=.benchmarks/measured.json \
	    tests/benchmarks/test_ratios.py tests/benchmarks/test_[!r]*.py || status=$$?; \
	    $(BIN)/python -m tests.benchmarks.table .benchmarks/measured.json docs/reference/benchmarks.md; exit $$status

ratios: $(VENV)/.installed-dev  ## Fail when something has become slower, beside what it is compared with
	@$(BIN)/python -m pytest -q -p no:xdist --benchmark-only tests/benchmarks/test_ratios.py

docs: $(VENV)/.installed-docs  ## Build the documentation; a warning is an error
	@$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@echo "Documentation: docs/_build/html/index.html"

clean:  ## Remove the environment, caches and builds; runs/ is kept
	rm -rf $(VENV) dist build docs/_build docs/_gallery docs/_studies .pytest_cache .ruff_cache .hypothesis .import_linter_cache .benchmarks
	find clustersim tests docs -name __pycache__ -type d -prune -exec rm -rf {} +

# Set-up: each stamp is older than the files that it depends on exactly when it must run again.

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "clustersim needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1 | head -n 1)." >&2; \
	    echo "Name another one, such as: PYTHON=python3.12 make $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "Creating $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) -m venv failed; is its venv package installed?" >&2; exit 1; }

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing clustersim into $(VENV)"
	@$(PIP) -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/.installed
	@echo "Installing the development tools into $(VENV)"
	@$(PIP) -e '.[dev]'
	@touch $@

$(VENV)/.installed-docs: pyproject.toml constraints.txt | $(VENV)/.installed
	@echo "Installing the documentation tools into $(VENV)"
	@$(PIP) -e '.[docs]'
	@touch $@
