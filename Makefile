# The few commands a person types. Each target installs just what it needs into .venv; `make` alone lists them.
PYTHON ?= python3
VENV ?= .venv
# Another site for torch wheels, e.g. TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
STUDY ?= mini
FIGURE ?=
# Whose measured records a figure of predictions shows beside them, e.g. local-h200.
PLATFORM ?=
# Where gpu-check leaves its files.
OUT ?= results/gpu-check
export STUDY FIGURE PLATFORM OUT

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints/cpu.txt
INPUTS := pyproject.toml constraints/cpu.txt
# Snakemake ends when make does, even if make is killed.
SNAKEMAKE = SCALING_STUDY_OWNER_PID=$$PPID PATH="$(abspath $(BIN)):$$PATH" exec $(BIN)/snakemake

.PHONY: help study test figure paper lint bench slurm-check gpu-check clean
.NOTPARALLEL:
.DEFAULT_GOAL := help

help:
	@echo 'make study                            measure the mini study here, predict the full one; figures, tables, paper'
	@echo 'make test                             unit and workflow tests'
	@echo 'make figure FIGURE=hst-04 STUDY=mini  redraw one figure from committed records (no torch)'
	@echo 'make paper                            figures, tables, paper and report from committed records (no torch)'
	@echo 'make lint                             style, types, workflow format'
	@echo 'make bench                            training beside transformers and torchtitan; starting, profiling, submitting, limits of the model'
	@echo 'make slurm-check                      a private Slurm on this Debian machine (root); the study through it, and faults'
	@echo 'make gpu-check                        one GPU or several, in 8 minutes, beside what is predicted of them'
	@echo '  PYTHON=python3 VENV=0 OUT=folder    ... with the packages that are there; where the files go'
	@echo 'make clean                            remove what was measured and built; keep committed records and figures'

study: $(VENV)/.train
	@$(SNAKEMAKE) --profile workflow/profiles/default

figure: $(VENV)/.base
	@test -n "$$FIGURE" || { echo 'make figure needs FIGURE, e.g. make figure FIGURE=hst-04 STUDY=mini' >&2; exit 2; }
	@$(SNAKEMAKE) --profile workflow/profiles/cached --config source=cached study="$$STUDY" figure="$$FIGURE" \
		$(if $(PLATFORM),platform="$$PLATFORM")

paper: $(VENV)/.base
	@$(SNAKEMAKE) --profile workflow/profiles/cached

test: $(VENV)/.train $(VENV)/.dev
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

lint: $(VENV)/.dev
	@$(BIN)/ruff check src tests benchmarks
	@$(BIN)/ruff format --check src tests benchmarks
	@$(BIN)/mypy
	@$(BIN)/snakefmt --check Snakefile workflow

# BENCH='--only one-process --rounds 3' takes less time.
bench: $(VENV)/.train $(VENV)/.dev
	@$(MAKE) --no-print-directory $(VENV)/.bench || echo 'torchtitan cannot be installed here; going on without it' >&2
	@$(MAKE) --no-print-directory $(VENV)/hta/.done || echo 'HTA cannot be installed here; going on without it' >&2
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m benchmarks $(BENCH)

# Installs Debian packages, starts every daemon for itself, and leaves none behind.
slurm-check: $(VENV)/.train $(VENV)/.dev
	@$(BIN)/python -m tests.slurm.cluster install
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest tests/slurm -m 'not alone' -n 2 --dist worksteal
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest tests/slurm -m alone

# VENV=0 sets nothing up: it uses the packages of PYTHON, and names those that are missing.
ifeq ($(VENV),0)
GPU_PYTHON := PYTHONPATH="$(CURDIR)/src$${PYTHONPATH:+:$$PYTHONPATH}" $(PYTHON)
gpu-check:
else
GPU_PYTHON := $(BIN)/python
gpu-check: $(VENV)/.gpu
endif
	@$(GPU_PYTHON) -m scaling_study.needs
	@$(GPU_PYTHON) -m scaling_study.cli gpu-check --output "$$OUT"

clean:
	rm -rf .snakemake paper/paper.pdf paper/build
	find results/ -mindepth 1 -maxdepth 1 ! -name cached -exec rm -rf {} +

$(VENV)/.base: $(INPUTS)
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
		{ echo 'Python 3.11, 3.12 or 3.13 is needed; name one with PYTHON=python3.11' >&2; exit 2; }
	@echo 'setting up $(VENV): base'
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --editable .
	@touch $@

$(VENV)/.train: $(VENV)/.base
	@echo 'setting up $(VENV): torch and submitit'
	@$(if $(TORCH_INDEX),$(PIP) --index-url $(TORCH_INDEX) torch,true)
	@$(PIP) --editable '.[train]'
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@echo 'setting up $(VENV): tools for tests and lint'
	@$(PIP) --editable '.[dev]'
	@touch $@

# xformers is left out where no build fits: its attention is then named as missing.
$(VENV)/.gpu: $(VENV)/.train
	@echo 'setting up $(VENV): xformers'
	@$(PIP) --editable '.[gpu]' || echo 'xformers cannot be installed here; going on without it' >&2
	@touch $@

$(VENV)/.bench: $(VENV)/.train
	@echo 'setting up $(VENV): torchtitan'
	@$(PIP) --editable '.[bench]'
	@touch $@

# In an environment of its own: it wants other versions of what we use.
$(VENV)/hta/.done: $(VENV)/.base
	@echo 'setting up $(VENV)/hta: HolisticTraceAnalysis'
	@$(PYTHON) -m venv $(VENV)/hta
	@$(VENV)/hta/bin/python -m pip install --quiet --disable-pip-version-check 'HolisticTraceAnalysis==0.5.0'
	@touch $@
