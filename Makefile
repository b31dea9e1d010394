# `make` lists the targets. Everything runs in .venv, which is made once and made again when the
# pinned versions or the requirements change.

SHELL := /bin/sh
PYTHON ?= python3
# Another index for torch, such as the one that PyTorch names for its small CPU build.
TORCH_INDEX ?=
# What has no hash in envs/lock.txt: torch, and what only its CUDA build brings.
TORCH := torch|triton|cuda-[a-z]*|nvidia-[a-z0-9-]*
UV := uv==0.13.8
DEVICE ?= cpu
# Of `make soak`: each part has its own random moments, and all count together.
PARTS ?= 0 1 2 3 4 5
PROCESSES ?= 2
BENCHMARKS := operations training overhead extraction
READY := .venv/.ready
QUICK := "not slow and not browser and not cluster and not faults and not fuzz"
# Rules call `python`, so the environment comes first in PATH; what the user's PYTHONPATH names
# must not shadow pinned packages.
IN_VENV := unset PYTHONPATH; PATH="$(CURDIR)/.venv/bin:$$PATH"
PIP := .venv/bin/python -m pip --disable-pip-version-check --quiet
# All packages but torch must have the hashes of envs/lock.txt. torch has several builds, and some
# machines have their own; a named index is the only one that it and its libraries come from.
FROM_INDEX := $(if $(TORCH_INDEX),unset PIP_EXTRA_INDEX_URL PIP_FIND_LINKS; \
    export PIP_CONFIG_FILE=/dev/null;)
TORCH_BUILD := -c constraints.txt $(addprefix --index-url ,$(TORCH_INDEX)) torch

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-long soak test-browser test-cluster lowest lint format bench pages \
    docs lock audit clean

help: ## list these targets
	@echo "usage: make TARGET"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name what; do \
	    printf '  %-16s %s\n' "$$name" "$$what"; done

venv: $(READY) ## make the environment only

demo: $(READY) ## run the whole pipeline on the demo cohort
	@$(IN_VENV) snakemake --cores all

test: $(READY) ## run the tests that take less than a minute each
	@$(IN_VENV) OMP_NUM_THREADS=1 python -m pytest -n 2 --dist loadfile -m $(QUICK)

test-long: $(READY) ## run the whole demo, kill programs, fill disks, feed thousands of broken inputs
	@$(IN_VENV) OMP_NUM_THREADS=1 python -m pytest -n 2 --dist loadfile -m "slow or faults or fuzz"

