# Every target makes what it needs: `make demo` and `make test` each work on a fresh clone.
# Another interpreter: make demo PYTHON=python3.12. More arguments: make demo ARGS="--task SafetyPointGoal2-v0".

PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-gpu test-extras test-faults test-pythons lint format tables docs dist bench clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.runtime ## a few minutes of training: numbers, curves and pictures in demo/
	@$(BIN)/python -m sbtrpo demo $(ARGS)

# One process: the engine uses all cores by itself, and the figures that parity tests print would be lost among workers.
test: $(VENV)/.dev ## the tests that take seconds
	@$(BIN)/python -m pytest -q -m "not slow" $(ARGS)

test-slow: $(VENV)/.dev ## the tests that take minutes
	@$(BIN)/python -m pytest -q -m slow $(ARGS)

test-gpu: $(VENV)/.dev ## the tests of the GPU engine, and of all tensors, on the GPU where there is one
	@$(BIN)/python -m pytest -q tests/gpu $(ARGS)
	@if $(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then SBTRPO_TEST_DEVICE=cuda \
	  $(BIN)/python -m pytest -q tests/nets tests/learning/test_rollout_forms.py tests/algorithms/test_forms.py \
	  tests/algorithms/test_losses.py tests/algorithms/test_together.py tests/algorithms/test_lessons.py; fi

test-extras: $(VENV)/.extras ## the tests that need optional packages: a Ray cluster that loses a node, rliable
	@$(BIN)/python -m pytest -q -m slow tests/benchmark/test_ray.py
	@$(BIN)/python -m pytest -q tests/benchmark/test_collect.py

test-faults: $(VENV)/.extras ## 208 rounds of kills, full disks and damaged files, after which nothing may be lost
	@$(BIN)/python -m tests.faults $(ARGS)

test-pythons: ## the tests that take seconds under Python 3.11 to 3.14, as far as these are installed
	@$(PYTHON) tests/pythons.py $(ARGS)

lint: $(VENV)/.dev ## style, format and types, changing nothing
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m ruff format --check .
	@$(BIN)/python -m mypy --strict sbtrpo

format: $(VENV)/.dev ## put the code into its format
	@$(BIN)/python -m ruff check --fix .
	@$(BIN)/python -m ruff format .

tables: $(VENV)/.dev ## fill the tables of results into the README and the docs, from results/
	@$(BIN)/python docs/tables $(ARGS)

docs: $(VENV)/.dev ## the documentation as a site in docs/_build; a link that leads nowhere is an error
	@$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs docs/_build $(ARGS)
	@echo "The documentation is docs/_build/index.html"

dist: $(VENV)/.dev ## the wheel and the sdist in dist/, and whether PyPI would take them
	@rm -rf build dist
	@$(BIN)/python -m build --no-isolation --quiet
	@$(BIN)/python -m twine check --strict dist/*

bench: $(VENV)/.runtime ## speed of the pool beside the speed of its physics
	@$(BIN)/python benchmarks/engine.py $(ARGS)

clean: ## remove the virtual environment, caches and the picture
	rm -rf $(VENV) .venvs build dist docs/_build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis demo report look.png
	find sbtrpo tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- installation: a stamp for each set of packages, renewed when what it depends on changes ----------------------

$(VENV)/.runtime: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "Installing sbtrpo into $(VENV); the first time this takes minutes, most of them for torch ..."
	@$(PIP_INSTALL) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/.made
	@echo "Installing sbtrpo and its development tools into $(VENV); the first time this takes minutes ..."
	@$(PIP_INSTALL) -e ".[dev]"
	@touch $@ $(VENV)/.runtime

$(VENV)/.extras: $(VENV)/.dev
	@echo "Installing Ray and rliable into $(VENV) ..."
	@$(PIP_INSTALL) -e ".[dev,ray,rliable]"
	@touch $@

# Some systems ship Python without what `venv` needs to install pip; the pip beside that Python does it then.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo \
	  "sbtrpo needs Python 3.11 or newer, which '$(PYTHON)' is not; set PYTHON=python3.11 or newer." >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) >/dev/null 2>&1 || { \
	  $(PYTHON) -m venv --clear --without-pip $(VENV) && \
	  $(PYTHON) -m pip --python $(BIN)/python install --quiet --quiet --disable-pip-version-check pip; }
	@touch $@
