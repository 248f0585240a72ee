"""`tidelog demo` with real brokers."""

import json
import re
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from tidelog.apps.cli.main import cli
from tidelog.apps.demo.history import KILLED, RESTARTED, SAMPLED, read_history
from tidelog.apps.demo.orders import CLOSING_MS, LATE_MS, TOPIC, WINDOW_MS
from tidelog.apps.demo.timeline import build_timeline
from tidelog.apps.demo.writer import LastOrderFailed, Writer
from tidelog.core.record.validation import TIMESTAMP_AFTER_MAX_MS
from tidelog.shell.client.admin import create_topic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

PATIENCE_S = 120


def test_nothing_is_lost_when_the_leader_is_killed(tmp_path: Path) -> None:
    report = tmp_path / "new" / "report.html"
    words = ["demo", "--no-spark", "--format", "json", "--report", str(report)]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["holds"] is True
    assert found["lost"] == []
    assert found["acknowledged"] == found["sent"] == found["in_log"] > 100
    assert found["successor"] != found["killed"]
    assert found["in_sync"] == [1, 2, 3]
    assert found["report"] == str(report)
    check_history(found)
    text = report.read_text()
    assert f"{found['acknowledged']:,} acknowledged: 0 lost" in text
    assert f"kill -9 broker {found['killed']}" in text
    assert f"epoch {found['epoch']}: broker {found['successor']} leads" in text


def check_history(found: dict[str, Any]) -> None:
    """The history has the kill, the restart, the samples, and the events of the brokers' logs."""
    history = read_history(found["history"])
    killed, successor = found["killed"], found["successor"]
    first = {(event.event, event.broker): event for event in reversed(history)}
    assert first[KILLED, killed].at_ms < first[RESTARTED, killed].at_ms
    gained = first["leadership_gained", successor]
    assert gained.fields["leader_epoch"] == found["epoch"]
    assert first[KILLED, killed].at_ms <= gained.at_ms <= first[RESTARTED, killed].at_ms
    periods = build_timeline(history).leader_periods
    assert [(each.leader, each.epoch) for each in periods][-1] == (successor, found["epoch"])
    assert (
        max(each.fields["high_watermark"] for each in history if each.event == SAMPLED)
        == (found["acknowledged"])
    )


def test_the_producer_is_connected_to_every_broker() -> None:
    """A producer that is connected only to the leader waits a second after the leader dies."""
    name = "kafka_server_socket_server_metrics_connection_count"
    deadline = time.monotonic() + PATIENCE_S
    with LocalCluster(brokers=3) as cluster:
        with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
            create_topic(client, TOPIC, 1, 3)
            leader = client.leader(TOPIC, 0).leader
        writer = Writer(f"localhost:{cluster.port(leader)}")
        writer.start()
        try:
            for broker in cluster.ids:
                count = 0.0
                while count < 1:
                    assert time.monotonic() < deadline, f"no connection to broker {broker}"
                    with urlopen(cluster.metrics_url(broker), timeout=PATIENCE_S) as page:
                        found = page.read().decode()
                    clients = re.search(rf"^{name}{{.*PLAINTEXT.*}} (\S+)$", found, re.MULTILINE)
                    count = float(clients[1]) if clients else 0.0
        finally:
            writer.stop()


def test_the_order_that_closes_the_windows_is_acknowledged() -> None:
    with LocalCluster(brokers=3) as cluster:
        with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
            create_topic(client, TOPIC, 1, 3)
        writer = Writer(cluster.bootstrap)
        writer.start()
        writer.stop(close_windows=True)
    *earlier, last = writer.acked
    assert last.event_ms > max((o.event_ms for o in earlier), default=0) + WINDOW_MS + LATE_MS
    assert writer.failed == 0


def test_a_rejected_order_that_closes_the_windows_ends_the_demo() -> None:
    """Without it no window closes, and the demo would wait for the windows until its time limit."""
    with LocalCluster(brokers=1, settings={"offsets.topic.replication.factor": "1"}) as cluster:
        with Cluster(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
            limit = {"message.timestamp.after.max.ms": str(CLOSING_MS // 2)}
            create_topic(client, TOPIC, 1, 1, limit)
        writer = Writer(cluster.bootstrap)
        writer.start()
        with pytest.raises(LastOrderFailed, match="Invalid timestamp"):
            writer.stop(close_windows=True)


def test_brokers_accept_the_order_that_closes_the_windows_if_clocks_differ() -> None:
    """The demo hung when this order was exactly as far ahead as a broker accepts."""
    assert WINDOW_MS + LATE_MS < CLOSING_MS < TIMESTAMP_AFTER_MAX_MS // 2


def test_without_java_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    for package in ("pyspark", "numpy", "pyarrow"):
        if find_spec(package) is None:
            break
    else:
        package = "Java 17"
    result = CliRunner().invoke(cli, ["demo"])
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert package in line
    assert line.endswith("`tidelog demo --no-spark` runs without Spark")
