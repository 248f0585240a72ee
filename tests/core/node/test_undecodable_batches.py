"""Batches that no consumer could read are rejected."""

from typing import Any

import pytest
from node_cluster import ORDERS, Cluster

from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import Produce, ProducePartition, ProducePartitionResponse
from tidelog.core.record.compression import Codec
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import (
    CRC_AT,
    CRC_FROM,
    HEADER_SIZE,
    PREFIX_SIZE,
    UINT32,
    patch_packing,
)

PACKING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
LAST_OFFSET_DELTA_AT, COUNT_AT = 23, 57
RECORDS = [Record(b"k%d" % number, b"value" * 20, 5) for number in range(10)]


def started(**settings: Any) -> Cluster:
    cluster = Cluster(settings=settings)
    cluster.start()
    cluster.create_topic("orders", (1, 2, 3))
    return cluster


def send(cluster: Cluster, batch: bytearray) -> ProducePartitionResponse:
    [answer] = cluster.call(1, Produce(-1, 1000, [ProducePartition(ORDERS, batch)])).partitions
    assert isinstance(answer, ProducePartitionResponse)
    return answer


def sealed(batch: bytearray) -> bytearray:
    UINT32.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CRC_FROM:]))
    return batch


def with_body(codec: Codec, body: bytes) -> bytearray:
    batch = encode_batch(RECORDS, attributes=codec)[:HEADER_SIZE] + body
    patch_packing(batch, len(batch) - PREFIX_SIZE, codec)
    return sealed(batch)


def claiming(count: int, batch: bytearray) -> bytearray:
    batch[LAST_OFFSET_DELTA_AT : LAST_OFFSET_DELTA_AT + 4] = (count - 1).to_bytes(4, "big")
    batch[COUNT_AT : COUNT_AT + 4] = count.to_bytes(4, "big")
    return sealed(batch)


def log_end(cluster: Cluster) -> int:
    return cluster.nodes[1].replicas[ORDERS].log.log_end_offset


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_invalid_compressed_bytes_are_refused_permanently(codec: Codec) -> None:
    """A client gives up on INVALID_RECORD; it would retry CORRUPT_MESSAGE."""
    cluster = started()
    answer = send(cluster, with_body(codec, b"rubbish" * 20))
    assert answer.error is ErrorCode.INVALID_RECORD
    assert codec.name.lower() in str(answer.error_message)
    assert log_end(cluster) == 0


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_that_claims_two_billion_records_is_refused(codec: Codec) -> None:
    cluster = started()
    answer = send(cluster, claiming(2**31 - 1, encode_batch(RECORDS, attributes=codec)))
    assert answer.error in (ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)
    assert log_end(cluster) == 0


@pytest.mark.parametrize("codec", PACKING)
def test_doubtful_record_count_is_verified(codec: Codec) -> None:
    """The count is within the budget, but unusually high for so few bytes."""
    cluster = started()
    batch = encode_batch(RECORDS, attributes=codec)
    doubtful = claiming(4 * len(batch), batch)
    assert send(cluster, doubtful).error is ErrorCode.CORRUPT_MESSAGE
    assert log_end(cluster) == 0


@pytest.mark.parametrize("codec", Codec)
def test_log_end_advances_by_at_most_four_a_byte(codec: Codec) -> None:
    cluster = started()
    batch = encode_batch(RECORDS, attributes=codec)
    send(cluster, claiming(4 * (len(batch) - HEADER_SIZE), batch))
    assert log_end(cluster) <= 4 * len(batch)


@pytest.mark.parametrize("codec", Codec)
def test_record_check_decodes_each_record(codec: Codec) -> None:
    cluster = started(produced_records_check=True)
    sound = encode_batch(RECORDS, attributes=codec)
    assert send(cluster, bytearray(sound)).error is ErrorCode.NONE
    assert send(cluster, claiming(11, sound)).error is ErrorCode.CORRUPT_MESSAGE
    assert log_end(cluster) == len(RECORDS)


def test_record_check_finds_an_invalid_block() -> None:
    """The frame is valid, so the batch is accepted without this check."""
    block = b"\xff" * 40
    head = (len(block) << 3 | 2 << 1 | 1).to_bytes(3, "little")
    framed = b"\x28\xb5\x2f\xfd\x00\x58" + head + block
    assert send(started(), with_body(Codec.ZSTD, framed)).error is ErrorCode.NONE
    checked = started(produced_records_check=True)
    answer = send(checked, with_body(Codec.ZSTD, framed))
    assert answer.error is ErrorCode.CORRUPT_MESSAGE
    assert "zstd" in str(answer.error_message)
