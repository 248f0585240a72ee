"""Small files are merged while others read: no row twice, no row missing."""

import os
import shutil
import threading
import time
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tidelog.apps.pipeline.lake import compaction, durable
from tidelog.apps.pipeline.lake.compaction import (
    build,
    files_to_merge,
    folders_to_merge,
    replace_folder,
)
from tidelog.apps.pipeline.lake.durable import CannotExchange, exchange

MB = 1 << 20
PATIENCE_S = 120.0


def write(folder: Path, number: int, offsets: range, **extra: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    columns = {"offset": list(offsets), **{k: [v] * len(offsets) for k, v in extra.items()}}
    parquet.write_table(pa.table(columns), folder / f"part-{number:08d}.parquet")


def offsets(folder: Path) -> list[int]:
    """Return the offsets in the order of the files' names."""
    found: list[int] = []
    for path in sorted(folder.glob("*.parquet")):
        found += parquet.read_table(path).column("offset").to_pylist()
    return found


def small_files(tmp_path: Path, count: int = 10) -> Path:
    folder = tmp_path / "data" / "topic=t" / "date=2026-11-16"
    for number in range(count):
        write(folder, number, range(number * 10, number * 10 + 10))
    (tmp_path / "staging").mkdir()
    return folder


def test_files_are_merged_and_rows_keep_their_order(tmp_path: Path) -> None:
    folder = small_files(tmp_path)
    name = str(folder.relative_to(tmp_path))
    [merge] = folders_to_merge(str(tmp_path), [name], str(tmp_path / "staging"), 10, MB)
    built = build(merge)
    assert (built.rows, built.merged) == (100, 10)
    assert len(list(folder.iterdir())) == 10, "nothing is changed before the exchange"
    replace_folder(built)
    assert len(list(folder.iterdir())) == 1
    assert offsets(folder) == list(range(100))
    assert not list((tmp_path / "staging").iterdir())
    assert not folders_to_merge(str(tmp_path), [name], str(tmp_path / "staging"), 10, MB)


def test_large_and_foreign_files_are_not_merged(tmp_path: Path) -> None:
    folder = small_files(tmp_path, 4)
    large = folder / "part-00000000-large.parquet"
    large.write_bytes(os.urandom(800_000))
    (folder / "readme.txt").write_text("of somebody else")
    name = str(folder.relative_to(tmp_path))
    [merge] = folders_to_merge(str(tmp_path), [name], str(tmp_path / "staging"), 4, MB)
    inode = large.stat().st_ino
    replace_folder(build(merge))
    assert large.stat().st_ino == inode, "linked, not copied"
    assert (folder / "readme.txt").read_text() == "of somebody else"
    assert len(list(folder.iterdir())) == 3


def test_files_with_different_columns_are_not_merged(tmp_path: Path) -> None:
    folder = small_files(tmp_path, 3)
    for number in range(3, 6):
        write(folder, number, range(number * 10, number * 10 + 10), country="DE")
    name = str(folder.relative_to(tmp_path))
    [merge] = folders_to_merge(str(tmp_path), [name], str(tmp_path / "staging"), 6, MB)
    replace_folder(build(merge))
    assert [len(parquet.read_schema(p).names) for p in sorted(folder.iterdir())] == [1, 2]
    assert offsets(folder) == list(range(60))


def test_readers_see_the_old_or_the_new_files(tmp_path: Path) -> None:
    folder = small_files(tmp_path)
    name = str(folder.relative_to(tmp_path))
    wrong: list[object] = []
    seen: set[int] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            # Whoever holds the folder itself sees one of its two states, whole.
            handle = os.open(folder, os.O_RDONLY)
            try:
                names = os.listdir(handle)
            finally:
                os.close(handle)
            seen.add(len(names))
            if len(names) not in (0, 1, 10):  # 0: it was exchanged, and is being removed
                wrong.append(names)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        until = time.monotonic() + PATIENCE_S
        for turn in count():
            if turn >= 50 and seen >= {1, 10}:
                break
            assert time.monotonic() < until, seen
            [merge] = folders_to_merge(str(tmp_path), [name], str(tmp_path / "staging"), 10, MB)
            built = build(merge)
            old = Path(built.staged)
            exchange(built.folder, built.staged)  # replace_folder, but the old one comes back
            assert offsets(folder) == list(range(100)), turn
            exchange(built.folder, built.staged)
            for path in old.iterdir():
                path.unlink()
            old.rmdir()
    finally:
        done.set()
        reader.join(PATIENCE_S)
    assert not wrong


def test_a_crash_before_or_after_the_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidelog.apps.pipeline.lake.commit import Lake

    folder = small_files(tmp_path)
    name = str(folder.relative_to(tmp_path))
    for place in ("exchange", "rmtree"):
        with Lake(str(tmp_path)) as lake:
            [merge] = folders_to_merge(str(tmp_path), [name], lake.staging, 2, MB)
            built = build(merge)
            with monkeypatch.context() as patch:
                where: Any = compaction if place == "exchange" else shutil
                patch.setattr(where, place, lambda *_: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    replace_folder(built)
        assert offsets(folder) == list(range(100))
        with Lake(str(tmp_path)) as lake:
            assert offsets(folder) == list(range(100))
            assert os.listdir(lake.staging) == []
        if place == "exchange":
            assert len(list(folder.iterdir())) == 10
    assert len(list(folder.iterdir())) == 1


def test_file_system_without_exchange_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(durable, "_RENAME_EXCHANGE", 1 << 20)  # a flag that nobody knows
    with pytest.raises(CannotExchange, match="can't exchange two folders"):
        exchange(str(tmp_path / "a"), str(tmp_path / "b"))
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError):
        exchange(str(tmp_path / "a"), str(tmp_path / "none"))


def test_files_that_are_selected_for_merging() -> None:
    kb = 1024
    small = {f"a{n}": kb for n in range(10)}
    assert files_to_merge(small, 11, MB) == ()
    assert files_to_merge(small, 10, MB) == tuple(sorted(small))
    grown = {**small, "b": 400 * kb}
    assert files_to_merge(grown, 10, MB) == tuple(sorted(small)), "the large file is not copied"
    assert files_to_merge(grown, 11, MB) == tuple(sorted(grown)), "unless that makes them enough"
    assert files_to_merge({"b": 600 * kb, "c": 900 * kb}, 2, MB) == (), "large enough"
    assert files_to_merge({"b": kb}, 1, MB) == (), "one alone is not merged"


def test_names_do_not_grow_with_repeated_merges(tmp_path: Path) -> None:
    """A topic with few records: a small file is merged into the existing one again and again."""
    folder = small_files(tmp_path, 2)
    name = str(folder.relative_to(tmp_path))
    for number in range(2, 40):
        [merge] = folders_to_merge(str(tmp_path), [name], str(tmp_path / "staging"), 2, MB)
        replace_folder(build(merge))
        [merged] = folder.iterdir()
        assert len(merged.name) < 60
        write(folder, number, range(number * 10, number * 10 + 10))
    assert offsets(folder) == list(range(400))
