# Every target calls `venv` first; each says what it needs and installs it where it can.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
STAMP := $(VENV)/.stamp

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: venv
venv: $(STAMP) ## Build .venv from the hashed locks in requirements/

$(STAMP): requirements/dev.lock operator/pyproject.toml runtime_image/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed as $(PYTHON); set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) || { echo "The venv module is missing: apt-get install python3-venv"; exit 1; }
	@grep -A200 '^uv==' requirements/dev.lock | awk 'NR > 1 && /^[a-z]/ {exit} {print}' > $(VENV)/uv.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(VENV)/uv.lock
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements/dev.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e operator -e runtime_image
	@echo "$(CURDIR)/tests" > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/llmservice-tests.pth"
	@touch $(STAMP)
