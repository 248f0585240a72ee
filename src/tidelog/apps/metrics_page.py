"""The reference pages of metrics and of log events, written from the tables.

`python -m tidelog.apps.metrics_page docs/reference` writes them; a test fails when they are out of
date.
"""

import sys
from pathlib import Path
from textwrap import fill

from tidelog.apps.console.history.derive import EVENTS as CONSOLE_EVENTS
from tidelog.apps.demo.history import EVENTS as DEMO_EVENTS
from tidelog.apps.verify.run_history import EVENTS as VERIFY_EVENTS
from tidelog.core.metrics.families import SECTIONS
from tidelog.core.node.measuring.journal import EVENTS
from tidelog.lab.broker_history import SAMPLED, SAMPLED_FIELDS, SAMPLED_MEANING
from tidelog.lab.modelcheck.shipped.path_history import EVENTS as MODEL_EVENTS

_METRICS = """# Metrics

Each broker has metrics for Prometheus at `/metrics`, on the port that `tidelog.metrics.listener`
sets. `tidelog up` uses free ports (`tidelog status` shows them);
`--set tidelog.metrics.listener=127.0.0.1:9644` makes them 9644, 9645 and so on. The names are those
that dashboards for Kafka expect: jmx_exporter's and kafka_exporter's. Metrics that Kafka does not
have start with `tidelog_`. `/healthz` returns 200 while the broker is part of the cluster, and
while it serves without the metadata store; else 503.

[A dashboard](../../dashboards/tidelog.json) for Grafana is in the repository. In Prometheus:

```yaml
scrape_configs:
  - job_name: tidelog
    static_configs:
      - targets: ["127.0.0.1:9644", "127.0.0.1:9645", "127.0.0.1:9646"]
```

Other machines should reach the port only [with TLS and
credentials](../how-to/watch-with-prometheus.md#protect-the-metrics). Percentiles of a summary
cover the last one or two minutes, if they were scraped; `tidelog_request_seconds` has buckets for
`rate`.

`promtool check metrics` reports four names, which dashboards need: `clientId` of
`kafka_server_replicafetchermanager_maxlag` and `kafka_server_fetcherlagmetrics_consumerlag`,
`delayedOperation` of `kafka_server_delayedoperationpurgatory_purgatorysize`, and the `_count` of
`kafka_server_socket_server_metrics_connection_count`. A test checks all other names.

This page is written from the code: `python -m tidelog.apps.metrics_page docs/reference`.
"""

_EVENTS = """# Log events

A broker's log has one line per event: `broker-1.log` in the data directory, or stderr of `tidelog
broker`. With `tidelog.log.format=json` each line is an object: `ts` (UTC), `level`, `broker`,
`event`, the fields of the event, and `text`, which is the line of the text format.

```json
{"ts": "2026-01-31T12:00:00.123Z", "level": "WARN", "broker": 2, "event": "isr_shrunk",
 "topic": "orders", "partition": 0, "leader_epoch": 4, "isr": [2, 3], "left": [1],
 "text": "broker 2: ISR of orders-0 shrank to [2, 3]: without [1]"}
```

At most 20 lines per second are written of one event; the others are counted in a line of the same
event with the field `left_out`. These events have no such limit:
ALWAYS.

This page is written from the code: `python -m tidelog.apps.metrics_page docs/reference`.

| event | level | fields | what happened |
|---|---|---|---|
"""

_PROCESS = (
    ("recovering", "INFO", "partition, number, of", "a log is recovered after an unclean stop"),
    (
        "recovered",
        "INFO, WARN",
        "topic, partition",
        "findings when a log was opened: WARN for truncated or damaged records, INFO for files that"
        " were removed or rebuilt; no line for a log without findings",
    ),
    (
        "listening",
        "INFO",
        "host, port, internal_port, listeners, metrics",
        "the broker's ports are open",
    ),
    ("acting", "INFO", "", "the broker is unfenced and part of the cluster"),
    ("not_acting", "WARN", "", "the broker was fenced, by the controller or by itself"),
    ("broker_alive", "INFO", "other, alive", "another broker is live"),
    ("broker_gone", "WARN", "other, alive", "another broker is no longer live"),
    (
        "controller_changed",
        "INFO",
        "controller, controller_epoch",
        "another broker has become controller",
    ),
    (
        "leading",
        "INFO",
        "leads, partitions",
        "the number of partitions that the broker leads, after brokers joined",
    ),
    ("connection_dropped", "WARN", "peer, reason, why", "the broker closed a connection"),
    ("metrics_refused", "WARN", "peer", "a request for metrics had missing or wrong credentials"),
    (
        "peer_unproven",
        "WARN",
        "other, address, reason",
        "the process at a broker's address did not prove that it is that broker",
    ),
    ("fault", "ERROR", "trace", "a bug in Tidelog; one client lost its connection"),
    ("stopping", "INFO", "", "the broker is stopping and hands over its leaderships"),
    (
        "stopped",
        "INFO, ERROR",
        "clean, reason",
        "the broker has stopped; the reason may be a failed disk",
    ),
    ("failed", "ERROR", "reason", "the broker could not start"),
    ("crashed", "ERROR", "reason", "a bug in Tidelog"),
    ("note", "any", "", "any other message; see the text"),
)
"""Events of the broker's process; those of the node are in EVENTS."""

