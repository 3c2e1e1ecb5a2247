# Everything a user or a contributor does here. `make` alone lists it.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help install run lint format docs test test-cluster coverage bench control-plane lock clean

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCH_STAMP := $(VENV)/.installed-bench
# The first Python on the path that is new enough, unless PYTHON says which.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## the virtual environment, from the locked requirements

# A virtual environment that lost its Python, or was made by another, is made anew: then the stamp must not count.
ifneq ($(wildcard $(STAMP)),)
ifneq ($(shell $(BIN)/python -c 'import sys, pip; print(sys.version_info >= (3, 11))' 2>/dev/null),True)
$(shell rm -f $(STAMP) $(BENCH_STAMP))
endif
endif

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
OFFLINE := { echo "make: the packages of requirements/*.txt cannot be installed; is the package index reachable?" >&2; exit 1; }

$(STAMP): requirements/dev.txt pyproject.toml
	@[ -n "$(PYTHON)" ] && $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "make: Haulout needs Python 3.11 or newer; install it, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); echo "make: $(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "Installing into $(VENV) ..."
	@$(PIP) --require-hashes -r requirements/dev.txt || $(OFFLINE)
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(BENCH_STAMP): $(STAMP) requirements/bench.txt
	@$(PIP) --require-hashes -r requirements/bench.txt || $(OFFLINE)
	@touch $@

run: install ## a cluster to try things on, until Ctrl-C; make run ARGS="--nodes 100"
	@exec $(BIN)/haulout run --sandbox $(ARGS)

lint: install ## style, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: install ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: install ## the reference pages that are made from the code
	$(BIN)/python -m haulout.profiles.reference docs/reference

test: install ## all tests that need nothing but this machine, on all its cores
	$(BIN)/pytest --numprocesses=auto --dist=worksteal

test-cluster: install ## the behaviour tests on a real kube-apiserver (found, or built once: some minutes)
	@cd tests && ../$(BIN)/python -m controlplane assets >/dev/null
	$(BIN)/pytest --backend=real -n 2 --dist loadfile tests/behaviour tests/cluster

coverage: install ## which lines no test reaches
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage report

bench: $(BENCH_STAMP) ## speed and memory, printed as a table and kept in benchmarks/RESULTS.md
	$(BIN)/python benchmarks/run.py

control-plane: install ## a bare control plane to try things on, until Ctrl-C
	@cd tests && ../$(BIN)/python -m controlplane run

COMPILE := $(BIN)/pip-compile --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras \
	--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options

lock: install ## newer versions of all dependencies into requirements/*.txt
	$(COMPILE) --output-file requirements/run.txt pyproject.toml
	$(COMPILE) --output-file requirements/dev.txt requirements/dev.in
	$(COMPILE) --output-file requirements/bench.txt requirements/bench.in

clean: ## everything that was made here
	rm -rf $(VENV) .coverage htmlcov .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist
