"""A broker does not start on a metadata store that is older than the one it has seen."""

from copy import deepcopy
from typing import Any

import pytest
from node_cluster import ORDERS, TTL_MS, Cluster

from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.metadata_store import Delete, Put
from tidelog.core.controller.metadata.mvcc import Mvcc
from tidelog.core.node import events as on
from tidelog.core.storage import layout
from tidelog.core.storage.disk import read_file
from tidelog.core.types import BrokerId

ALL = (1, 2, 3)


def files(cluster: Cluster, broker: BrokerId) -> dict[str, bytes | None]:
    """Return every file on a broker's disk."""
    disk = cluster.disks[broker]
    paths = [
        name if not disk.is_dir(name) else f"{name}/{inner}"
        for name in disk.list_dir("")
        for inner in (disk.list_dir(name) if disk.is_dir(name) else [""])
    ]
    return {path: read_file(disk, path) for path in paths}


def crash_all(cluster: Cluster) -> None:
    for broker in list(cluster.nodes):
        cluster.crash(broker)
    cluster.run(2 * TTL_MS)


def with_records(**settings: Any) -> tuple[Cluster, Mvcc]:
    """A cluster whose topic was created after its store was copied."""
    cluster = Cluster()
    cluster.start()
    cluster.run_until(lambda: all(node.acting for node in cluster.nodes.values()))
    copy = deepcopy(cluster.store)
    cluster.create_topic(**settings)
    cluster.produce(1, b"a", b"b")
    cluster.run(1_000)
    return cluster, copy


def test_a_store_that_went_back_is_refused_and_no_file_is_touched() -> None:
    cluster, old = with_records()
    crash_all(cluster)
    true, cluster.store = cluster.store, old
    before = {broker: files(cluster, broker) for broker in ALL}
    revision = old.revision
    cluster.start()
    cluster.run(10_000)
    assert set(cluster.halted) == set(ALL)
    for broker, halt in cluster.halted.items():
        assert not halt.clean
        assert f"it is at revision {revision}, and this broker has seen" in halt.reason
        assert "tidelog store rebuild" in halt.reason
        assert files(cluster, broker) == before[broker]
    assert old.revision == revision, "nothing was written to it"
    cluster.store = true
    cluster.start()
    cluster.run_until(lambda: cluster.leader() is not None)
    assert cluster.consume(cluster.leader() or 0) == [b"a", b"b"]


def test_a_store_that_went_back_and_was_written_to_is_refused() -> None:
    cluster, old = with_records()
    crash_all(cluster)
    while old.revision < cluster.store.revision + 10:
        old.txn((), (Put("config/broker/_default", b'{"n":"%d"}' % old.revision),))
    cluster.store = old
    cluster.start()
    cluster.run(10_000)
    assert set(cluster.halted) == set(ALL)
    assert all("another history" in halt.reason for halt in cluster.halted.values())


def test_a_store_that_forgot_an_isr_change_is_refused_by_the_leader() -> None:
    cluster, _ = with_records(min_insync_replicas="1")
    old = deepcopy(cluster.store)
    for broker in (2, 3):
        cluster.crash(broker, proof=True)
    cluster.run_until(lambda: cluster.nodes[1].replicas[ORDERS].partition.isr.members == {1})
    cluster.produce(1, b"c")
    crash_all(cluster)
    cluster.store = old
    cluster.start(1)
    cluster.run(1_000)
    assert "went back in time" in cluster.halted[1].reason


def test_the_mark_of_a_clean_stop_outlives_a_refusal() -> None:
    cluster, old = with_records()
    for broker in ALL:
        cluster.step(broker, on.ShutdownRequested(cluster.now_ms))
        cluster.run_until(lambda broker=broker: broker in cluster.halted)  # type: ignore[misc]
    cluster.store = old
    marks = [read_file(cluster.disks[broker], layout.CLEAN_SHUTDOWN) for broker in ALL]
    assert None not in marks
    cluster.start()
    cluster.run(1_000)
    assert set(cluster.halted) == set(ALL)
    assert [read_file(cluster.disks[broker], layout.CLEAN_SHUTDOWN) for broker in ALL] == marks


def test_a_store_that_is_ahead_is_followed() -> None:
    cluster, _ = with_records()
    crash_all(cluster)
    cluster.store.txn((), (Put("config/broker/_default", b"{}"),))
    cluster.start()
    cluster.run_until(lambda: cluster.leader() is not None)


def test_broker_without_its_revision_accepts_a_store_with_its_topics() -> None:
    cluster, _ = with_records()
    crash_all(cluster)
    cluster.disks[1].write(layout.METADATA_REVISION, b"garbage")
    cluster.start()
    cluster.run_until(lambda: cluster.leader() is not None)
    assert any("metadata-revision is damaged" in w for w in cluster.nodes[1].directory.warnings)
    crash_all(cluster)
    cluster.start()
    cluster.run_until(lambda: cluster.leader() is not None)
    assert not cluster.nodes[1].directory.revision_damaged, "it is written anew"


@pytest.mark.parametrize("went_back", [True, False], ids=["went back", "topic deleted"])
def test_broker_without_its_revision_refuses_a_store_without_its_topics(
    went_back: bool,
) -> None:
    cluster, old = with_records()
    crash_all(cluster)
    if went_back:
        cluster.store = old
    else:
        gone = (Delete(keys.topic_name("orders")), Delete(keys.topic_id(b"t" * 16), prefix=True))
        cluster.store.txn((), gone)
    cluster.disks[1].write(layout.METADATA_REVISION, b"garbage")
    cluster.start(1)
    cluster.run(1_000)
    assert "does not know the topic of 1 folders here (orders-0 first)" in cluster.halted[1].reason
    cluster.disks[1].delete(layout.METADATA_REVISION)
    cluster.start(1)
    cluster.run(10_000)
    assert any(name.endswith("-stray") for name in cluster.disks[1].list_dir(""))
