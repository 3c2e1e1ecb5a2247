# Everything a user or a contributor does here. `make` alone lists it.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help install run lint format docs pictures reference packages test test-thorough test-cluster test-browser chaos coverage mutants bench image control-plane lock clean

VENV := .venv
ENGINE := docker
TARGET := base
# The image that the packages in deploy/ name: src/haulout/__init__.py has the version, and nothing else has.
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"$$/\1/p' src/haulout/__init__.py)
IMAGE = $(if $(REGISTRY),$(REGISTRY:/=)/)haulout:$(VERSION)$(if $(filter-out base,$(TARGET)),-$(TARGET))
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCH_STAMP := $(VENV)/.installed-bench
CLOUDS_STAMP := $(VENV)/.installed-clouds
BROWSER_STAMP := $(VENV)/.installed-browser
DOCS_STAMP := $(VENV)/.installed-docs
# The first Python on the path that is new enough, unless PYTHON says which.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## the virtual environment, from the locked requirements

# A virtual environment that lost its Python, or was made by another, is made anew: then the stamp must not count.
ifneq ($(wildcard $(STAMP)),)
ifneq ($(shell $(BIN)/python -c 'import sys, pip; print(sys.version_info >= (3, 11))' 2>/dev/null),True)
$(shell rm -f $(STAMP) $(BENCH_STAMP) $(CLOUDS_STAMP) $(BROWSER_STAMP) $(DOCS_STAMP))
endif
endif

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
OFFLINE := { echo "make: the packages of requirements/*.txt cannot be installed; is the package index reachable?" >&2; exit 1; }

