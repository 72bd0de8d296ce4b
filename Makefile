# flopwatch: everything that is done by hand has a target here.

VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
SERVER ?=
# Tests mostly wait: several processes, each with a network of its own, where that is permitted.
BESIDE ?= $(shell unshare --net true 2>/dev/null && printf '%s' '-n 3 --dist loadfile --no-loadscope-reorder')

.DEFAULT_GOAL := help
.PHONY: help run demo top test test-real test-truth check format bench pictures pictures-top docs dashboards clean

help: ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo '  ARGS="..." is handed on to the command; PYTHON=... chooses the Python of .venv'

run: $(VENV)/.run ## start the daemon; SERVER=http://host:port/metrics adds an inference server
	@exec $(BIN)/flopwatch run $(foreach server,$(SERVER),--server '$(server)') $(ARGS)

demo: $(VENV)/.run ## start the guided demo, with Prometheus and Alertmanager where they are installed
	@exec $(BIN)/python -m deploy.demo $(ARGS)

top: $(VENV)/.run ## show in this terminal what a daemon on this machine tells
	@exec $(BIN)/flopwatch top $(ARGS)

test: check ## lint, types, and every test but the real servers; installs what it needs
	@.ci/tools ensure
	$(BIN)/python -m pytest -m 'not real' $(BESIDE) $(ARGS)

test-real: $(VENV)/.dev ## the tests that need a real inference server or PyTorch (FLOPWATCH_VLLM_PYTHON, FLOPWATCH_TORCH_PYTHON)
	$(BIN)/python -m pytest -m real --ignore tests/real/test_truth.py --ignore tests/real/test_image.py $(ARGS)

test-truth: $(VENV)/.dev ## what is said of a real vLLM against what its clients saw (nightly)
	$(BIN)/python -m pytest -s -m real tests/real/test_truth.py $(ARGS)

# No cache: whether an import is ours depends on files that ruff's cache does not look at.
check: $(VENV)/.dev ## lint, format and types only
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --no-cache --check .
	$(BIN)/mypy

format: $(VENV)/.dev ## let ruff put the code in shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev ## run every measurement in benchmarks/
	@set -e; for script in $$(grep -l __main__ benchmarks/*.py); do \
	    echo "== $$script"; $(BIN)/python "$$script" $(ARGS); done

pictures: $(VENV)/.dev ## take the pictures in docs/images of the running demo (ten minutes)
	$(BIN)/python -m tests.pictures $(ARGS)

pictures-top: $(VENV)/.dev ## take the pictures of `flopwatch top` for docs/images from the demo's story (a minute)
	$(BIN)/python -m tests.top.pictures $(ARGS)

docs: $(VENV)/.run ## write docs/METRICS.md from the catalogue
	$(BIN)/flopwatch docs

dashboards: $(VENV)/.dev ## write the Grafana boards anew; ARGS=--check tells what differs
	$(BIN)/python -m dashboards.build $(ARGS)
	@$(BIN)/python -m deploy.build

# Node.js has to be there; the packages are 670 MB.
MODULES ?= dashboards/render/node_modules
$(MODULES): dashboards/render/package.json
	@mkdir -p $(dir $@) && { cmp -s $< $(dir $@)package.json || cp $< $(dir $@); }
	npm install --prefix $(dir $@) --legacy-peer-deps --no-audit --no-fund --no-package-lock
	@touch $@

.PHONY: test-grafana pictures-boards
test-grafana: $(VENV)/.dev $(MODULES) ## draw all boards with Grafana's own libraries (MODULES=... for a node_modules elsewhere)
	FLOPWATCH_GRAFANA_MODULES=$(MODULES) $(BIN)/python -m pytest -m real tests/dashboards/test_drawn.py $(ARGS)

pictures-boards: $(VENV)/.dev $(MODULES) ## take the boards' pictures for docs/images from the demo's story (a quarter of an hour)
	$(BIN)/python -m tests.dashboards.pictures --light --modules $(MODULES) $(ARGS)

.PHONY: manifests lock test-image
test-image: $(VENV)/.dev ## build the image as it stands, run it without root, scrape it (as root, with buildah and podman)
	$(BIN)/python -m pytest -s -m real tests/real/test_image.py $(ARGS)

lock: $(VENV)/.dev ## write the versions and hashes of what the image holds anew
	@.ci/tools pip $(VENV) uv
	@$(BIN)/python -m deploy.lock

manifests: $(VENV)/.run ## write what the manifests have of alerts/ and dashboards/ (RUNBOOKS=https://... for links)
	$(BIN)/python -m deploy.build $(if $(RUNBOOKS),--runbooks '$(RUNBOOKS)')

clean: ## remove what make, pip and the tests have made, .venv included
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment is made anew when its Python is gone, and filled again when the project's
# dependencies change. The stamps say with what it was filled.
$(BIN)/python:
	@.ci/tools venv $(VENV)

$(VENV)/.run: pyproject.toml $(BIN)/python
	@.ci/tools pip $(VENV) --editable '.[top]'
	@touch $@

$(VENV)/.dev: pyproject.toml $(BIN)/python
	@.ci/tools pip $(VENV) --editable '.[dev,llamacpp]'
	@touch $@ $(VENV)/.run