_DEMO_EVENTS = """
## Events of the demo

`tidelog demo` writes a history beside its report, in the same format: the events of all brokers'
logs, and these.

| event | fields | what happened |
|---|---|---|
"""
_LAB_EVENTS = f"""
## Events of the simulator and of stories

`tidelog sim replay --history` and `tidelog story play NAME --history` write the events of the
brokers in virtual time, and a sample of each replica when it changed, in the simulator at most ten
times a second.

| event | fields | what happened |
|---|---|---|
| `{SAMPLED}` | {", ".join(SAMPLED_FIELDS)} | {SAMPLED_MEANING} |
"""
_MODEL_EVENTS = """
## Events of the model checker

`tidelog model check --history` writes the shortest counterexample: samples as above, and these.
Each step takes one second.

| event | fields | what happened |
|---|---|---|
"""
_VERIFY_EVENTS = """
## Events of `tidelog verify`

`tidelog verify --history` writes the events of the brokers' logs, samples as above four times a
second, and these.

| event | fields | what happened |
|---|---|---|
"""
_CONSOLE_EVENTS = """
## Events of the console

The console's [history](../explanation/console-history.md) has events that it derives from samples,
in the same format. Where a broker logs the same event, name and fields are those of the broker's:
`leader_elected`, `unclean_election`, `isr_shrunk`, `isr_expanded`, `truncated`, `records_lost`,
`log_damaged`, `broker_alive`, `broker_gone`, `controller_changed`. These are the others.

| event | level | fields | what happened |
|---|---|---|---|
"""


def pages() -> dict[str, str]:
    """Return the text of each page, by file name."""
    return {"metrics.md": _metrics_page(), "log-events.md": _events_page()}


def _metrics_page() -> str:
    parts = [_METRICS, "\n| metric | type | labels | meaning |\n|---|---|---|---|\n"]
    for title, families in SECTIONS.items():
        parts.append(f"| **{title}** | | | |\n")
        for name, kind, labels, meaning, _ in families:
            parts.append(f"| `{name}` | {kind} | {', '.join(labels)} | {meaning} |\n")
    return "".join(parts)


def _events_page() -> str:
    rows = [f"| `{name}` | {' | '.join(cells)} |\n" for name, *cells in _PROCESS]
    for name, event in EVENTS.items():
        text = event.text.replace("{", "*").replace("}", "*")
        rows.append(f"| `{name}` | {event.level} | {', '.join(event.fields)} | {text} |\n")
    always = ", ".join(f"`{name}`" for name, event in EVENTS.items() if event.always)
    demo = [
        f"| `{name}` | {', '.join(fields)} | {meaning} |\n"
        for name, (fields, meaning) in DEMO_EVENTS.items()
    ]
    intro = _EVENTS.replace("ALWAYS", fill(always, 100))
    console = []
    for name, (level, fields, told) in CONSOLE_EVENTS.items():
        text = told.replace("{", "*").replace("}", "*")
        console.append(f"| `{name}` | {level} | {', '.join(fields)} | {text} |\n")
    parts = [intro, *rows, _DEMO_EVENTS, *demo, _LAB_EVENTS]
    for heading, events in ((_MODEL_EVENTS, MODEL_EVENTS), (_VERIFY_EVENTS, VERIFY_EVENTS)):
        parts.append(heading)
        for name, (fields, meaning) in events.items():
            parts.append(f"| `{name}` | {', '.join(fields)} | {meaning} |\n")
    parts += [_CONSOLE_EVENTS, *console]
    return "".join(parts)


def write(folder: Path) -> None:
    """Write every page into the folder."""
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
