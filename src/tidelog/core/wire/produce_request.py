"""A Produce request as pieces: record batches are sent from their own buffers, without a copy.

For clients with much data. Versions as in produce.py. Invariant: the concatenated pieces are the
frame that the codec would encode.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from tidelog.core.api_table import PRODUCE
from tidelog.core.record.crc32c import Buffer
from tidelog.core.types import TopicId
from tidelog.core.wire.frames import LENGTH_SIZE, begin_request
from tidelog.core.wire.primitives import (
    INT32,
    compact_string,
    optional_compact_string,
    optional_string,
    string,
    uvarint,
)
from tidelog.core.wire.produce import FIRST_FLEXIBLE, FIRST_WITH_TOPIC_IDS

_ACKS_AND_TIMEOUT = Struct(">hi")


class TopicRecords(NamedTuple):
    """The batches for one topic, one for each partition."""

    name: str
    id: TopicId
    batches: Sequence[tuple[int, Buffer]]


def produce_pieces(
    version: int,
    correlation_id: int,
    client_id: str | None,
    acks: int,
    timeout_ms: int,
    topics: Sequence[TopicRecords],
    transactional_id: str | None = None,
) -> list[Buffer]:
    """Encode a whole frame, with its length in front; every batch is a separate piece."""
    flexible = version >= FIRST_FLEXIBLE
    text = begin_request(PRODUCE, version, correlation_id, client_id)
    text += (optional_compact_string if flexible else optional_string)(transactional_id)
    text += _ACKS_AND_TIMEOUT.pack(acks, timeout_ms)
    text += _count(len(topics), flexible)
    pieces: list[Buffer] = [text]
    for topic in topics:
        if version >= FIRST_WITH_TOPIC_IDS:
            text += topic.id
        else:
            text += compact_string(topic.name) if flexible else string(topic.name)
        text += _count(len(topic.batches), flexible)
        for partition, records in topic.batches:
            text += INT32.pack(partition)
            text += _count(len(records), flexible)
            text = bytearray(b"\0" if flexible else b"")
            pieces += [records, text]
        text += b"\0" if flexible else b""
    text += b"\0" if flexible else b""
    size = sum(len(piece) for piece in pieces) - LENGTH_SIZE
    first = pieces[0]
    assert isinstance(first, bytearray), "the first piece is the header"
    INT32.pack_into(first, 0, size)
    return [piece for piece in pieces if len(piece)]


def _count(number: int, flexible: bool) -> bytes:
    return uvarint(number + 1) if flexible else INT32.pack(number)
