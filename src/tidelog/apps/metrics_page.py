"""The reference pages of metrics and of log events, written from the tables.

`python -m tidelog.apps.metrics_page docs/reference` writes them; a test fails when they are
behind the code.
"""

import sys
from pathlib import Path
from textwrap import fill

from tidelog.core.metrics.families import SECTIONS
from tidelog.core.node.measuring.journal import EVENTS

_METRICS = """# Metrics

Each broker tells Prometheus about itself at `/metrics`, on a port of its own:
`tidelog.metrics.listener`. `tidelog up` takes free ports and shows them (`tidelog status`);
`--set tidelog.metrics.listener=127.0.0.1:9644` makes them 9644, 9645 and so on. The names are
those that dashboards for Kafka expect: jmx_exporter's, and kafka_exporter's; what Kafka does not
tell begins with `tidelog_`. `/healthz` answers 200 while the broker is part of the cluster.

[A dashboard](../../dashboards/tidelog.json) for Grafana is in the repository. In Prometheus:

```yaml
scrape_configs:
  - job_name: tidelog
    static_configs:
      - targets: ["127.0.0.1:9644", "127.0.0.1:9645", "127.0.0.1:9646"]
```

There is no password and no TLS: keep the port on the machine. A summary's percentiles are of the
last minute or two, as far as somebody scraped; `tidelog_request_seconds` has buckets for `rate`.

`promtool check metrics` has four complaints, about names that dashboards query: `clientId` of
`kafka_server_replicafetchermanager_maxlag` and `kafka_server_fetcherlagmetrics_consumerlag`,
`delayedOperation` of `kafka_server_delayedoperationpurgatory_purgatorysize`, and the `_count` of
`kafka_server_socket_server_metrics_connection_count`. A test holds all other names to its rules.

This page is written from the code: `python -m tidelog.apps.metrics_page docs/reference`.
"""

_EVENTS = """# Log events

A broker's log has a line for each event: `broker-1.log` in the data folder, or stderr of `tidelog
broker`. With `tidelog.log.format=json` each line is an object: `ts` (UTC), `level`, `broker`,
`event`, the fields of the event, and `text`, which is what the other form says.

```json
{"ts": "2026-01-31T12:00:00.123Z", "level": "WARN", "broker": 2, "event": "isr_shrunk",
 "topic": "orders", "partition": 0, "leader_epoch": 4, "isr": [2, 3], "left": [1],
 "text": "broker 2: ISR of orders-0 shrank to [2, 3]: without [1]"}
```

Of one event there are at most 20 lines a second; what is left out is counted in a line of the same
event with the field `left_out`. These events have no such limit:
ALWAYS.

This page is written from the code: `python -m tidelog.apps.metrics_page docs/reference`.

| event | level | fields | what happened |
|---|---|---|---|
"""

_PROCESS = (
    ("recovering", "INFO", "partition, number, of", "a log is read after an unclean stop"),
    (
        "recovered",
        "INFO, WARN",
        "topic, partition",
        "what was found when a log was opened: WARN for what was cut or damaged, INFO for files"
        " that were removed or rebuilt; no line for a log without findings",
    ),
    ("listening", "INFO", "host, port, internal_port, metrics", "its ports are open"),
    ("acting", "INFO", "", "it is part of the cluster: unfenced"),
    ("not_acting", "WARN", "", "it was fenced, or fenced itself in time"),
    ("broker_alive", "INFO", "other, alive", "another broker takes part"),
    ("broker_gone", "WARN", "other, alive", "another broker does not any more"),
    ("controller_changed", "INFO", "controller, controller_epoch", "who is the controller"),
    ("leading", "INFO", "leads, partitions", "how many partitions it leads, after brokers came"),
    ("connection_dropped", "WARN", "peer, reason, why", "it closed a peer's connection"),
    (
        "peer_unproven",
        "WARN",
        "other, address, reason",
        "the process at a broker's address did not prove that it is that broker",
    ),
    ("fault", "ERROR", "trace", "a mistake in Tidelog; one client lost its connection"),
    ("stopping", "INFO", "", "it was told to stop, and hands over"),
    ("stopped", "INFO, ERROR", "clean, reason", "the end; a disk that failed is a reason"),
    ("failed", "ERROR", "reason", "it could not start"),
    ("crashed", "ERROR", "reason", "a fault in Tidelog"),
    ("note", "any", "", "anything else; the text says what"),
)
"""Of the process around the node; those of the node are in its own table."""


def pages() -> dict[str, str]:
    """File name -> text."""
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
    return _EVENTS.replace("ALWAYS", fill(always, 100)) + "".join(rows)


def write(folder: Path) -> None:
    """Write every page into the folder."""
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
