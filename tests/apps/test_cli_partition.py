"""`tidelog partition describe`: on a real cluster, on another Kafka, and as text."""

import io
import json
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner, Result
from real_cluster import LONG_SESSIONS, eventually, make_topic
from rich.console import Console

from tidelog.apps.cli import partition as partition_command
from tidelog.apps.cli.main import cli
from tidelog.apps.views.partition import PartitionsView, PartitionView, ReplicaView
from tidelog.core.record.record import Record
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import Producer
from tidelog.shell.supervisor.cluster import LocalCluster

PATIENCE_S = 120


def run(bootstrap: str, *arguments: str) -> Result:
    words = ["partition", "describe", *arguments, "--bootstrap", bootstrap]
    return CliRunner().invoke(cli, words)


def read(bootstrap: str, *arguments: str) -> dict[str, Any]:
    found = run(bootstrap, *arguments, "--format", "json")
    assert found.stderr == ""
    document: dict[str, Any] = json.loads(found.stdout)
    assert document["holds"] is (found.exit_code == 0)
    return document


@pytest.fixture(scope="module")
def ours() -> Iterator[LocalCluster]:
    """Three brokers; each of the two partitions of `orders` has 20 records."""
    with LocalCluster(brokers=3, settings=LONG_SESSIONS) as running:
        make_topic(running.bootstrap, "orders", 2, 3, {"min.insync.replicas": "2"})
        with Cluster(running.bootstrap, timeout_s=PATIENCE_S) as cluster:
            append(cluster, "orders", 20)
        yield running


def append(cluster: Cluster, topic: str, count: int) -> None:
    producer = Producer(cluster, timeout_s=PATIENCE_S)
    for partition in cluster.topic(topic).partitions:
        producer.append(topic, partition, [Record(None, b"x" * 50, 1)] * count)


