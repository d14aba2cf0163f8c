# Two commands: `make bench` and `make test`. Everything they need is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MACHINE ?= $(shell hostname)

.PHONY: bench test fuzz test-machines device-test install lint engines report clean

bench: install engines
	@$(BIN)/asv machine --yes --machine $(MACHINE) > /dev/null
	@echo "ASV: the environment of the current commit"
	@said=$$($(BIN)/asv check --verbose 2>&1) || { echo "$$said"; exit 1; }
	@echo "ASV: the quick profile on the current commit (at most 5 minutes on two cores)"
	$(BIN)/asv run --machine $(MACHINE) --launch-method forkserver --show-stderr --bench '^(grid|tokenizer|operations|fallback)' 'HEAD^!'
	$(BIN)/llgbench report --print

# One process per core, four at most: each holds vocabularies of its own.
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadgroup

# All but what takes long: see `make fuzz`.
test: install lint engines
	$(PYTEST)

# Foreign files of each kind, mutated: 2,000 inputs where `make test` tries 200. And the fallback
# against its reference on thousands of grammars.
fuzz: install engines
	LLGBENCH_FUZZ=2000 $(PYTEST) -m fuzz

# A part of the suite as on other machines: one core, no valgrind, no cargo, no clock, no home.
# All of it: make test-machines PART=tests; one or some conditions: CONDITIONS="small bare".
test-machines: install engines
	PYTHON=$(BIN)/python tools/machines.sh $(CONDITIONS)

# The decode tests on a Vulkan device, Mesa's software one where there is no other.
device-test: install
	PYTHON=$(BIN)/python tools/device_test.sh

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
