# One word for everything. `make demo` shows stager, `make test` tests it. Both do all the set-up
# themselves, and are quick the second time.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory

# Rust and the S3 server of the tests are built once for all clones of a user.
CACHE := $(HOME)/.cache/stager
export CARGO_TARGET_DIR ?= $(CACHE)/target
export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/local/go/bin
export VENV := $(or $(VIRTUAL_ENV),$(CURDIR)/.venv)
export STAGER_TEST_TOOLS := $(CACHE)
PYTHON := $(VENV)/bin/python
# Most of the tests of processes wait for something: on two cores five workers of pytest find time there.
WORKERS ?= 2
TEST_WORKERS ?= 5
# Where it is set, each worker of pytest rewrites and compiles 450 modules of tests anew, in 10 s.
unexport PYTHONDONTWRITEBYTECODE

# Coverage for libFuzzer from a stable compiler: what cargo-fuzz passes where no sanitizer is asked
# for. With a target named, build scripts, which have no libFuzzer to report to, go without.
FUZZ_FLAGS := -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
	-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares

.PHONY: help setup setup-run setup-demo setup-unit setup-bench unit unit-alone test test-cpu heavy test-compose compose-files draw rust demo demo-povray demo-supernovae demo-earthquakes replay-all kill-matrix node-kills fuzz pegasus-lists bench soak wheel wheel-check lint lint-quick setup-lint docs docs-serve clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

setup-run: ## what a user and the demos need: virtual environment, package, I/O node
	@scripts/setup.sh run

setup-unit: # what the unit tests need besides
	@scripts/setup.sh unit

setup: ## what the tests need too: ssh server, sshfs, nginx, an S3 server, S3 clients, Airflow
	@scripts/setup.sh test

setup-bench: setup-run setup
	@scripts/setup.sh bench

rust: setup-run ## tests of the data plane
	$(PYTHON) scripts/cargo_tests.py

unit: setup-unit ## quick tests of the control plane
	$(PYTHON) -m pytest -n $(WORKERS) --dist loadgroup -m "not slow and not heavy" --ignore=tests/conformance --ignore=tests/e2e --ignore=tests/testbed tests

unit-alone: setup ## unit tests in a clone with nothing beside it, of what is committed
	@WORKERS=$(WORKERS) scripts/unit_alone.sh

test: ## every test but the heavy ones
	@TEST_WORKERS=$(TEST_WORKERS) UNITS_APART=$(UNITS_APART) scripts/test.sh

test-cpu: setup ## processor time of each test with all that it started, and the worst (TESTS=)
	$(PYTHON) -m pytest -p tests.testbed.processor_time -m "not heavy" -n $(WORKERS) --dist loadgroup $(or $(TESTS),tests)
	@$(if $(TESTS),,$(PYTHON) -m tests.testbed.airflow pytest -p tests.testbed.processor_time tests/airflow)

heavy: setup ## the tests that `make test` has only a part of: whole matrices, long lists, full sizes
	$(PYTHON) -m pytest -m heavy -n $(TEST_WORKERS) --dist loadgroup tests

test-compose: setup ## the cluster of compose/ on a Docker engine, with Montage on it (10 min)
	@scripts/setup.sh engine
	STAGER_TEST_COMPOSE=1 $(PYTHON) -m pytest tests/compose

test-cgroups: ## the reaper's tests of control groups under a kernel in user mode, which has a memory controller (as root, 2 min)
	scripts/cgroup_tests.sh

compose-files: setup-run ## what the images of compose/ are built from, into compose/files
	@scripts/compose_files.sh

setup-demo:
	@scripts/setup.sh demo

demo: setup-demo ## the Montage workflow through an embedded I/O node
	@scripts/demo.sh

demo-povray: ## pictures rendered in tiles by POV-Ray (ARGS="--scene chess2 --width 640", see workflows/povray)
	@scripts/setup.sh povray
	@scripts/demo.sh povray $(ARGS)

demo-supernovae: setup-demo ## a search for supernovae (ARGS="--exposures 12 --size 1024", see workflows/supernovae)
	@scripts/demo.sh supernovae $(ARGS)

demo-earthquakes: setup-demo ## aftershocks: as many jobs as one job finds sequences (ARGS="--sequences 60", see workflows/earthquakes)
	@scripts/demo.sh earthquakes $(ARGS)

