# Everything a developer runs. Each target makes what it needs (a virtual environment in .venv, the native module)
# and does nothing twice: stamps follow pyproject.toml, constraints.txt and the native sources.
#
#     make demo ARGS="--algo ppo"     make pytest ARGS="tests/timeline -x"     make test PYTHON=python3.12 JOBS=8

PYTHON ?= python3
JOBS ?= 2
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
DEV := build/dev
LOWEST := .venv-lowest
TORCHRL ?= .venv-torchrl
SANITIZE := build/sanitize

NATIVE := $(shell find native -type f 2>/dev/null)
SHIPPED := $(shell find src examples -type f -not -name '*.pyc' 2>/dev/null)
PYTHON_CODE := $(wildcard src examples benchmarks scripts)
SANITIZED_TESTS := $(wildcard tests/native tests/timeline tests/samplers/test_epochs.py tests/samplers/test_priorities.py \
	tests/views/test_state_machine.py tests/views/test_n_step.py tests/views/test_sequences.py tests/views/test_hindsight.py)

PIP = $(BIN)/python -m pip
INSTALL = $(PIP) install --quiet --quiet --constraint constraints.txt
BUILD_TOOLS := pip cmake nanobind ninja scikit-build-core

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)

.NOTPARALLEL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# ---------------------------------------------------------------------------------------------- what people call

.PHONY: help
help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 16

.PHONY: demo
demo: $(VENV)/.demo native  ## train DQN on CartPole until it is solved (ARGS="--algo ppo")
	$(BIN)/relive demo $(ARGS)

.PHONY: test
test: environment  ## all that must hold: format, lint, build without warnings, tests, sanitizers, SB3's own tests
	+@$(call stage,check-format)
	+@$(call stage,lint)
	+@$(call stage,native)
	+@$(call stage,pytest)
	+@$(call stage,sanitize)
	+@$(call stage,test-sb3)

.PHONY: bench
bench: $(VENV)/.peers native  ## measure relive beside its peers
	$(BIN)/python -m benchmarks $(if $(wildcard $(TORCHRL)/.ready),--torchrl $(TORCHRL)/bin/python) $(ARGS)

.PHONY: bench-torchrl
bench-torchrl: $(TORCHRL)/.ready  ## an environment for TorchRL (6 GB), which `bench` measures from then on

.PHONY: format
format: $(VENV)/.dev  ## format Python and C++ in place
	$(BIN)/ruff check --quiet --select I --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(NATIVE)

# ------------------------------------------------------------------------------------------- the parts of `test`

# $(call stage,target): runs a target and says how long it took.
stage = printf '\n=== %s\n' $(1) && start=$$(date +%s) && $(MAKE) --no-print-directory $(1) && \
	printf '=== %s took %d s\n' $(1) $$(($$(date +%s) - start))

.PHONY: environment
environment: $(VENV)/.demo $(VENV)/.dev $(VENV)/.test  ## the virtual environment with all that `test` needs

.PHONY: check-format
check-format: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(NATIVE)

.PHONY: lint
lint: $(VENV)/.dev  ## ruff, mypy, and no reference that a reader cannot follow
	$(BIN)/ruff check .
	$(BIN)/mypy $(PYTHON_CODE)
	$(BIN)/python scripts/check_words.py

.PHONY: native
native: $(DEV)/.native  ## rebuild the native module, warnings being errors

.PHONY: pytest
# Small chunks, since mutants take half a minute each and else all fall to one worker.
pytest: $(VENV)/.test native  ## only the tests (ARGS="tests/timeline -x")
	$(BIN)/python -m pytest -n $(JOBS) --maxschedchunk 4 $(ARGS)

# The sanitizers' runtimes must be the first libraries in the process, and libstdc++ be there before the first throw.
# Python itself leaks by design, so leaks are not asked for. Output is not captured: an abort would take it along.
SANITIZE_ENV = LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 RELIVE_SANITIZED=1

.PHONY: sanitize
sanitize: $(SANITIZE)/.installed  ## the tests of the native core under ASan and UBSan (Linux and GCC)
	$(SANITIZE_ENV) $(SANITIZE)/venv/bin/python -m pytest -n $(JOBS) --capture=sys -p no:cacheprovider -m "not mutation" \
		$(SANITIZED_TESTS) $(ARGS)

.PHONY: test-sb3
test-sb3: $(VENV)/.test native  ## Stable-Baselines3's and sb3-contrib's own tests on relive's buffers (ARGS="--record")
	$(BIN)/python scripts/test_sb3.py --jobs $(JOBS) $(ARGS)

