# `make` prints the targets. Every target that needs a cluster takes KUBECONFIG=… and then starts nothing of its own.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
PY := $(VENV)/bin/python
# Marks of what the environment has: LOCAL is enough for the cluster and the demos, READY adds the tools for tests, checks
# and docs. hack/make-venv adds to an environment what is missing, and makes a new one when a lock has changed.
LOCAL := $(VENV)/.ready-local
READY := $(VENV)/.ready-dev

export PYTHONPATH := $(CURDIR)/hack
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help
help: ## Print this list
	@awk -F':.*## ' '/^[a-zA-Z_-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.ready-%: hack/requirements/%.txt setup.cfg pyproject.toml
	@hack/make-venv $(VENV) $*

.PHONY: venv
venv: $(READY) ## Create .venv with all locked dependencies

.PHONY: vendor
vendor: $(READY) ## Fetch the pinned browser libraries of the dashboard with npm
	@$(PY) -m vendor

.PHONY: lock
lock: $(READY) ## Lock the newest allowed dependencies, with hashes
	@hack/make-lock $(VENV)

##@ Check
.PHONY: verify
verify: $(READY) ## Format, lint, types, layers, generated files, links in docs
	@hack/verify

.PHONY: format
format: $(READY) ## Format the code and apply automatic fixes
	@$(VENV)/bin/ruff check --fix --quiet src hack test || true
	@$(VENV)/bin/ruff format src hack test

.PHONY: generate
generate: $(READY) ## Generate CRDs and docs tables from the code
	@$(PY) -m generate

.PHONY: docs
docs: $(READY) ## Build the docs as a site, build/site/index.html; fails on dead links
	@$(PY) -m docsite

# Bytecode is kept even if the environment says otherwise: compiling all modules again takes each worker ten seconds.
unit unit-pythons: export PYTHONDONTWRITEBYTECODE :=
# HYPOTHESIS_PROFILE=thorough tries more examples in property tests (test/helpers/examples.py).

.PHONY: unit
unit: $(READY) ## Unit and property tests: no cluster, three minutes
	@$(PY) -m pytest -n 3 --dist worksteal test/unit test/property

# Not part of `make test`: each Python needs an environment of its own.
.PHONY: unit-pythons
unit-pythons: $(READY) ## Unit and property tests with other Pythons: PYTHONS="3.12 3.13 /path/to/python3.14"; by default 3.11 to 3.14
	@hack/run-pythons $(VENV) $(PYTHONS)

.PHONY: test
test: $(READY) ## Prove every rule: unit, property, integration, end to end (real nodes need root on Linux). KUBERNETES=1.34 runs integration on it
	@hack/run-tests

.PHONY: test-all
test-all: $(READY) ## All tests, also those that take long; before a release
	@ALL=1 hack/run-tests

##@ Cluster
# NAME=… is another stack beside the default one.
STACK = $(if $(NAME),--name $(NAME))

.PHONY: cluster-up
cluster-up: $(LOCAL) ## Start a local control plane; NODES=2 adds real nodes, KUBERNETES=1.34 is another version, WITH=kueue adds Kueue, WITH=volcano Volcano, WITH=coscheduling that plugin. The last line is the kubeconfig's path
	@$(PY) -m localcluster up $(if $(NODES),--nodes $(NODES)) $(if $(WITH),--with $(WITH)) $(STACK)

.PHONY: cluster-down
cluster-down: $(LOCAL) ## Stop it and remove everything but its logs
	@$(PY) -m localcluster down $(STACK)

.PHONY: cluster-status
cluster-status: $(LOCAL) ## Show what runs, and where its logs are
	@$(PY) -m localcluster status $(STACK)

.PHONY: node-kill
node-kill: $(LOCAL) ## Kill node N=2 as in a power failure
	@$(PY) -m localcluster node-kill $(N) $(STACK)

.PHONY: node-start
node-start: $(LOCAL) ## Start node N=2 again
	@$(PY) -m localcluster node-start $(N) $(STACK)

.PHONY: image
image: $(LOCAL) ## Build a local image, IMAGE=localhost/tfjob-controller; load it into running nodes. Prints the tar's path
	@$(PY) -m localcluster image $(IMAGE) $(STACK)

.PHONY: interop
interop: $(READY) ## Test with the real program of another project, WITH=kueue, volcano or coscheduling, and record what was seen (docs/interop.md)
	@$(PY) -m interop $(WITH)

##@ Demos
.PHONY: demo
demo: $(LOCAL) ## Run the example job on two real nodes and show its progress; KEEP=1 keeps everything running
	@$(PY) -m demo $(if $(KEEP),--keep)