replay-all: setup-run ## recorded workflows, or every WfCommons instance of a directory (INSTANCES=), at a hundredth
	@$(if $(INSTANCES),,scripts/setup.sh recorded)
	@scripts/replay_all.sh $(or $(INSTANCES),$(CACHE)/recorded) $(or $(BYTES_SCALE),0.01) $(or $(TIME_SCALE),0.01)

kill-matrix: setup ## kill -9 of each process in each phase, again and again (ROUNDS=)
	STAGER_KILL_ROUNDS=$(or $(ROUNDS),10) $(PYTHON) -m pytest -n $(WORKERS) --dist loadgroup tests/e2e/test_kill_matrix.py tests/e2e/test_kill_matrix_nodes.py tests/e2e/test_kill_matrix_hosts.py

fuzz: setup ## one parser with made-up bytes, with coverage (TARGET=frames|log|packs|wire|blocks|range|manifests SECONDS=)
	@mkdir -p $(CACHE)/fuzz/$(or $(TARGET),frames)
	RUSTFLAGS="$(FUZZ_FLAGS)" cargo run --release --locked -p stager-fuzz --target "$$(rustc -vV | sed -n 's/^host: //p')" --target-dir $(CACHE)/target-fuzz --bin fuzz-$(or $(TARGET),frames) -- \
		-max_total_time=$(or $(SECONDS),60) $(CACHE)/fuzz/$(or $(TARGET),frames)

node-kills: setup-run setup ## kill -9 of an I/O node that is being written to (ROUNDS=)
	STAGER_KILL_ROUNDS=$(or $(ROUNDS),200) cargo test --release --locked --workspace --test killed -- --nocapture

pegasus-lists: setup ## stager-transfer against pegasus-transfer on many made-up lists (SEEDS=)
	STAGER_PEGASUS_SEEDS=$(or $(SEEDS),100) $(PYTHON) -m pytest --timeout=3600 tests/conformance/test_pegasus_transfer.py

draw: setup ## the tests that draw their cases, with others each time (ROUNDS=)
	@for round in $$(seq $(or $(ROUNDS),10)); do \
	  STAGER_DRAW=$$round $(PYTHON) -m pytest -n $(WORKERS) --dist loadgroup $$(grep -rlE "hypothesis|schemathesis" tests --include="test_*.py"); \
	  STAGER_DRAW=$$round $(PYTHON) scripts/cargo_tests.py -- --workspace --lib --test against_a_model --test learning --test objects --test pack_wire; \
	done

bench: setup-bench ## the benchmarks, one after the other; bench-NAME (ARGS=) for one, see benchmarks/README.md
	@for file in benchmarks/bench_*.py; do echo "== $$file"; $(PYTHON) "$$file"; done

bench-%: setup-bench
	@$(PYTHON) benchmarks/bench_$(subst -,_,$*).py $(ARGS)

soak: setup-run setup ## a node under every kind of load, killed now and then (MINUTES=)
	@$(PYTHON) scripts/soak.py --minutes $(or $(MINUTES),30)

wheel: ## what is released, into dist/: a wheel for every Python and glibc 2.28 or newer, the sdist, the plugins' wheels
	@scripts/wheel.sh

wheel-check: ## pip installs dist/'s wheel on bare Debian 11 and 12, and the quick start runs there (as root)
	@scripts/wheel_check.sh

lint: setup-lint ## what CI checks before the tests: style, format, shell scripts, licences, clippy
	@scripts/lint.sh all

lint-quick: setup-unit ## those checks that take seconds; `pre-commit install` runs them before each commit
	@scripts/lint.sh quick

setup-lint:
	@scripts/setup.sh lint

docs: setup-unit ## these pages as a site, in site/index.html
	@scripts/docs.sh build
	@echo "open $(CURDIR)/site/index.html"

docs-serve: setup-unit ## the same at http://127.0.0.1:8000, built anew at each change
	@scripts/docs.sh serve --watch scripts --watch README.md

clean: ## what this clone made (the shared build cache stays)
	rm -rf demo-out site .pytest_cache .hypothesis .ruff_cache build dist *.egg-info stager/_version.py $(CURDIR)/.venv
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
