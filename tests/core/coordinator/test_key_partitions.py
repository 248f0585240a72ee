"""The partition of a group is the one that Kafka's tools compute."""

import pytest

from tidelog.core.coordinator.lookup import partition_for


@pytest.mark.parametrize(
    ("group_id", "java_hash"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99_162_322),
        ("polygenelubricants", -(2**31)),
        ("größe", 98_762_257),
        ("\U0001f30a", 1_773_134),
    ],
)
def test_a_group_has_the_partition_of_javas_hash(group_id: str, java_hash: int) -> None:
    assert partition_for(group_id, 50) == (java_hash & 0x7FFFFFFF) % 50
