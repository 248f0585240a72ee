"""The columns of each level of `format("tidelog-log")`, and the check of a narrower schema."""

from typing import Any

import pyarrow as pa

PLACE = {"replica": "string", "log_dir": "string", "topic": "string", "partition": "int"}
BATCH = {
    **PLACE,
    "segment": "string",
    "position": "bigint",
    "size": "int",
    "base_offset": "bigint",
    "last_offset": "bigint",
    "leader_epoch": "int",
    "magic": "int",
    "crc": "bigint",
    "crc_ok": "boolean",
    "attributes": "int",
    "codec": "string",
    "timestampType": "int",
    "is_transactional": "boolean",
    "is_control": "boolean",
    "base_timestamp": "timestamp",
    "max_timestamp": "timestamp",
    "producer_id": "bigint",
    "producer_epoch": "int",
    "base_sequence": "int",
    "count": "int",
}
SCAN = {
    **PLACE,
    "kind": "string",
    "segment": "string",
    "position": "bigint",
    "summary": "string",
    "windows": "array<struct<window:bigint,digest:bigint,batches:int>>",
    "producers": "array<struct<producer_id:bigint,first_epoch:int,first_sequence:int,"
    "first_offset:bigint,first_last_offset:bigint,first_position:bigint,first_timestamp:bigint,"
    "last_epoch:int,last_sequence:int,last_offset:bigint,last_timestamp:bigint>>",
}
RECORD = {
    **PLACE,
    "segment": "string",
    "position": "bigint",
    "offset": "bigint",
    "leader_epoch": "int",
    "timestamp": "timestamp",
    "timestampType": "int",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "producer_id": "bigint",
    "producer_epoch": "int",
    "sequence": "int",
    "codec": "string",
    "is_control": "boolean",
    "is_transactional": "boolean",
    "is_aborted": "boolean",
}
FILE = {
    **PLACE,
    "file": "string",
    "kind": "string",
    "base_offset": "bigint",
    "suffix": "string",
    "size": "bigint",
    "modified": "timestamp",
}
INDEX = {
    **PLACE,
    "file": "string",
    "entry": "int",
    "offset": "bigint",
    "position": "bigint",
    "timestamp": "timestamp",
}
CHECKPOINT = {**PLACE, "checkpoint": "string", "offset": "bigint"}
EPOCH = {**PLACE, "leader_epoch": "int", "start_offset": "bigint"}
SNAPSHOT = {
    **PLACE,
    "file": "string",
    "entry": "int",
    "producer_id": "bigint",
    "producer_epoch": "int",
    "coordinator_epoch": "int",
    "current_txn_first_offset": "bigint",
    "first_sequence": "int",
    "last_sequence": "int",
    "last_offset": "bigint",
    "last_timestamp": "timestamp",
}
TRANSACTION = {
    **PLACE,
    "file": "string",
    "entry": "int",
    "producer_id": "bigint",
    "first_offset": "bigint",
    "last_offset": "bigint",
    "last_stable_offset": "bigint",
}
LEVELS = {
    "record": RECORD,
    "batch": BATCH,
    "file": FILE,
    "index": INDEX,
    "checkpoint": CHECKPOINT,
    "epoch": EPOCH,
    "snapshot": SNAPSHOT,
    "transaction": TRANSACTION,
    "scan": SCAN,
}


class WrongSchema(ValueError):
    """A column is unknown or has another type; the text is one line for users."""


def ddl(level: str) -> str:
    """Return the columns of a level as Spark's DDL text."""
    return ", ".join(f"{name} {kind}" for name, kind in LEVELS[level].items())


def arrow_schema(level: str, requested: Any) -> pa.Schema:
    """Return the Arrow schema of the requested columns, in their order. Raises WrongSchema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    known = LEVELS[level]
    for field in requested.fields:
        if field.name not in known:
            raise WrongSchema(
                f"level {level} has no column {field.name!r}; it has {', '.join(known)}"
            )
        kind = field.dataType.simpleString()
        if kind != known[field.name]:
            raise WrongSchema(f"column {field.name!r} is {known[field.name]}, not {kind}")
    return to_arrow_schema(requested, timezone="UTC")
