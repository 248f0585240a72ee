"""`controlled.shutdown.enable`: whether leadership moves before a broker stops."""

import pytest
from node_cluster import Cluster

from tidelog.core.node import events as on


@pytest.mark.parametrize("controlled", [True, False])
def test_leadership_is_handed_over_only_if_configured(controlled: bool) -> None:
    cluster = Cluster(settings={"controlled_shutdown_enable": controlled})
    cluster.start()
    cluster.create_topic()
    leader = cluster.leader()
    assert leader is not None
    cluster.step(leader, on.ShutdownRequested(cluster.now_ms))
    assert (leader in cluster.halted) is not controlled
    cluster.run_until(lambda: leader in cluster.halted)
    assert cluster.halted[leader].clean
    led_before_the_end = cluster.leader() is not None
    assert led_before_the_end is controlled
