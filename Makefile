# Two commands: `make bench` and `make test`. Everything they need is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MACHINE ?= $(shell hostname)

.PHONY: bench test test-machines install lint engines report clean

bench: install engines
	@$(BIN)/asv machine --yes --machine $(MACHINE) > /dev/null
	@echo "ASV: the environment of the current commit"
	@said=$$($(BIN)/asv check --verbose 2>&1) || { echo "$$said"; exit 1; }
	@echo "ASV: the quick profile on the current commit (at most 5 minutes on two cores)"
	$(BIN)/asv run --machine $(MACHINE) --launch-method forkserver --show-stderr --bench '^(grid|tokenizer|operations|fallback)' 'HEAD^!'
	$(BIN)/llgbench report --print

test: install lint engines
	$(BIN)/python -m pytest

# A part of the suite as on other machines: one core, no valgrind, no cargo, no clock, no home.
test-machines: install engines
	PYTHON=$(BIN)/python tools/machines.sh

lint: install
	$(BIN)/ruff check src tests benchmarks tools examples
	$(BIN)/ruff format --check src tests benchmarks tools examples
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache > /dev/null || $(BIN)/lint-imports --no-cache
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-actions action.yml
	$(BIN)/zizmor --quiet --offline action.yml .github
	$(BIN)/python tools/check_shell.py

report: install
	$(BIN)/llgbench report --print

# The engines are built where cargo is; elsewhere one line says what is missing and all else runs.
engines: install
	@$(BIN)/llgbench engine build --if-possible stock fallback

install: $(VENV)/.installed
	@$(BIN)/llgbench vocab fetch

$(VENV)/.installed: pyproject.toml setup.py tools/llama_wheel.py src/llgbench/_native_build.py $(wildcard src/llgbench/csrc/*)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip setuptools
	@$(BIN)/python tools/llama_wheel.py
	$(BIN)/python -m pip install --quiet --find-links .wheels --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) .asv .wheels build src/llgbench/_native*.so
