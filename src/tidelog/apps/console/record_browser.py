"""Reads a few records of a partition for display: batches, and records as text, JSON, decoded
Avro, or base64.

Keys, values and headers come from any client that can produce. Here they are only data in JSON;
long ones are cut.
"""

import json
from base64 import b64encode
from typing import Any, NamedTuple

from tidelog.apps.console.avro_values import AvroValues, schema_id_of
from tidelog.apps.console.cluster_pool import ClusterPool
from tidelog.apps.console.failure import INVALID, NOT_FOUND, Failure, of_client
from tidelog.core.errors import ErrorCode
from tidelog.core.record.compression import Codec
from tidelog.core.record.control import ControlRecord, ControlType, TransactionMarker
from tidelog.core.record.decoder import LogRecord, decode, with_aborted
from tidelog.core.record.record_batch import CorruptRecord, RecordBatch
from tidelog.core.types import Offset, TopicPartition
from tidelog.shell.client.client_errors import BrokerError, NoSuchPartition, NoSuchTopic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.fetching import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    CheckedBatches,
    fetch_partition,
)
from tidelog.shell.client.offsets import EARLIEST, LATEST, list_offset

Json = dict[str, Any]
LIMIT, LIMIT_MAX = 50, 500
FETCH_BYTES = 1 << 20
OPENED_BYTES_MAX = 16 << 20
"""How much one batch may decompress to."""
SHOWN_MAX = 16 * 1024
"""Bytes of a key or value that are shown."""
COMMITTED, ABORTED, OPEN = "committed", "aborted", "open"
"""The state of a transactional batch. It is `open` also if it has ended, but an older transaction
before it is open."""
_CODECS = {int(codec): codec.name.lower() for codec in Codec}
_PREFIX = 5
"""A zero byte and the schema's id, as serializers write that use a schema registry."""


def read_records(
    pool: ClusterPool,
    key: TopicPartition,
    offset: Offset | None,
    limit: int,
    avro: AvroValues,
) -> Json:
    """Return batches and records from `offset`; None: the last `limit` records. `avro` decodes
    values of topics whose schema is known. Raises Failure, ClientError."""
    limit = max(1, min(limit, LIMIT_MAX))
    with pool.borrow() as cluster:
        try:
            cluster.partition(*key)
            start = list_offset(cluster, *key, EARLIEST).offset
            end = list_offset(cluster, *key, LATEST).offset
            return _read(cluster, key, offset, limit, start, end, avro)
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
    avro: AvroValues,
) -> Json:
    at = max(start, end - limit) if offset is None else offset
    if not start <= at <= end:
        raise Failure(
            INVALID, f"offset {at} is outside the log", f"its offsets are {start} to {end}"
        )
    batches: list[Json] = []
    records: list[Json] = []
    next_offset = at
    isolation, stable = READ_COMMITTED, end
    while next_offset < end and len(records) < limit:
        found = fetch_partition(cluster, key, next_offset, FETCH_BYTES, isolation, max_wait_ms=0)
        if found.last_stable_offset >= 0:  # else an old broker that does not return it
            stable = found.last_stable_offset
        before = next_offset
        for batch, is_aborted in with_aborted(CheckedBatches(found.records), found.aborted):
            if len(records) >= limit:
                break
            state = None
            if batch.is_transactional and not batch.is_control:
                state = ABORTED if is_aborted else COMMITTED
                state = state if batch.base_offset < stable else OPEN
            batches.append({**_batch(batch), "transaction": state})
            opened = [] if batch.last_offset < at else decode(batch, OPENED_BYTES_MAX)
            shown = [each for each in opened if each.offset >= at][: limit - len(records)]
            records += [_record(key.topic, each, avro) for each in shown]
            whole = not shown or shown[-1].offset == opened[-1].offset
            next_offset = batch.next_offset if whole else shown[-1].offset + 1
        if next_offset == before:
            if isolation == READ_UNCOMMITTED:
                break  # no more records below the high watermark
            isolation = READ_UNCOMMITTED  # what follows is above the last stable offset
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
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "codec": _CODECS.get(batch.codec, str(batch.codec)),
        "bytes": batch.size,
        "records": batch.count,
        "control": batch.is_control,
    }


def _record(topic: str, record: LogRecord, avro: AvroValues) -> Json:
    value, key = _value(topic, record.value, avro), _shown(record.key)
    size = len(record.key or b"") + len(record.value or b"")
    return {
        "offset": record.offset,
        "at_ms": record.timestamp,
        "timestamp_type": str(record.timestamp_type),
        "key": key.text,
        "key_form": key.form,
        "key_schema_id": key.schema_id,
        "value": value.text,
        "form": value.form,
        "schema_id": value.schema_id,
        "truncated": key.cut or value.cut,
        "headers": [
            {"key": each.key, "form": shown.form, "value": shown.text}
            for each in record.headers
            for shown in [_shown(each.value)]
        ],
        "size": size,
        "epoch": record.leader_epoch,
        "control": None if record.control is None else _control(record.control),
    }


def _control(record: ControlRecord) -> str:
    """Return what a control record is: `commit`, `abort`, or Kafka's number of another type."""
    if isinstance(record, TransactionMarker):
        return "abort" if record.is_abort else "commit"
    return next(
        (each.name.lower() for each in ControlType if each == record.type), f"type {record.type}"
    )


class _Shown(NamedTuple):
    """How a key or value is shown."""

    form: str
    """`null`, `text`, `json`, `avro` (decoded, as JSON), or `bytes` (base64)."""
    text: str | None
    schema_id: int | None = None
    cut: bool = False


def _value(topic: str, data: bytes | None, avro: AvroValues) -> _Shown:
    decoded = None if data is None else avro.decode(topic, data)
    if data is None or decoded is None:
        return _shown(data)
    return _Shown("avro", decoded[:SHOWN_MAX], schema_id_of(data), len(decoded) > SHOWN_MAX)


def _shown(data: bytes | None) -> _Shown:
    if data is None:
        return _Shown("null", None)
    schema_id, cut = schema_id_of(data), len(data) > SHOWN_MAX
    text = _text(data if schema_id is None else data[_PREFIX:])
    if text is not None and _is_json(text):
        return _Shown("json", text, schema_id, cut)
    if text is None or schema_id is not None:
        return _Shown("bytes", b64encode(data[:SHOWN_MAX]).decode(), schema_id, cut)
    return _Shown("text", text, None, cut)


def _text(data: bytes) -> str | None:
    """Return the text that is shown; None if the bytes are not a text."""
    cut = data[:SHOWN_MAX]
    try:
        text = data.decode() if len(data) <= SHOWN_MAX else cut.decode(errors="ignore")
    except UnicodeDecodeError:
        return None
    return None if any(ord(each) < 32 and each not in "\t\r\n" for each in text) else text


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
