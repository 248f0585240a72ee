"""The simulator's disk loses only what a real disk may lose."""

from collections.abc import Callable
from random import Random

import pytest

from tidelog.core.storage import layout
from tidelog.core.storage.checkpoint import CheckpointChecksums, CheckpointError, format_offsets
from tidelog.core.storage.disk import DiskError, DiskFull, MissingFile, replace_file
from tidelog.core.types import TopicPartition
from tidelog.lab.sim.machine.damage import damage_checkpoint, damage_log, segments
from tidelog.lab.sim.machine.disk import PowerLossWeights, ProcessDied, SimDisk
from tidelog.lab.sim.world import World

ONLY: dict[str, PowerLossWeights] = {
    kind: PowerLossWeights(
        **{name: float(name == kind) for name in ("forget", "tear", "flip", "zero", "keep")}
    )
    for kind in ("forget", "tear", "flip", "zero", "keep")
}


def disk(power_loss: PowerLossWeights | None = None, seed: int = 1) -> SimDisk:
    made = SimDisk(World(seed), "1", power_loss or ONLY["forget"])
    made.make_dir("d")
    made.sync_dir("")
    return made


def contents(of: SimDisk) -> dict[str, bytes]:
    return dict(of.fingerprint())


def synced_file(of: SimDisk, path: str, data: bytes) -> None:
    of.write(path, data)
    of.sync(path)
    of.sync_dir("d")


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", sorted(ONLY))
def test_synced_bytes_survive_any_fate_of_unsynced_bytes(kind: str, seed: int) -> None:
    one = disk(ONLY[kind], seed)
    synced_file(one, "d/log", b"stable")
    one.append("d/log", [b"-unsynced"])
    one.lose_power()
    assert contents(one)["d/log"].startswith(b"stable")
    assert len(contents(one)["d/log"]) <= len(b"stable-unsynced")


@pytest.mark.parametrize(
    ("kind", "left"),
    [("forget", b"stable"), ("keep", b"stable-unsynced")],
)
def test_unsynced_end_is_lost_or_kept(kind: str, left: bytes) -> None:
    one = disk(ONLY[kind])
    synced_file(one, "d/log", b"stable")
    one.append("d/log", [b"-un", b"synced"])
    one.lose_power()
    assert contents(one)["d/log"] == left


def test_bit_flip_changes_one_unsynced_bit() -> None:
    flipped = 0
    for seed in range(40):
        one = disk(ONLY["flip"], seed)
        synced_file(one, "d/log", b"stable")
        one.append("d/log", [bytes(20)])
        one.lose_power()
        tail = contents(one)["d/log"][6:]
        assert sum(byte.bit_count() for byte in tail) == 1
        flipped += 1
    assert flipped == 40


def test_unsynced_truncation_is_undone_by_power_loss() -> None:
    one = disk()
    synced_file(one, "d/log", b"0123456789")
    one.truncate("d/log", 4)
    one.append("d/log", [b"new"])
    assert contents(one)["d/log"] == b"0123new"
    one.lose_power()
    assert contents(one)["d/log"] == b"0123456789"


def test_newest_unsynced_names_are_lost_first() -> None:
    seen = set()
    for seed in range(40):
        one = disk(ONLY["keep"], seed)
        for name in ("a", "b", "c"):
            one.write(f"d/{name}", b"x")
            one.sync(f"d/{name}")
        one.lose_power()
        seen.add("".join(path[-1] for path in contents(one)))
    assert seen == {"", "a", "ab", "abc"}


def test_a_replaced_file_is_the_old_or_the_new_one() -> None:
    for seed in range(30):
        for dies_in in range(5):
            one = disk(seed=seed)
            synced_file(one, "d/f", b"old")
            one.dies_in = dies_in
            try:
                replace_file(one, "d/f", b"new")
            except ProcessDied:
                one.lose_power()
                assert contents(one)["d/f"] in (b"old", b"new")
            else:
                one.lose_power()
                assert contents(one)["d/f"] == b"new"


