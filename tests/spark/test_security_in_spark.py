"""Spark reads and writes topics of brokers that require TLS and a password."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sasl_cluster import PASSWORD, USER, SaslCluster
from sink_rows import writing
from topic_data import failed_with, numbered, numbers_in, reading, run_available, streaming

from tidelog.apps.spark.security_options import spark_options
from tidelog.core.sasl.mechanism import SCRAM_SHA_512
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.groups.group_admin import committed_offsets
from tidelog.shell.client.security import read_security

pytestmark = pytest.mark.spark
PATIENCE_S = 240
PROTOCOL = "SASL_SSL"
ROWS = 3000
INLINE_KEY = "of-a-key"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslCluster]:
    made = SaslCluster(tmp_path_factory.mktemp("sasl"))
    made.create_users()
    yield made
    made.close()


def login(cluster: SaslCluster, password: str = PASSWORD) -> dict[str, str]:
    return spark_options(cluster.texts(SCRAM_SHA_512, USER, password, PROTOCOL))


def client(cluster: SaslCluster) -> Cluster:
    security = read_security(cluster.texts(SCRAM_SHA_512, USER, PASSWORD, PROTOCOL))
    return Cluster(cluster.bootstrap(PROTOCOL), security=security)


def write_rows(spark: Any, cluster: SaslCluster, topic: str, **options: str) -> None:
    frame = spark.range(0, ROWS, 1, 2).selectExpr("CAST(id AS STRING) value")
    writing(frame, cluster.bootstrap(PROTOCOL), topic=topic, **login(cluster), **options).save()


@pytest.mark.parametrize("transactional", ["false", "true"])
def test_batches_are_written_and_read(
    spark: Any, secured: SaslCluster, name: str, transactional: str
) -> None:
    write_rows(spark, secured, name, transactional=transactional)
    options = login(secured)
    frame = reading(spark, secured.bootstrap(PROTOCOL), subscribe=name, **options).load()
    found = sorted(bytes(row.value) for row in frame.select("value").collect())
    assert found == sorted(numbered(0, ROWS))


def test_streams_are_read_and_written(
    spark: Any, secured: SaslCluster, name: str, tmp_path: Path
) -> None:
    write_rows(spark, secured, name)
    options = {"subscribe": name, "startingOffsets": "earliest", **login(secured)}
    bootstrap = secured.bootstrap(PROTOCOL)
    lake = streaming(spark, bootstrap, commitToGroup=f"{name}-group", **options).load()
    progress = run_available(lake, tmp_path / "checkpoint", tmp_path / "lake")
    assert numbers_in(spark, tmp_path / "lake") == list(range(ROWS))

    rows = streaming(spark, bootstrap, **options).load().select("value")
    copy = writing(rows, bootstrap, topic=f"{name}-copy", **login(secured))
    query = copy.option("checkpointLocation", str(tmp_path / "copy")).trigger(availableNow=True)
    started = query.start()
    assert started.awaitTermination(PATIENCE_S)
    with client(secured) as cluster:
        committed = committed_offsets(cluster, f"{name}-group")
        assert sum(each.offset for each in committed.values()) == ROWS
    frame = reading(spark, bootstrap, subscribe=f"{name}-copy", **login(secured)).load()
    assert frame.count() == ROWS

    assert PASSWORD not in json.dumps(progress, default=str)
    for text in texts_below(tmp_path):
        assert PASSWORD.encode() not in text


def test_a_wrong_password_fails_in_one_line(spark: Any, secured: SaslCluster, name: str) -> None:
    options = login(secured, "not-her-password")
    frame = reading(spark, secured.bootstrap(PROTOCOL), subscribe=name, **options)
    failure = failed_with(lambda: frame.load().collect())
    assert "AuthenticationFailed" in failure
    assert "not-her-password" not in failure


def test_plans_show_no_secret(spark: Any, secured: SaslCluster, name: str) -> None:
    write_rows(spark, secured, name)
    bootstrap = secured.bootstrap(PROTOCOL)
    options = {"subscribe": name, **login(secured)}
    key = {"kafka.ssl.keystore.key": INLINE_KEY, "kafka.ssl.truststore.certificates": INLINE_KEY}
    plain = {"subscribe": name, "kafka.security.protocol": "PLAINTEXT", **key}
    frames = [
        make(spark, bootstrap, **chosen).load()
        for make in (reading, streaming)
        for chosen in (options, plain)
    ]
    for frame in frames:
        shown = frame._jdf.queryExecution().toString()
        assert "tidelog" in shown
        assert ("kafka.ssl.truststore" in shown) == frame.isStreaming  # Spark shows these options
        assert PASSWORD not in shown
        assert INLINE_KEY not in shown


def test_a_pipeline_takes_a_clients_file(
    spark: Any, secured: SaslCluster, name: str, tmp_path: Path
) -> None:
    """Also with Spark's detailed log and its event log, no file and no output has a password."""
    write_rows(spark, secured, name)
    plan = tmp_path / "orders.toml"
    plan.write_text(
        f'[pipeline]\nkind = "land"\ntopics = ["{name}"]\n'
        f'bootstrap = "{secured.bootstrap(PROTOCOL)}"\n[lake]\npath = "lake"\n'
    )
    events = tmp_path / "events"
    events.mkdir()
    logged = (
        *("--conf", "spark.eventLog.enabled=true", "--conf", f"spark.eventLog.dir={events}"),
        *("--conf", "spark.eventLog.compress=false", "--conf", "spark.log.level=INFO"),
        *("--master", "local[2]"),
    )
    file = secured.properties(mechanism=SCRAM_SHA_512, user=USER, password=PASSWORD)
    Path(file).write_text(Path(file).read_text().replace("SASL_PLAINTEXT", PROTOCOL))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tidelog", "pipeline", "run", str(plan), "--format", "json"),
            *("--command-config", file, *logged),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        cwd=tmp_path,
        env=dict(os.environ),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows_out"] == ROWS
    assert PASSWORD not in done.stdout + done.stderr
    texts = list(texts_below(tmp_path))
    assert any(b"SparkListenerApplicationStart" in text for text in texts)
    assert all(PASSWORD.encode() not in text for text in texts)


def texts_below(folder: Path) -> Iterator[bytes]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield path.read_bytes()
