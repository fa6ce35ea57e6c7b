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
COMPILE := $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: venv
venv: $(STAMP) ## Build .venv from the hashed locks in requirements/

$(STAMP): requirements/dev.lock operator/pyproject.toml runtime_image/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed as $(PYTHON); set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) || { echo "The venv module is missing: apt-get install python3-venv"; exit 1; }
	@awk '/^[a-z]/ {wanted = /^uv==/} wanted' requirements/dev.lock > $(VENV)/uv.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(VENV)/uv.lock
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes --compile-bytecode requirements/dev.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e operator -e runtime_image
	@echo "$(CURDIR)/tests" > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/llmservice-tests.pth"
	@$(BIN)/python -m compileall -q operator/src  # a command starts in half the time
	@touch $(STAMP)

# ── the product ────────────────────────────────────────────────────────────────────────────────────────────

.PHONY: demo
demo: venv ## A real cluster, the operator installed, a real model served, its answer printed
	@$(BIN)/python -m demo

.PHONY: images
images: venv ## Build the operator's, the engine's and the fake engine's image, and the demo's model
	@$(BIN)/python -m images build all
	@$(BIN)/python -m images model

# ── proof ──────────────────────────────────────────────────────────────────────────────────────────────────

.PHONY: test
test: venv ## Everything: lint, verify, unit, real API server, real cluster, real engine
	@$(BIN)/python -m gate

.PHONY: test-unit
test-unit: venv ## Tests that need no cluster
	@$(PYTEST) tests/unit -q -n auto

.PHONY: test-integration
test-integration: venv ## Tests against a real etcd and API server
	@$(PYTEST) tests/integration tests/manifests tests/docs -q

.PHONY: test-old-apiserver
test-old-apiserver: venv ## The API, the chart and the policies on Kubernetes 1.31, the oldest that is supported
	@DEVCLUSTER_KUBERNETES=1.31 $(PYTEST) tests/integration/api tests/integration/chart tests/integration/policies tests/integration/resources -q

.PHONY: test-e2e
test-e2e: venv ## Tests on a whole cluster: real kubelets, the real engine
	@$(PYTEST) tests/contract tests/e2e -q

.PHONY: test-network-policies
test-network-policies: venv ## NetworkPolicies by packets: who is reached and who isn't, on a cluster that enforces them; 3 min
	@$(PYTEST) tests/network_policies -q

.PHONY: test-observability
test-observability: venv ## Dashboards, rules and alerts on a real Prometheus
	@$(PYTEST) tests/observability -q

.PHONY: alerts-staged
alerts-staged: venv ## Four faults on a real Prometheus: the right alert of each, and no other; 2 min
	@cd tests && ../$(BIN)/python -m observability.staged

.PHONY: alerts-on-cluster
alerts-on-cluster: venv ## The same faults on a real cluster that Prometheus scrapes, and what dashboards show of it; 6 min
	@cd tests && ../$(BIN)/python -m observability.on_cluster

.PHONY: chaos
chaos: venv ## The operator killed 300 times at random points; KILLS=n SEED=n
	@$(PYTEST) tests/chaos -q -s --timeout 7200 --kills $(or $(KILLS),300) $(if $(SEED),--seed $(SEED))

.PHONY: chaos-scaling
chaos-scaling: venv ## Lying metrics, pods that don't start, killed operators, on a real cluster: a table; 8 min
	@cd tests && ../$(BIN)/python -m scaling_faults

.PHONY: soak
soak: venv ## 20 min of a recorded load on the operator in a real cluster, against the simulator
	@cd tests && ../$(BIN)/python -m soak

.PHONY: scaling-demo
scaling-demo: venv ## The real vLLM scales from one replica to two and back, by itself; a chart; 20 min
	@cd tests && ../$(BIN)/python -m scaling_demo

.PHONY: bench
bench: bench-decide bench-plan bench-operator bench-overhead ## All benchmarks; each prints figures

.PHONY: bench-decide
bench-decide: venv ## 2,000 engines behind real sockets: CPU of one tick of the autoscaler, by part
	@$(BIN)/python -m bench.bench_decide

.PHONY: bench-overhead
bench-overhead: venv ## A whole cluster: what is added to an engine's own start, and 100 services' pods
	@$(BIN)/python -m bench.overhead

.PHONY: bench-operator
bench-operator: venv ## 1,000 services on a real API server: times, writes, CPU and memory
	@$(BIN)/python -m bench.operator

.PHONY: bench-plan
bench-plan: venv ## Plan and estimate from the shell, and 1,000 plans in one process
	@$(BIN)/python -m bench.plan

.PHONY: accuracy
accuracy: venv ## Sizing against starts of real engines: errors by term, signed, and whether the targets hold
	@cd tests && ../$(BIN)/python -m accuracy

.PHONY: bench-scaling
bench-scaling: venv ## The operator's scaling rule and other systems' on the same simulated loads; ARGS="quick --budget-seconds 300"
	@cd tests && ../$(BIN)/python -m bench.scaling_matrix $(ARGS)

.PHONY: lint
lint: venv ## Format, lint, types, import layers
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# ── generated files ────────────────────────────────────────────────────────────────────────────────────────

.PHONY: generate
generate: venv ## Write everything that is generated: CRD, chart copy, goldens, reference pages
	@$(BIN)/python -m generate

.PHONY: dashboards
dashboards: venv ## Write Grafana's dashboards and the page of metrics
	@$(BIN)/python -m observability

.PHONY: pictures
pictures: venv ## Draw the dashboards for the docs, from a real Prometheus that is filled by a simulation
	@$(BIN)/python -m observability.pictures

.PHONY: verify
verify: venv ## Regenerate and fail on a difference
	@$(BIN)/python -m generate --check

.PHONY: lock
lock: venv ## Resolve the dependencies anew into requirements/*.lock
	@$(COMPILE) operator/pyproject.toml -o requirements/operator.lock
	@$(COMPILE) operator/pyproject.toml --extra simulate requirements/dev.in -o requirements/dev.lock
	@$(COMPILE) --override requirements/engine-cpu.overrides requirements/engine-cpu.in -o requirements/engine-cpu.lock
	@$(COMPILE) requirements/image-build.in -o requirements/image-build.lock
	@$(COMPILE) --no-deps requirements/smollm2.in -o requirements/smollm2.lock

# ── the cluster ────────────────────────────────────────────────────────────────────────────────────────────

.PHONY: cluster-up
cluster-up: venv ## A real cluster on this machine: NODES=2 GPUS=8
	@$(BIN)/python -m devcluster up --nodes $(or $(NODES),2) --gpus $(or $(GPUS),8)

.PHONY: cluster-down
cluster-down: venv ## End it; nothing is left
	@$(BIN)/python -m devcluster down
