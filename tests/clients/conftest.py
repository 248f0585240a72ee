"""One cluster for all clients; a test that kills a broker starts it again."""

from collections.abc import Iterator

import pytest
from real_cluster import assert_all_run
from real_transactions import FEW_INTERNAL_PARTITIONS

from tidelog.shell.supervisor.cluster import LocalCluster

SETTINGS = {
    # A broker that gets no CPU for seconds stays in the ISR; one that is killed leaves at once.
    "broker.session.timeout.ms": "60000",
    "replica.lag.time.max.ms": "60000",
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "1000",
    "min.insync.replicas": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    **FEW_INTERNAL_PARTITIONS,
}


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings=SETTINGS) as cluster:
        yield cluster
        assert_all_run(cluster)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic name that only this test uses."""
    text = request.node.name.removeprefix("test_")
    return "".join(c if c.isalnum() else "-" for c in text).strip("-")
