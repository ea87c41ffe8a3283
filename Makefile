# `make demo` and `make test` set everything up by themselves.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: help install demo test test-slow soak check format clean gpu-check bench

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(STAMP)  ## make .venv and install shapeshift into it (once)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: install  ## train and compare APE, SHAPE and RPE on the built-in corpus (about eleven minutes on two cores)
	$(BIN)/shapeshift demo

test: install  ## the test suite
	$(BIN)/python -m pytest

test-slow: install  ## every test that this machine can run
	$(BIN)/python -m pytest -m 'not soak and not network'

soak: install  ## kill training fifty times, a reproduction thirty; translate 10,000 fuzzed files
	OMP_NUM_THREADS=1 $(BIN)/python tests/soak/kill_and_resume.py --kills 50
	OMP_NUM_THREADS=1 $(BIN)/python tests/soak/kill_and_reproduce.py --kills 30
	$(BIN)/python -m pytest -m soak

check: install  ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: install  ## rewrite the sources in house style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

gpu-check:  ## what needs a GPU, with the python at hand: tests and speed
	PYTHONPATH=src $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) benchmarks/gpu_check.py

bench: install  ## tokens a second by position representation
	$(BIN)/python benchmarks/speed.py

clean:  ## remove the environment and caches, keep runs
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