def test_a_sync_proves_nothing_about_later_bytes() -> None:
    one = disk()
    synced_file(one, "d/log", b"a")
    one.append("d/log", [b"b"])
    sync = one.begin_sync("d/log")
    assert sync is not None
    one.append("d/log", [b"c"])
    one.finish_sync(sync)
    one.lose_power()
    assert contents(one)["d/log"] == b"ab"


def test_a_sync_proves_nothing_if_the_file_was_cut_meanwhile() -> None:
    one = disk()
    synced_file(one, "d/log", b"a")
    one.append("d/log", [b"bb"])
    sync = one.begin_sync("d/log")
    assert sync is not None
    one.truncate("d/log", 1)
    one.append("d/log", [b"cc"])
    one.finish_sync(sync)
    one.lose_power()
    assert contents(one)["d/log"] == b"a"


def test_full_disk_writes_a_part_and_then_fails() -> None:
    one = disk()
    one.full_until_ms = 1
    with pytest.raises(DiskFull):
        one.append("d/log", [b"0123456789"])
    assert len(contents(one)["d/log"]) <= 10


def test_a_broken_disk_refuses_to_sync() -> None:
    one = disk()
    synced_file(one, "d/log", b"a")
    one.broken_until_ms = 1
    with pytest.raises(DiskError):
        one.sync("d/log")


@pytest.mark.parametrize(
    "do",
    [
        lambda d: d.read("d/none", 0, 1),
        lambda d: d.size("d/none"),
        lambda d: d.sync("d/none"),
        lambda d: d.sync_dir("none"),
        lambda d: d.rename("d/none", "d/other"),
        lambda d: d.append("none/file", [b"x"]),
    ],
    ids=["read", "size", "sync", "sync_dir", "rename", "append"],
)
def test_missing_file_raises_missing_file(do: Callable[[SimDisk], object]) -> None:
    with pytest.raises(MissingFile):
        do(disk())


def test_directory_is_renamed_and_deleted_with_its_files() -> None:
    one = disk()
    synced_file(one, "d/log", b"a")
    one.rename("d", "e")
    assert one.list_dir("") == ["e"]
    assert one.list_dir("e") == ["log"]
    one.delete_dir("e")
    assert one.list_dir("") == []
    one.lose_power()
    assert contents(one) in ({"d/log": b"a"}, {"e/log": b"a"}, {})


def test_damaged_bytes_stay_damaged_after_a_power_failure() -> None:
    one = disk(ONLY["forget"])
    synced_file(one, "d/log", b"stable")
    one.append("d/log", [b"-unsynced"])
    before = one.cuts
    one.rot("d/log", 2, b"XY")
    assert one.cuts > before, "the oracle looks again"
    assert one.read("d/log", 0, 99) == b"stXYle-unsynced"
    one.lose_power()
    assert contents(one)["d/log"] == b"stXYle"


def test_a_shortened_file_stays_short() -> None:
    one = disk(ONLY["keep"])
    synced_file(one, "d/log", b"stable")
    one.shorten("d/log", 3)
    one.lose_power()
    assert contents(one)["d/log"] == b"sta"
    assert one.append("d/log", [b"!"]) == 3


def test_reads_of_bad_bytes_fail_until_they_are_cut_off_or_replaced() -> None:
    one = disk()
    synced_file(one, "d/log", b"0123456789")
    one.spoil("d/log", 4, 99)
    one.append("d/log", [b"more"])
    assert one.read("d/log", 0, 4) == b"0123"
    assert one.read("d/log", 10, 4) == b"more", "what is written later is sound"
    with pytest.raises(DiskError):
        one.read("d/log", 3, 2)
    one.truncate("d/log", 5)
    with pytest.raises(DiskError):
        one.read("d/log", 0, 5)
    one.truncate("d/log", 4)
    assert one.read("d/log", 0, 5) == b"0123"
    one.spoil("d/log", 0, 4)
    replace_file(one, "d/log", b"new")
    assert one.read("d/log", 0, 3) == b"new"