def settled(bootstrap: str, name: str, *, isr: int, high_watermark: int) -> dict[str, Any]:
    """Return the partition once this many replicas are in sync and know the high watermark."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        (found,) = read(bootstrap, name)["partitions"]
        known = [each["high_watermark"] for each in found["replicas"] if each["in_isr"]]
        if len(found["isr"]) == isr and known == [high_watermark] * isr:
            return dict(found)
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


# -- a real cluster --------------------------------------------------------------------------


def test_every_replica_is_described_by_its_broker(ours: LocalCluster) -> None:
    found = settled(ours.bootstrap, "orders/1", isr=3, high_watermark=20)
    assert (found["topic"], found["partition"], found["min_isr"]) == ("orders", 1, 2)
    assert sorted(each["broker"] for each in found["replicas"]) == [1, 2, 3]
    assert sorted(each["role"] for each in found["replicas"]) == ["follower", "follower", "leader"]
    for each in found["replicas"]:
        assert (each["log_start_offset"], each["log_end_offset"], each["lag"]) == (0, 20, 0)
        assert each["epochs"] == [[found["leader_epoch"], 0]]
        assert each["size"] > 20 * 50
        assert each["unreachable"] is None


def test_topic_without_partition_means_all_partitions(ours: LocalCluster) -> None:
    settled(ours.bootstrap, "orders/0", isr=3, high_watermark=20)
    assert [each["partition"] for each in read(ours.bootstrap, "orders")["partitions"]] == [0, 1]
    shown = run(ours.bootstrap, "orders")
    assert shown.exit_code == 0, shown.output
    assert "orders/0  leader" in shown.stdout
    assert "orders/1  leader" in shown.stdout
    assert shown.stdout.splitlines()[-1] == "✓ every replica is in sync"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing/0", "there is no topic 'nothing' in the cluster"),
        ("orders/7", "there is no partition 7 of topic 'orders'"),
        ("orders/x", "'orders/x' is not in the form TOPIC or TOPIC/PARTITION"),
        ("/1", "is not in the form TOPIC or TOPIC/PARTITION"),
    ],
)
def test_missing_topic_or_partition_is_one_line(
    ours: LocalCluster, name: str, message: str
) -> None:
    found = run(ours.bootstrap, name)
    assert found.exit_code == 2
    assert message in found.stderr
    assert found.stderr.count("\n") == 1


def test_killed_broker_is_shown_with_the_reason() -> None:
    with LocalCluster(brokers=3, settings=LONG_SESSIONS) as running:
        make_topic(running.bootstrap, "orders", 1, 3, {"min.insync.replicas": "2"})
        with Cluster(running.bootstrap, timeout_s=PATIENCE_S) as cluster:
            append(cluster, "orders", 10)
            leader = cluster.leader("orders", 0).leader
            running.kill(leader)
            append(cluster, "orders", 5)
        found = settled(running.bootstrap, "orders/0", isr=2, high_watermark=15)
        assert found["leader"] != leader
        assert leader not in found["isr"]
        (gone,) = [each for each in found["replicas"] if each["broker"] == leader]
        assert gone["unreachable"] is not None
        assert gone["out_for_ms"] is not None
        assert gone["why_out"]
        epochs = [each["epochs"] for each in found["replicas"] if each["in_isr"]]
        assert epochs[0] == epochs[1]
        assert [start for _, start in epochs[0]] == [0, 10]
        shown = run(running.bootstrap, "orders/0")
        assert shown.exit_code == 1
        assert f"broker {leader} did not respond: " in shown.stdout
        assert f"broker {leader} is out of the ISR for " in shown.stdout
        running.start_broker(leader)
        whole = settled(running.bootstrap, "orders/0", isr=3, high_watermark=15)
        assert {each["log_end_offset"] for each in whole["replicas"]} == {15}


def test_a_hung_broker_is_not_called_in_sync() -> None:
    """A hung broker stays in the ISR until its leader removes it."""
    with LocalCluster(brokers=3, settings=LONG_SESSIONS) as running:
        make_topic(running.bootstrap, "orders", 1, 3)
        with Cluster(running.bootstrap, timeout_s=PATIENCE_S) as cluster:
            leader = cluster.leader("orders", 0).leader
        settled(running.bootstrap, "orders/0", isr=3, high_watermark=0)
        hung = next(broker for broker in running.ids if broker != leader)
        others = ",".join(f"localhost:{running.port(b)}" for b in running.ids if b != hung)
        last = f"in the ISR, but did not respond: broker {hung}"

        def only_this_one_hangs() -> bool:
            shown = run(others, "orders/0", "--timeout", "2")
            assert shown.exit_code == 1
            if not shown.stdout.endswith(f"✗ 0 of 1 partitions are healthy; {last}\n"):
                return False
            return f"broker {hung} did not respond: " in shown.stdout

        running.pause(hung)
        try:
            eventually(only_this_one_hangs, "a broker that hangs")
        finally:
            running.resume(hung)


# -- brokers of another make -----------------------------------------------------------------


@pytest.fixture
def mock() -> Iterator[str]:
    producer = confluent_kafka.Producer({"test.mock.num.brokers": 3, "log_level": 0})
    brokers = producer.list_topics(timeout=PATIENCE_S).brokers.values()
    producer.produce("orders", b"x", partition=0)
    producer.produce("orders", b"y", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    producer.flush(1)  # the mock lives as long as its producer


def test_another_kafka_is_described_and_missing_values_are_named(mock: str) -> None:
    document = read(mock, "orders/0")
    (found,) = document["partitions"]
    assert "not a Tidelog cluster" in document["missing"]
    (leader,) = [each for each in found["replicas"] if each["role"] == "leader"]
    assert (leader["log_start_offset"], leader["high_watermark"]) == (0, 2)
    assert leader["log_end_offset"] is None
    shown = run(mock, "orders/0").stdout
    assert "not a Tidelog cluster" in shown


# -- as text ---------------------------------------------------------------------------------


def replica(broker: int, end: int | None, watermark: int | None, **more: Any) -> ReplicaView:
    more = {"log_start_offset": 0, "in_isr": True, "role": "follower", **more}
    return ReplicaView(
        broker=broker, address=None, log_end_offset=end, high_watermark=watermark, **more
    )


def bars(*replicas: ReplicaView) -> list[str]:
    return [line.plain.rstrip() for line in partition_command.bars(list(replicas))]


def test_bars_share_one_scale() -> None:
    full, light = partition_command.COMMITTED, partition_command.UNCOMMITTED
    assert bars(replica(1, 80, 40), replica(2, 40, 40), replica(3, 20, 20)) == [
        f"   1 {full * 20}{light * 20} 80",
        f"   2 {full * 20}{' ' * 20} 40",
        f"   3 {full * 10}{' ' * 30} 20",
    ]


def test_a_bar_begins_where_the_log_begins() -> None:
    full = partition_command.COMMITTED
    later = replica(2, 300, 300, log_start_offset=200)
    assert bars(replica(1, 300, 300, log_start_offset=100), later) == [
        f"   1 {full * 40} 300",
        f"   2 {' ' * 20}{full * 20} 300",
    ]


def test_one_record_above_the_high_watermark_is_visible() -> None:
    (line,) = bars(replica(1, 1_000_000, 999_999))
    assert line == f"   1 {partition_command.COMMITTED * 39}{partition_command.UNCOMMITTED} 1000000"


def test_unreachable_replica_is_drawn_from_its_leaders_view() -> None:
    """The replica's own high watermark is unknown, so the leader's is used."""
    seen = replica(2, 40, None, in_isr=False, role="unknown")
    assert (
        bars(replica(1, 80, 60), seen)[1] == f"   2 {partition_command.COMMITTED * 20}{' ' * 20} 40"
    )
    assert bars(replica(1, 80, 60), replica(3, None, None)) == bars(replica(1, 80, 60))


def test_empty_logs_have_no_bars() -> None:
    assert bars(replica(1, 0, 0), replica(2, 0, 0)) == []
    assert bars() == []


def partition(**more: Any) -> PartitionView:
    usual = {
        "topic": "orders",
        "partition": 0,
        "topic_id": None,
        "leader": 1,
        "leader_epoch": 3,
        "partition_epoch": 5,
        "isr": [1, 2],
        "elr": [],
        "min_isr": 2,
        "replicas": [replica(1, 9, 9, role="leader"), replica(2, 9, 9)],
        "unclean_election": None,
        "losses": [],
    }
    return PartitionView(**{**usual, **more})


def shown(one: PartitionView) -> str:
    out = io.StringIO()
    screen = Console(file=out, width=120, markup=False, highlight=False)
    partition_command.show_partitions(screen, PartitionsView([one], None))
    return out.getvalue()


def test_healthy_partition_has_no_remarks() -> None:
    text = shown(partition())
    assert "in sync: 1, 2 (min.insync.replicas 2)" in text
    assert text.endswith("✓ every replica is in sync\n")
    for word in ("out of", "lost", "truncated", "nobody", "refused"):
        assert word not in text


def test_a_replica_of_the_isr_that_does_not_answer_is_uncertain() -> None:
    hung = replica(2, 9, None, role="unknown", unreachable="nothing within 5 s")
    text = shown(partition(replicas=[replica(1, 9, 9, role="leader"), hung]))
    assert "uncertain" in text
    told = "✗ 0 of 1 partitions are healthy; in the ISR, but did not respond: broker 2\n"
    assert text.endswith(told)


def test_offline_partition_names_replicas_that_may_lead() -> None:
    text = shown(partition(leader=None, isr=[], elr=[2]))
    assert "no leader: it can't be written or read; eligible: broker 2" in text
    assert "0 in sync, 2 required: acks=all is rejected" in text
    assert text.endswith("✗ 0 of 1 partitions are healthy\n")


def test_lost_log_is_named_with_the_remedy() -> None:
    lines = " ".join(shown(partition(leader=None, isr=[], lost=[1])).split())
    assert "started without its log: broker 1; restore the last leader's folder" in lines
    assert "unclean" not in shown(partition(lost=[1]))


@pytest.mark.parametrize(
    ("isr", "leader", "told"),
    [
        ([1], 1, "it copies the damaged records from the leader"),
        ([2], 2, "no other replica is in sync, so it serves the remaining records"),
        ([], None, "it is repaired when another replica leads"),
    ],
)
def test_describe_names_a_damaged_replica(isr: list[int], leader: int | None, told: str) -> None:
    damage = {"offset": 4, "reason": "checksum differs"}
    damaged = replica(2, 9, 9, in_isr=2 in isr, damage=damage)
    one = partition(isr=isr, leader=leader, replicas=[replica(1, 9, 9), damaged])
    lines = " ".join(shown(one).split())
    assert f"broker 2 is damaged from offset 4 on: {told} (checksum differs)" in lines
    assert lines.endswith("✗ 0 of 1 partitions are healthy; damaged: broker 2")


def test_partition_with_a_damaged_replica_is_not_healthy() -> None:
    """The partition is unhealthy even while the ISR still lists the damaged replica."""
    damaged = replica(2, 9, 9, damage={"offset": 4, "reason": "checksum differs"})
    assert not partition(replicas=[replica(1, 9, 9), damaged]).holds


def test_describe_shows_an_election_without_a_known_isr() -> None:
    election = {"leader": 2, "leader_epoch": 3, "old_leader": -1, "old_isr": [], "old_elr": []}
    lines = " ".join(shown(partition(unclean_election=election)).split())
    assert "leads since leader epoch 3; no replica was known to have every record" in lines


def test_losses_are_shown() -> None:
    election = {"leader": 2, "leader_epoch": 3, "old_leader": 1, "old_isr": [1], "old_elr": []}
    loss = {
        "broker": 1,
        "topic": "orders",
        "partition": 0,
        "leader_epoch": 3,
        "start": 7,
        "end": 12,
        "high_watermark": 10,
        "committed": 3,
        "now_ms": 5,
    }
    lines = " ".join(shown(partition(unclean_election=election, losses=[loss])).split())
    assert "unclean election: broker 2 leads since leader epoch 3 instead of broker 1" in lines
    assert "broker 1 truncated offsets 7 to 11 in leader epoch 3; 3 of them committed" in lines


def test_epochs_are_shown_with_start_offsets_and_the_oldest_are_left_out() -> None:
    many = [[number, number * 10] for number in range(6)]
    text = shown(partition(replicas=[replica(1, 60, 60, epochs=many, role="leader")], isr=[1]))
    assert "… 2:20 3:30 4:40 5:50" in text


def test_narrow_screen_shows_everything() -> None:
    out = io.StringIO()
    screen = Console(file=out, width=50, markup=False, highlight=False)
    partition_command.show_partitions(screen, PartitionsView([partition()], None))
    assert "log end: 9" in out.getvalue()


@pytest.mark.parametrize(
    ("ms", "text"), [(5, "5 ms"), (3_240, "3.2 s"), (125_000, "2 min"), (7_300_000, "2 h")]
)
def test_durations_are_formatted(ms: int, text: str) -> None:
    assert partition_command.duration(ms) == text


def test_watch_continues_until_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    reports = [
        PartitionsView([partition()], None),
        PartitionsView([partition(leader=None, isr=[])], None),
    ]
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", nap)
    last = partition_command.watch_partitions(lambda: reports[-1], reports[0])
    assert last is reports[-1]
    assert naps == [partition_command.WATCH_S] * 3
