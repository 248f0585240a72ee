"""The Python examples of the docs that need Spark, page by page, in the tests' session.

test_source_reads.py runs the page on reading topics, because it checks the results.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from topic_data import append, numbered

from tidelog.apps.cli.connection import LAST_RESORT
from tidelog.shell.client.admin import create_topic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.supervisor.cluster import LocalCluster

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "how-to" / "audit-replicas.md",
    ROOT / "docs" / "how-to" / "write-topics-from-spark.md",
    ROOT / "docs" / "how-to" / "run-a-pipeline.md",
)
FOLDERS = ('checkpoint"', "checkpoints/", "lake")
ORDERS = 5


@pytest.fixture(scope="module")
def orders(calm: LocalCluster) -> None:
    with Cluster(calm.bootstrap) as client:
        for topic in ("orders", "copy", "greetings"):
            create_topic(client, topic, 1, 3)
    append(calm.bootstrap, "orders", numbered(0, ORDERS))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
@pytest.mark.usefixtures("orders")
def test_python_of_the_page_works(
    page: Path, spark: Any, calm: LocalCluster, tmp_path: Path
) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    about_spark = [block for block in blocks if "spark" in block or page.name != "README.md"]
    assert about_spark
    if page.name == "run-a-pipeline.md":
        about_spark.reverse()  # it shows how a lake is read before it shows how one is made
    names: dict[str, Any] = {"spark": spark}
    for block in about_spark:
        block = block.replace(LAST_RESORT, calm.bootstrap)
        block = block.replace('"tidelog-data', f'"{calm.plan.data}')
        for folder in FOLDERS:
            block = block.replace(f'"{folder}', f'"{tmp_path}/{folder}')
        exec(block, names)
    if "query" in names:
        names["query"].processAllAvailable()
        names["query"].stop()
    if "copy" in names:
        copies = spark.read.format("tidelog").option("bootstrapServers", calm.bootstrap)
        assert copies.option("subscribe", "copy").load().count() >= ORDERS
    if "report" in names:
        assert names["report"].rows_in >= ORDERS