def test_bad_bytes_read_as_zeros_after_a_restart() -> None:
    one = disk()
    synced_file(one, "d/log", b"0123456789")
    one.spoil("d/log", 4, 6)
    one.restarted()
    assert one.read("d/log", 0, 10) == b"0123\0\x006789"


def test_a_lying_disk_forgets_what_it_reported_as_synced() -> None:
    one = disk(ONLY["forget"])
    synced_file(one, "d/log", b"stable")
    one.lies_until_ms = 1
    one.append("d/log", [b"-unsynced"])
    one.sync("d/log")
    sync = one.begin_sync("d/log")
    assert sync is not None
    one.finish_sync(sync)
    replace_file(one, "d/other", b"new")
    one.finish_sync_dir("d")
    one.lose_power()
    assert contents(one)["d/log"] == b"stable"
    assert contents(one).get("d/other", b"") == b""


def test_a_disk_that_stops_lying_has_synced_everything() -> None:
    one = disk(ONLY["forget"])
    one.lies_until_ms = 1
    synced_file(one, "d/log", b"reported")
    one.stop_lying()
    one.append("d/log", [b"-unsynced"])
    one.stop_lying()
    one.lose_power()
    assert contents(one)["d/log"] == b"reported", "only lies are made good"


@pytest.mark.parametrize("seed", range(10))
def test_power_loss_after_a_wrong_checkpoint_leaves_its_checksum(seed: int) -> None:
    """Seed 3424: no broker detects a wrong checkpoint whose checksum is damaged too."""
    one, partition = disk(ONLY["forget"], seed), TopicPartition("t", 0)
    checksums = CheckpointChecksums(one)
    checksums.replace({layout.LOG_STARTS: format_offsets({partition: 7})})
    draw = Random(seed)
    while damage_checkpoint(one, partition, {}, 20, draw) != "plausible checkpoint":
        checksums.replace({layout.LOG_STARTS: format_offsets({partition: 7})})
    wrong = one.contents(layout.LOG_STARTS)
    one.lose_power()
    assert one.contents(layout.LOG_STARTS) == wrong
    with pytest.raises(CheckpointError, match="checksum mismatch"):
        CheckpointChecksums(one).check(layout.LOG_STARTS, wrong)


@pytest.mark.parametrize("epochs", [b"0\n1\n", b"", b"0\n1\n0 5\n"])
def test_no_first_segment_is_removed_where_nothing_shows_that_it_is_missing(epochs: bytes) -> None:
    """Seed 2425: no broker detects a missing first segment if its epoch file is damaged too."""
    one, partition = disk(), TopicPartition("t", 0)
    first = two_segments(one, partition, epochs)
    for seed in range(200):
        damage_log(one, partition, Random(seed))
        assert first in segments(one, partition)


def test_the_only_proof_of_a_missing_first_segment_stays() -> None:
    epochs = b"0\n1\n0 0\n"
    one, partition = disk(), TopicPartition("t", 0)
    first = two_segments(one, partition, epochs)
    draw = Random(1)
    while first in segments(one, partition):
        damage_log(one, partition, draw)
    for _ in range(200):
        damage_checkpoint(one, partition, {}, 20, draw)
    assert one.contents(EPOCHS) == epochs


EPOCHS = f"t-0/{layout.LEADER_EPOCHS}"


def two_segments(of: SimDisk, partition: TopicPartition, epochs: bytes) -> str:
    """Write two segments and an epoch file; return the path of the first segment."""
    of.make_dir(layout.partition_dir(partition))
    for base in (0, 5):
        of.write(f"t-0/{base:020}.log", bytes(100))
    of.write(EPOCHS, epochs)
    return segments(of, partition)[0]
