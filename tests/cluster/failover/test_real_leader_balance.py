"""Balance of leaders after real brokers stop and start, and after `partition elect`."""

import json
import time
from collections import Counter
from collections.abc import Sequence

from click.testing import CliRunner, Result
from real_cluster import (
    LONG_SESSIONS,
    controller_of,
    eventually,
    make_topic,
    metadata_of,
    send_all,
)

from tidelog.apps.cli.main import cli
from tidelog.shell.supervisor.cluster import LocalCluster

PARTITIONS = 12
EVEN = {1: 4, 2: 4, 3: 4}
TOPIC = "orders"


def leaders(cluster: LocalCluster) -> dict[int, int]:
    """Return the number of partitions that each broker leads, according to broker 1."""
    partitions = metadata_of(cluster, 1, [TOPIC]).topics[TOPIC]
    return dict(Counter(each.leader for each in partitions.values()))


def all_in_sync(cluster: LocalCluster) -> bool:
    partitions = cluster.metadata(1, [TOPIC]).topics[TOPIC]
    return len(partitions) == PARTITIONS and all(len(each.isr) == 3 for each in partitions.values())


def make_even_topic(cluster: LocalCluster) -> None:
    make_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS, replicas=3)
    eventually(lambda: leaders(cluster) == EVEN, "four partitions for each broker")
    send_all(cluster.bootstrap, TOPIC, [b"before"])


def start_again(cluster: LocalCluster, brokers: Sequence[int]) -> None:
    for broker in brokers:
        cluster.start_broker(broker, wait=False)
    cluster.wait_ready(started=brokers)


def elect(cluster: LocalCluster, *words: str) -> Result:
    return CliRunner().invoke(cli, ["partition", "elect", *words, "-b", cluster.bootstrap])


def test_leaders_are_spread_after_all_brokers_stopped_or_were_killed() -> None:
    with LocalCluster(3, settings=LONG_SESSIONS) as cluster:
        make_even_topic(cluster)
        for broker in cluster.ids:
            assert cluster.stop(broker) == 0
        start_again(cluster, cluster.ids)
        eventually(lambda: leaders(cluster) == EVEN, "an even spread after a clean stop")
        eventually(lambda: all_in_sync(cluster), "all replicas in sync")
        for broker in cluster.ids:
            cluster.kill(broker)
        start_again(cluster, cluster.ids)
        eventually(lambda: leaders(cluster) == EVEN, "an even spread after kill -9")
        send_all(cluster.bootstrap, TOPIC, [b"after"])


def test_a_returned_broker_gets_its_partitions_back_at_the_next_check() -> None:
    settings = {**LONG_SESSIONS, "leader.imbalance.check.interval.seconds": "1"}
    with LocalCluster(3, settings=settings) as cluster:
        make_even_topic(cluster)
        cluster.stop(2)
        eventually(lambda: 2 not in leaders(cluster), "other leaders")
        cluster.start_broker(2)
        eventually(lambda: leaders(cluster) == EVEN, "an even spread again")


def test_a_new_controller_balances_leaders_too() -> None:
    settings = {**LONG_SESSIONS, "leader.imbalance.check.interval.seconds": "1"}
    with LocalCluster(3, settings=settings) as cluster:
        make_even_topic(cluster)
        first = controller_of(cluster)
        other = 1 if first != 1 else 2

        def leads() -> set[int]:
            partitions = cluster.metadata(other, [TOPIC]).topics[TOPIC]
            return {each.leader for each in partitions.values()}

        cluster.kill(first)
        eventually(lambda: first not in leads(), "other leaders")
        cluster.start_broker(first)
        eventually(lambda: leaders(cluster) == EVEN, "an even spread again")


def test_leaders_stay_without_automatic_balance() -> None:
    settings = {
        **LONG_SESSIONS,
        "auto.leader.rebalance.enable": "false",
        "leader.imbalance.check.interval.seconds": "1",
    }
    with LocalCluster(3, settings=settings) as cluster:
        make_even_topic(cluster)
        cluster.restart(2)
        eventually(lambda: all_in_sync(cluster), "all replicas in sync")
        since = time.monotonic()
        eventually(lambda: time.monotonic() - since > 3, "three intervals passed")
        assert 2 not in leaders(cluster)
        assert elect(cluster, "--all").exit_code == 0
        eventually(lambda: leaders(cluster) == EVEN, "an even spread on request")


def test_partition_elect_gives_leadership_back() -> None:
    with LocalCluster(
        3, settings={**LONG_SESSIONS, "auto.leader.rebalance.enable": "false"}
    ) as cluster:
        make_even_topic(cluster)
        cluster.restart(2)
        eventually(lambda: all_in_sync(cluster), "all replicas in sync")
        assert 2 not in leaders(cluster)
        mine = [
            number
            for number, each in metadata_of(cluster, 1, [TOPIC]).topics[TOPIC].items()
            if each.replicas[0] == 2
        ]
        one = elect(cluster, f"{TOPIC}/{mine[0]}", "--format", "json")
        assert one.exit_code == 0, one.output
        name = f"{TOPIC}/{mine[0]}"
        found = json.loads(one.stdout)
        assert found["partitions"] == [{"name": name, "error": None, "message": None}]
        eventually(lambda: leaders(cluster).get(2) == 1, "one partition")
        rest = elect(cluster, "--all")
        assert rest.exit_code == 0, rest.output
        told = [f"✓ {TOPIC}/{number}: broker 2 leads" for number in mine[1:]]
        assert rest.stdout.splitlines() == told
        eventually(lambda: leaders(cluster) == EVEN, "an even spread")
        needless = elect(cluster, TOPIC)
        assert needless.exit_code == 0
        assert needless.stdout.count("no election needed") == PARTITIONS
        nothing = elect(cluster, "--all")
        assert "every partition is led by its preferred replica" in nothing.stdout


def test_partition_elect_refuses_a_replica_that_is_down_and_elects_uncleanly_on_request() -> None:
    settings = {**LONG_SESSIONS, "auto.leader.rebalance.enable": "false"}
    with LocalCluster(2, settings=settings) as cluster:
        bootstrap = cluster.bootstrap
        make_topic(bootstrap, TOPIC, replicas=1)
        (partition,) = metadata_of(cluster, 1, [TOPIC]).topics[TOPIC].values()
        other = ({1, 2} - set(partition.replicas)).pop()
        send_all(bootstrap, TOPIC, [b"x"])
        cluster.kill(partition.replicas[0])
        eventually(
            lambda: cluster.metadata(other, [TOPIC]).topics[TOPIC][0].leader == -1, "no leader"
        )
        for words, error in (
            ((f"{TOPIC}/0",), "PREFERRED_LEADER_NOT_AVAILABLE"),
            ((f"{TOPIC}/0", "--unclean"), "ELIGIBLE_LEADERS_NOT_AVAILABLE"),
            ((f"{TOPIC}/7",), "UNKNOWN_TOPIC_OR_PARTITION"),
        ):
            found = elect(cluster, *words)
            assert found.exit_code == 1
            assert error in found.stderr
            assert len(found.stderr.splitlines()) == 1


def test_partition_elect_takes_names_or_all() -> None:
    for words in ((), ("orders", "--all")):
        found = CliRunner().invoke(cli, ["partition", "elect", *words])
        assert found.exit_code == 2
        assert "--all" in found.stderr