.PHONY: demo-gang
demo-gang: $(LOCAL) ## Show two jobs that wait for each other forever, but not with the gang scheduler; no root needed
	@$(PY) -m demo gang

.PHONY: demo-autoscale
demo-autoscale: $(LOCAL) ## Show a job that releases workers for another one and gets them back; real TensorFlow, two nodes
	@$(PY) -m demo autoscale

.PHONY: demo-trainjob
demo-trainjob: $(LOCAL) ## Train a PyTorch model on two nodes with 2 processes each, and show progress and metrics live
	@$(PY) -m demo trainjob $(if $(KEEP),--keep)

.PHONY: demo-elastic
demo-elastic: $(LOCAL) ## Resize a PyTorch job from 2 nodes to 4 and back while it trains, and count the repeated steps
	@$(PY) -m demo elastic $(if $(KEEP),--keep)

.PHONY: demo-preemption
demo-preemption: $(READY) ## An urgent job takes the place of one that trains, which then continues from its checkpoint
	@$(PY) -m demo preemption

.PHONY: demo-dashboard
demo-dashboard: $(READY) ## A dozen jobs in all states on two nodes, and the dashboard that shows them, until Ctrl-C; the cluster stays
	@$(PY) -m demo dashboard

.PHONY: screenshots
screenshots: $(READY) ## Take the pictures of docs/dashboard.md, from that demo in a real browser
	@$(PY) -m demo.screenshots

.PHONY: chaos
chaos: $(READY) ## Inject 1,000 faults while jobs and gangs run, with auditors; CHAOS_FAULTS=50 CHAOS_JOBS=20 CHAOS_SEED=1 for a small run, CHAOS_NODES=2 on real nodes
	@$(PY) -m lab.$(if $(CHAOS_NODES),nodes,chaos)

.PHONY: chaos-gang
chaos-gang: $(READY) ## Inject 400 faults of gang scheduling while 400 gangs run, with auditors; CHAOS_FAULTS=30 CHAOS_JOBS=30 for a small run
	@$(PY) -m lab.gangs

.PHONY: chaos-checkpoint
chaos-checkpoint: $(READY) ## Kill programs, sidecars, uploads, pods and nodes 200 times while 50 TrainJobs save checkpoints; CHAOS_KILLS=12 CHAOS_JOBS=4 for a small run
	@$(PY) -m lab.checkpoints

.PHONY: record-lives
record-lives: $(READY) ## Play a matrix of ways to end on two real nodes, and record statuses of pods in test/data/lives; CASES='worker/exit-*' AGAIN=1 NAME=x KUBERNETES=1.34
	@$(PY) -m recordlives

.PHONY: soak
soak: $(READY) ## Create and delete jobs for an hour and check that nothing grows; SOAK_MINUTES=10 for a shorter run
	@$(PY) -m lab.soak

.PHONY: attack
attack: $(READY) ## Attack both programs in all ways at once for ten minutes, beside another tenant; ATTACK_SECONDS=60 ATTACK_SIZE=0.05 for less
	@$(PY) -m lab.attack

# SIMULATE='--mean-arrival=2m --seeds=20' adds flags.
.PHONY: simulate
simulate: $(READY) ## Default Kubernetes, gangs, locality, autoscaling on simulated jobs: tables, and plots in build/simulate
	@$(PY) -m tfjob_controller simulate --grid --plots=build/simulate $(SIMULATE)

##@ Benchmarks: one JSON line per figure
.PHONY: bench-create bench-cache bench-sync bench-watch bench-filter bench-placement bench-gang bench-dashboard bench-kubeflow-v1
bench-create: $(READY) ## Pods of jobs, first child's latency
	@$(PY) -m bench.create
bench-cache: $(READY) ## Memory per cached pod
	@$(PY) -m bench.cache
bench-sync: $(READY) ## Sync of an unchanged job
	@$(PY) -m bench.sync
bench-watch: $(READY) ## Watch events applied per second
	@$(PY) -m bench.watch
bench-filter: $(READY) ## How long kube-scheduler waits for the gang scheduler's filter
	@$(PY) -m bench.filter
bench-placement: $(READY) ## Placing a gang of 1,000, and a pass over 2,000 waiting gangs
	@$(PY) -m bench.placement
bench-gang: $(READY) ## How fast gangs start, against kube-scheduler's own
	@$(PY) -m bench.gang
bench-dashboard: $(READY) ## The dashboard with 1,000 jobs and 10,000 that have ended, in a real browser
	@$(PY) -m bench.dashboard
bench-kubeflow-v1: $(READY) ## TFJobs of kubeflow.org/v1, against training-operator
	@$(PY) -m bench.kubeflowv1

.PHONY: clean
clean: ## Remove .venv and build output; the cache of built programs stays
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info
