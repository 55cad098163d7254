# Everything runs in .venv, made on first use. Pass more arguments with ARGS: make test ARGS="-k bound"
# The demo installs what the commands need and no more; the tests and the linters add their own tools.

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
RECIPES := .venv/.recipes
DEV := .venv/.dev
DOCS := .venv/.docs

# pip's -c does not reach the environments it builds packages in; these do (the second since pip 25.3).
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-torch bench docs lint format release clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(RECIPES) ## train networks that certify their classes; ends with a table and report.html
	$(BIN)/oni demo $(ARGS)

# One process per core, with one thread each (tests/conftest.py); ARGS="-n 0" runs them in this process.
test: $(DEV) ## run the tests and the doctests on all cores
	$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal $(ARGS)

# The tests of the library alone, with another torch than the pinned one. From the package index it is several GB, with
# other packages than the pinned ones, so it gets a virtualenv of its own.
LIBRARY_TESTS := $(addprefix tests/,newton nn models baselines diagnostics checkpoints test_torch_internals.py)
test-torch: ## run the library's tests with another torch in a virtualenv of its own: make test-torch VERSION=2.8.0
	test -n "$(VERSION)" || { echo 'say which: make test-torch VERSION=2.8.0' >&2; exit 2; }
	test -x .venv-torch-$(VERSION)/bin/pip || $(PYTHON) -m venv .venv-torch-$(VERSION)
	PIP_CONSTRAINT= .venv-torch-$(VERSION)/bin/python -m pip install torch==$(VERSION)
	.venv-torch-$(VERSION)/bin/python -m pip install pytest pytest-xdist hypothesis numpy rich matplotlib safetensors PyYAML typer
	.venv-torch-$(VERSION)/bin/python -m pip install --no-deps -e .
	.venv-torch-$(VERSION)/bin/python -m pytest -n 0 $(LIBRARY_TESTS) $(ARGS)

bench: $(RECIPES) ## measure speed and accuracy, compared with the other libraries that are installed
	$(BIN)/oni bench $(ARGS)

docs: $(DOCS) ## write the documentation from code and results/, run its code, build the site into site/
	$(BIN)/python -m website
	$(BIN)/python -m pytest -n 0 tests/docs
	NO_MKDOCS_2_WARNING=true $(BIN)/python -m mkdocs build --strict --quiet
	$(BIN)/python -m website.check site

lint: $(DOCS) ## check style, formatting and types; change nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy oni website

format: $(DEV) ## format the code and fix what ruff can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# A leftover build/ would carry deleted modules into the wheel, which is built from the sdist.
release: $(DEV) ## build sdist and wheel into dist/, check them, say what to upload
	rm -rf build dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python .ci/check_release.py dist

clean: ## remove build products and caches; keep .venv
	rm -rf build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./.venv -prune -o -type d -name __pycache__ -exec rm -rf {} +

# torch goes in alone and first; constraints.txt says why.
$(RECIPES): pyproject.toml constraints.txt
	test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -c constraints.txt torch
	$(BIN)/python -m pip install -c constraints.txt -e ".[recipes]"
	touch $@

$(DEV): $(RECIPES)
	$(BIN)/python -m pip install -c constraints.txt -e ".[recipes,dev]"
	touch $@

$(DOCS): $(DEV)
	$(BIN)/python -m pip install -c constraints.txt -e ".[recipes,dev,docs]"
	touch $@
