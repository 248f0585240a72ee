"""A lake survives a crash at every step: every reader sees each row once."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import dataset

from tidelog.apps.pipeline.lake import commit as commit_module
from tidelog.apps.pipeline.lake import durable, layout
from tidelog.apps.pipeline.lake.commit import Lake, LakeError, StagedFile
from tidelog.apps.pipeline.lake.writing import write_staged
from tidelog.apps.pipeline.plan import LandPlan, Origin

QUERY = "0b1c2d3e-aaaa"
DAY_US = 86_400_000_000


class Crash(BaseException):
    """An exception that no code catches, like kill -9."""


def records(offsets: list[int], topic: str = "t", day: int = 20_000) -> Any:
    return pa.RecordBatch.from_pydict(
        {
            "topic": [topic] * len(offsets),
            "partition": pa.array([0] * len(offsets), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array([day * DAY_US] * len(offsets), pa.timestamp("us", "UTC")),
        }
    )


def staged(lake: Lake, *batches: Any) -> list[StagedFile]:
    return list(write_staged([(layout.DATA, b) for b in batches], lake.staging, 1 << 20))


def offsets_in(path: Path) -> list[int]:
    """Return the offsets that a Parquet reader finds."""
    if not (path / "data").exists():
        return []
    found = dataset.dataset(path / "data", format="parquet", partitioning="hive").to_table()
    return sorted(found.column("offset").to_pylist())


def steps(monkeypatch: pytest.MonkeyPatch, at: int) -> Callable[[], int]:
    """Crash at the n-th call that changes the disk; return a function that counts calls."""
    count = 0

    def counted(act: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if count == at:
                raise Crash
            return act(*given, **named)

        return run

    monkeypatch.setattr(os, "replace", counted(os.replace))
    monkeypatch.setattr(os, "makedirs", counted(os.makedirs))
    monkeypatch.setattr(commit_module, "sync_folder", counted(durable.sync_folder))
    monkeypatch.setattr(durable, "sync_folder", counted(durable.sync_folder))
    monkeypatch.setattr(commit_module, "write_json", counted(durable.write_json))
    return lambda: count


def replayed(path: Path, files: int) -> None:
    """Replay batch 1 as Spark does after a crash: the same rows in other files."""
    with Lake(str(path)) as lake:
        if not lake.is_committed(QUERY, 1):
            rows = list(range(10, 22))
            parts = [records(rows[n::files]) for n in range(files)]
            lake.commit(QUERY, 1, [f for part in parts for f in staged(lake, part)])


@pytest.mark.parametrize("at", range(1, 40))
def test_a_crash_anywhere_leaves_every_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    with Lake(str(tmp_path)) as lake:
        lake.commit(QUERY, 0, staged(lake, records(list(range(10)))))
    crashed = False
    with monkeypatch.context() as patch:
        calls = steps(patch, at)
        lake = Lake(str(tmp_path))
        try:
            lake.open()
            batches = [records(list(range(10, 15))), records(list(range(15, 22)), day=20_001)]
            lake.commit(QUERY, 1, staged(lake, *batches))
        except Crash:
            crashed = True
        lake.close()
    if at == 39:
        assert not crashed, "there are more steps than this test tries"
        assert calls() > 10
    seen = offsets_in(tmp_path)
    assert len(seen) == len(set(seen)), "no row twice, also before the restart"
    replayed(tmp_path, files=3)
    assert offsets_in(tmp_path) == list(range(22))
    assert not list((tmp_path / "_tidelog").rglob("*.parquet"))


def test_a_crash_between_commit_and_moves_is_finished_on_open(tmp_path: Path) -> None:
    with Lake(str(tmp_path)) as lake:
        files = staged(lake, records([0, 1, 2]))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lake, "_move_all", lambda: None)
            lake.commit(QUERY, 0, files)
    assert offsets_in(tmp_path) == []
    with Lake(str(tmp_path)) as lake:
        assert offsets_in(tmp_path) == [0, 1, 2]
        assert lake.is_committed(QUERY, 0)
        assert lake.totals == {"data": 3}


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with Lake(str(tmp_path)), pytest.raises(LakeError, match="another pipeline is writing to"):
        Lake(str(tmp_path)).open()
    Lake(str(tmp_path)).open()


def test_checkpoints_of_another_lake_are_rejected(tmp_path: Path) -> None:
    with Lake(str(tmp_path)) as lake:
        lake.commit(QUERY, 5, staged(lake, records([0])))
        assert lake.is_committed(QUERY, 5)
        assert not lake.is_committed(QUERY, 6)
        with pytest.raises(LakeError, match=r"at batch 4, but .* at batch 5: .* is an older copy"):
            lake.is_committed(QUERY, 4)
        with pytest.raises(LakeError, match="written with another checkpoint"):
            lake.is_committed("other", 0)


def test_repeated_offsets_are_refused(tmp_path: Path) -> None:
    with Lake(str(tmp_path)) as lake:
        lake.commit(QUERY, 0, staged(lake, records([0, 1, 2])))
        with pytest.raises(LakeError, match=r"t-0: offset 2 was read again, but the lake"):
            lake.commit(QUERY, 1, staged(lake, records([2, 3])))
    assert offsets_in(tmp_path) == [0, 1, 2]
    with Lake(str(tmp_path), overlap="accept") as lake:
        lake.commit(QUERY, 1, staged(lake, records([2, 3])))
    assert offsets_in(tmp_path) == [0, 1, 2, 2, 3]


def test_rows_are_partitioned_by_topic_and_day(tmp_path: Path) -> None:
    with Lake(str(tmp_path)) as lake:
        mixed = pa.concat_batches(
            [records([0, 1]), records([2], day=-1), records([0], "a.b-c"), records([3])]
        )
        files = staged(lake, mixed)
        lake.commit(QUERY, 0, files)
    folders = sorted({str(p.parent.relative_to(tmp_path)) for p in tmp_path.rglob("*.parquet")})
    assert folders == [
        "data/topic=a.b-c/date=2024-10-04",
        "data/topic=t/date=1969-12-31",
        "data/topic=t/date=2024-10-04",
    ]
    by_folder = {(f.topic, f.date): f for f in files}
    assert by_folder["t", "2024-10-04"].rows == 3
    assert by_folder["t", "2024-10-04"].offsets == {"t-0": (0, 3)}


def test_many_days_do_not_keep_a_file_open_each(tmp_path: Path) -> None:
    with Lake(str(tmp_path)) as lake:
        days = [records([n], day=n * 17 % 300) for n in range(300)]
        files = staged(lake, *days)
        lake.commit(QUERY, 0, files)
    assert sum(f.rows for f in files) == 300
    assert offsets_in(tmp_path) == list(range(300))


def test_large_files_are_split(tmp_path: Path) -> None:
    with Lake(str(tmp_path)) as lake:
        batches = [(layout.DATA, records(list(range(n, n + 1000)))) for n in range(0, 8000, 1000)]
        files = list(write_staged(batches, lake.staging, 50_000))
        assert len(files) > 2
        lake.commit(QUERY, 0, files)
    assert offsets_in(tmp_path) == list(range(8000))


def test_lake_path_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = LandPlan("p", "x:1", Origin(("t",)), "checkpoint", "lake")
    assert (plan.path, plan.checkpoint) == (str(tmp_path / "lake"), str(tmp_path / "checkpoint"))
    with Lake("deep/lake") as lake:
        lake.commit(QUERY, 0, staged(lake, records([0, 1])))
    assert offsets_in(tmp_path / "deep" / "lake") == [0, 1]


def test_missing_batches_are_reported(tmp_path: Path) -> None:
    """The lake is an older copy than the checkpoint, or belongs to another checkpoint."""
    with Lake(str(tmp_path)) as lake:
        with pytest.raises(LakeError, match=r"has 3 batches, but .* has 0: rows would be"):
            lake.is_committed(QUERY, 3)
        assert not lake.is_committed(QUERY, 0)
        lake.commit(QUERY, 0, staged(lake, records([0])))
        assert not lake.is_committed(QUERY, 1)
        with pytest.raises(LakeError, match=r"has 2 batches, but .* has 1: rows would be"):
            lake.is_committed(QUERY, 2)
    with Lake(str(tmp_path), gaps=True) as lake:
        assert not lake.is_committed(QUERY, 7)


def test_failed_open_releases_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Lake(str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(broken, "_move_all", lambda: os.stat(tmp_path / "none"))
        with pytest.raises(FileNotFoundError):
            broken.open()
    with Lake(str(tmp_path)):
        pass
