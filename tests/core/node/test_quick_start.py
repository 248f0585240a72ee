"""Brokers that start together are active at once, without waiting for a regular heartbeat."""

from node_cluster import Cluster


def test_three_brokers_act_within_a_tenth_of_a_second() -> None:
    cluster = Cluster()
    cluster.start()
    cluster.run(100)
    assert [node.acting for node in cluster.nodes.values()] == [True, True, True]


def test_a_broker_that_joins_later_acts_as_soon() -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.run(5000)
    cluster.start(3)
    cluster.run(100)
    assert cluster.nodes[3].acting
