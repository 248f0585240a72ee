"""Three brokers with their metadata in a real etcd of three nodes."""

from collections.abc import Iterator

import pytest
from real_cluster import (
    LONG_SESSIONS,
    SOON_S,
    await_isr,
    eventually,
    leader_of,
    make_topic,
    read_values,
    send_all,
)
from real_etcd import EtcdCluster, running_etcd

from tidelog.shell.supervisor.cluster import LocalCluster


@pytest.fixture(scope="module")
def etcd() -> Iterator[EtcdCluster]:
    with running_etcd(3) as etcd:
        yield etcd


@pytest.fixture(scope="module")
def cluster(etcd: EtcdCluster) -> Iterator[LocalCluster]:
    with LocalCluster(store=etcd.url("brokers"), settings=LONG_SESSIONS) as cluster:
        yield cluster


VALUES = [b"%d" % number for number in range(500)]
ALL = {"acks": "all"}


def test_a_killed_leader_is_replaced_by_proof_of_death(cluster: LocalCluster) -> None:
    """Long before its session is over."""
    make_topic(cluster.bootstrap, "killed")
    send_all(cluster.bootstrap, "killed", VALUES, conf=ALL)
    leader = leader_of(cluster, "killed")
    other = next(broker for broker in cluster.ids if broker != leader)
    cluster.kill(leader)

    def new_leader() -> bool:
        return cluster.metadata(other, ["killed"]).topics["killed"][0][0] not in (leader, -1)

    eventually(new_leader, "a new leader", SOON_S)
    send_all(cluster.bootstrap, "killed", VALUES, conf=ALL)
    cluster.start_broker(leader)
    await_isr(cluster, "killed", cluster.ids)
    assert read_values(cluster.bootstrap, "killed") == VALUES * 2


def test_brokers_stay_leaders_while_a_node_of_etcd_is_away(
    cluster: LocalCluster, etcd: EtcdCluster
) -> None:
    make_topic(cluster.bootstrap, "node-away")
    leader = leader_of(cluster, "node-away")
    for fault, healing in (("kill", "start"), ("freeze", "thaw")):
        node = etcd.leader()
        getattr(node, fault)()
        try:
            send_all(cluster.bootstrap, "node-away", VALUES, conf=ALL)
            make_topic(cluster.bootstrap, f"made-after-{fault}")
        finally:
            getattr(node, healing)()
            etcd.wait_for(node)
    assert leader_of(cluster, "node-away") == leader
    assert read_values(cluster.bootstrap, "node-away") == VALUES * 2


@pytest.mark.ci
def test_all_brokers_restart_on_their_store(etcd: EtcdCluster) -> None:
    with LocalCluster(store=etcd.url("restart"), settings=LONG_SESSIONS) as cluster:
        make_topic(cluster.bootstrap, "kept")
        send_all(cluster.bootstrap, "kept", VALUES, conf=ALL)
        for broker in cluster.ids:
            cluster.kill(broker)
        for broker in cluster.ids:
            cluster.start_broker(broker, wait=False)
        cluster.wait_ready()
        assert read_values(cluster.bootstrap, "kept") == VALUES
