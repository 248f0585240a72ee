"""The metrics page of a cluster without sockets, read by Prometheus' own parser."""

from typing import Any

import pytest
from node_cluster import ORDERS, TTL_MS, Cluster
from prometheus_client.parser import text_string_to_metric_families
from scraped import Scraped

from tidelog.core.controller.events import (
    CreateTopicReceived,
    DeleteTopicReceived,
    ElectionType,
    ElectLeadersReceived,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.metrics.exposition import SLICE_LINES, labelled
from tidelog.core.metrics.families import FAMILIES
from tidelog.core.node import events as on


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.start()
    cluster.create_topic(replicas=(2, 3, 1))
    assert (cluster.leader(), cluster.controller()) == (2, 1)
    return cluster


ORDERS_0 = {"topic": "orders", "partition": "0"}


def test_every_family_is_exposed_once(cluster: Cluster) -> None:
    lines = Scraped(cluster, 2).text.splitlines()
    told = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert told == [family.name for family in FAMILIES]
    assert len(set(told)) == len(told)


def test_samples_have_the_labels_of_the_table(cluster: Cluster) -> None:
    labels = {family.name: set(family.labels) for family in FAMILIES}
    for broker in cluster.brokers:
        for family in Scraped(cluster, broker).families:
            name = family.name if family.name in labels else f"{family.name}_total"
            for sample in family.samples:
                # Of topics there is a sum without labels too, as in Kafka.
                assert set(sample.labels) <= labels[name], sample


def test_a_healthy_cluster(cluster: Cluster) -> None:
    leader, controller = Scraped(cluster, 2), Scraped(cluster, 1)
    manager = "kafka_server_replicamanager_"
    assert leader(f"{manager}partitioncount") == leader(f"{manager}leadercount") == 1
    assert controller(f"{manager}leadercount") == 0
    assert leader(f"{manager}underreplicatedpartitions") == 0
    kafkacontroller = "kafka_controller_kafkacontroller_"
    assert controller(f"{kafkacontroller}activecontrollercount") == 1
    assert leader(f"{kafkacontroller}activecontrollercount") == 0
    assert controller(f"{kafkacontroller}globalpartitioncount") == 1
    assert controller(f"{kafkacontroller}activebrokercount") == 3
    assert leader("tidelog_broker_acting") == 1
    assert 0 < leader("tidelog_session_left_seconds") <= TTL_MS / 1000
    assert leader("process_open_fds") == 12


def test_traffic_is_counted_by_leader_and_follower(cluster: Cluster) -> None:
    answers = cluster.produce(2, b"one", b"two")
    assert [answer.error for answer in answers] == [ErrorCode.NONE] * 2
    cluster.run(50)
    leader, follower = Scraped(cluster, 2), Scraped(cluster, 3)
    topics = "kafka_server_brokertopicmetrics_"
    assert leader(f"{topics}messagesin_total", topic="orders") == 2
    size = leader(f"{topics}bytesin_total", topic="orders")
    assert size == cluster.nodes[2].replicas[ORDERS].log.size == leader(f"{topics}bytesin_total")
    assert follower(f"{topics}bytesin_total", topic="orders") == 0
    assert follower(f"{topics}replicationbytesin_total", topic="orders") == size
    assert leader(f"{topics}replicationbytesout_total", topic="orders") == 2 * size
    assert leader(f"{topics}totalproducerequests_total", topic="orders") == 2
    assert leader("kafka_log_log_logendoffset", **ORDERS_0) == 2
    assert leader("tidelog_partition_high_watermark", **ORDERS_0) == 2
    assert leader("kafka_topic_partition_current_offset", **ORDERS_0) == 2
    for replica in ("1", "2", "3"):
        assert leader("tidelog_replica_log_end_offset", **ORDERS_0, replica=replica) == 2
        assert leader("tidelog_replica_lag", **ORDERS_0, replica=replica) == 0
    lag = "kafka_server_fetcherlagmetrics_consumerlag"
    assert follower(lag, clientId="ReplicaFetcherThread-0-2", **ORDERS_0) == 0
    assert not follower.has("tidelog_replica_lag")


def test_fetched_records_are_counted(cluster: Cluster) -> None:
    cluster.produce(2, b"one")
    cluster.run(20)
    assert cluster.consume(2) == [b"one"]
    size = cluster.nodes[2].replicas[ORDERS].log.size
    leader = Scraped(cluster, 2)
    topics = "kafka_server_brokertopicmetrics_"
    assert leader(f"{topics}bytesout_total", topic="orders") == size
    assert leader(f"{topics}totalfetchrequests_total", topic="orders") >= 1


def test_dead_broker_changes_replica_metrics(cluster: Cluster) -> None:
    cluster.crash(3, proof=True)
    cluster.run(200)
    leader = Scraped(cluster, 2)
    manager = "kafka_server_replicamanager_"
    assert leader(f"{manager}underreplicatedpartitions") == 1
    assert leader(f"{manager}isrshrinks_total") == 1
    assert leader(f"{manager}isrexpands_total") == 0
    assert leader("kafka_cluster_partition_underreplicated", **ORDERS_0) == 1
    assert leader("kafka_cluster_partition_insyncreplicascount", **ORDERS_0) == 2
    cluster.start(3)
    cluster.run_until(lambda: Scraped(cluster, 2)(f"{manager}isrexpands_total") == 1)
    assert Scraped(cluster, 2)(f"{manager}underreplicatedpartitions") == 0


def test_an_election_is_counted_by_the_controller(cluster: Cluster) -> None:
    cluster.crash(2, proof=True)
    cluster.run(200)
    controller = Scraped(cluster, cluster.controller())
    stats = "kafka_controller_controllerstats_"
    assert controller(f"{stats}leaderelectionrateandtimems_count") == 1
    assert controller(f"{stats}uncleanleaderelections_total") == 0
    notes, _ = cluster.nodes[cluster.controller()].journal.take()
    (told,) = [note.fields() for note in notes if note.event == "leader_elected"]
    assert (told["leader"], told["old_leader"], told["topic"]) == (3, 2, "orders")


def test_truncated_records_of_an_unclean_election_are_counted() -> None:
    cluster = Cluster(settings={"min_insync_replicas": 1})
    cluster.start()
    cluster.create_topic(replicas=(2, 3))
    cluster.produce(2, b"both have it")
    cluster.crash(3, proof=True)
    cluster.run(100)
    cluster.produce(2, b"only the leader has it")
    cluster.crash(2, proof=True)
    cluster.start(3)
    cluster.run(500)
    key = cluster.nodes[1].image.partition("orders", 0)
    assert key is not None
    assert key.leader is None
    election = ElectLeadersReceived(0, ElectionType.UNCLEAN, (key.key,))
    cluster.call(cluster.controller(), election)
    cluster.run_until(lambda: cluster.leader() == 3)
    stats = "kafka_controller_controllerstats_uncleanleaderelections_total"
    assert Scraped(cluster, cluster.controller())(stats) == 1
    cluster.start(2)

    def lost() -> float:
        return Scraped(cluster, 2)("tidelog_records_lost_total", **ORDERS_0)

    cluster.run_until(lambda: 2 in cluster.nodes and ORDERS in cluster.nodes[2].replicas)
    cluster.run_until(lambda: lost() == 1)
    assert Scraped(cluster, 2)("tidelog_records_truncated_total", **ORDERS_0) == 1
    notes, _ = cluster.nodes[2].journal.take()
    (told,) = [note.fields() for note in notes if note.event == "records_lost"]
    assert (told["start"], told["end"], told["lost"]) == (1, 2, 1)


def test_deleted_topic_is_counted_only_in_the_sum(cluster: Cluster) -> None:
    cluster.produce(2, b"one")
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    assert Scraped(cluster, 2)(name, topic="orders") == 1
    cluster.call(cluster.controller(), DeleteTopicReceived(0, "orders"))
    cluster.run(100)
    after = Scraped(cluster, 2)
    assert after(name) == 1
    assert 'topic="orders"' not in after.text


def test_many_partitions_are_rendered_in_small_slices(cluster: Cluster) -> None:
    request = CreateTopicReceived(0, "many", b"m" * 16, 1200, 1)
    assert cluster.call(cluster.controller(), request).error is ErrorCode.NONE
    cluster.run_until(lambda: sum(len(n.replicas) for n in cluster.nodes.values()) == 1203)
    scraped = Scraped(cluster, 2)
    assert max(text.count("\n") for text in scraped.slices) <= SLICE_LINES
    assert len(scraped.slices) > 5


def test_self_fenced_broker_has_a_metric(cluster: Cluster) -> None:
    cluster.unrenewed.add(3)
    cluster.run(TTL_MS + 100)
    told = Scraped(cluster, 3)
    assert told("tidelog_broker_fencings_total") >= 1


@pytest.mark.parametrize(
    ("value", "text"),
    [("plain", "plain"), ('a"b', 'a\\"b'), ("a\\b", "a\\\\b"), ("a\nb", "a\\nb")],
)
def test_labels_are_escaped(value: Any, text: str) -> None:
    assert labelled(group=value) == f'{{group="{text}"}}'
    line = f"# TYPE x gauge\nx{labelled(group=value)} 1\n"
    (family,) = text_string_to_metric_families(line)
    assert family.samples[0].labels == {"group": value}


def test_damage_and_the_scrubber(cluster: Cluster) -> None:
    for value in (b"a", b"b", b"c"):
        cluster.produce(2, value)
    cluster.run_until(lambda: cluster.log(3) == cluster.log(2))
    before = Scraped(cluster, 3)
    assert before("tidelog_log_damages_total") == 0
    assert before("tidelog_scrub_verified_bytes_total") == 0, "it wrote all its records itself"
    cluster.step(3, on.ShutdownRequested(cluster.now_ms))
    cluster.run_until(lambda: 3 in cluster.halted)
    path = "orders-0/00000000000000000000.log"
    whole = cluster.disks[3].read(path, 0, cluster.disks[3].size(path))
    cluster.disks[3].write(path, whole[:-1] + b"?")
    cluster.start(3)
    assert not Scraped(cluster, 3).has("tidelog_scrub_last_pass_age_seconds")
    cluster.run_until(lambda: Scraped(cluster, 3)("tidelog_log_damages_total") == 1)
    cluster.run_until(lambda: Scraped(cluster, 3)("tidelog_damaged_logs") == 0)
    cluster.run_until(lambda: cluster.log(3) == cluster.log(2))
    cluster.run_until(lambda: cluster.nodes[3].scrubber.passes == 1)
    after = Scraped(cluster, 3)
    assert 0 < after("tidelog_scrub_verified_bytes_total") < len(whole)
    assert after("tidelog_scrub_passes_total") == 1
    cluster.run(5_000)
    assert Scraped(cluster, 3)("tidelog_scrub_last_pass_age_seconds") >= 5
