"""Names of files and directories are built and parsed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.storage import layout
from tidelog.core.storage.layout import FileName, InvalidTopic
from tidelog.core.types import TopicPartition

TOPIC_ID = bytes(range(16))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000000.log", FileName(0, ".log", "")),
        ("00000000000000000042.index", FileName(42, ".index", "")),
        ("00000000000000000042.timeindex.deleted", FileName(42, ".timeindex", ".deleted")),
        ("09223372036854775807.txnindex.swap", FileName(2**63 - 1, ".txnindex", ".swap")),
        ("00000000000000000007.log.cleaned", FileName(7, ".log", ".cleaned")),
        ("00000000000000000007.snapshot", FileName(7, ".snapshot", "")),
        ("7.log", None),
        ("09223372036854775808.log", None),
        ("0000000000000000000\u0663.log", None),
        ("00000000000000000007.log.bak", None),
        ("leader-epoch-checkpoint", None),
        ("partition.metadata", None),
    ],
)
def test_file_names(name: str, expected: FileName | None) -> None:
    assert layout.parse_file(name) == expected
    if expected is not None:
        assert str(expected) == name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", TopicPartition("orders", 0)),
        ("a-b-12", TopicPartition("a-b", 12)),
        ("__consumer_offsets-49", TopicPartition("__consumer_offsets", 49)),
        ("orders", None),
        ("orders-", None),
        ("orders-x", None),
        ("orders-2147483647", TopicPartition("orders", 2**31 - 1)),
        ("orders-2147483648", None),
        ("orders-07", None),
        ("orders-\u0663", None),
        ("..-0", None),
        ("x" * 249 + "-0", TopicPartition("x" * 249, 0)),
        ("x" * 250 + "-0", None),
        ("orders-0.0123456789abcdef-delete", None),
        ("orders-0.0123456789abcdef-future", None),
        ("meta.properties", None),
    ],
)
def test_directory_names(name: str, expected: TopicPartition | None) -> None:
    assert layout.parse_dir(name) == expected


@pytest.mark.parametrize(
    "topic",
    ["", ".", "..", "../etc", "a/b", "a\\b", "ä", "a b", "a\n", "a\0", "x" * 250],
    ids=repr,
)
def test_topics_that_could_escape_or_confuse_are_refused(topic: str) -> None:
    with pytest.raises(InvalidTopic):
        layout.partition_dir(TopicPartition(topic, 0))


@given(
    st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(lambda t: t not in (".", "..")),
    st.integers(0, 2**31 - 1),
)
def test_every_legal_partition_has_a_directory_of_its_own(topic: str, number: int) -> None:
    partition = TopicPartition(topic, number)
    name = layout.partition_dir(partition)
    assert "/" not in name
    assert layout.parse_dir(name) in (partition, None)
    marked = layout.marked_dir(partition, TOPIC_ID, "delete")
    assert len(marked) <= 255
    assert layout.parse_mark(marked) == "delete"
    assert layout.parse_dir(marked) is None


def test_a_log_without_topic_id_can_be_marked_too() -> None:
    marked = layout.marked_dir(TopicPartition("t", 1), None, "stray")
    assert marked == f"t-1.{'0' * 32}-stray"
    assert layout.parse_mark("t-1") is None


@pytest.mark.parametrize("text", ["", "short", "x" * 23, "ä" * 22, "A" * 24])
def test_invalid_topic_ids(text: str) -> None:
    assert layout.parse_topic_id(text) is None


@given(st.binary(min_size=16, max_size=16))
def test_topic_ids_survive_their_spelling(topic_id: bytes) -> None:
    spelled = layout.format_topic_id(topic_id)
    assert len(spelled) == 22
    assert layout.parse_topic_id(spelled) == topic_id
