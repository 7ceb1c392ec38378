# Every target does its own set-up; `make demo` and `make test` work on a fresh machine with Python 3.10 or newer.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
READY := $(VENV)/.ready
PYTORCH := $(VENV)/.pytorch
FRAMEWORKS := $(VENV)/.frameworks
PROGRAMS := .venvs/programs
PEERS := .venvs/peers
PROTOS := $(wildcard src/tensight/*/*.proto)
KERNELS := tools/build_kernels.py $(wildcard kernels/*)
PAGE := src/tensight/server/page/index.html
PAGE_SOURCES := $(shell find ui -name node_modules -prune -o -name dist -prune -o -name schema.d.ts -prune -o -type f -print)
AGENT_SOURCES := $(shell find src/tensight agent tests/installed -name __pycache__ -prune -o -name "*.egg-info" -prune -o -type f \
  -not -name "*_pb2*" -not -name "*.so" -not -path "*/server/page/*" -print)
DOCS := .venvs/docs
DOCS_READY := $(DOCS)/.ready
RELEASE := .venvs/release
RELEASE_READY := $(RELEASE)/.ready
# Exactly what a lock holds.
INSTALL_LOCKED := $(UV) pip install --quiet --no-deps --require-hashes
NPM := $(BIN)/python tools/build_page.py npm --silent
AGENT ?= oldest
AGENT_TRIED := .venvs/.agent-tried
# `make BUILT=yes` takes the wheels that lie in dist, and tries that of the agent.
BUILT :=
# NumPy has no kernels; the oldest instructions are left to `make test-long`, which runs all.
SANITIZED = -m "not long" -k "not numpy and not sse42"
TRY_AGENT = $(BIN)/python tests/installed/agent.py $(if $(BUILT),--wheel dist/tensight_agent-*.whl) $(AGENT)
PAGE_TESTED := .venvs/.page-tested
# Two are there at a time. A PyTorch has 6 GB and is unpacked from 3 more: in this order two of them do not meet.
INSTALLED ?= alone mindspore-2.7 pytorch-2.6 mindspore-2.10 pytorch-2.15
# More workers than cores, because a test waits for other processes a quarter of its time. A file's tests stay together,
# so that what they share (a training, a server, a search) is made once.
PARALLEL = --numprocesses=$(shell $(PYTHON) -c "import os; print(os.cpu_count() * 3 // 2)") --dist=loadfile --no-loadscope-reorder
# Without compiled files each start of a training compiles PyTorch or MindSpore anew: two to three seconds of a core.
export PYTHONDONTWRITEBYTECODE :=
export UV_HTTP_TIMEOUT ?= 180
ifneq ($(shell command -v ccache),)
ifeq ($(origin CXX),default)
export CXX := ccache g++
endif
endif
BROWSERS := chromium chromium-browser google-chrome google-chrome-stable

.PHONY: help demo test test-python test-long coverage lint docs sanitize format page api node browser mindspores dist installed agent screenshots \
  bench healthy peers fixtures conformance lock clean

help: ## Show what make can do
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(UV): requirements/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit("Tensight needs Python 3.10 or newer; this is " + sys.version.split()[0] + ". Name one with: make PYTHON=python3.11 ...") if sys.version_info < (3, 10) else None'
	@echo "Setting up $(VENV) (once, about half a minute) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check -r $<
	@touch $@

$(READY): $(UV) requirements/dev.lock pyproject.toml tools/build_hook.py tools/build_protos.py $(PROTOS) $(KERNELS)
	@$(INSTALL_LOCKED) --python $(VENV) --requirements requirements/dev.lock
	@$(UV) pip install --quiet --no-deps --python $(VENV) --editable .
	@$(BIN)/python -m compileall -q src/tensight
	@touch $@

# A machine that has no build of PyTorch for the CPU alone takes the registry's, which is large; progress is shown. Few of
# its thousands of files are ever imported, and those are compiled then.
$(PYTORCH): requirements/pytorch.txt $(READY)
	@echo "Installing PyTorch (once, about a minute) ..."
	@$(BIN)/python -m pip install --no-compile --disable-pip-version-check -r requirements/pytorch.txt
	@touch $@

$(FRAMEWORKS): requirements/frameworks.txt $(PYTORCH)
	@echo "Installing what integrates with PyTorch, for the tests (once) ..."
	@$(UV) pip install --quiet --python $(VENV) --requirements requirements/frameworks.txt
	@touch $@

$(PAGE): $(PAGE_SOURCES) tools/build_page.py | $(UV)
	@$(MAKE) --no-print-directory node
	@echo "Building the page (the first time about a minute) ..."
	@$(BIN)/python tools/build_page.py
	@touch $@

demo: $(READY) ## Train a small network that goes wrong, and name the operator and the line (SCENARIO=dying-relu ...)
	@$(MAKE) --no-print-directory $(PYTORCH) || echo "PyTorch could not be installed; its message is above."
	@$(MAKE) --no-print-directory $(PAGE) || echo "The page could not be built; its message is above. The terminal is enough."
	@$(BIN)/tensight demo $(if $(SCENARIO),--scenario $(SCENARIO))

test: $(PAGE_TESTED) test-python $(AGENT_TRIED) ## Run the tests on all cores; those of the page in Chromium

# A line that make takes for a make shows its progress with --output-sync as well. What it starts is not part of this make.
test-python: $(FRAMEWORKS) $(PAGE) browser mindspores
	+MAKEFLAGS= $(BIN)/python -m pytest $(PARALLEL) --durations=20 -m "not long"

test-long: SANITIZED = -k "not numpy"
test-long: $(PAGE_TESTED) $(FRAMEWORKS) $(PAGE) browser mindspores sanitize installed ## Run all variants of the tests, with ten times as many random examples
	@$(MAKE) --no-print-directory agent AGENT="oldest newest"
	$(BIN)/python -m pytest $(PARALLEL) --durations=20 --hypothesis-profile=long

coverage: $(FRAMEWORKS) $(PAGE) browser mindspores ## Report which lines and branches the tests reach; takes half as long again
	$(BIN)/python -m pytest $(PARALLEL) --cov --cov-report=term

lint: $(READY) node docs ## Check style, types, the direction of imports, and that the documentation site builds
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tests/circles_of_files.py
	$(BIN)/python tests/plain_names.py
	$(NPM) run check

# An environment of its own: docstrings are read, not imported, so the site needs nothing of ours or of the frameworks.
$(DOCS_READY): requirements/docs.lock $(UV)
	@echo "Setting up $(DOCS) (once, some seconds) ..."
	@$(UV) venv --quiet --allow-existing --python $(BIN)/python $(DOCS)
	@$(INSTALL_LOCKED) --python $(DOCS) --requirements $<
	@touch $@

docs: $(DOCS_READY) ## Build the documentation site in build/site; a broken link or a page that no menu names is an error
	$(DOCS)/bin/python tools/build_docs.py

sanitize: $(READY) ## Run the tests of the kernels with sanitizers for addresses and undefined behaviour
	$(BIN)/python tests/tensors/sanitized.py $(SANITIZED)

format: $(READY) node ## Format the code and apply safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(NPM) run format

page: $(PAGE) ## Build the page that the server serves

api: $(READY) ## Write what is derived and committed (ui/openapi.json, words of the page, tables of conditions) after a change
	@$(BIN)/python tools/build_derived.py

# Node from PyPI, where the machine has none that is new enough.
node: $(UV)
	@needed="$$($(BIN)/python tools/build_page.py --needs)"; test -z "$$needed" || \
	  { echo "Installing Node into $(VENV) ..."; $(UV) pip install --quiet --python $(VENV) "$$needed"; }

# Chinese characters need a font that has them.
browser:
	@for name in $(BROWSERS); do command -v $$name >/dev/null && exit 0; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing Chromium, for the tests of the page (once) ..."; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -yqq --no-install-recommends chromium fonts-noto-cjk >/dev/null; \
	else \
	  echo "The tests of the page need Chromium or Chrome on the path, and to draw Chinese a font such as Noto Sans CJK:"; \
	  echo "  sudo apt-get install chromium fonts-noto-cjk      (Debian)"; \
	  echo "  sudo dnf install chromium google-noto-sans-cjk-fonts    (Fedora)"; \
	  exit 1; \
	fi

# MindSpore has builds for some versions of Python only; where none of them is, its tests say so and are left out.
MINDSPORES = mindspore-2.10
test-long coverage: MINDSPORES += mindspore-2.7
mindspores: $(READY)
	@for name in $(MINDSPORES); do tests/conformance/make_env.sh .venvs $$name || test $$? = 3 || exit 1; done

$(RELEASE_READY): requirements/release.lock $(UV)
	@$(UV) venv --quiet --allow-existing --python $(BIN)/python $(RELEASE)
	@$(INSTALL_LOCKED) --python $(RELEASE) --requirements $<
	@touch $@

# The wheels are built from their sdists, as cibuildwheel does it.
dist: $(READY) $(RELEASE_READY) $(PAGE) ## Build what a release uploads, for this machine, and check it as the package index does
	@rm -rf dist
	$(UV) build --quiet --python $(BIN)/python --out-dir dist .
	$(UV) build --quiet --python $(BIN)/python --out-dir dist agent
	@rm -f src/tensight/COMMIT # a checkout asks git
	$(RELEASE)/bin/twine check --strict dist/*

# The tests have the PyTorch between the oldest and the newest. The newest brings 5 GB.
installed: $(if $(BUILT),,dist) ## Install the wheel beside MindSpore and the oldest and newest PyTorch as users do, and use it there
	$(BIN)/python tests/installed/installed.py --wheel dist/tensight-*.whl $(INSTALLED)

# The larger matrix: $(BIN)/python tests/installed/agent.py, and with --fresh --full as users do.
agent: $(FRAMEWORKS) ## Install the light agent alone beside old and new NumPy, protobuf and gRPC, and train there
	$(TRY_AGENT)

# Tried again only after a change.
$(AGENT_TRIED): $(FRAMEWORKS) $(AGENT_SOURCES)
	$(TRY_AGENT) --brief
	@touch $@

screenshots: $(FRAMEWORKS) $(PAGE) browser ## Take the pictures of the page that the docs show
	$(BIN)/python -m tests.page.screenshots

bench: $(FRAMEWORKS) $(PAGE) browser ## Print the figures of docs/performance.md, beside the peers, in one run
	$(BIN)/python benchmarks/kernels.py
	$(BIN)/python benchmarks/graph_parse.py
	$(BIN)/python benchmarks/info.py
	$(BIN)/python benchmarks/offline_check.py
	$(BIN)/python benchmarks/compare_checkpoints.py
	$(BIN)/python benchmarks/server.py
	$(BIN)/python benchmarks/torch_overhead.py
	$(BIN)/python benchmarks/mindspore_overhead.py
	$(BIN)/python benchmarks/start_up.py
	$(BIN)/python benchmarks/ui.py

# The page's own tests, again only after a change, so that .ci/run can run them beside the other checks.
$(PAGE_TESTED): $(PAGE_SOURCES) tools/build_page.py | $(UV)
	@$(MAKE) --no-print-directory node
	$(NPM) test
	@mkdir -p $(@D)
	@touch $@

# The models' packages lie in a folder of their own, so that the environment of the tests does not grow.
$(PROGRAMS): requirements/programs.txt $(FRAMEWORKS)
	@echo "Installing torchvision, timm, diffusers and peft (once) ..."
	@rm -rf $(PROGRAMS)
	@$(UV) pip install --quiet --python $(VENV) --no-deps --target $(PROGRAMS) --requirements requirements/programs.txt
	@touch $@

healthy: $(PROGRAMS) ## Train many healthy programs with the recommended watchpoints: none may be stopped or changed
	$(BIN)/python benchmarks/healthy_programs.py $(if $(ONLY),$(ONLY))

$(PEERS): requirements/peers.txt $(FRAMEWORKS)
	@rm -rf $(PEERS)
	@$(UV) pip install --quiet --python $(VENV) --no-deps --target $(PEERS) --requirement $<
	@touch $@

peers: $(PROGRAMS) $(PEERS) ## Install the tools that benchmarks/diagnosis.py --peers compares with

fixtures: $(READY) ## Write tests/fixtures anew with real MindSpore 2.0.0 and 2.10.0 (installs both; then run make conformance)
	tests/conformance/make_env.sh .venvs original mindspore-2.10
	$(BIN)/python tests/fixtures/scripts/make_fixtures.py --python-2.0.0 .venvs/original/bin/python \
	  --python-2.10.0 .venvs/mindspore-2.10/bin/python

conformance: $(FRAMEWORKS) ## Run the original debugger and compare it with ours, tensor by tensor (installs it)
	tests/conformance/make_env.sh .venvs original original-2.3
	.venvs/original/bin/python tests/conformance/run_original.py --fixtures tests/fixtures --golden tests/conformance/golden
	.venvs/original-2.3/bin/python tests/conformance/run_original.py --fixtures tests/fixtures --golden tests/conformance/golden
	.venvs/original/bin/python tests/conformance/record_protocol.py --fixtures tests/fixtures --golden tests/conformance/golden
	$(BIN)/python tests/conformance/with_our_server.py .venvs/original/bin/python tests/conformance/record_protocol.py \
	  --fixtures tests/fixtures --golden tests/conformance/golden
	$(BIN)/python tests/conformance/with_original_server.py .venvs/original --golden tests/conformance/golden
	$(BIN)/python tests/conformance/with_recorded_run.py .venvs/original/bin/python tests/conformance/pytorch_recorded.py \
	  --golden tests/conformance/golden
	$(BIN)/python -m pytest tests/conformance --numprocesses=auto

lock: $(UV) ## Resolve the development dependencies anew
	for group in dev docs release; do \
	  $(UV) pip compile $$(test $$group = dev && echo pyproject.toml) --group $$group --universal --python-version 3.10 \
	    --generate-hashes --no-emit-index-url --no-header --upgrade --quiet --output-file requirements/$$group.lock; \
	done

clean: ## Remove what make made
	rm -rf $(VENV) .venvs build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage* ui/node_modules ui/dist src/tensight/server/page
