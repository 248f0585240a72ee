# All tasks of the project. `make` alone lists them.
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SPARK_STAMP := $(VENV)/.spark-installed
SPARK_LOG := build/spark-setup.log
DOCS_STAMP := $(VENV)/.docs-installed
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup spark fix check docs test test-more demo sim model mutants fuzz bench bench-failover bench-scale bench-scaling bench-groups bench-spark bench-audit bench-decode bench-core bench-kafka bench-tls console test-all ci

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## create .venv with everything but Spark: make setup PYTHON=/path/to/python3

# Reinstalls only when pyproject.toml changed.
$(STAMP): pyproject.toml
	@$(or $(PYTHON),python3) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "tidelog needs Python 3.11 or newer: run make PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || "$(or $(PYTHON),$$(python3 scripts/faster_python.py))" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(BIN)/python -m compileall -q src  # a broker starts in half the time, also on a read-only file system
	@touch $@

spark: $(SPARK_STAMP) ## install PySpark into .venv, from a wheel that is built once and kept, and Java

$(SPARK_STAMP): $(STAMP) scripts/pyspark_pins.txt
	$(BIN)/python scripts/set_up_spark.py
	@touch $@

fix: $(STAMP) ## format the code, and fix what ruff can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

check: $(STAMP) ## ruff, mypy, import-linter, the repository's form
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/pytest tests/repo/test_shape.py

docs: $(DOCS_STAMP) ## build the documentation as a site in build/site; fails on a broken link
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # with --quiet no warning would count
	@echo "open build/site/index.html, or run: $(BIN)/mkdocs serve"

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

# PySpark is half a gigabyte. It is installed while the other tests run; `make spark` then waits for it,
# and retries once if it failed.
test: $(STAMP) ## run the tests, with one of Spark: make test SPARK=0 leaves Spark out
ifneq ($(SPARK),0)
	@mkdir -p $(dir $(SPARK_LOG))
	@test $(SPARK_STAMP) -nt $(STAMP) || { echo "Spark is installed in the background; its log: $(SPARK_LOG)"; \
	  $(BIN)/python scripts/set_up_spark.py >$(SPARK_LOG) 2>&1 </dev/null & }
endif
	-@$(BIN)/python scripts/set_up_etcd.py >/dev/null
	$(BIN)/pytest -n 2 --dist worksteal -m 'not slow and not ci' tests/core tests/golden tests/shell --cov --cov-report=
	$(BIN)/coverage report --include='src/tidelog/core/replication/*' --fail-under=100
	$(BIN)/coverage report --include='src/tidelog/core/*' --fail-under=95 --skip-covered
	$(BIN)/pytest -n 2 --dist worksteal -m 'not slow and not ci and not spark' \
	  --ignore tests/repo/test_shape.py \
	  tests/apps tests/clients tests/cluster tests/fuzz tests/lab tests/repo tests/scenarios tests/spark
ifeq ($(SPARK),0)
	@echo "SPARK=0: Spark is left out; its smoke test did not run"
else
	@$(MAKE) --no-print-directory spark
	$(BIN)/pytest -m smoke tests/spark
endif

test-more: $(STAMP) ## run what ci adds to the tests: Spark under faults, and cases that take long
	-$(BIN)/python scripts/set_up_faketime.py
	-@$(BIN)/python scripts/set_up_browser.py >/dev/null
	$(BIN)/pytest -n 2 -m 'ci and not slow and not spark' -rs
ifeq ($(SPARK),0)
	@echo "SPARK=0: Spark is left out; none of its fault cases ran"
else
	@$(MAKE) --no-print-directory spark
	$(BIN)/pytest -m 'spark and not slow and not smoke'
endif

ifeq ($(SPARK),0)
demo: $(STAMP)
	$(BIN)/tidelog demo --no-spark
	$(BIN)/tidelog story play hw-loses-acked-record
else
demo: $(SPARK_STAMP) ## run a cluster and a Spark job, kill the leader, check every record; make demo SPARK=0 needs no Java
	$(BIN)/tidelog demo
	$(BIN)/tidelog story play hw-loses-acked-record
endif

console: ## build the console's pages and the drawing of the demo's report from web/ (needs Node 20 or newer)
	cd web && npm ci --no-fund --no-audit && npm run check && npm test && npm run build

sim: $(STAMP) ## run the simulator: make sim SEEDS=2000 START=0
	$(BIN)/tidelog sim run --seeds $(or $(SEEDS),2000) --start $(or $(START),0)

model: $(STAMP) ## check the published models, and the shipped code within eleven sets of bounds
	$(BIN)/tidelog model table --size 3,2,2,2
	$(BIN)/tidelog model check
	$(BIN)/tidelog model check --replicas 3 --records 1 --messages 0
	$(BIN)/tidelog model check --partition-epochs 4 --messages 0 --restarts 1
	$(BIN)/tidelog model check --records 1 --leader-epochs 3 --partition-epochs 4 --messages 0 --min-isr 2 --damages 1
	$(BIN)/tidelog model lease
	$(BIN)/tidelog model lease --replicas 2 --records 2 --messages 1 --renewals 1 --losses 1
	$(BIN)/tidelog model transactions
	$(BIN)/tidelog model transactions --transactions 2 --late-markers 1 --failures 0 --time-outs 0
	$(BIN)/tidelog model transactions --elections 1 --failures 0
	$(BIN)/tidelog model transactions --transactions 2 --epochs-left 1 --failures 0 --time-outs 0
	$(BIN)/tidelog model transactions --client-version 1 --failures 0

