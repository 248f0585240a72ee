"""Pages of earlier moments on a real cluster: a leader is killed, then the page looks back."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from console_client import CALM, PATIENCE_S, eventually, serve

from tidelog.apps.cli.main import cli
from tidelog.apps.console.history.place import FILE, recorder_for, state_folder
from tidelog.apps.console.target import RemoteCluster
from tidelog.core.record.record import Record
from tidelog.shell.client import admin
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import Producer
from tidelog.shell.supervisor.cluster import LocalCluster


def watermarks(data: dict[str, Any]) -> list[int | None]:
    return [each["high_watermark"] for each in data["partition"]["replicas"]]


def test_scrub_back_before_the_death_of_a_leader(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with LocalCluster(brokers=3, data=str(data), settings=CALM) as running:
        with Cluster(running.bootstrap, timeout_s=PATIENCE_S) as client:
            admin.create_topic(client, "orders", 1, 3, {"min.insync.replicas": "2"})
            Producer(client).append("orders", 0, [Record(None, b"x", 1)] * 10)
            leader = client.leader("orders", 0).leader
        recorder = recorder_for(str(data))
        target = RemoteCluster(running.bootstrap)
        with serve(target, tmp_path / "static", recorder=recorder) as pages:
            partition = "partitions/orders/0"
            with pages.page(partition) as page:
                before = page.until(lambda data: watermarks(data) == [10, 10, 10])

                def recorded() -> int | None:
                    """Return a moment whose sample has all records; the history samples offsets
                    once a second."""
                    at_ms = time.time_ns() // 1_000_000
                    past = pages.get(f"/api/{partition}?at={at_ms}")
                    found = past.status == 200 and watermarks(past.json()) == [10, 10, 10]
                    return at_ms if found else None

                before_ms = eventually(recorded, "all records are in the history")
                running.kill(leader)
                after = page.until(lambda data: data["partition"]["leader"] not in (None, leader))
            epoch = after["partition"]["leader_epoch"]
            eventually(
                lambda: (
                    "leader_elected"
                    in [e["event"] for e in pages.read("events?topic=orders&partition=0")["events"]]
                ),
                "the election is an event",
            )

            def last_seen(moment: str) -> bool:
                """A killed broker may have responded just before the first new sample, and another
                one too late."""
                shown = pages.read(partition + moment)["last_seen"]
                found = [(each["broker"], each["log_end_offset"], each["epochs"]) for each in shown]
                return found == [(leader, 10, [[0, 0]])]

            eventually(lambda: last_seen(""), "the log of the dead broker, as it was last seen")
            eventually(
                lambda: last_seen(f"?at={time.time_ns() // 1_000_000}"),
                "the same in the history",
            )
            past = pages.read(f"{partition}?at={before_ms}")
            assert past["last_seen"] == []
            assert past["partition"]["leader"] == leader
            assert past["partition"]["leader_epoch"] == before["partition"]["leader_epoch"]
            ends = [each["log_end_offset"] for each in past["partition"]["replicas"]]
            assert ends == [10, 10, 10]
            assert past["sampled_at_ms"] <= before_ms
            assert any(e["text"].startswith("Every record is committed") for e in past["explain"])
            overview = pages.read(f"overview?at={before_ms}")
            assert [each["fenced"] for each in overview["brokers"]] == [False] * 3
            pages.until(
                "timeline?topic=orders&partition=0",
                lambda data: {"leader", "isr", "broker"} <= {e["kind"] for e in data["marks"]},
            )
            now_ms = time.time_ns() // 1_000_000
            changed = pages.read(f"diff?from={before_ms}&to={now_ms}")
            (found,) = [each for each in changed["partitions"] if each["topic"] == "orders"]
            assert {"what": "leader_epoch", "before": epoch - 1, "after": epoch} in found["changes"]
            assert pages.get("/api/diff?from=5&to=9").status == 404
            assert pages.get("/api/diff?from=9&to=5").status == 400
            assert pages.get(f"/api/{partition}?at=5").status == 404
            assert pages.read("session")["history"]["max_bytes"] == 256 << 20
        assert (data / FILE).exists()
        words = ["explain", "orders/0", "--at", str(before_ms), "--format", "json"]
        shown = CliRunner().invoke(cli, [*words, "--data", str(data)])
        assert shown.exit_code == 0, shown.output
        explained = json.loads(shown.stdout)
        assert explained["sampled_at_ms"] == past["sampled_at_ms"]
        assert explained["partition"]["leader"] == leader
        assert explained["explain"] == past["explain"]
        # The next console has the history of the first one.
        with serve(target, tmp_path / "static", recorder=recorder_for(str(data))) as pages:
            assert pages.read(f"{partition}?at={before_ms}")["partition"]["leader"] == leader


def test_history_of_a_remote_cluster_is_kept_by_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with LocalCluster(brokers=1) as running:
        target = RemoteCluster(running.bootstrap)
        with serve(target, tmp_path / "static", recorder=recorder_for(None)) as pages:
            overview = pages.until("overview", lambda data: data["cluster_id"])
            cluster_id = overview["cluster_id"]
            eventually(lambda: pages.read("session")["history"], "samples")
    assert Path(state_folder(), cluster_id, FILE).exists()
    assert recorder_for(None, 0).span() is None
