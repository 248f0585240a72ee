"""A Produce request in pieces equals the one of the codec."""

import pytest

from tidelog.core.api_table import PRODUCE, known_versions
from tidelog.core.wire.codec import encode_request
from tidelog.core.wire.produce_request import TopicRecords, produce_pieces

TOPICS = [
    TopicRecords("one", b"1" * 16, [(0, b"abc" * 100), (7, memoryview(b"x" * 200))]),
    TopicRecords("another", b"2" * 16, [(3, bytearray(b"y"))]),
]


def versions() -> range:
    spoken = known_versions(PRODUCE)
    assert spoken is not None
    return range(spoken[0], spoken[1] + 1)


@pytest.mark.parametrize("version", versions())
@pytest.mark.parametrize("client", ["tidelog", None])
@pytest.mark.parametrize("transactional_id", ["a task", None])
def test_pieces_equal_the_frame_of_the_codec(
    version: int, client: str | None, transactional_id: str | None
) -> None:
    request = {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout_ms": 1234,
        "topic_data": [
            {
                "name": topic.name,
                "topic_id": topic.id,
                "partition_data": [
                    {"index": partition, "records": records} for partition, records in topic.batches
                ],
            }
            for topic in TOPICS
        ],
    }
    pieces = produce_pieces(version, 42, client, -1, 1234, TOPICS, transactional_id)
    assert b"".join(pieces) == encode_request(PRODUCE, version, 42, client, request)
    assert TOPICS[0].batches[1][1] in pieces, "records are not copied"
