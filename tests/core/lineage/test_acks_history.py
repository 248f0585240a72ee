"""How many removed records were acknowledged, by the notes of the leader that wrote them."""

import pytest

from tidelog.core.lineage.acks_history import (
    Acknowledged,
    AcksNote,
    count_acknowledged,
    format_notes,
    level,
    parse_notes,
)
from tidelog.core.types import EpochEntry, Offset

ALL, NONE, LEADER = level(-1), level(0), level(1)
BOOT = "boot 1"


def count(
    *notes: tuple[int, int, int],
    epochs: tuple[tuple[int, int], ...] = ((3, 0),),
    start: Offset = 10,
    end: Offset = 20,
    hw: Offset = 0,
    led: int = -1,
    led_hw: Offset = -1,
    boot: str = BOOT,
    flushed_first: bool = False,
) -> Acknowledged:
    return count_acknowledged(
        [EpochEntry(*one) for one in epochs],
        start,
        end,
        [AcksNote(*note, BOOT) for note in notes],
        boot=boot,
        high_watermark=hw,
        led_epoch=led,
        led_high_watermark=led_hw,
        flushed_first=flushed_first,
    )


def test_records_with_acks_1_were_acknowledged() -> None:
    assert count((3, 5, LEADER)) == Acknowledged(by_leader=10, levels=("1",))


def test_records_with_acks_0_were_not() -> None:
    assert count((3, 5, NONE)) == Acknowledged(not_acknowledged=10, levels=("0",))


def test_records_with_acks_all_were_acknowledged_below_an_exact_high_watermark() -> None:
    found = count((3, 0, ALL), led=3, led_hw=14)
    assert found == Acknowledged(by_all=4, not_acknowledged=6, levels=("all",))


def test_a_high_watermark_from_before_a_restart_leaves_the_rest_unknown() -> None:
    assert count((3, 0, ALL), hw=14) == Acknowledged(by_all=4, unknown=6, levels=("all",))


def test_records_of_other_leaders_are_unknown() -> None:
    assert count() == Acknowledged(unknown=10)
    assert count((2, 0, LEADER)) == Acknowledged(unknown=10)
    assert count(epochs=()) == Acknowledged(unknown=10)


def test_each_epoch_counts_by_its_own_notes() -> None:
    found = count((3, 5, LEADER), (5, 17, NONE), epochs=((3, 5), (4, 14), (5, 17)))
    assert found == Acknowledged(4, 0, 3, 3, ("1", "0"))


def test_a_further_level_makes_later_records_unknown() -> None:
    found = count((3, 5, LEADER), (3, 16, LEADER | ALL))
    assert found == Acknowledged(by_leader=6, unknown=4, levels=("1", "all"))


def test_without_acks_1_nothing_above_an_exact_high_watermark_was_acknowledged() -> None:
    found = count((3, 0, ALL | NONE), led=3, led_hw=14)
    assert found == Acknowledged(unknown=4, not_acknowledged=6, levels=("all", "0"))


def test_notes_of_an_earlier_boot_do_not_count() -> None:
    """A power failure may have lost the latest of them."""
    assert count((3, 5, LEADER), boot="boot 2") == Acknowledged(unknown=10)


def test_acks_1_that_waits_for_a_flush_is_unknown() -> None:
    assert count((3, 5, LEADER), flushed_first=True) == Acknowledged(unknown=10, levels=("1",))


def test_file_is_read_as_it_was_written() -> None:
    notes = [AcksNote(3, 5, LEADER, "boot 1"), AcksNote(4, 9, ALL, "")]
    assert parse_notes(format_notes(notes)) == notes


@pytest.mark.parametrize("size", range(11))
def test_lines_that_a_crash_cut_off_are_ignored(size: int) -> None:
    assert parse_notes(format_notes([AcksNote(3, 5, LEADER, BOOT)])[:size]) == []


def test_damaged_lines_are_ignored() -> None:
    assert parse_notes(b"\xff\xfe\n\n3\nx 5 4 boot\n3 5 4 boot\n") == [AcksNote(3, 5, 4, "boot")]
