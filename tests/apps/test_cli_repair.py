"""`tidelog repair`: the folder of a stopped broker is checked, and repaired from a copy."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from real_cluster import LONG_SESSIONS, eventually

from tidelog.apps.cli.main import cli
from tidelog.apps.verify.nemesis.damage import EVERYWHERE, PARTITION_WAYS, damage
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import parse
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.log_directory import LogDirectory
from tidelog.core.types import TopicPartition
from tidelog.shell.client import admin
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import Producer
from tidelog.shell.os_disk import OsDisk
from tidelog.shell.store.log_dir_lock import LogDirLock
from tidelog.shell.supervisor.cluster import LocalCluster

ORDERS, OTHER = TopicPartition("orders", 0), TopicPartition("other", 0)
CONFIG = LogConfig(segment_bytes=12_000, index_interval_bytes=1000)
RECORDS = 120
PATIENCE_S = 120
NOT_MENDED = {
    "the partition's folder deleted",
    "the topic id of another topic",
    *(f"the {which} segment under the name of another offset" for which in EVERYWHERE),
    "wrong positions in the indexes",
}
"""What a person does by hand: copies the folder, renames the file back. A broker that starts
with wrong positions in its indexes takes the segment for damaged."""


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A broker's folder after a clean stop, and a copy of it."""
    folder, copy = tmp_path / "broker-1", tmp_path / "copy"
    folder.mkdir()
    disk = OsDisk(str(folder))
    directory = LogDirectory.open(disk, 0)
    for number, partition in enumerate((ORDERS, OTHER), 1):
        log = directory.create(partition, bytes([number]) * 16, 0, CONFIG)
        fill(log)
    directory.close({ORDERS: RECORDS, OTHER: RECORDS})
    disk.close()
    shutil.copytree(folder, copy)
    return folder, copy


def fill(log: Log) -> None:
    for first in range(0, RECORDS, 3):
        records = [
            Record(None, b"%06d" % number * 50, number) for number in range(first, first + 3)
        ]
        batch = parse(encode_batch(records))
        batch.assign(first, 0 if first < 60 else 4)
        if log.epochs.assign(batch.leader_epoch, first):
            log.write_epochs()
        log.append([batch], 0)


def records(folder: Path) -> list[bytes]:
    """Return the records that a broker reads from a copy of the folder."""
    started = folder.with_name("started")
    shutil.rmtree(started, ignore_errors=True)
    shutil.copytree(folder, started)
    disk = OsDisk(str(started))
    directory = LogDirectory.open(disk, 0, lambda _: CONFIG)
    log = directory.logs[ORDERS]
    assert not directory.damaged, directory.damaged
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read_bytes(log.read(offset, 1 << 20))
        found.append(data)
        at = 0
        while at < len(data):
            batch = parse(data, at)
            at, offset = at + batch.size, batch.next_offset
    disk.close()
    return [b"".join(found)]


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def repair(*arguments: object) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(cli, ["repair", *map(str, arguments), "--format", "json"])
    assert done.stdout, done.output
    return done.exit_code, json.loads(done.stdout)


def orders(data: dict[str, Any]) -> dict[str, Any]:
    (found,) = (each for each in data["partitions"] if each["topic"] == "orders")
    return dict(found)


def test_sound_folder_is_not_changed(folders: tuple[Path, Path]) -> None:
    folder, copy = folders
    before = files(folder)
    for arguments in ((folder,), (folder, "--from", copy)):
        code, data = repair(*arguments)
        assert code == 0
        assert orders(data)["damaged"] == []
        assert orders(data)["at_start"] == []
        assert orders(data)["log_end_offset"] == RECORDS
    assert files(folder) == before


@pytest.mark.parametrize("way", PARTITION_WAYS)
def test_damaged_files_are_repaired_from_a_copy(folders: tuple[Path, Path], way: str) -> None:
    folder, copy = folders
    whole = records(folder)
    damage(str(folder), ORDERS, way)
    damaged, sound = files(folder), files(copy)
    code, data = repair(folder)
    assert files(folder) == damaged, "a check writes nothing"
    if way in NOT_MENDED:
        return
    if code == 0:
        assert records(folder) == whole, "no damage was found"
        return
    code, data = repair(folder, "--from", copy, "--plan")
    assert code == 1
    assert files(folder) == damaged, "a plan writes nothing"
    code, data = repair(folder, "--from", copy)
    assert code == 0, orders(data)
    assert orders(data)["mended"]
    assert files(copy) == sound, "the copy stays as it is"
    assert records(folder) == whole
    assert repair(folder)[0] == 0


