"""The Python examples in the docs work unchanged on a real cluster.

tests/spark/test_examples_in_spark.py runs the examples that need Spark, in one session.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.apps.cli.connection import LAST_RESORT
from tidelog.shell.supervisor.cluster import LocalCluster

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    *sorted(ROOT.glob("docs/tutorial/*.md")),
    *sorted(ROOT.glob("docs/how-to/*.md")),
]
ON_SPARK = (
    "audit-replicas.md",
    "read-topics-in-spark.md",
    "run-a-pipeline.md",
    "write-topics-from-spark.md",
)
EXAMPLES = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    if page.name not in ON_SPARK
    for number, block in enumerate(
        re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S)
    )
    if "spark" not in block
]
PATIENCE_S = 120


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 4


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_works(example: str, calm: LocalCluster) -> None:
    _run(example, calm.bootstrap)


def test_example_of_the_readme_works_after_the_first_broker_died() -> None:
    """The README kills a broker before this example; it may be the first bootstrap server."""
    (example,) = (e.values[0] for e in EXAMPLES if e.id == "README.md-0")
    assert isinstance(example, str)
    with LocalCluster(brokers=3) as cluster:
        cluster.kill(cluster.ids[0])
        _run(example, cluster.bootstrap)


def _run(example: str, bootstrap: str) -> None:
    code = example.replace(LAST_RESORT, bootstrap)
    assert "localhost:9092" not in code, "the bootstrap line names three brokers"
    code = code.replace("consumer.poll(10)", f"consumer.poll({PATIENCE_S})")
    environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": bootstrap}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if "consumer.poll" in example:
        assert done.stdout == "b'hello'\n"
