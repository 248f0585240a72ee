"""Entries of loss ledgers reach the internal topic, also when the cluster first can't take them."""

import json
from pathlib import Path

from real_cluster import (
    QUICK_SESSIONS,
    await_isr,
    eventually,
    make_topic,
    send_all,
)

from tidelog.apps.views.losses import LossesView, view_losses
from tidelog.core.storage import layout
from tidelog.core.types import LOSSES_TOPIC
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.consumer import Reader
from tidelog.shell.supervisor.cluster import LocalCluster

CONFIGS = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}


def lose_a_record(cluster: LocalCluster, topic: str) -> tuple[int, int]:
    """Let an unclean election lose a record; return the old leader and the new one, which is then
    the only broker that lives."""
    make_topic(cluster.bootstrap, topic, replicas=2, configs=CONFIGS)
    send_all(cluster.bootstrap, topic, [b"both have it"], conf={"acks": "all"})
    with Cluster(cluster.bootstrap) as client:
        known = client.refresh([topic]).topics[topic].partitions[0]
    old, (new,) = known.leader, set(known.replicas) - {known.leader}
    cluster.kill(new)
    await_isr(cluster, topic, [old])
    send_all(cluster.bootstrap, topic, [b"only the leader has it"], conf={"acks": "all"})
    cluster.kill(old)
    cluster.kill(next(broker for broker in cluster.ids if broker not in (old, new)))
    cluster.start_broker(new)
    await_isr(cluster, topic, [new])
    return old, new


def published(cluster: LocalCluster) -> list[tuple[str, str, int]]:
    """Return key, event and broker of each record in the topic."""
    with Cluster(cluster.bootstrap) as client:
        if LOSSES_TOPIC not in client.refresh().topics:
            return []
        records = list(Reader(client).read(LOSSES_TOPIC, 0, 0))
    entries = [(record.key or b"", json.loads(record.value or b"")) for record in records]
    return [(key.decode(), entry["event"], entry["broker"]) for key, entry in entries]


def listed(cluster: LocalCluster, topic: str) -> LossesView:
    with Cluster(cluster.bootstrap) as client:
        client.refresh()
        return view_losses(client, topic)


def test_losses_are_in_the_topic_once_enough_brokers_live(name: str) -> None:
    with LocalCluster(settings=QUICK_SESSIONS) as cluster:
        old, new = lose_a_record(cluster, name)
        # One of three brokers lives, and the topic needs two in-sync replicas: not yet.
        assert published(cluster) == []
        assert [loss.source for loss in listed(cluster, name).losses] == ["ledger"]
        for broker in cluster.ids:
            if broker != new:
                cluster.start_broker(broker)
        await_isr(cluster, name, sorted([old, new]))

        def all_there() -> bool:
            kinds = {(event, broker) for _, event, broker in published(cluster)}
            return ("loss", old) in kinds and ("unclean_election", new) in kinds

        # An entry may be published twice; its key is the same, and views list it once.
        eventually(all_there, "both entries are in the topic")
        with Cluster(cluster.bootstrap) as client:
            topic = client.refresh().topics[LOSSES_TOPIC]
        assert topic.internal
        assert len(topic.partitions[0].replicas) == 3

        before = listed(cluster, name)
        assert [loss.source for loss in before.losses] == ["ledger", "ledger"]
        folder = Path(cluster.log_dir(old))
        cluster.stop(old)
        without = listed(cluster, name)
        assert list(without.unread) == [f"broker {old}"]
        assert [(loss.id, loss.source) for loss in without.losses] == [
            (before.losses[0].id, "ledger"),
            (before.losses[1].id, "topic"),
        ]
        # The disk was replaced: the ledger is lost, the topic still has its entries.
        for file in (layout.LOSSES, layout.LOSSES_PUBLISHED):
            (folder / file).unlink()
        cluster.start_broker(old)
        eventually(lambda: not listed(cluster, name).unread, "the broker responds")
        assert [loss.id for loss in listed(cluster, name).losses] == [
            loss.id for loss in before.losses
        ]
