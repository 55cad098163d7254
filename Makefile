# Everything runs in .venv, made on first use. Pass more arguments with ARGS: make test ARGS="-k bound"

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
INSTALLED := .venv/.installed

# pip's -c does not reach the environments it builds packages in; these do (the second since pip 25.3).
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test bench docs lint format wheel clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## train four 20-layer networks, of which one learns; ends with a table and report.html
	$(BIN)/oni demo $(ARGS)

test: $(INSTALLED) ## run the tests and the doctests
	$(BIN)/python -m pytest $(ARGS)

bench: $(INSTALLED) ## measure speed and accuracy beside the peers that are installed
	$(BIN)/oni bench $(ARGS)

docs: $(INSTALLED) ## write docs/reproduction.md from results/
	$(BIN)/python -m oni.recipes.report.markdown

lint: $(INSTALLED) ## check style, formatting and types; change nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy oni

format: $(INSTALLED) ## format the code and fix what ruff can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# A leftover build/ would carry deleted modules into the wheel.
wheel: $(INSTALLED) ## build the wheel into dist/
	rm -rf build dist
	$(BIN)/python -m build --wheel

clean: ## remove build products and caches; keep .venv
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./.venv -prune -o -type d -name __pycache__ -exec rm -rf {} +

# torch goes in alone and first; constraints.txt says why.
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -c constraints.txt torch
	$(BIN)/python -m pip install -c constraints.txt -e ".[recipes,dev]"
	touch $@
