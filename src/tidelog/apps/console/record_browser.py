"""Reads a few records of a partition for display: batches, and records as text, JSON or base64.

Keys, values and headers come from anybody who can produce. They are only data in JSON here; long
ones are cut.
"""

import json
from base64 import b64encode
from typing import Any

from tidelog.apps.console.cluster_pool import ClusterPool
from tidelog.apps.console.failure import INVALID, NOT_FOUND, Failure, of_client
from tidelog.core.errors import ErrorCode
from tidelog.core.record.compression import Codec
from tidelog.core.record.decoder import LogRecord, decode
from tidelog.core.record.record_batch import CorruptRecord, RecordBatch
from tidelog.core.types import Offset, TopicPartition
from tidelog.shell.client.client_errors import BrokerError, NoSuchPartition, NoSuchTopic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.fetching import CheckedBatches, fetch_partition
from tidelog.shell.client.offsets import EARLIEST, LATEST, list_offset

Json = dict[str, Any]
LIMIT, LIMIT_MAX = 50, 500
FETCH_BYTES = 1 << 20
OPENED_BYTES_MAX = 16 << 20
"""How much one batch may decompress to."""
SHOWN_MAX = 16 * 1024
"""Bytes of a key or value that are shown."""
_CODECS = {int(codec): codec.name.lower() for codec in Codec}
_AVRO_HEAD = 5
"""A zero byte and the schema's id, as Confluent's serializers write them."""


def read_records(pool: ClusterPool, key: TopicPartition, offset: Offset | None, limit: int) -> Json:
    """Return batches and records from `offset`; None: the last `limit` records. Raises Failure,
    ClientError."""
    limit = max(1, min(limit, LIMIT_MAX))
    with pool.borrow() as cluster:
        try:
            cluster.partition(*key)
            start = list_offset(cluster, *key, EARLIEST).offset
            end = list_offset(cluster, *key, LATEST).offset
            return _read(cluster, key, offset, limit, start, end)
        except (NoSuchTopic, NoSuchPartition) as error:
            raise of_client(error, NOT_FOUND) from error
        except BrokerError as error:
            if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise of_client(error, INVALID) from error
            raise
        except CorruptRecord as error:
            raise Failure(
                INVALID,
                f"records of {key.topic}/{key.partition} can't be read: {error}",
                "`tidelog audit` shows which replicas are damaged",
            ) from error


def _read(
    cluster: Cluster,
    key: TopicPartition,
    offset: Offset | None,
    limit: int,
    start: Offset,
    end: Offset,
) -> Json:
    at = max(start, end - limit) if offset is None else offset
    if not start <= at <= end:
        raise Failure(
            INVALID, f"offset {at} is outside the log", f"its offsets are {start} to {end}"
        )
    batches: list[Json] = []
    records: list[Json] = []
    next_offset = at
    while next_offset < end and len(records) < limit:
        found = fetch_partition(cluster, key, next_offset, FETCH_BYTES, max_wait_ms=0)
        before = next_offset
        for batch in CheckedBatches(found.records):
            if len(records) >= limit:
                break
            batches.append(_batch(batch))
            opened = [] if batch.last_offset < at else decode(batch, OPENED_BYTES_MAX)
            shown = [each for each in opened if each.offset >= at][: limit - len(records)]
            records += [_record(each) for each in shown]
            whole = not shown or shown[-1].offset == opened[-1].offset
            next_offset = batch.next_offset if whole else shown[-1].offset + 1
        if next_offset == before:
            break  # nothing below the high watermark any more
    return {
        "log_start_offset": start,
        "high_watermark": end,
        "batches": batches,
        "records": records,
        "next_offset": next_offset,
    }


def _batch(batch: RecordBatch) -> Json:
    return {
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "leader_epoch": batch.leader_epoch,
        "producer_id": batch.producer_id,
        "codec": _CODECS.get(batch.codec, str(batch.codec)),
        "bytes": batch.size,
        "records": batch.count,
        "control": batch.is_control,
    }


def _record(record: LogRecord) -> Json:
    form, value = _shown(record.value)
    key_form, key = _shown(record.key)
    size = len(record.key or b"") + len(record.value or b"")
    return {
        "offset": record.offset,
        "at_ms": record.timestamp,
        "timestamp_type": str(record.timestamp_type),
        "key": key,
        "key_form": key_form,
        "value": value,
        "form": form,
        "truncated": max(len(record.key or b""), len(record.value or b"")) > SHOWN_MAX,
        "headers": [
            {"key": each.key, "form": shown[0], "value": shown[1]}
            for each in record.headers
            for shown in [_shown(each.value)]
        ],
        "size": size,
        "epoch": record.leader_epoch,
        "control": None if record.control is None else type(record.control).__name__,
    }


def _shown(data: bytes | None) -> tuple[str, str | None]:
    """Return the form of a key or value, and its text; base64 if it is not text."""
    if data is None:
        return "null", None
    cut = data[:SHOWN_MAX]
    try:
        text = data.decode() if len(data) <= SHOWN_MAX else cut.decode(errors="ignore")
    except UnicodeDecodeError:
        return _binary(data), b64encode(cut).decode()
    if any(ord(each) < 32 and each not in "\t\r\n" for each in text):
        return _binary(data), b64encode(cut).decode()
    return "json" if _is_json(text) else "text", text


def _binary(data: bytes) -> str:
    return "avro" if len(data) > _AVRO_HEAD and data[0] == 0 else "bytes"


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