def test_the_damaged_range_is_named(folders: tuple[Path, Path]) -> None:
    folder, _ = folders
    damage(str(folder), ORDERS, "the checksum of a batch in the older segment off by a bit")
    code, data = repair(folder)
    assert code == 1
    (found,) = orders(data)["damaged"]
    assert found["end"] - found["start"] == 3
    assert "checksum differs" in found["reason"]
    shown = CliRunner().invoke(cli, ["repair", str(folder)])
    assert f"{found['start']} to {found['end'] - 1}" in shown.stdout
    assert "1 of 2 partitions are damaged; start the broker" in shown.stdout


def test_copy_with_the_same_damage_repairs_nothing(
    folders: tuple[Path, Path],
) -> None:
    folder, copy = folders
    for each in folders:
        damage(str(each), ORDERS, "a flipped bit in the older segment")
    before = files(folder)
    code, data = repair(folder, "--from", copy)
    assert code == 1
    assert "lacks offsets" in orders(data)["problem"]
    assert files(folder) == before


def test_another_topic_of_the_same_name_repairs_nothing(folders: tuple[Path, Path]) -> None:
    folder, copy = folders
    damage(str(folder), ORDERS, "a flipped bit in the older segment")
    damage(str(copy), ORDERS, "the topic id of another topic")
    code, data = repair(folder, "--from", copy)
    assert code == 1
    assert "topic ids differ" in orders(data)["problem"]


@pytest.mark.parametrize("used", [0, 1])
def test_a_folder_in_use_is_refused(folders: tuple[Path, Path], used: int) -> None:
    folder, copy = folders
    damage(str(folder), ORDERS, "a flipped bit in the older segment")
    lock = LogDirLock.acquire(str(folders[used]))
    try:
        done = CliRunner().invoke(cli, ["repair", str(folder), "--from", str(copy)])
    finally:
        lock.release()
    assert done.exit_code == 2
    assert "stop it first" in done.output


@pytest.mark.ci
def test_only_replica_is_repaired_from_a_backup(tmp_path: Path) -> None:
    """A running broker can't repair its log: no other replica has the records."""
    values = [Record(None, b"%04d" % number * 100, 1) for number in range(100)]
    with LocalCluster(1, settings=LONG_SESSIONS) as running:
        with Cluster(running.bootstrap, timeout_s=PATIENCE_S) as client:
            admin.create_topic(client, "orders", 1, 1, {"segment.bytes": "4096"})
            for value in values:
                Producer(client).append("orders", 0, [value])
        assert running.stop(1) == 0
        folder, copy = Path(running.log_dir(1)), tmp_path / "copy"
        shutil.copytree(folder, copy)
        damage(str(folder), ORDERS, "a flipped bit in the older segment")
        running.start_broker(1)
        health = ["cluster", "health", "-b", running.bootstrap]
        damaged = "the replica of broker 1 is damaged from offset"
        eventually(lambda: damaged in CliRunner().invoke(cli, health).stdout, "the damage is found")
        assert running.stop(1) == 0
        code, data = repair(folder, "--from", copy)
        assert code == 0, data
        running.start_broker(1)
        words = ["consume", "orders", "-e", "-b", running.bootstrap, "-f", "%s\\n"]
        words += ["--timeout", str(PATIENCE_S)]
        read = subprocess.run(
            [sys.executable, "-m", "tidelog", *words], capture_output=True, check=True
        )
        assert read.stdout.split() == [value.value for value in values]
        eventually(lambda: CliRunner().invoke(cli, health).exit_code == 0, "the cluster is healthy")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--plan"], "--plan requires --from"),
        (["--from", "."], "the same folder"),
        ([], "has no partition folders"),
    ],
)
def test_wrong_usage_is_refused(tmp_path: Path, arguments: list[str], problem: str) -> None:
    given = [str(tmp_path) if each == "." else each for each in arguments]
    done = CliRunner().invoke(cli, ["repair", str(tmp_path), *given])
    assert done.exit_code == 2
    assert problem in done.output
