# Everything from nothing: `make test` and `make demo` each set themselves up.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: setup lint types tests test demo clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("loci needs Python 3.11 or newer; set PYTHON=..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

lint: setup
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests

types: setup
	$(BIN)/mypy

tests: setup
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -q

test: lint types tests

# One thread is enough for networks this small, and on a busy machine many times as fast as two that wait for each other.
demo: setup
	OMP_NUM_THREADS=1 $(BIN)/loci demo --out demo

clean:
	rm -rf $(VENV) demo runs
