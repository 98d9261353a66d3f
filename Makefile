# `make demo` and `make test` do all the set-up themselves. `make help` lists the rest.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help setup system demo demo-drbd test bench docs guest-image layer lint format lock synth clean

help: ## list the targets
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check "$$(sed -n 's/^\(uv==[^ ]*\).*/\1/p' requirements.lock)"
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	touch $@

system: ## install the system packages, or say which are missing
	@scripts/system-packages

setup: system $(READY) ## system packages and the virtual environment

demo: setup ## run campaigns/demo.yaml on the local region, end to end
	$(BIN)/volumetry run campaigns/demo.yaml --on local

demo-drbd: setup ## run campaigns/demo-drbd.yaml on virtual machines: a real DRBD mirror, without AWS
	@scripts/system-packages --for-guests
	$(BIN)/volumetry run campaigns/demo-drbd.yaml --on local

study-%: setup ## run campaigns/%.yaml in full on virtual machines, such as study-drbd-multi-az (an hour or more)
	@scripts/system-packages --for-guests
	$(BIN)/volumetry run campaigns/$*.yaml --on local --hosts guest

test: setup ## everything that CI runs
	@scripts/system-packages --for-tests
	$(MAKE) --no-print-directory lint
	$(BIN)/python -m pytest

lint: $(READY) ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY) ## rewrite the sources in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup ## what the service adds to bare fio: ratio of IOPS, seconds a trial
	$(BIN)/python benchmarks/overhead.py

docs: $(READY) ## write the documents that are made from code
	$(BIN)/python scripts/write_docs.py

guest-image: setup ## the image of guest hosts (virtual machines), into the user's cache
	@scripts/system-packages --for-guests
	$(BIN)/python -m local_region image

layer: $(READY) ## the functions' dependencies for AWS, from the lock file
	rm -rf build/layer
	$(BIN)/uv pip install --quiet --python $(BIN)/python --python-platform aarch64-manylinux_2_28 --python-version 3.14 \
	  --only-binary :all: --target build/layer/python --constraint requirements.lock -r functions/requirements.txt

lock: ## resolve the dependencies anew
	uv pip compile --quiet --universal --python-version 3.11 --all-extras --generate-hashes --no-header \
	  --no-emit-index-url --no-annotate --output-file requirements.lock pyproject.toml

synth: $(READY) ## synthesise the CloudFormation templates into cdk.out
	$(BIN)/python app.py

clean: ## remove what was built; results of campaigns (.volumetry) stay
	rm -rf .venv cdk.out build .mypy_cache .ruff_cache .pytest_cache
