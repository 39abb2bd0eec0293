# One word per habit; `make` lists them.
#
# PYTHON=python3.12 make quickstart   with another Python than python3, of 3.11 to 3.13
# TORCH=torch==2.12.1 make venv       with another torch
#
# Without an NVIDIA GPU torch is its build for CPUs, if pip reaches the index of those builds: 183 MB
# to download, 0.8 GB on disk; else the build with CUDA: 3 GB to download, 4.4 GB on disk.

PYTHON ?= python3
TORCH ?= torch==2.13.0
CPU_TORCH := --index-url https://download.pytorch.org/whl/cpu
BIN := .venv/bin
# Each worker has a half of the files and takes from the other at the end: fixtures are made once.
WORKERS := -n 2 --dist=worksteal
QUICK := quickstart

.DEFAULT_GOAL := help
.PHONY: help quickstart venv test quick slow coverage fault engines size docs check release format bench clean

help: ## list these targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

quickstart: .venv/installed ## generate dates, train on them, translate some, export: a few minutes
	$(BIN)/t2t-datagen --problem=dates_to_iso --data_dir=$(QUICK)/data --tmp_dir=$(QUICK)/tmp
	$(BIN)/t2t-trainer --problem=dates_to_iso --model=transformer --hparams_set=transformer_dates \
		--data_dir=$(QUICK)/data --output_dir=$(QUICK)/run --train_steps=1500
	@echo; echo "Dates that it has never seen (the test split):"
	$(BIN)/t2t-decoder --output_dir=$(QUICK)/run --data_dir=$(QUICK)/data --eval_use_test_set
	@printf '%s\n' "the third of May, 2009" "May 3rd, 2009" "Sunday, 3 May 2009" \
		"the thirty-first of December, 1999" "February 29th, 2024" > $(QUICK)/dates.txt
	$(BIN)/t2t-decoder --output_dir=$(QUICK)/run \
		--decode_from_file=$(QUICK)/dates.txt --decode_to_file=$(QUICK)/iso.txt
	@echo; echo "What it has learnt:"; paste $(QUICK)/dates.txt $(QUICK)/iso.txt | expand -t 40
	@echo; echo "As one file, which answers without torch:"
	$(BIN)/t2t-exporter --output_dir=$(QUICK)/run --data_dir=$(QUICK)/data \
		--export_dir=$(QUICK)/artifact --overwrite
	$(BIN)/python examples/ask_artifact.py $(QUICK)/artifact < $(QUICK)/dates.txt

venv: .venv/developer ## create .venv with everything that a developer needs

.venv/installed: pyproject.toml setup.py
	$(PYTHON) -m venv .venv
	nvidia-smi > /dev/null 2>&1 || timeout 900 $(BIN)/pip install --quiet --retries 0 --timeout 15 \
		$(CPU_TORCH) "$(TORCH)" 2> /dev/null || true
	$(BIN)/pip install --quiet "$(TORCH)"
	$(BIN)/pip install --quiet --editable .
	@touch $@

.venv/developer: .venv/installed
	$(BIN)/pip install --quiet --editable ".[dev]"
	@touch $@

.venv/bench: .venv/installed
	$(BIN)/pip install --quiet --editable ".[bench]"
	@touch $@

.venv/engines: .venv/developer
	$(BIN)/pip install --quiet --editable ".[engines]"
	@touch $@

.venv/docs: .venv/installed
	$(BIN)/pip install --quiet --editable ".[docs]"
	@touch $@

# Tests start hundreds of Python processes: without cached bytecode each compiles the package again.
test quick slow coverage fault: export PYTHONDONTWRITEBYTECODE =

test: .venv/developer ## run the tests; all that CI runs
	# Two workers of one thread each: OpenMP's threads of two would wait for each other.
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(WORKERS) -q -m "not slow"

quick: .venv/developer ## run about a tenth of the tests, of every kind, in about a minute
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(WORKERS) -q -m "not slow" --quick

slow: .venv/developer ## run the tests that `make test` leaves out, as they take minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(WORKERS) -q -m slow

coverage: .venv/developer ## run the tests and print how much of the package they execute
	rm -f .coverage .coverage.*
	# A failure does not stop it: --help does not keep its limit of time while it is watched.
	-OMP_NUM_THREADS=1 $(BIN)/python -m coverage run -m pytest $(WORKERS) -q -m "not slow"
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --format=total

fault: .venv/developer ## kill, stop and damage runs at length; writes docs/explanation/reliability.md's result
	T2T_FAULT_PAGE=docs/explanation/reliability.md $(BIN)/python -m pytest -n 2 -q tests/fault

engines: .venv/engines ## run Ray, Slurm (as root) and Spark on this machine, as docs/how_to/engines.md; skips what is absent
	$(BIN)/python -m pytest -n 0 -q -m engines tests/engines

size: .venv/developer ## measure files, lines, importers, cycles: what tests/test_package_size.py holds
	$(BIN)/python tests/test_package_size.py

docs: .venv/docs ## build the site into site/, with search; nothing is loaded from other hosts
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

check: .venv/developer ## format, lint, types, spelling, tests: what a change must pass
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/codespell
	$(MAKE) test

release: .venv/docs ## check that this commit can be released: changelog, wheel, sdist, site; uploads nothing
	$(BIN)/pip install --quiet nox
	$(BIN)/nox --no-error-on-missing-interpreters -s release
	$(MAKE) docs

format: .venv/developer ## format the sources, and fix what ruff can fix
	$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

bench: .venv/bench ## run the benchmarks, beside Hugging Face transformers
	for script in benchmarks/[a-z]*.py; do $(BIN)/python $$script || exit 1; done

clean: ## remove all that can be made again, .venv included
	rm -rf .venv $(QUICK) build dist site *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
