# Every target makes its own environment: Python 3.11 or newer and make are all a machine needs.
#   make demo    train five small networks, gauge them, write demo-output/report.html
#   make test    everything below `check`, then the tests; `make coverage` runs them with coverage, which takes longer
#   make bench   CPU seconds, memory and bounds against the size of a network, compared with the last run; `make bench-all`
#                runs every other script of benchmarks/ (hours)
#   make release wheel and source archive in dist/, each installed into a clean environment and tried there
#   make docs    the tables of rules, claims and JSON fields, then the pages under docs/_build; `make figures` draws their pictures anew
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
LIGHT := $(VENV)/.installed-data
FULL := $(VENV)/.installed-dev
WORKERS ?= 2

.PHONY: release demo test coverage check format fuzz bench bench-all docs docs-html figures venv clean

demo: $(LIGHT)
	$(BIN)/normgauge demo --out demo-output

test: check
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

coverage: $(FULL)
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --cov --cov-report=term --cov-fail-under=95

check: $(FULL)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(FULL)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

fuzz: $(FULL)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --count 2000

bench: $(FULL)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.speed

bench-all: $(FULL)
	for script in $(filter-out benchmarks/speed.py,$(wildcard benchmarks/*.py)); do \
		echo "== $$script"; PYTHONPATH=. $(BIN)/python $$script || exit 1; done

docs: $(FULL)
	$(BIN)/normgauge rules --markdown docs/rules.md
	$(BIN)/normgauge theory --markdown docs/theory.md
	$(BIN)/python docs/sources.py
	$(BIN)/python docs/fields.py
	$(MAKE) docs-html

docs-html: $(FULL)
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build

release:
	PYTHON="$(PYTHON)" .ci/release

figures: $(FULL)
	OMP_NUM_THREADS=1 $(BIN)/python docs/figures.py

venv: $(FULL)

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "normgauge needs Python 3.11 or newer: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(LIGHT): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[data]'
	@touch $@

$(FULL): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(LIGHT) $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage demo-output docs/_build
