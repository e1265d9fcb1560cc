# Every target works as the first command in a fresh clone: it makes .venv itself (see tools/environment.sh).
# SEED=n repeats a seeded run; ARGS="..." goes to pytest: make test ARGS="tests/unit/store -x". JOBS=n: how many processes
# `make check`, `make test`, `make interop` and `make soak` run in (3, as those of two cores wait a third of their time); 0 is
# one, as for a debugger.

SHELL := /bin/sh
BIN := .venv/bin
SEED ?=
ARGS ?=
JOBS ?= 3
export ACQUIT_TEST_SEED := $(SEED)
# Tests start hundreds of processes: where bytecode is not kept, as in many containers, each compiles acquit anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test native test-native check format generate interop foreign brokers-table interop-peers bench bench-peers bench-spark changelog simulate soak mutants planted \
	fuzz spark-crash site pins sbom audit-dependencies clean

help:
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|'

demo: ## messages, kills, a Spark table, and a balance sheet: about 2 minutes after installation
	@tools/environment.sh spark
	@$(BIN)/acquit demo --spark
	@echo "(Here the command acquit is $(BIN)/acquit.)"

test: ## unit, property and simulation tests, warnings as errors (under 10 minutes on 2 cores)
	@tools/environment.sh dev spark
	$(BIN)/python -m pytest -n $(JOBS) --dist loadscope $(ARGS)

# The same sources with their hot path compiled, and the tests of what is compiled, of machines in virtual time and of brokers
# that are killed, against it.
NATIVE := $(CURDIR)/build/native
NATIVE_TESTS := tests/unit/test_native.py tests/unit/protocol tests/unit/broker tests/unit/ledger tests/unit/store \
	tests/unit/client tests/unit/compat tests/scenarios tests/properties tests/simulation tests/crash
native: ## compile the hot path into build/native (with a C compiler, in two minutes)
	@tools/environment.sh dev spark
	$(BIN)/python tools/native.py $(NATIVE)

test-native: native ## tests of what is compiled, against it
	ACQUIT_TEST_NATIVE=1 PYTHONPATH=$(NATIVE) $(BIN)/python -m pytest -n $(JOBS) --dist loadscope \
		-m 'not pure and not interop and not slow and not sparkcrash' $(NATIVE_TESTS) $(ARGS)

check: ## format, lint, types, import directions, public names, generated files, repository hygiene
	@tools/environment.sh dev spark
	@$(MAKE) --no-print-directory --keep-going --jobs=$(if $(filter 0,$(JOBS)),1,$(JOBS)) --output-sync=target $(CHECKS)

# All of them, so that one run shows everything there is to mend.
CHECKS := check-format check-lint check-types check-imports check-private check-words check-names check-hygiene check-generated check-planted
.PHONY: $(CHECKS)
check-format:
	$(BIN)/ruff format --check
check-lint:
	$(BIN)/ruff check
check-types:
	$(BIN)/mypy
check-imports:
	$(BIN)/python tools/check_imports.py
check-private:
	$(BIN)/python tools/check_private.py
check-words:
	$(BIN)/python tools/check_words.py
check-names:
	$(BIN)/python tools/check_public_names.py
check-hygiene:
	$(BIN)/python tools/check_hygiene.py
check-generated:
	$(BIN)/python tools/generate_definitions.py --check
	$(BIN)/python tools/generate_docs.py --check
	$(BIN)/python tools/generate_frames.py --check
	$(BIN)/python tools/generate_cli_docs.py --check
	$(BIN)/python tools/generate_layers.py --check
	$(BIN)/python tools/way_of_a_message.py --check
	$(BIN)/python -m tests.formats.names --check
check-planted:
	$(BIN)/python tools/planted.py --check

format: ## rewrite sources in the house format and mend what ruff can mend
	@tools/environment.sh dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

generate: ## rewrite everything that is generated from a table
	@tools/environment.sh dev
	$(BIN)/python tools/generate_definitions.py
	$(BIN)/python tools/generate_docs.py
	$(BIN)/python tools/generate_frames.py
	$(BIN)/python tools/generate_cli_docs.py
	$(BIN)/python tools/generate_layers.py
	$(BIN)/python tools/way_of_a_message.py --write
	$(BIN)/python -m tests.formats.names

pins: ## resolve what constraints.txt pins, with the hashes of all files, after pyproject.toml has changed; UPGRADE=1
	@tools/environment.sh dependencies
	$(BIN)/python tools/pins.py $(if $(UPGRADE),--upgrade)

changelog: ## what the next release's part of CHANGELOG.md says; RELEASE=0.2.0 writes it there, and removes the fragments
	@tools/environment.sh dev
	@$(BIN)/towncrier build $(if $(RELEASE),--yes --version $(RELEASE),--draft --version unreleased)

sbom: ## list what acquit is delivered with, for scanners: build/sbom/acquit-*.cdx.json (CycloneDX)
	@tools/environment.sh dependencies s3 spark
	$(BIN)/python tools/dependencies.py sbom build/sbom

audit-dependencies: ## ask the index what is known against that; says so where it has no such data
	@tools/environment.sh dependencies
	$(BIN)/python tools/dependencies.py audit

# What our client and broker are tried against. Clients: python-qpid-proton (from the extras), rhea (npm), Qpid JMS (Maven),
# fe2o3-amqp (cargo). Brokers: Apache Artemis and Qpid Broker-J (Maven), RabbitMQ with its Erlang (Debian's packages,
# unpacked). All of it goes below build/interop, the environment, and Maven's and cargo's own folders; nothing is installed,
# no service started.
INTEROP := ACQUIT_INTEROP_NODE_MODULES=$(CURDIR)/build/interop/node_modules $(BIN)/python -m pytest -m interop
FOREIGN := tests/interop/test_foreign_*.py tests/interop/test_rabbitmq.py