.PHONY: test-lowest
test-lowest: $(LOWEST)/.ready  ## the tests on the lowest torch and NumPy (a download of 3 GB on Linux)
	$(LOWEST)/bin/python -m pytest -n $(JOBS) $(ARGS)

.PHONY: clean
clean:  ## remove what was built, keep the environments
	rm -rf build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache

.PHONY: distclean
distclean: clean  ## remove the environments too
	rm -rf $(VENV) $(LOWEST) .venv-torchrl

# ------------------------------------------------------------------------------------------------ what they need

$(VENV)/.tools: constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) $(BUILD_TOOLS)
	@touch $@

# An editable install remembers where each module lies, so a moved or removed one calls for a new install.
MODULES := build/modules.txt
$(shell mkdir -p build && find src examples -name '*.py' 2>/dev/null | sort > $(MODULES).new; \
	cmp -s $(MODULES).new $(MODULES) || cp $(MODULES).new $(MODULES))

# The editable install: Python code runs from src/ and examples/, the module is built in build/dev and installed into
# the environment.
$(DEV)/.installed: $(VENV)/.tools $(MODULES) pyproject.toml CMakeLists.txt
	$(INSTALL) --no-build-isolation -Cbuild-dir=$(DEV) -Ccmake.define.RELIVE_WERROR=ON --editable .
	@touch $@

# After that a changed source costs the compiler's time alone. The stamp bears the time of the start: what is saved
# during a build is built the next time.
$(DEV)/.native: $(DEV)/.installed $(NATIVE)
	@touch $@.started
	$(BIN)/cmake --build $(DEV)
	@$(BIN)/cmake --install $(DEV) --prefix "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')"
	@mv $@.started $@

# .demo, .test, .dev, .bench: the extras of that name. relive itself is there already, so pip adds only what it lacks.
$(VENV)/.demo $(VENV)/.test $(VENV)/.dev $(VENV)/.bench: $(VENV)/.%: $(VENV)/.tools pyproject.toml | $(DEV)/.installed
	$(INSTALL) 'relive[$*]'
	@touch $@

# Peers that need more than an extra can say. The constraints keep torch as it is.
$(VENV)/.peers: benchmarks/peers.txt $(VENV)/.bench
	$(INSTALL) --requirement $<
	@touch $@

# TorchRL's native part is built for another torch than ours.
$(TORCHRL)/.ready: benchmarks/torchrl.txt
	test -x $(TORCHRL)/bin/python || $(PYTHON) -m venv $(TORCHRL)
	$(TORCHRL)/bin/python -m pip install --quiet --quiet --requirement $<
	@touch $@

# The sanitized module lives in a small environment of its own that borrows all else from .venv.
$(SANITIZE)/.installed: $(VENV)/.test $(NATIVE) $(SHIPPED)
	@mkdir -p $(SANITIZE) && touch $@.started
	rm -rf $(SANITIZE)/site
	$(INSTALL) --no-build-isolation --no-deps --target $(SANITIZE)/site -Cbuild-dir=$(SANITIZE)/cmake \
		-Ccmake.build-type=Debug -Ccmake.define.RELIVE_SANITIZE=ON .
	$(BIN)/python -m venv --without-pip --clear $(SANITIZE)/venv
	@printf '%s\n' "$(CURDIR)/$(SANITIZE)/site" "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')" > \
		"$$($(SANITIZE)/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')/borrowed.pth"
	@mv $@.started $@

# torch 2.3 and numpy 1.24 have wheels up to Python 3.11. The seed asks for a newer torch than that, yet runs on it.
lower_bound = $(shell sed -n 's/^    "\($(1)\)>=\(.*\)",/\1==\2/p' pyproject.toml)
$(LOWEST)/.ready: pyproject.toml CMakeLists.txt constraints.txt $(MODULES) $(NATIVE)
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --quiet --constraint constraints.txt $(BUILD_TOOLS)
	$(LOWEST)/bin/python -m pip install --quiet --quiet --no-build-isolation -Cbuild-dir=build/lowest \
		$(call lower_bound,numpy) $(call lower_bound,torch) --editable '.[tools]'
	$(LOWEST)/bin/python -m pip install --quiet --quiet --no-deps \
		"$$(sed -n 's/^test = .*"\(stable-baselines3==.*\)".*/\1/p' pyproject.toml)"
	@touch $@
