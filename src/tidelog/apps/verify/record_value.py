"""The values of the workload's records: each value identifies its record.

A value has the tag of the run, the producer, the target partition, the sequence number among
that producer's records for the partition, and the producer's send number over all partitions.
A sequence number is sent once: a producer that gives up on a record continues with the next one.
So a value that the log has twice was written twice.

Invariant: a value id is smaller than STRANGER, and two records of one partition have the same id
only if they are the same record.
"""

from struct import Struct

VALUE_SIZE = 100
TAG_SIZE = 8
FIELDS = Struct(f">{TAG_SIZE}sHHQQ")
STRANGER = 2**64 - 1
"""The id of a value that this run did not write to this partition."""
ABSENT = STRANGER - 1
"""The id for an offset without a record."""
PRODUCERS_MAX = 1000
_SEQUENCE_BITS = 48
_SEQUENCE_MASK = (1 << _SEQUENCE_BITS) - 1
_FILLER = (b"tide" * VALUE_SIZE)[: VALUE_SIZE - FIELDS.size]


def pack(tag: bytes, producer: int, partition: int, sequence: int, send_number: int) -> bytes:
    """Return the bytes of one value."""
    return FIELDS.pack(tag, producer, partition, sequence, send_number) + _FILLER


def value_id(producer: int, sequence: int) -> int:
    """Combine producer and sequence number into a value id."""
    return producer << _SEQUENCE_BITS | sequence


def split_id(value: int) -> tuple[int, int]:
    """Return the producer and sequence number of a value id."""
    return value >> _SEQUENCE_BITS, value & _SEQUENCE_MASK


def name(value: int) -> str:
    """Describe a value id for reports."""
    if value == STRANGER:
        return "a record that this run never wrote here"
    if value == ABSENT:
        return "no record"
    producer, sequence = split_id(value)
    return f"record {sequence} of producer {producer}"


def read_id(value: bytes | None, tag: bytes, partition: int) -> int:
    """Return the id of a value read from `partition`; STRANGER if it does not belong there."""
    if value is None or len(value) != VALUE_SIZE or value[FIELDS.size :] != _FILLER:
        return STRANGER
    found, producer, meant_for, sequence, _ = FIELDS.unpack_from(value)
    if found != tag or meant_for != partition or producer >= PRODUCERS_MAX:
        return STRANGER
    return value_id(producer, sequence & _SEQUENCE_MASK)