$(STAMP): requirements/dev.txt pyproject.toml sandbox/pyproject.toml
	@[ -n "$(PYTHON)" ] && $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "make: Haulout needs Python 3.11 or newer; install it, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); echo "make: $(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "Installing into $(VENV) ..."
	@$(PIP) --require-hashes -r requirements/dev.txt || $(OFFLINE)
	@$(PIP) --no-deps --no-build-isolation --editable . --editable sandbox
	@touch $@

$(BENCH_STAMP): $(STAMP) requirements/bench.txt
	@$(PIP) --require-hashes -r requirements/bench.txt || $(OFFLINE)
	@touch $@

# The SDKs are thousands of files of which tests load some: to compile all of them would take longer than to load these.
$(CLOUDS_STAMP): $(STAMP) requirements/clouds.txt
	@echo "Installing the SDKs of clouds, for their tests ..."
	@$(PIP) --no-compile --require-hashes -r requirements/clouds.txt || $(OFFLINE)
	@touch $@

$(BROWSER_STAMP): $(STAMP) requirements/browser.txt
	@$(PIP) --require-hashes -r requirements/browser.txt || $(OFFLINE)
	@touch $@

# Where it cannot be installed, the site shows diagrams as source.
$(DOCS_STAMP): $(STAMP) requirements/docs.txt
	@$(PIP) --only-binary :all: --require-hashes -r requirements/docs.txt && touch $@ \
		|| echo "make: requirements/docs.txt cannot be installed, so diagrams are not drawn" >&2

run: install ## a cluster to try things on, until Ctrl-C; make run ARGS="--nodes 100"
	@exec $(BIN)/haulout run --sandbox $(ARGS)

lint: install ## style, types, layers, Dockerfiles
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/hadolint Dockerfile examples/plugin-moonphase/Dockerfile

format: install ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

reference: install ## the reference pages, alerts and Grafana dashboard that are made from the code
	$(BIN)/python -m tools.reference.plugins docs/reference
	$(BIN)/python -m tools.reference.http_api docs/reference
	$(BIN)/python -m tools.reference.reasons docs/reference
	$(BIN)/python -m tools.metrics.files .
	$(BIN)/python -m tools.reference.resources docs/reference/resources
	$(BIN)/python -m tools.reference.commands docs/reference
	$(BIN)/python -m tools.reference.versions .
	$(BIN)/python -m tools.docsite.figures

docs: reference $(DOCS_STAMP) ## the documentation as a site, in site/: open site/index.html
	$(BIN)/python -m tools.docsite site

pictures: $(BROWSER_STAMP) ## the pictures of docs/, from a running sandbox in chromium; make pictures ONLY=fleet
	$(BIN)/python -m tools.pictures docs/pictures $(ONLY)

packages: install ## the Helm chart, kustomization, manifests and OLM bundle in deploy/, which are made from the code
	$(BIN)/python -m tools.packages deploy

# Compiled once for all workers and for the programs that tests start, also where Python is told to keep nothing.
test: export PYTHONDONTWRITEBYTECODE :=
test: $(CLOUDS_STAMP) ## all tests that need nothing but this machine, on all its cores
	$(BIN)/pytest --numprocesses=auto --dist=worksteal

test-thorough: export PYTHONDONTWRITEBYTECODE :=
test-thorough: $(CLOUDS_STAMP) ## the same, with processes killed at each of their writes instead of at some
	$(BIN)/pytest --numprocesses=auto --dist=worksteal --crashes=all

# Tests wait more than they work, hence so many at a time. Twenty API servers run then: they may have more memory, and so
# collect garbage less often. Long files are begun first (tests/support/file_order.py).
test-cluster: export GOGC := 400
test-cluster: export PYTHONDONTWRITEBYTECODE :=
test-cluster: $(CLOUDS_STAMP) ## the behaviour tests on a real kube-apiserver, alerts with promtool (found, or built once: some minutes)
	@cd tests && ../$(BIN)/python -m controlplane assets >/dev/null
	@cd tests && ../$(BIN)/python -m controlplane promtool >/dev/null
	$(BIN)/pytest --backend=real -n 8 --dist loadfile --no-loadscope-reorder tests/behaviour tests/cluster

test-browser: $(BROWSER_STAMP) $(DOCS_STAMP) ## the dashboard in a browser: chromium-headless-shell or chromium of Debian, or what CHROMIUM names
	$(BIN)/pytest --numprocesses=auto --dist=worksteal tests/browser

# Not in .ci/run: it takes as long as MINUTES says, and chance decides what it finds.
chaos: export GOGC := 400
chaos: MINUTES := 25
chaos: SEED := 1
chaos: install ## faults on a real control plane, judged from outside; make chaos MINUTES=10 SEED=1 CLASSES=kill,lag
	@cd tests && ../$(BIN)/python -m controlplane assets >/dev/null
	@cd tests && ../$(BIN)/python -m chaos run --minutes $(MINUTES) --seed $(SEED) --classes "$(CLASSES)" \
		$(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(JOBS),--jobs $(JOBS)) $(if $(WRITE),--write)

coverage: export PYTHONDONTWRITEBYTECODE :=
coverage: FLOOR := 97
coverage: $(CLOUDS_STAMP) ## the same, and which lines of the product no test reaches, in .coverage.txt; fails below FLOOR percent
	$(BIN)/python -m slipcover --source src/haulout --json --out .coverage.json \
		-m pytest --numprocesses=auto --dist=worksteal
	@$(BIN)/python -m slipcover --merge .coverage.json --out .coverage.json --skip-covered --fail-under $(FLOOR) \
		>.coverage.txt || { tail -n 1 .coverage.txt; echo "make: tests reach less than $(FLOOR) % of the product" >&2; exit 1; }
	@tail -n 1 .coverage.txt

mutants: $(CLOUDS_STAMP) ## whether tests notice a sample of changes to the code; make mutants ARGS="--folders drain --seed 2"
	@cd tests && ../$(BIN)/python -m mutation $(ARGS)

# The operator is compiled, as it is where it was installed: to compile it leaves a megabyte that is not its own.
bench: export PYTHONDONTWRITEBYTECODE :=
bench: $(BENCH_STAMP) $(BROWSER_STAMP) ## speed and memory, kept in benchmarks/RESULTS.md; make bench ARGS="--only drains"
	$(BIN)/python benchmarks/run.py $(ARGS)

image: ## the image that the chart pulls, with ENGINE (docker, podman, buildah); make image TARGET=oci REGISTRY=example.com
	$(ENGINE) build --target $(TARGET) --tag $(IMAGE) .

control-plane: install ## a bare control plane to try things on, until Ctrl-C
	@cd tests && ../$(BIN)/python -m controlplane run

COMPILE := $(BIN)/pip-compile --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras \
	--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options

lock: install ## newer versions of all dependencies into requirements/*.txt
	$(COMPILE) --output-file requirements/run.txt pyproject.toml
	$(COMPILE) --output-file requirements/dev.txt requirements/dev.in
	$(COMPILE) --output-file requirements/bench.txt requirements/bench.in
	$(COMPILE) --output-file requirements/clouds.txt requirements/clouds.in
	for it in browser docs build aws oci openstack vsphere; do $(COMPILE) --output-file requirements/$$it.txt requirements/$$it.in || exit; done

clean: ## everything that was made here
	rm -rf $(VENV) .coverage htmlcov .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .chaos dist site
