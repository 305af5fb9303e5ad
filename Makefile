# Each target makes .venv itself; a second run finds the stamp and starts at once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# An environment that wants no bytecode would make pytest rewrite its plugins in every process of every run.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup demo test slow installed check bench newest docs recording captures mutants soak soak-team lock clean
setup: $(STAMP)

# Bytecode is compiled here, also for those who run whet where it can't be written: start-up depends on it.
$(STAMP): requirements/lock.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/lock.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q src
	@touch $@

demo: $(STAMP)
	@$(BIN)/whet demo $(ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal --max-worker-restart 3 -m "not slow and not soak and not live" $(ARGS)

soak-team:
	$(BIN)/python -m pytest -m soak -x --timeout 7200 -o exit_timeout=0 tests/team $(ARGS)

soak: slow
	$(BIN)/python -m pytest -m soak -x --timeout 3600 --session-timeout 86400 -o exit_timeout=0 $(ARGS)

# Whole programs, browsers and kills, and of each family of tests the rows that are like its fast ones.
slow: $(STAMP)
	$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal --max-worker-restart 3 -m "slow and not soak and not live" $(ARGS)

# The built wheel without extras, in an empty environment, as a user has it; needs package indexes, npx and uvx.
installed: $(STAMP)
	$(BIN)/python -m pytest -m soak tests/installed $(ARGS)

# How many random changes of the source no test notices: make mutants ARGS="memory --count 40 --seed 7"
mutants: $(STAMP)
	$(BIN)/python tests/mutants.py $(ARGS)

check: $(STAMP)
	$(BIN)/ruff format --check src tests benchmarks docs examples
	$(BIN)/ruff check src tests benchmarks docs examples
	$(BIN)/pyright
	$(BIN)/pyright -p pyrightconfig.programs.json
	$(BIN)/lint-imports
	$(BIN)/python tests/imports.py
	$(BIN)/python tests/sizes.py
	$(BIN)/python tests/typed.py
	$(BIN)/python tests/language.py
	$(BIN)/python tests/private.py
	for page in tree commands errors; do $(BIN)/python docs/$$page.py --check || exit 1; done
	$(BIN)/python -m benchmarks --page --check

# The newest programs of others, installed and driven one after the other: make newest ARGS="openai --json"
newest: $(STAMP)
	$(BIN)/python -m benchmarks.newest $(ARGS)

bench: $(STAMP)
	$(BIN)/python -m benchmarks $(ARGS)

# The pages as a site, in .site; a dead link or a page that no menu names ends it.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

$(VENV)/.docs: requirements/docs.txt $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	@touch $@

# The README's films; needs git, tmux, uv and Chromium.
recording: $(STAMP)
	$(BIN)/python docs/record.py $(ARGS)
	$(BIN)/python docs/day.py

captures: $(STAMP)
	RENEW=1 $(BIN)/python -m pytest -m soak tests/stories/test_captures.py $(ARGS)

lock:
	uv pip compile --universal --generate-hashes --no-header --group dev pyproject.toml -o requirements/lock.txt
	uv pip compile --universal --generate-hashes --no-header --group docs -c requirements/lock.txt -o requirements/docs.txt

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .bench .site
