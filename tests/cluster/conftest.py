"""Fixtures: one shared cluster for all tests that stop or damage no broker."""

from collections.abc import Iterator

import pytest
from real_cluster import LONG_SESSIONS, assert_all_run

from tidelog.shell.supervisor.cluster import LocalCluster


@pytest.fixture(scope="session")
def calm() -> Iterator[LocalCluster]:
    settings = {**LONG_SESSIONS, "log.retention.check.interval.ms": "300"}
    with LocalCluster(settings=settings) as cluster:
        yield cluster
        assert_all_run(cluster)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic name that only this test uses."""
    text = request.node.name.removeprefix("test_")
    return "".join(c if c.isalnum() else "-" for c in text).strip("-")
