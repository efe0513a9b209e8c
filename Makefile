# `make` lists the targets. PYTHON is the interpreter that the two environments are made with.
PYTHON ?= python3.11
HOME_DIR = $(or $(SCALEOUT_HOME),.scaleout)
IN_ENV = . "$(HOME_DIR)/env.sh" &&
LOCK_OPTIONS = --quiet --python-version 3.11 --generate-hashes --no-annotate --no-header
NODE_PYTHON = "$$SCALEOUT_VENVS/node/bin/python"

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-faults test-soak bench lint up down cluster-up cluster-down compose-env lock-files clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 16

setup: ## the two environments, from their locks (nothing to do when they are there)
	@$(PYTHON) tools/setup.py

demo: setup ## from nothing to the scaling table; CITYSCAPES=/path takes your own data
	@$(IN_ENV) scaleout demo

test: lint ## the whole test suite, set-up included; what CI runs
	@$(IN_ENV) $(NODE_PYTHON) -m pytest -q -n 2 --dist worksteal tests/wire tests/training
	@$(IN_ENV) python -m pytest -q -n 2 --dist loadfile tests/wire tests/orchestrator
	@$(IN_ENV) python -m pytest -q -m quick tests/faults
	@$(IN_ENV) python -m pytest -q -n 3 --dist loadfile tests/e2e

test-faults: setup ## every fault on 1, 2 and 4 hosts in network namespaces, and Airflow killed, stopped and restarted above them (root; about 25 minutes)
	@$(IN_ENV) python -m pytest -q -m "not soak" tests/faults --matrix "$(HOME_DIR)/fault-matrix.md"
	@$(IN_ENV) for nodes in 1 2 4; do \
		echo "== Airflow's own ends, $$nodes nodes"; \
		python -m pytest -q tests/e2e/test_stack.py tests/e2e/test_survival.py --nodes $$nodes || exit 1; \
	done

test-soak: setup ## faults at random moments, then launches back to back (root; about 40 minutes); SEED, FAULTS, LAUNCHES
	@$(IN_ENV) python -m pytest -q -m soak tests/faults $(if $(SEED),--soak-seed $(SEED)) \
		$(if $(FAULTS),--soak-faults $(FAULTS)) $(if $(LAUNCHES),--soak-launches $(LAUNCHES))

bench: setup ## how fast input, start-up and launches are here, as ratios within one run (about 18 minutes; 3 GB in a temporary folder)
	@$(IN_ENV) for program in benchmarks/s*_input.py benchmarks/ssd_startup.py benchmarks/convert.py benchmarks/inflate.py; do echo "== $$program"; $(NODE_PYTHON) "$$program" || exit 1; done
	@$(IN_ENV) echo "== benchmarks/launch.py"; python benchmarks/launch.py

lint: setup ## ruff, the contract that keeps the rooms apart, and the compose file against its specification
	@$(IN_ENV) ruff check . && ruff format --check . && lint-imports --no-logo
	@$(IN_ENV) check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yaml

cluster-up: setup ## start the local cluster's SSH hosts
	@$(IN_ENV) scaleout cluster up

cluster-down: setup ## stop them; keys, ports and data stay
	@$(IN_ENV) scaleout cluster down

up: setup ## Airflow's UI and scheduler on loopback ports; DATABASE=sqlite does without PostgreSQL
	@$(IN_ENV) scaleout stack up $(if $(DATABASE),--database "$(DATABASE)")

down: setup ## stop them, and a sweep that runs; data, ports and password stay
	@$(IN_ENV) scaleout stack down

compose-env: ## production: write .env, the secrets for `docker compose up`; CLUSTER=name is yours in include/clusters
	@$(PYTHON) tools/compose_env.py $(if $(CLUSTER),--cluster "$(CLUSTER)")

lock-files: ## compile requirements/*.in anew (needs uv)
	cd requirements && uv pip compile --universal $(LOCK_OPTIONS) orchestrator.in -o orchestrator.lock
	cd requirements && uv pip compile $(LOCK_OPTIONS) node.in -o node.lock

clean: ## remove environments, local cluster and generated data; results stay
	@[ ! -f "$(HOME_DIR)/env.sh" ] || ( $(IN_ENV) scaleout stack down && scaleout cluster down )
	cd "$(HOME_DIR)" && rm -rf -- venv airflow stack cluster nas logs env.sh
