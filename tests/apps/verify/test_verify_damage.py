"""The fault `damage`: which files it changes, in which order, and whole runs with it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidelog.apps.cli.main import cli
from tidelog.apps.verify.nemesis.damage import (
    CHECKPOINTS,
    HUGE_OFFSET,
    LIVE_WAYS,
    PARTITION_WAYS,
    ROW_WAYS,
    WAYS,
    damage,
)
from tidelog.apps.verify.nemesis.plan import Fault, choose_damage, make_plan
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Record
from tidelog.core.storage.checkpoint import parse_offsets
from tidelog.core.types import TopicPartition

PLACE, OTHER = TopicPartition("t", 1), TopicPartition("t", 2)
SEGMENT_BYTES = 40_000
Files = dict[str, bytes]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Two partitions of three segments each; space is reserved after the last records."""
    log_dir = tmp_path / "broker"
    for place in (PLACE, OTHER):
        folder = log_dir / f"{place.topic}-{place.partition}"
        folder.mkdir(parents=True)
        (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        (folder / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA")
        for base in (0, 100, 200):
            reserved = bytes(50_000 if base == 200 else 0)
            (folder / f"{base:020}.log").write_bytes(ten_batches(base) + reserved)
            (folder / f"{base:020}.index").write_bytes(bytes([0, 0, 0, 1, 0, 0, 0, base + 1]))
            (folder / f"{base:020}.timeindex").write_bytes(bytes(12))
            (folder / f"{base:020}.snapshot").write_bytes(b"s")
    for name in CHECKPOINTS.values():
        (log_dir / name).write_text("0\n2\nt 1 7\nt 2 8\n")
    for name in ("meta.properties", "metadata-revision", ".kafka_cleanshutdown"):
        (log_dir / name).write_text("version=1\n")
    return log_dir


def ten_batches(base: int) -> bytes:
    """A log of ten batches with ten records each, about 40,000 bytes in total."""
    records = [Record(None, b"x" * 390, 1) for _ in range(10)]
    made = [encode_batch(records, base_offset=base + 10 * n, leader_epoch=0) for n in range(10)]
    return b"".join(made)


def files(log_dir: Path) -> Files:
    found = (path for path in log_dir.rglob("*") if path.is_file())
    return {str(path.relative_to(log_dir)): path.read_bytes() for path in found}


def changed(before: Files, after: Files) -> set[str]:
    names = {*before, *after}
    return {name for name in names if before.get(name) != after.get(name)}


@pytest.mark.parametrize("way", WAYS)
def test_only_files_of_one_replica_are_damaged(log_dir: Path, way: str) -> None:
    before = files(log_dir)
    damage(str(log_dir), PLACE, way)
    after = files(log_dir)
    touched = changed(before, after)
    assert touched
    if way == "the broker's folder deleted":
        assert after == {}
    elif way in ROW_WAYS:
        (name,) = touched
        assert parse_offsets(name, after[name])[OTHER] == 8
    elif way in PARTITION_WAYS:
        assert all(name.startswith("t-1/") for name in touched)
    else:
        assert not any("/" in name for name in touched)


def test_a_huge_offset_is_written_for_one_partition(log_dir: Path) -> None:
    for what, name in CHECKPOINTS.items():
        damage(str(log_dir), PLACE, f"a huge {what}")
        assert parse_offsets(name, files(log_dir)[name]) == {PLACE: HUGE_OFFSET, OTHER: 8}


@pytest.mark.parametrize("way", LIVE_WAYS)
def test_damage_live_damages_only_closed_segments(log_dir: Path, way: str) -> None:
    before = files(log_dir)
    damage(str(log_dir), PLACE, way)
    assert changed(before, files(log_dir)) == {f"t-1/{100:020}.log"}
    for base in (100, 200):
        (log_dir / f"t-1/{base:020}.log").unlink(missing_ok=True)
    before = files(log_dir)
    damage(str(log_dir), PLACE, way)
    assert files(log_dir) == before, "no segment is closed"


@pytest.mark.parametrize(("which", "base"), [("first", 0), ("older", 100), ("active", 200)])
def test_the_segment_that_is_damaged(log_dir: Path, which: str, base: int) -> None:
    before, name = files(log_dir), f"t-1/{base:020}.log"
    damage(str(log_dir), PLACE, f"a flipped bit in the {which} segment")
    after = files(log_dir)
    assert changed(before, after) == {name}
    pairs = zip(before[name], after[name], strict=True)
    (at,) = [n for n, (old, new) in enumerate(pairs) if old != new]
    assert at < SEGMENT_BYTES, "in a record"


def test_cut_removes_records_and_not_only_reserved_space(log_dir: Path) -> None:
    damage(str(log_dir), PLACE, "the tail of the active segment cut")
    assert len(files(log_dir)[f"t-1/{200:020}.log"]) < SEGMENT_BYTES


def test_a_log_of_one_empty_segment_can_be_damaged(tmp_path: Path) -> None:
    for way in WAYS:
        folder = tmp_path / way / "t-1"
        folder.mkdir(parents=True)
        (folder / f"{0:020}.log").touch()
        damage(str(folder.parent), PLACE, way)


def test_each_kind_of_damage_is_used_once_before_any_is_used_twice() -> None:
    plan = make_plan(5, 1800, ("damage",))
    choices = [choose_damage(fault, (), [0, 1, 2]) for fault in plan]
    assert len(choices) > len(WAYS)
    assert {choice.way for choice in choices[: len(WAYS)]} == set(WAYS)
    assert {choice.clean for choice in choices} == {True, False}
    assert {choice.partition for choice in choices} == {0, 1, 2}


def test_leader_role_damages_a_partition_that_the_broker_leads() -> None:
    for draw in range(0, 2000, 37):
        fault = Fault(1.0, "damage", "leader", draw, 1.0, 0.5)
        assert choose_damage(fault, (4,), [0, 4]).partition == 4
        assert choose_damage(fault, (), [3]).partition == 3


def test_running_broker_gets_damage_in_a_partition_it_follows() -> None:
    for draw in range(0, 2000, 37):
        fault = Fault(1.0, "damage-live", "leader", draw, 1.0, 0.5)
        assert choose_damage(fault, (4,), [0, 4]).partition == 0


@pytest.mark.ci
def test_replicas_are_damaged_under_load_and_nothing_is_lost() -> None:
    """With our own client only: librdkafka 2.16 may write a record twice when a sequence error on
    one partition raises the producer epoch (librdkafka issue 4953)."""
    arguments = ["verify", "--faults", "damage,damage-live", "--client", "own"]
    arguments += ["--seconds", "40", "--rate", "3000"]
    found = CliRunner().invoke(cli, [*arguments, "--format", "json"])
    assert found.exit_code == 0, found.output
    data = json.loads(found.stdout)
    assert {fault["kind"] for fault in data["faults"]} == {"damage", "damage-live"}
    assert all(" partition " in fault["note"] for fault in data["faults"])
    assert data["replicas_compared"] == 18