soak: $(READY) ## kills, random inputs and short runs with faults, by the hundred (PARTS="0 1", PROCESSES=16)
	@mkdir -p .soak
	@$(IN_VENV); export OMP_NUM_THREADS=1; for part in $(PARTS); do \
	    BRIO_SOAK=$$part python -m pytest -n $(PROCESSES) --dist worksteal tests/faults/test_soak.py \
	        tests/faults/test_kills.py tests/fuzz --junitxml=.soak/$$part.xml.new || exit 1; \
	    mv .soak/$$part.xml.new .soak/$$part.xml; done; \
	    PYTHONPATH="$(CURDIR)" python benchmarks/soak.py .soak/*.xml

test-browser: $(READY) ## open the overview page in headless Chromium, which must be installed
	@$(IN_VENV) python -m pytest -m browser

test-cluster: $(READY) ## run a small workflow on SLURM, which is installed if absent (Debian, root)
	@$(IN_VENV) python -m pytest -m cluster

lowest: $(READY) ## test the oldest packages that pyproject.toml allows, in .venv-lowest
	@$(PYTHON) -m venv --clear .venv-lowest
	@$(PIP) install $(UV)
	@unset PYTHONPATH; $(FROM_INDEX) $(PIP) --python .venv-lowest install $(TORCH_BUILD)
	@grep '^torch==' constraints.txt > .venv-lowest/torch.txt
	@.venv/bin/uv pip install --quiet --python .venv-lowest --resolution lowest-direct \
	    --constraint .venv-lowest/torch.txt -e '.[imaging,report,workflow,slurm,test]'
	@unset PYTHONPATH; PATH="$(CURDIR)/.venv-lowest/bin:$$PATH"; OMP_NUM_THREADS=1 \
	    python -m pytest -n 2 --dist loadfile -m $(QUICK)

lint: $(READY) ## check style, formatting, and types of the public interface
	@$(IN_VENV) ruff check .
	@$(IN_VENV) ruff format --check .
	@$(IN_VENV) snakefmt --check Snakefile workflow
	@$(IN_VENV) mypy

format: $(READY) ## format all code
	@$(IN_VENV) ruff check --fix .
	@$(IN_VENV) ruff format .
	@$(IN_VENV) snakefmt Snakefile workflow

bench: $(READY) ## time training, planning and their parts; writes docs/benchmarks/cpu.md (DEVICE=cuda)
	@$(IN_VENV); export PYTHONPATH="$(CURDIR)"; page=docs/benchmarks/$(DEVICE).md; \
	    printf '# Device: %s\n\n`make bench` writes this page again.\n' $(DEVICE) > $$page.new && \
	    for program in $(BENCHMARKS); do \
	        python benchmarks/$$program.py --device $(DEVICE) >> $$page.new \
	            || { rm $$page.new; exit 1; }; done; \
	    mv $$page.new $$page; cat $$page

pages: $(READY) ## make docs/configuration.md from the schemas, docs/results from templates and tables
	@$(IN_VENV) python scripts/manual.py
	@$(IN_VENV) python scripts/picture.py docs/results/abide-cc200/main-loso.csv --out docs/images/abide.svg
	@$(IN_VENV) python scripts/document.py --again $(dir $(wildcard docs/results/*/pages.json))

docs: $(READY) ## build the documentation site in site/, which opens without a network
	@$(IN_VENV) python scripts/site.py
	@echo "Open site/index.html."

lock: $(READY) ## write hashes of the versions in constraints.txt, and the licences of what is installed
	@$(PIP) install $(UV)
	@sed -E '/^(#|$$|($(TORCH))==)/d' constraints.txt | .venv/bin/uv pip compile --quiet --no-deps \
	    --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	    --output-file envs/lock.txt - > /dev/null
	@$(IN_VENV) python scripts/licences.py --constraints constraints.txt --out docs/licences.md

audit: $(READY) ## list versions of constraints.txt with known vulnerabilities, from osv.dev
	@$(IN_VENV) python scripts/audit.py constraints.txt

clean: ## remove the environment and caches; results and data stay
	rm -rf .venv .venv-lowest .pytest_cache .ruff_cache .mypy_cache .hypothesis *.egg-info build site
	find brio_core scripts tests workflow benchmarks -name __pycache__ -prune -exec rm -rf {} +

$(READY): constraints.txt envs/lock.txt pyproject.toml
	@command -v $(PYTHON) > /dev/null || { echo "error: there is no $(PYTHON); install Python 3.11 \
	or newer, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: \
	$$($(PYTHON) --version) is too old; Python 3.11 or newer is needed, name it with \
	make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || { echo "error: $(PYTHON) cannot make \
	virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "Making .venv, once: an empty environment (1 of 4)"
	@$(PYTHON) -m venv --clear .venv
	@echo "Getting $$(grep -c '==' envs/lock.txt) packages of envs/lock.txt, checked by hash (2 of 4, minutes)"
	@unset PYTHONPATH; $(PIP) install --require-hashes --no-deps -r envs/lock.txt
	@echo "Getting PyTorch, the largest of all (3 of 4, minutes)"
	@unset PYTHONPATH; $(FROM_INDEX) $(PIP) install $(TORCH_BUILD)
	@echo "Installing this project and checking that all versions fit (4 of 4)"
	@unset PYTHONPATH; $(PIP) install --no-deps --no-build-isolation -e .
	@$(PIP) check
	@touch $@