# The other brokers are in one of the processes, the clients in the others.
interop: interop-peers ## against clients and brokers we did not write; in CI a missing one is a failure
	$(INTEROP) -n $(JOBS) --dist loadscope tests/interop $(ARGS)

foreign: interop-peers ## of that, our client against Artemis, Qpid Broker-J and RabbitMQ (about 3 minutes)
	$(INTEROP) $(FOREIGN) $(ARGS)

brokers-table: interop-peers ## let them say again what each broker grants, in docs/brokers.md and docs/guarantees.md
	$(INTEROP) $(FOREIGN)
	$(BIN)/python tools/generate_brokers.py

interop-peers: ## get what these run against, once
	@tools/environment.sh dev interop spark
	@$(BIN)/python -m tests.interop.get_peers

# Half of what these take they wait, for disks and for what was killed.
soak: ## long seeded runs with kills, lost power, failing disks, service for long; prints the seed that repeats them
	@tools/environment.sh dev spark
	$(BIN)/python -m pytest -m slow -n $(JOBS) --dist loadscope $(ARGS)

# Fresh seeds for MINUTES=5 or HOURS=n on all CPUs (SEED: the first); CASE="seed=7 ..." is one world again, with its log.
# COVERAGE=1: on one CPU, and slowly, and then says which branches of the machines were never taken.
MINUTES ?= 5
SIMULATION := -m tests.simulation
# Their files, not their packages: to find those, coverage imports asyncio and forgets it, so that the world imports another
# one, whose code does not know the CancelledError of the first.
MACHINES := src/acquit/broker/*,src/acquit/store/*,src/acquit/ledger/*,src/acquit/client/core.py,src/acquit/client/driver.py,src/acquit/client/receiving.py,src/acquit/client/sending.py,src/acquit/client/session.py,src/acquit/client/transacting.py,src/acquit/protocol/*
simulate: ## whole systems in virtual time, with every fault that machines have, on fresh seeds
	@tools/environment.sh dev spark
	@mkdir -p build
	$(BIN)/python $(if $(COVERAGE),-m coverage run --branch --data-file=build/simulation.coverage --include='$(MACHINES)' \
		$(SIMULATION) --jobs 0,$(SIMULATION)) \
		$(if $(CASE),--case "$(CASE)",--minutes $(if $(HOURS),$$(($(HOURS) * 60)),$(MINUTES))) \
		$(if $(SEED),--seed $(SEED))
	$(if $(COVERAGE),$(BIN)/python -m coverage report --data-file=build/simulation.coverage --skip-covered --sort=cover -m)

# Inputs nobody thought of, guided by what code they reach: for MINUTES=5 in all targets in turns, or in TARGET=x alone.
fuzz: ## search for inputs that break a parser, or cost too much; MINUTES=n TARGET=x, ARGS="--keep" grows the corpus
	@tools/environment.sh dev fuzz spark
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(if $(TARGET),--target $(TARGET)) $(if $(SEED),--seed $(SEED)) $(ARGS)

# Processes of their own that are killed, so two at a time is what two cores can do.
spark-crash: ## Spark killed at every step, and on a cluster of two hosts (under 10 minutes on 2 cores); --spark-crash-rounds
	@tools/environment.sh dev spark
	$(BIN)/python -m pytest -m sparkcrash -n 2 --dist loadscope tests/sparkcrash $(ARGS)

# One mistake at a time, in the modules that ARGS names: make mutants ARGS="acquit.broker.transact --sample 20 --seed 7".
mutants: ## plant mistakes in modules and print those that no test notices; ARGS="MODULE... --sample=n --seed=n"
	@tools/environment.sh dev spark
	$(BIN)/python tools/mutate.py $(ARGS)

# The mistakes of tools/planted_mistakes.py, or those that ARGS names: make planted ARGS="'accept before sync' --limit-s 20".
planted: ## plant some forty mistakes and see whether, and how soon, the simulation finds each (under an hour on one core)
	@tools/environment.sh dev spark
	$(BIN)/python tools/planted.py $(ARGS)

bench: ## each script of benchmarks/ in its short form
	@tools/environment.sh dev interop spark
	@set -e; for script in benchmarks/bench_*.py; do echo "== $$script"; $(BIN)/python "$$script" --short; done

# Which of them, and how many rounds: make bench-peers ARGS="--cases durable --rounds 3 --json figures.json".
bench-peers: ## the broker beside Artemis and RabbitMQ, in turns; exits 1 where it falls short of what is aimed at (half an hour)
	@tools/environment.sh dev interop
	$(BIN)/python benchmarks/bench_peers.py $(ARGS)

site: ## the pages as a site in build/site, every link and anchor checked
	@tools/environment.sh dev docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The benchmarks of the Spark pipelines, each in its full form; CPUS=n: on how many CPUs (2). A claim that does not hold
# is named, the others still run, and the exit code says it.
CPUS ?= 2
SPARK_BENCHES := columns spark_ingest spark_replay spark_sink ledger_source audit spark_sizing

bench-spark: ## figures of the Spark pipelines, beside Kafka and a job written by hand (about 2 hours on 2 CPUs)
	@tools/environment.sh dev interop spark
	@failed=0; for name in $(SPARK_BENCHES); do \
		echo "== benchmarks/bench_$$name.py"; \
		taskset -c 0-$$(($(CPUS) - 1)) $(BIN)/python benchmarks/bench_$$name.py || failed=1; \
	done; exit $$failed

clean: ## remove the environment, caches and builds
	rm -rf .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
