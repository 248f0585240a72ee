"""/healthz: whether a broker serves, also while the metadata store does not respond."""

import time

from node_cluster import Cluster

from tidelog.core.node.measuring.request_times import RequestTimes, TurnTimes
from tidelog.shell.metrics.pages import OK, UNAVAILABLE, MetricsPages


def health(cluster: Cluster) -> tuple[str, str]:
    node = cluster.nodes[1]
    times = RequestTimes(time.monotonic_ns, TurnTimes(time.monotonic_ns))
    pages = MetricsPages(node, times, lambda: cluster.now_ms, dict, dict, {})
    page = pages("/healthz")
    assert page is not None
    return page.status, "".join(page.slices)


def test_a_broker_that_serves_without_the_store_is_healthy() -> None:
    cluster = Cluster()
    cluster.start()
    cluster.create_topic()
    cluster.run(1000)
    assert health(cluster) == (OK, "ok\n")
    cluster.store_away = True
    cluster.run_until(lambda: not cluster.nodes[1].acting)
    assert health(cluster) == (OK, "serving without the metadata store\n")
    cluster.store_away = False
    cluster.run_until(lambda: cluster.nodes[1].acting)
    assert health(cluster) == (OK, "ok\n")


def test_a_broker_that_never_joined_is_not_healthy() -> None:
    cluster = Cluster()
    cluster.store_away = True
    cluster.start(1)
    cluster.run(1000)
    assert health(cluster) == (UNAVAILABLE, "not part of the cluster\n")
