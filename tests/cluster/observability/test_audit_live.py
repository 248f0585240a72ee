"""The audit of folders that real brokers are writing, rolling, deleting and recovering."""

import threading
import time

from audit_in_process import audit_in_process
from real_cluster import (
    PATIENCE_S,
    await_isr,
    eventually,
    leader_of,
    make_topic,
    send_all,
    state_of,
)

from tidelog.shell.supervisor.cluster import LocalCluster

SETTINGS = {"log.retention.check.interval.ms": "200", "log.segment.delete.delay.ms": "100"}
KEEPS = {"segment.bytes": "30000"}
DROPS = {"segment.bytes": "30000", "retention.bytes": "60000", "file.delete.delay.ms": "100"}

ENOUGH = 300
"""Records in each topic: several times what retention keeps."""


def damage(cluster: LocalCluster) -> list[object]:
    """Return findings of damage, and of files that the audit does not recognise."""
    findings = audit_in_process([cluster.data]).findings
    return [found for found in findings if found.is_damage or found.kind == "foreign-file"]


def test_live_crashed_and_stopped_folders_pass() -> None:
    with LocalCluster(settings=SETTINGS) as cluster:
        for topic, configs in (("keeps", KEEPS), ("drops", DROPS)):
            make_topic(cluster.bootstrap, topic, configs=configs)
        done = threading.Event()
        sent = 0

        def write() -> None:
            nonlocal sent
            while not done.is_set():
                for topic in ("keeps", "drops"):
                    send_all(cluster.bootstrap, topic, [b"%d" % sent * 300 for _ in range(20)])
                sent += 20

        writer = threading.Thread(target=write)
        writer.start()
        try:
            give_up = time.monotonic() + PATIENCE_S
            while sent < ENOUGH and time.monotonic() < give_up:
                assert damage(cluster) == []
        finally:
            done.set()
            writer.join()
        assert sent >= ENOUGH
        killed = leader_of(cluster, "keeps")
        cluster.kill(killed)
        assert damage(cluster) == []
        send_all(cluster.bootstrap, "keeps", [b"more"] * 50)
        assert damage(cluster) == []
        cluster.start_broker(killed)
        for topic in ("keeps", "drops"):
            await_isr(cluster, topic, cluster.ids)

        def dropped(broker: int) -> bool:
            return bool(state_of(cluster, broker, "drops")["log_start_offset"] > 0)

        eventually(lambda: all(map(dropped, cluster.ids)), "retention has deleted records")
        for broker in cluster.ids:
            cluster.stop(broker)
        assert damage(cluster) == []
        rows = {
            (row.topic, row.partition): row for row in audit_in_process([cluster.data]).partitions
        }
        kept = rows["keeps", 0].replicas
        assert {each.log_end for each in kept} == {each.log_end for each in kept[:1]}
        assert len(kept) == 3
        assert kept[0].records == kept[0].log_end
        assert rows["drops", 0].replicas[0].log_start > 0