mutants: $(STAMP) ## put known mistakes into the code, one by one, and check that each is found
	$(BIN)/tidelog model mutants

fuzz: $(STAMP) ## send hostile frames to brokers: make fuzz FRAMES=10000000 SOCKETS=100000 SECONDS=3000 SEED=1
	$(BIN)/python -m tidelog.apps.fuzz.run --frames $(or $(FRAMES),10000000) \
	  --sasl-frames $(or $(LOGINS),100000) --socket-frames $(or $(SOCKETS),100000) --seconds $(or $(SECONDS),3000) \
	  $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--write-seeds)

bench: $(STAMP) ## measure throughput and latency, compared with librdkafka's mock: make bench ROWS=produce (needs gcc)
	$(BIN)/python benchmarks/how_fast_is_a_cluster.py --rows '$(ROWS)'

bench-kafka: $(STAMP) ## compare with Apache Kafka, in turns: make bench-kafka QUICK=1 (needs gcc and Java)
	$(BIN)/python benchmarks/how_fast_beside_kafka.py --rows '$(ROWS)' $(if $(QUICK),--quick) \
	  $(if $(JSON),--json '$(JSON)') $(if $(PLOT),--plot '$(PLOT)') \
	  $(if $(DOCS),--json docs/images/beside-kafka.json --plot docs/images/beside-kafka.svg --page docs/explanation/beside-kafka.md)

bench-failover: $(STAMP) ## measure the time from a leader's kill or hang to the next acknowledgement
	$(BIN)/python benchmarks/how_fast_is_failover.py

bench-scale: $(STAMP) ## measure many partitions on three brokers: make bench-scale TOPICS=1000 PARTITIONS=10 STORE=etcd KAFKA=1
	$(BIN)/python benchmarks/how_far_does_it_scale.py --topics $(or $(TOPICS),1000) --partitions $(or $(PARTITIONS),3) \
		--store $(or $(STORE),sqlite) $(if $(KAFKA),--kafka) $(if $(JSON),--json '$(JSON)')

bench-scaling: $(STAMP) ## measure how cost grows with partitions, connections, segments and more: make bench-scaling QUICK=1 ROWS=groups
	$(BIN)/python benchmarks/how_does_cost_grow.py --rows '$(ROWS)' $(if $(QUICK),--quick) \
	  $(if $(JSON),--json '$(JSON)') $(if $(PLOT),--plot '$(PLOT)') \
	  $(if $(DOCS),--json docs/images/how-cost-grows.json --plot docs/images --page docs/explanation/how-cost-grows.md)

bench-groups: $(STAMP) ## measure rebalances, commits of groups, idle connections: make bench-groups JOBS=commits
	$(BIN)/python benchmarks/how_far_do_groups_scale.py --jobs '$(JOBS)'

bench-spark: $(SPARK_STAMP) ## compare Spark's reads and writes with its own connector: make bench-spark ROWS=sink
	$(BIN)/python benchmarks/how_fast_is_spark.py --rows '$(ROWS)' $(if $(JSON),--json '$(JSON)')

bench-decode: $(STAMP) ## measure decoding to Arrow and encoding, on one core, without Spark: make bench-decode ROWS=fetch
	$(BIN)/python benchmarks/how_fast_is_decoding.py --rows '$(ROWS)'

bench-audit: $(SPARK_STAMP) ## measure the audit of three replicas, compared with reading and checksums: make bench-audit RECORDS=10000000
	$(BIN)/python benchmarks/how_fast_is_the_audit.py --records $(or $(RECORDS),10000000)

bench-tls: $(STAMP) ## measure how long a request waits while others begin TLS: make bench-tls CONNECTIONS=500 (needs openssl)
	$(BIN)/python benchmarks/how_long_do_handshakes_delay.py $(or $(CONNECTIONS),500)

bench-core: $(STAMP) ## measure a step of the replication core
	$(BIN)/python benchmarks/how_fast_is_a_step.py

test-all: check docs test test-more sim model mutants ## run everything, including the slow tests
	-$(BIN)/python scripts/set_up_browser.py
	@if etcd="$$($(BIN)/python scripts/set_up_etcd.py --newest)"; then \
	  ETCD_BIN="$$etcd" $(BIN)/pytest tests/shell/store -k etcd -rs; \
	else echo "the newest etcd is not available; the store was tested with $$($(BIN)/python scripts/set_up_etcd.py) only"; fi
	$(BIN)/pytest -n 2 -m 'slow and not spark' -rs
ifeq ($(SPARK),0)
	@echo "SPARK=0: Spark is left out; neither its cluster nor its own connector was tried"
else
	$(BIN)/pytest -m 'slow and spark' -rs
endif

ci: export REQUIRE_ETCD = 1
ci: check docs test test-more sim model mutants ## run what .ci/run calls
