"""One Spark session and one calm cluster for all tests that break neither.

Every test here that starts Spark has the mark `spark`; those with `smoke` also run in `make test`.
`SPARK=0` leaves them out.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidelog.shell.supervisor.cluster import LocalCluster

WHOLLY_OF_SPARK = re.compile(r"^pytestmark = .*pytest\.mark\.spark", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m 'not spark'`, do not import files that have only Spark tests.

    PySpark may be being installed at that moment.
    """
    if "not spark" not in config.getoption("markexpr") or collection_path.suffix != ".py":
        return None
    return True if WHOLLY_OF_SPARK.search(collection_path.read_text()) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("SPARK") == "0":
        for item in items:
            if item.get_closest_marker("spark"):
                item.add_marker(pytest.mark.skip(reason="SPARK=0"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A local session with two cores."""
    from tidelog.apps.spark.session import spark_session

    settings = {
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
    }
    session = spark_session("tidelog-tests", "local[2]", settings)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def calm() -> Iterator[LocalCluster]:
    """Three brokers for tests that break nothing."""
    with LocalCluster(settings={"log.retention.check.interval.ms": "300"}) as cluster:
        yield cluster
        assert all(cluster.is_running(broker) for broker in cluster.ids)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic name that only this test uses."""
    text = request.node.name.removeprefix("test_")
    return "".join(c if c.isalnum() else "-" for c in text).strip("-")
