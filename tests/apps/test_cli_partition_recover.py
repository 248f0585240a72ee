"""`tidelog partition recover`: the records that each choice would lose, and the election."""

import io
import json
import time
from typing import Any

import pytest
from click.testing import CliRunner, Result
from real_cluster import LONG_SESSIONS, make_topic
from rich.console import Console

from tidelog.apps.cli.main import cli
from tidelog.apps.cli.partition import recovery_verdict, show_recovery
from tidelog.apps.views.partition import PartitionView, ReplicaView
from tidelog.apps.views.recovery import RecoveryView, view_recovery
from tidelog.core.record.record import Record
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import Producer
from tidelog.shell.supervisor.cluster import LocalCluster

PATIENCE_S = 120


def replica(broker: int, end: int, *epochs: list[int], **more: Any) -> ReplicaView:
    own = {"log_start_offset": 0, "log_end_offset": end, "epochs": list(epochs), **more}
    return ReplicaView(broker, "host:1", "follower", False, **own)


def plan(*replicas: ReplicaView, leader: int | None = None, **more: Any) -> RecoveryView:
    rest: dict[str, Any] = {"elr": [], "min_isr": 2, "unclean_election": None, "losses": []}
    rest.update(more)
    return view_recovery(
        PartitionView("orders", 0, None, leader, 7, 9, [], replicas=list(replicas), **rest)
    )


def losses(made: RecoveryView) -> dict[int, int | None]:
    return {each.broker: each.loses for each in made.candidates}


def test_the_longer_log_of_one_lineage_is_the_best() -> None:
    made = plan(replica(1, 90, [0, 0]), replica(2, 100, [0, 0]), replica(3, 100, [0, 0]))
    assert losses(made) == {2: 0, 3: 0, 1: 10}
    assert made.best is not None
    assert made.best.broker == 2
    assert made.complete


def test_later_epoch_is_preferred_to_a_longer_log() -> None:
    made = plan(replica(1, 500, [0, 0]), replica(2, 120, [0, 0], [3, 100]))
    assert losses(made) == {2: 0, 1: 20}
    assert made.best is not None
    assert made.best.broker == 2


def test_logs_without_common_records() -> None:
    assert losses(plan(replica(1, 50, [1, 0]), replica(2, 30, [2, 0]))) == {2: 0, 1: 30}
    assert losses(plan(replica(1, 0), replica(2, 30, [2, 0]))) == {2: 0, 1: 30}


def test_a_damaged_log_counts_up_to_its_damage() -> None:
    damage = {"offset": 40, "reason": "checksum differs"}
    damaged = replica(1, 100, [0, 0], [5, 60], damage=damage)
    made = plan(damaged, replica(2, 70, [0, 0]))
    assert losses(made) == {2: 0, 1: 30}
    assert made.candidates[1].state == "damaged from offset 40 on: checksum differs"
    assert made.candidates[1].last_epoch == 0


def test_a_replica_that_does_not_answer_leaves_the_plan_incomplete() -> None:
    silent = ReplicaView(3, None, "unknown", True, unreachable="connection refused")
    made = plan(replica(1, 90, [0, 0]), silent)
    assert losses(made) == {1: 0, 3: None}
    assert (made.silent, made.complete) == ([3], False)
    assert plan(silent).best is None


def test_a_replica_that_lost_its_folder_has_nothing() -> None:
    gone = ReplicaView(3, None, "unknown", False, unreachable="it has no replica any more")
    made = plan(replica(1, 90, [0, 0]), gone, lost=[3])
    assert losses(made) == {1: 0, 3: 90}
    assert made.complete
    assert made.best is not None
    assert made.best.broker == 1
    alone = plan(gone, lost=[3])
    assert alone.best is None
    assert recovery_verdict(alone).startswith("no replica has records: all folders were lost")


def test_committed_records_that_no_replica_has_are_counted() -> None:
    damage = {"offset": 40, "reason": "checksum differs"}
    one, two = (
        replica(broker, 100, [0, 0], damage=damage, high_watermark=100) for broker in (1, 2)
    )
    made = plan(one, two)
    assert made.committed_and_missing == 60
    out = io.StringIO()
    show_recovery(Console(file=out, width=120, markup=False, highlight=False), made)
    assert "at least 60 committed records are on none of these replicas" in out.getvalue()
    assert "to elect it: tidelog partition recover orders/0" in out.getvalue()


def test_the_plan_as_text() -> None:
    silent = ReplicaView(3, None, "unknown", True, unreachable="connection refused")
    out = io.StringIO()
    screen = Console(file=out, width=120, markup=False, highlight=False)
    show_recovery(screen, plan(replica(1, 1090, [4, 0], high_watermark=1000), silent))
    lines = [line.split() for line in out.getvalue().splitlines()]
    assert ["1", "4", "1,090", "0", "alive"] in lines
    assert ["3", "–", "–", "–", "connection", "refused"] in lines
    assert "committed at least up to offset 1,000" in out.getvalue()
    assert "broker 1 has the most records of those that responded" in out.getvalue()
    assert "the log of broker 3 is unknown" in out.getvalue()


# -- a real cluster --------------------------------------------------------------------------


def run(cluster: LocalCluster, *arguments: str) -> Result:
    words = ["partition", "recover", "orders/0", *arguments, "--bootstrap", cluster.bootstrap]
    return CliRunner().invoke(cli, words)


def plan_once(cluster: LocalCluster, **wanted: Any) -> dict[str, Any]:
    """Return the plan once it has these values."""
    until = time.monotonic() + PATIENCE_S
    while True:
        found = run(cluster, "--plan", "--format", "json")
        data = json.loads(found.stdout) if found.stdout else {}
        if data and {name: data[name] for name in wanted} == wanted:
            return dict(data)
        assert time.monotonic() < until, found.output
        time.sleep(0.2)


@pytest.mark.ci
def test_a_partition_without_a_leader_is_recovered() -> None:
    """The remaining replica lacks acknowledged records, so it leads only on request."""
    with LocalCluster(brokers=3, settings=LONG_SESSIONS) as running:
        make_topic(running.bootstrap, "orders", 1, 3, {"min.insync.replicas": "1"})
        with Cluster(running.bootstrap, timeout_s=PATIENCE_S) as cluster:
            append = Producer(cluster, timeout_s=PATIENCE_S).append
            append("orders", 0, [Record(None, b"x", 1)] * 10)
            made = plan_once(running, silent=[], committed_upto=10)
            assert [each["loses"] for each in made["candidates"]] == [0, 0, 0]
            leader = made["leader"]
            left, *others = [broker for broker in running.ids if broker != leader]
            running.kill(left)
            append("orders", 0, [Record(None, b"y", 1)] * 5)
        for broker in (*others, leader):
            running.kill(broker)
        running.start_broker(left)
        gone = sorted([*others, leader])
        made = plan_once(running, leader=None, best=left, silent=gone)
        assert made["candidates"][0]["log_end_offset"] == 10
        refused = run(running)
        assert refused.exit_code == 2
        assert "add --yes" in refused.stderr
        elected = run(running, "--yes")
        assert elected.exit_code == 0, elected.output
        assert f"broker {left} leads" in elected.stdout
        assert plan_once(running, leader=left)["best"] == left
