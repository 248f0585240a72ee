# Every verb of the project. `make` alone lists them.
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SPARK_STAMP := $(VENV)/.spark-installed
SPARK_LOG := build/spark-setup.log
DOCS_STAMP := $(VENV)/.docs-installed
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup spark fix check docs test test-more demo sim model mutants fuzz bench bench-failover bench-scale bench-scaling bench-groups bench-spark bench-audit bench-decode bench-core bench-kafka test-all ci

help: ## list the verbs
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## make .venv with all that is needed

# Reinstalls only when pyproject.toml changed.
$(STAMP): pyproject.toml
	@$(or $(PYTHON),python3) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "tidelog needs Python 3.11 or newer: run make PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || "$(or $(PYTHON),$$(python3 scripts/faster_python.py))" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(BIN)/python -m compileall -q src  # a broker starts in half the time, also where nobody may write
	@touch $@

spark: $(SPARK_STAMP) ## PySpark into .venv, from a wheel that is built once and kept, and Java

$(SPARK_STAMP): $(STAMP) scripts/pyspark_pins.txt
	$(BIN)/python scripts/set_up_spark.py
	@touch $@

fix: $(STAMP) ## format, and mend what ruff can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

check: $(STAMP) ## ruff, mypy, import-linter, the repo's own shape
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/pytest tests/repo/test_shape.py

docs: $(DOCS_STAMP) ## the documentation as a site in build/site; fails on a broken link
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open build/site/index.html, or run: $(BIN)/mkdocs serve"

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

# PySpark is half a gigabyte. It comes while the other tests run; what is not done then is waited for,
# and what failed is tried once more, by `make spark`.
test: $(STAMP) ## the tests, one of Spark among them: make test SPARK=0 leaves Spark out
ifneq ($(SPARK),0)
	@mkdir -p $(dir $(SPARK_LOG))
	@test $(SPARK_STAMP) -nt $(STAMP) || { echo "Spark is set up meanwhile; its log: $(SPARK_LOG)"; \
	  $(BIN)/python scripts/set_up_spark.py >$(SPARK_LOG) 2>&1 </dev/null & }
endif
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

test-more: $(STAMP) ## what ci adds to the tests: Spark under faults, and cases that take long
	-$(BIN)/python scripts/set_up_faketime.py
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
demo: $(SPARK_STAMP) ## a real cluster, a Spark job, a killed leader, nothing lost; then why the old rule lost records
	$(BIN)/tidelog demo
	$(BIN)/tidelog story play hw-loses-acked-record
endif

sim: $(STAMP) ## the simulator: make sim SEEDS=2000 START=0
	$(BIN)/tidelog sim run --seeds $(or $(SEEDS),2000) --start $(or $(START),0)

model: $(STAMP) ## the published models, and the shipped code within four sets of bounds
	$(BIN)/tidelog model table --size 3,2,2,2
	$(BIN)/tidelog model check
	$(BIN)/tidelog model check --replicas 3 --records 1 --messages 0
	$(BIN)/tidelog model check --partition-epochs 4 --messages 0 --restarts 1
	$(BIN)/tidelog model check --records 1 --leader-epochs 3 --partition-epochs 4 --messages 0 --min-isr 2 --damages 1

mutants: $(STAMP) ## put known mistakes back, one by one, and see each found
	$(BIN)/tidelog model mutants

fuzz: $(STAMP) ## hostile frames: make fuzz FRAMES=10000000 SOCKETS=100000 SECONDS=3000 SEED=1
	$(BIN)/python -m tidelog.apps.fuzz.run --frames $(or $(FRAMES),10000000) \
	  --socket-frames $(or $(SOCKETS),100000) --seconds $(or $(SECONDS),3000) \
	  $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--write-seeds)

bench: $(STAMP) ## throughput and latency beside librdkafka's mock: make bench ROWS=produce (needs gcc)
	$(BIN)/python benchmarks/how_fast_is_a_cluster.py --rows '$(ROWS)'

bench-kafka: $(STAMP) ## the same work on us and on Apache Kafka, in turns: make bench-kafka QUICK=1 (needs gcc and Java)
	$(BIN)/python benchmarks/how_fast_beside_kafka.py --rows '$(ROWS)' $(if $(QUICK),--quick) \
	  $(if $(JSON),--json '$(JSON)') $(if $(PLOT),--plot '$(PLOT)') \
	  $(if $(DOCS),--json docs/images/beside-kafka.json --plot docs/images/beside-kafka.svg --page docs/explanation/beside-kafka.md)

bench-failover: $(STAMP) ## from the kill of a leader, or its hang, to the next acknowledgement
	$(BIN)/python benchmarks/how_fast_is_failover.py

bench-scale: $(STAMP) ## many partitions on three brokers: make bench-scale TOPICS=1000
	$(BIN)/python benchmarks/how_far_does_it_scale.py --topics $(or $(TOPICS),1000)

bench-scaling: $(STAMP) ## how cost grows with partitions, connections, segments and more: make bench-scaling QUICK=1 ROWS=groups
	$(BIN)/python benchmarks/how_does_cost_grow.py --rows '$(ROWS)' $(if $(QUICK),--quick) \
	  $(if $(JSON),--json '$(JSON)') $(if $(PLOT),--plot '$(PLOT)') \
	  $(if $(DOCS),--json docs/images/how-cost-grows.json --plot docs/images --page docs/explanation/how-cost-grows.md)

bench-groups: $(STAMP) ## consumers that rebalance, groups that commit, idle connections: make bench-groups JOBS=commits
	$(BIN)/python benchmarks/how_far_do_groups_scale.py --jobs '$(JOBS)'

bench-spark: $(SPARK_STAMP) ## Spark reads and writes topics, beside its own connector: make bench-spark ROWS=sink
	$(BIN)/python benchmarks/how_fast_is_spark.py --rows '$(ROWS)' $(if $(JSON),--json '$(JSON)')

bench-decode: $(STAMP) ## record batches to Arrow and back, on one core, without Spark: make bench-decode ROWS=fetch
	$(BIN)/python benchmarks/how_fast_is_decoding.py --rows '$(ROWS)'

bench-audit: $(SPARK_STAMP) ## the audit of three replicas, beside reading and checksums alone: make bench-audit RECORDS=10000000
	$(BIN)/python benchmarks/how_fast_is_the_audit.py --records $(or $(RECORDS),10000000)

bench-core: $(STAMP) ## what a step of the replication core costs
	$(BIN)/python benchmarks/how_fast_is_a_step.py

test-all: check docs test test-more sim model mutants ## everything, the slow tests too
	-$(BIN)/python scripts/set_up_browser.py
	$(BIN)/pytest -n 2 -m 'slow and not spark' -rs
ifeq ($(SPARK),0)
	@echo "SPARK=0: Spark is left out; neither its cluster nor its own connector was tried"
else
	$(BIN)/pytest -m 'slow and spark' -rs
endif

ci: check docs test test-more sim model mutants ## what .ci/run calls
