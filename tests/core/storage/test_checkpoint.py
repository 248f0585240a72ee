"""Checkpoint files: their format, errors, and atomic writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage_kit import Crash, StoppingDisk

from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.checkpoint import CheckpointError, MetaProperties
from tidelog.core.storage.disk import replace_file
from tidelog.core.types import EpochEntry, TopicPartition
from tidelog.lab.memory_disk import MemoryDisk

ORDERS = TopicPartition("orders", 0)
BILLS = TopicPartition("bills", 3)


def test_offsets_have_kafkas_form_and_keep_their_order() -> None:
    data = checkpoint.format_offsets({ORDERS: 1500, BILLS: 7})
    assert data == b"0\n2\norders 0 1500\nbills 3 7\n"
    assert list(checkpoint.parse_offsets("f", data).items()) == [(ORDERS, 1500), (BILLS, 7)]


def test_epochs_have_kafkas_form() -> None:
    entries = [EpochEntry(0, 0), EpochEntry(3, 10898)]
    data = checkpoint.format_epochs(entries)
    assert data == b"0\n2\n0 0\n3 10898\n"
    assert checkpoint.parse_epochs("f", data) == entries


@pytest.mark.parametrize("data", [b"", b"0\n0\n"], ids=["no byte", "count 0"])
def test_files_without_entries(data: bytes) -> None:
    assert checkpoint.parse_offsets("f", data) == {}
    assert checkpoint.parse_epochs("f", data) == []


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"1\n0\n", "unknown version 1, expected 0"),
        (b"x\n0\n", "line 1: 'x' is not a number"),
        (b"0\n", "the count line is missing"),
        (b"0\nmany\n", "line 2: 'many' is not a number"),
        (b"0\n3\n0 0\n1 5\n", "has 2 entries, the count line says 3"),
        (b"0\n1\n0 0\n1 5\n", "has 2 entries, the count line says 1"),
        (b"0\n1\n0\n", "line 3: expected 2 columns, found '0'"),
        (b"0\n1\n0 0 0\n", "line 3: expected 2 columns, found '0 0 0'"),
        (b"0\n1\n0 zero\n", "line 3: 'zero' is not a number"),
        (b"0\n1\n-1 0\n", "line 3: epoch or offset is negative: -1 0"),
        (b"0\n2\n1 0\n1 5\n", "line 4: epochs and offsets must rise"),
        (b"0\n2\n1 5\n2 5\n", "line 4: epochs and offsets must rise"),
        (b"0\n1\n\xff 0\n", "not UTF-8 at byte 4"),
    ],
)
def test_broken_epoch_files_are_refused_with_the_reason(data: bytes, problem: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        checkpoint.parse_epochs("orders-0/leader-epoch-checkpoint", data)
    assert refused.value.problem == problem
    assert str(refused.value) == f"orders-0/leader-epoch-checkpoint: {problem}"


def test_an_invalid_offset_file_counts_as_empty_with_a_warning() -> None:
    disk = MemoryDisk()
    disk.write(layout.RECOVERY_POINTS, b"0\n5\n")
    offsets, warnings = checkpoint.read_offsets(disk, layout.RECOVERY_POINTS)
    assert offsets == {}
    assert warnings == [
        f"{layout.RECOVERY_POINTS}: has 0 entries, the count line says 5; treated as empty"
    ]
    assert checkpoint.read_offsets(disk, layout.LOG_STARTS) == ({}, [])


offsets_strategy = st.dictionaries(
    st.builds(
        TopicPartition,
        st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True),
        st.integers(0, 2**31 - 1),
    ),
    st.integers(0, 2**63 - 1),
)


@given(offsets_strategy)
def test_offsets_survive_the_file(offsets: dict[TopicPartition, int]) -> None:
    disk = MemoryDisk()
    replace_file(disk, "f", checkpoint.format_offsets(offsets))
    assert checkpoint.read_offsets(disk, "f") == (offsets, [])


@pytest.mark.parametrize("changes", range(4))
def test_a_crash_while_writing_leaves_the_old_file_or_the_new(changes: int) -> None:
    disk = StoppingDisk()
    replace_file(disk, "f", checkpoint.format_offsets({ORDERS: 1}))
    disk.changes = changes
    with pytest.raises(Crash):
        replace_file(disk, "f", checkpoint.format_offsets({ORDERS: 2}))
    offsets, warnings = checkpoint.read_offsets(disk, "f")
    assert offsets == {ORDERS: 2 if changes == 3 else 1}
    assert warnings == []


def test_topic_id_file() -> None:
    topic_id = bytes(range(16))
    data = checkpoint.format_topic_metadata(topic_id)
    assert data == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert checkpoint.parse_topic_metadata("f", data) == topic_id


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "unknown version None, expected 0"),
        (b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", "unknown version 1, expected 0"),
        (b"version: 0\ntopic_id: nonsense", "invalid topic_id 'nonsense'"),
        (b"version: 0\nno colon", "invalid topic_id None"),
    ],
)
def test_broken_topic_id_files_are_refused(data: bytes, problem: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        checkpoint.parse_topic_metadata("f", data)
    assert refused.value.problem == problem


@pytest.mark.parametrize(
    ("data", "epoch"),
    [
        (b'{"version":0,"brokerEpoch":927}', 927),
        (b"", -1),
        (b"{}", -1),
        (b"[]", -1),
        (b'{"brokerEpoch":null}', -1),
    ],
    ids=["4.x", "older releases", "no epoch", "no object", "null"],
)
def test_mark_of_a_clean_stop_is_removed(data: bytes, epoch: int) -> None:
    disk = MemoryDisk()
    disk.write(layout.CLEAN_SHUTDOWN, data)
    assert checkpoint.remove_clean_shutdown(disk) == epoch
    assert checkpoint.remove_clean_shutdown(disk) is None


def test_properties_keep_comments_and_order() -> None:
    data = b"#\n#Sun Nov 15 2026\nnode.id=1\nversion=1\ncluster.id=abc\n"
    properties = checkpoint.parse_properties("f", data)
    assert properties.values == {"node.id": "1", "version": "1", "cluster.id": "abc"}
    assert properties.format() == data


def test_properties_of_version_0() -> None:
    disk = MemoryDisk()
    assert checkpoint.read_properties(disk) is None
    disk.write(layout.META_PROPERTIES, b"! old\nversion=0\n\nbroker.id=2\n")
    assert checkpoint.read_properties(disk) == MetaProperties(
        {"version": "0", "broker.id": "2"}, ("! old",)
    )


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"version=2\n", "unknown version 2, expected 0 or 1"),
        (b"node.id=1\n", "the version is missing"),
        (b"", "the version is missing"),
        (b"version\n", "'version' is not key=value"),
        (b"version=1\ncluster.id=ab", "the last line is incomplete"),
    ],
)
def test_broken_properties_are_refused(data: bytes, problem: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        checkpoint.parse_properties("f", data)
    assert refused.value.problem == problem
    of_a_later_release = data.startswith(b"version=2")
    assert isinstance(refused.value, checkpoint.DamagedProperties) != of_a_later_release
