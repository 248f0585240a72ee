"""Entries of loss ledgers reach the internal topic, also when the cluster first can't take them."""

import json
from pathlib import Path

from real_cluster import (
    CALL_S,
    LONG_SESSIONS,
    await_isr,
    eventually,
    leader_of,
    make_topic,
    metadata_of,
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
    leader = leader_of(cluster, topic)
    known = metadata_of(cluster, leader, [topic]).topics[topic][0]
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
    with Cluster(cluster.bootstrap, timeout_s=CALL_S) as client:
        if LOSSES_TOPIC not in client.refresh().topics:
            return []
        records = list(Reader(client).read(LOSSES_TOPIC, 0, 0))
    entries = [(record.key or b"", json.loads(record.value or b"")) for record in records]
    return [(key.decode(), entry["event"], entry["broker"]) for key, entry in entries]


def listed(cluster: LocalCluster, topic: str) -> LossesView:
    with Cluster(cluster.bootstrap, timeout_s=CALL_S) as client:
        client.refresh()
        return view_losses(client, topic)


def listed_whole(cluster: LocalCluster, topic: str) -> LossesView | None:
    """Return the losses; None if the topic could not be read."""
    found = listed(cluster, topic)
    return None if found.topic_problem else found


def all_read(cluster: LocalCluster, topic: str) -> LossesView:
    """Return the losses, with the ledgers of all brokers and the topic read."""

    def read() -> LossesView | None:
        found = listed(cluster, topic)
        return None if found.unread else found

    return eventually(read, "all brokers respond")


def test_losses_are_in_the_topic_once_enough_brokers_live(name: str) -> None:
    with LocalCluster(settings=LONG_SESSIONS) as cluster:
        old, new = lose_a_record(cluster, name)
        # One of three brokers lives, and the topic needs two in-sync replicas: not yet.
        eventually(lambda: published(cluster) == [], "nothing in the topic")
        eventually(
            lambda: [loss.source for loss in listed(cluster, name).losses] == ["ledger"],
            "the unclean election is in the ledger",
        )
        for broker in cluster.ids:
            if broker != new:
                cluster.start_broker(broker)
        await_isr(cluster, name, sorted([old, new]))

        def all_there() -> bool:
            kinds = {(event, broker) for _, event, broker in published(cluster)}
            return ("loss", old) in kinds and ("unclean_election", new) in kinds

        # An entry may be published twice; its key is the same, and views list it once.
        eventually(all_there, "both entries are in the topic")
        with Cluster(cluster.bootstrap, timeout_s=CALL_S) as client:
            topic = client.refresh().topics[LOSSES_TOPIC]
        assert topic.internal
        assert len(topic.partitions[0].replicas) == 3

        before = all_read(cluster, name)
        assert [loss.source for loss in before.losses] == ["ledger", "ledger"]
        folder = Path(cluster.log_dir(old))
        cluster.stop(old)
        without = eventually(lambda: listed_whole(cluster, name), "the topic is read")
        assert list(without.unread) == [f"broker {old}"]
        assert [(loss.id, loss.source) for loss in without.losses] == [
            (before.losses[0].id, "ledger"),
            (before.losses[1].id, "topic"),
        ]
        # The disk was replaced: the ledger is lost, the topic still has its entries.
        for file in (layout.LOSSES, layout.LOSSES_PUBLISHED):
            (folder / file).unlink()
        cluster.start_broker(old)
        after = all_read(cluster, name)
        assert [loss.id for loss in after.losses] == [loss.id for loss in before.losses]
