# Build caches and the parts built from source live outside the checkout, so that a fresh clone is quick.
CACHE := $(or $(PORTCULLIS_CACHE),$(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME)/portcullis,$(HOME)/.cache/portcullis))
export CARGO_TARGET_DIR ?= $(CACHE)/target

DENY_VERSION := 0.20.2
DENY := $(CACHE)/tools/cargo-deny-$(DENY_VERSION)/bin/cargo-deny

.PHONY: help up down parts build test lint fmt bench

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16

up: build ## Install what is missing, build, and start everything on this machine
	@$(CARGO_TARGET_DIR)/release/portcullis up --install

down: build ## Stop what `make up` started, from another terminal
	@$(CARGO_TARGET_DIR)/release/portcullis down

build: ## Build the program
	@cargo build --release --locked -p portcullis

parts: ## Install the real programs that tests run against
	@cargo run --quiet --locked -p portcullis -- parts --install

test: parts ## Run every test, against the real programs
	cargo test --workspace --locked --no-fail-fast

lint: $(DENY) ## Check formatting, lints, documentation and licences
	cargo fmt --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --document-private-items
	$(DENY) --locked check bans licenses sources

fmt: ## Format the code
	cargo fmt

bench: ## Measure
	cargo bench --workspace --locked --no-fail-fast --bench '*'

$(DENY):
	cargo install --locked --version $(DENY_VERSION) --root $(CACHE)/tools/cargo-deny-$(DENY_VERSION) cargo-deny
