"""A driver is killed with -9 between a batch's write and its commit.

The same batch is replayed, and no row is lost or duplicated, even if records were deleted
meanwhile.
"""

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from batch_folders import write_batches
from confluent_kafka import TopicPartition
from real_cluster import PATIENCE_S, admin_client, eventually, make_topic
from topic_data import append, last_end, numbered, numbers_in, run_available, streaming

from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.groups.group_admin import committed_offsets
from tidelog.shell.supervisor.cluster import LocalCluster
from tidelog.spark import lag, read_report, register

pytestmark = pytest.mark.spark
DRIVER = Path(__file__).parent / "rig" / "source_driver.py"
DIES_WITHIN_S = 240


def test_a_driver_killed_before_the_commit(
    spark: Any, calm: LocalCluster, name: str, tmp_path: Path
) -> None:
    register(spark)
    make_topic(calm.bootstrap, name, partitions=2)
    append(calm.bootstrap, name, numbered(0, 70))  # before the stream began: not its business
    state, out = tmp_path / "state", tmp_path / "out"
    command = [sys.executable, str(DRIVER), calm.bootstrap, name, str(state), str(out), "1", "800"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as driver:
        try:
            eventually(lambda: (state / "commits" / "0").exists(), "it has begun", DIES_WITHIN_S)
            append(calm.bootstrap, name, numbered(100, 500))
            append(calm.bootstrap, name, numbered(500, 900), partition=1)
            assert driver.wait(DIES_WITHIN_S) == -signal.SIGKILL
        finally:
            driver.kill()
    assert (out / "batch=1").exists()
    assert not (state / "commits" / "1").exists()
    planned = last_end(state)["topics"][name]["partitions"]
    assert (planned["0"]["offset"], planned["1"]["offset"]) == (470, 400)
    append(calm.bootstrap, name, numbered(900, 950))
    shutil.copytree(state, tmp_path / "state2")

    play_again(streaming(spark, calm.bootstrap, subscribe=name, commitToGroup=name), state, out)
    assert numbers_in(spark, out) == list(range(100, 950))
    check_group(calm, name)

    # Once more from the same place, but the log has lost its front before.
    librdkafka = admin_client(calm.bootstrap)
    for done in librdkafka.delete_records([TopicPartition(name, 1, 150)]).values():
        done.result(PATIENCE_S)
    lost = str(tmp_path / "lost")
    door = streaming(spark, calm.bootstrap, subscribe=name, onDataLoss="report", dataLossPath=lost)
    play_again(door, tmp_path / "state2", tmp_path / "out2")
    assert numbers_in(spark, tmp_path / "out2") == [*range(100, 500), *range(650, 950)]
    (line,) = read_report(lost)
    assert (line["kind"], line["partition"], line["start"], line["end"]) == ("retention", 1, 0, 150)
    assert (line["batch"], line["resume"]) == (1, 150)


def play_again(door: Any, state: Path, out: Path) -> None:
    query = (
        door.load()
        .writeStream.foreachBatch(write_batches(str(out)))
        .option("checkpointLocation", str(state))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(PATIENCE_S * 4)
        assert set(lag(query.lastProgress["sources"][0]).values()) == {0}
    finally:
        query.stop()


def check_group(calm: LocalCluster, name: str) -> None:
    """Progress was committed to the group up to the end."""
    with Cluster(calm.bootstrap) as client:
        found = committed_offsets(client, name)
    assert {key.partition: at.offset for key, at in found.items()} == {0: 520, 1: 400}


def test_a_checkpoint_of_sparks_own_connector(
    spark: Any, calm: LocalCluster, name: str, tmp_path: Path
) -> None:
    """A stream of the connector continues here when only its format is changed."""
    register(spark)
    make_topic(calm.bootstrap, name)
    append(calm.bootstrap, name, numbered(0, 100))
    frame = streaming(spark, calm.bootstrap, subscribe=name, startingOffsets="earliest").load()
    state = tmp_path / "state"
    run_available(frame, state, tmp_path / "out")
    planned = state / "offsets" / "0"
    lines = planned.read_text().splitlines()
    planned.write_text("\n".join([*lines[:-1], f'{{"{name}":{{"0":40}}}}']))
    for checksum in (state / "offsets").glob(".*.crc"):
        checksum.unlink()
    run_available(frame, state, tmp_path / "out")
    assert numbers_in(spark, tmp_path / "out") == sorted([*range(100), *range(40, 100)])
