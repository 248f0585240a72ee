"""A crash or power failure at any time of a cleaning loses nothing.

The process may end (`StoppingDisk`) or the power may fail (`SimDisk`: unsynced bytes and names are
lost, torn or damaged, by many seeds) at every change to the disk that the cleaning and its swap
make.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from cleaning_kit import (
    COMPACT,
    Seen,
    close_segment,
    compact,
    latest,
    plan_of,
    put,
    put_marker,
    seen,
    swap,
)
from storage_kit import PARTITION, Crash, StoppingDisk, new_log, reopen

from tidelog.core.record.control import ControlType
from tidelog.core.record.encoder import Producer
from tidelog.core.record.record_batch import TRANSACTIONAL
from tidelog.core.storage import layout
from tidelog.core.storage.cleaning.cleaner import clean
from tidelog.core.storage.cleaning.plan import CleanedGroup
from tidelog.core.storage.disk import Disk
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_directory import LogDirectory
from tidelog.lab.sim.machine.disk import PowerLossWeights, ProcessDied, SimDisk
from tidelog.lab.sim.world import World

UNKNOWN = replace(COMPACT, cleanup_compact=False)
NOW_MS = 5000
CHANGES_MAX = 400
SEEDS = 6


def fill(log: Log) -> None:
    """Write repeated keys, a deleted key, a producer's last batch and an aborted transaction.

    They are in several segments that the cleaning merges.
    """
    for number in range(12):
        put(log, (f"k{number % 5}", str(number)), ("same", str(number)))
    put(log, ("gone", "1"), ("k9", "stays"), producer=Producer(3, 0, 0))
    aborted = Producer(4, 0, 0)
    put(log, ("k1", "taken back"), attributes=TRANSACTIONAL, producer=aborted)
    put_marker(log, ControlType.ABORT, aborted)
    put(log, ("gone", None))
    close_segment(log)
    close_segment(log)


def clean_thrice(disk: Disk, log: Log) -> None:
    """Clean half of the log, then the rest, then again when few records are left to merge."""
    half = log.segments.active.base_offset // 2
    first_dirty = compact(disk, log, last_stable=half, now_ms=NOW_MS).end_offset
    assert 0 < first_dirty < half
    compact(disk, log, first_dirty, now_ms=NOW_MS)
    segments = len(log.segments)
    compact(disk, log, first_dirty, now_ms=NOW_MS)
    assert len(log.segments) <= segments - 2


def clean_and_append(disk: Disk, log: Log) -> None:
    """Clean a log that also has unsynced records, some of which are cleaned already."""
    first_dirty = compact(disk, log, now_ms=NOW_MS).end_offset
    put(log, ("k2", "newest"))
    close_segment(log)
    compact(disk, log, first_dirty, now_ms=NOW_MS)
    put(log, ("k3", "newest"))
    close_segment(log)


def check(log: Log, before: list[Seen]) -> None:
    """Check that all records that must stay exist once, and no record that was not written."""
    for earlier, later in pairwise(log.segments):
        assert earlier.next_offset() <= later.base_offset, "segments do not overlap"
    now = seen(log)
    assert len(now) == len(set(now))
    expected = latest(one for one in before if one.value != "taken back")
    found = latest(one for one in now if one.value != "taken back")
    for key, one in expected.items():
        assert found[key] == one or found[key].offset > before[-1].offset
    assert all(one in before for one in now if one.offset <= before[-1].offset)


def prepared(disk: Disk) -> tuple[Log, list[Seen]]:
    log = new_log(disk, COMPACT)
    fill(log)
    log.flush()
    return log, seen(log)


@pytest.mark.parametrize("number", [1, 2])
def test_files_of_an_earlier_cleaning_do_no_harm(number: int) -> None:
    """Files of a dead cleaner have lower offsets than a group that is swapped in.

    At startup the group would then count as incomplete, although its original segments are deleted.
    """
    for changes in range(CHANGES_MAX):
        disk = StoppingDisk()
        log, before = prepared(disk)
        plan = plan_of(log, now_ms=NOW_MS)
        assert plan is not None
        groups = [told for told in clean(disk, plan) if isinstance(told, CleanedGroup)]
        assert len(groups) > number
        disk.changes = changes
        done = True
        try:
            swap(disk, log, groups[number])
        except Crash:
            done = False
        again, report = reopen(disk.survivor(), COMPACT)
        assert not report.cuts
        check(again, before)
        if done:
            return
    pytest.fail("it never came to its end")


def test_a_process_that_ends_anywhere_in_a_cleaning_loses_nothing() -> None:
    moments = 0
    for changes in range(CHANGES_MAX):
        disk = StoppingDisk()
        log, before = prepared(disk)
        disk.changes = changes
        done = True
        try:
            clean_thrice(disk, log)
        except Crash:
            done = False
        after = disk.survivor()
        again, report = reopen(after, COMPACT, recovery_point=log.recovery_point)
        assert not report.cuts
        check(again, before)
        leftovers = (layout.CLEANED_SUFFIX, layout.SWAP_SUFFIX, ".deleted")
        assert not [name for name in after.list_dir("orders-0") if name.endswith(leftovers)]
        twice, report = reopen(after, COMPACT)
        assert not report.cuts
        assert seen(twice) == seen(again)
        assert twice.producers.producers[3].last_sequence == 1
        # And it can be cleaned to its end from there.
        compact(after, again, now_ms=NOW_MS)
        check(again, before)
        moments += 1
        if done:
            break
    assert 60 < moments < CHANGES_MAX, "every moment was tried"


@pytest.mark.parametrize("deed", [clean_thrice, clean_and_append])
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.ci) for seed in range(2, SEEDS))]
)
def test_a_power_failure_anywhere_in_a_cleaning_loses_nothing(
    seed: int, deed: Callable[[Disk, Log], None]
) -> None:
    for moment in range(CHANGES_MAX):
        disk = SimDisk(World(seed * CHANGES_MAX + moment), "d", PowerLossWeights())
        disk.make_dir("orders-0")
        disk.sync_dir("")
        log, before = prepared(disk)
        log.close()
        point = log.recovery_point
        disk.dies_in = moment
        done = True
        try:
            deed(disk, log)
        except ProcessDied:
            done = False
        disk.heal()
        disk.lose_power()
        again, _ = reopen(disk, COMPACT, recovery_point=point, cleaned_upto=0)
        check(again, before)
        twice, report = reopen(disk, COMPACT, recovery_point=point, cleaned_upto=0)
        assert not report.cuts
        assert seen(twice) == seen(again)
        if done:
            return
    pytest.fail("the cleaning never came to its end")


@pytest.mark.parametrize("spoil", [lambda _: None, lambda disk: disk.lose_power()])
def test_gaps_are_recorded_before_they_exist(
    spoil: Callable[[SimDisk], None],
) -> None:
    """The settings of topics are unknown when logs are opened: only the checkpoint shows that
    gaps are not damage, also if the first swap was interrupted."""
    for moment in range(CHANGES_MAX):
        disk = SimDisk(World(moment), "d", PowerLossWeights())
        directory = LogDirectory.open(disk, 0)
        log = directory.create(PARTITION, bytes(16), 0, COMPACT)
        fill(log)
        log.flush()
        before = seen(log)
        disk.dies_in = moment
        done = True
        try:
            directory.expect_gaps(PARTITION)
            directory.set_cleaner_offset(PARTITION, compact(disk, log, now_ms=NOW_MS).end_offset)
        except ProcessDied:
            done = False
        disk.heal()
        spoil(disk)
        again = LogDirectory.open(disk, 0, lambda _: UNKNOWN)
        assert not again.reports[PARTITION].cuts
        check(again.logs[PARTITION], before)
        if done:
            return
    pytest.fail("the cleaning never came to its end")
