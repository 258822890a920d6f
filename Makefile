# Few verbs. Everything lives in .venv; nothing else on the machine is touched.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
EXTRAS ?= box2d,gymnax,kafka
TEST_WORKERS ?= 3
KAFKA_PORT ?= 9092

# soak tests with verbs of their own, as each takes a quiet machine for a while
STORM = tests/faults/test_storm.py tests/faults/test_frozen.py
STRANGERS = tests/server/fuzz tests/server/security/test_flood.py
PAGES = tests/docs/test_first_hour.py
DEALT = --dist loadscope --no-loadscope-reorder  # to workers: tests/conftest.py says how
SOAK = $(BIN)/python -m pytest --soak -m soak -v

.PHONY: help setup run page screenshots check test soak storm strangers pages bench kafka kafka-stop clean

help:
	@echo "make run    set up, train CartPole-v1 until it is solved, say what to try next"
	@echo "make test   set up what the tests need, and pass them"
	@echo "make page   build the page anew from web/, where it changed"
	@echo "make screenshots  the pictures in docs/images, from true runs (some minutes)"
	@echo "make check  lint, types, layers; the page is built and its types hold"
	@echo "make soak   the full counts of the fault and learning tests (about an hour)"
	@echo "make storm  200 faults of every kind, and 20 freezes of everyone (about an hour)"
	@echo "make strangers  140,000 requests and messages that nobody should send; 2,000 hostile connections"
	@echo "make pages  every command of README and docs, typed as written in a fresh clone"
	@echo "make bench  every benchmark, one after the other"
	@echo "make kafka  a Kafka broker on 127.0.0.1:$(KAFKA_PORT) that keeps running; make kafka-stop ends it"

# neither venv nor pip says anything while it unpacks, which takes long: dots show that it lives. The
# newest pip (--upgrade-deps) shows what it unpacks: what is installed later, by hand, moves too
define install
	@(while kill -0 $$$$ 2>/dev/null && sleep 2; do printf .; done) & dots=$$!; \
	$(PYTHON) -m venv --upgrade-deps $(VENV) && \
	$(BIN)/python -m pip install --disable-pip-version-check -c requirements.lock $(1); \
	code=$$?; kill $$dots; echo; exit $$code
endef

$(VENV)/.run-stamp: pyproject.toml requirements.lock
	@echo "installing Rookery and what it needs into $(VENV): some minutes, this once"
	$(call install,-e '.[$(EXTRAS)]')
	@touch $@

$(VENV)/.test-stamp: pyproject.toml requirements.lock
	@echo "installing what the tests need into $(VENV): some minutes, this once"
	$(call install,--quiet --no-compile -e '.[test]')
	@touch $@ $(VENV)/.run-stamp

setup: $(VENV)/.run-stamp

run: setup
	$(BIN)/rookery train CartPole-v1 --until-return 475
	@echo "next: . $(BIN)/activate; rookery --help; rookery train LunarLander-v3 --steps 2_000_000"

page: $(VENV)/.test-stamp
	$(BIN)/python hatch_build.py

screenshots: page
	$(BIN)/python docs/screenshots.py

check: $(VENV)/.test-stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python hatch_build.py --check

test: check
	@sh tests/system_parts.sh
	$(BIN)/python -m pytest -n $(TEST_WORKERS) $(DEALT) --durations=40

soak: $(VENV)/.test-stamp
	@sh tests/system_parts.sh
	$(SOAK) -n $(TEST_WORKERS) $(DEALT) --durations=40 --ignore=tests/learning \
	    $(addprefix --ignore=,$(STORM) $(STRANGERS) $(PAGES))
	$(SOAK) tests/learning

storm: $(VENV)/.test-stamp
	ROOKERY_STORM_FAULTS=34 ROOKERY_FREEZES=20 $(SOAK) -s -rP -n $(TEST_WORKERS) --dist load $(STORM)

strangers: $(VENV)/.test-stamp
	$(SOAK) -s $(STRANGERS)

pages: $(VENV)/.test-stamp
	@sh tests/system_parts.sh
	$(SOAK) -s $(PAGES)

bench: $(VENV)/.test-stamp
	$(BIN)/python benchmarks/bus.py
	$(BIN)/python benchmarks/learner.py
	$(BIN)/python benchmarks/selfplay.py
	$(BIN)/python benchmarks/versus.py

kafka: setup
	@$(BIN)/python -m tools.kafka.broker start --port $(KAFKA_PORT)

kafka-stop:
	@$(BIN)/python -m tools.kafka.broker stop --port $(KAFKA_PORT)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache
