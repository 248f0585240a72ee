"""Parse and check the options of a write and the columns of its rows, once, on the driver.

Option names are those of Spark's Kafka sink; `txnAppId` and `txnVersion` are those of Delta.
Invariant: an option that is unknown or not supported (weaker acks, security) is rejected.

Columns are those of Spark's Kafka sink, and `timestamp`. Other columns are ignored, as in Spark's
connector, so that rows read from a topic can be written unchanged. Invariant: every column in
`SinkColumns` has a type that the encoder supports.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tidelog.apps.spark.client_options import (
    BOOTSTRAP_SHORT,
    ClientSettings,
    OptionError,
    client_settings,
    one_of,
    positive,
    reject_unknown,
    text_of,
    truth,
)
from tidelog.apps.spark.sink.sink_errors import WrongColumns
from tidelog.core.record.compression import Codec

LEDGER_TOPIC = "__tidelog_spark_sink"
BATCH_BYTES = 512 * 1024
BATCH_BYTES_MIN = 1024
DELIVERY_MS = 120_000
REQUEST_MS = 30_000
TRANSACTION_MS = 900_000
"""The longest time that brokers allow by default (transaction.max.timeout.ms)."""

SINK_OPTIONS = (
    BOOTSTRAP_SHORT,
    "topic",
    "ledgerTopic",
    "onReplayMismatch",
    "transactional",
    "txnAppId",
    "txnVersion",
)
IGNORED = ("checkpointLocation", "path", "queryName", "includeHeaders", "outputMode")
"""Options that are accepted and ignored: Spark's own options, and options of the source."""
CODECS = {
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class NamedWrite(NamedTuple):
    """The application and version that identify a batch write, so that it can be repeated."""

    app: str
    version: int


class WriteOptions(NamedTuple):
    """All options of a write; Spark sends them to the executors."""

    client: ClientSettings
    topic: str | None = None
    codec: Codec = Codec.NONE
    batch_bytes: int = BATCH_BYTES
    delivery_s: float = DELIVERY_MS / 1000
    ledger_topic: str = LEDGER_TOPIC
    accept_mismatch: bool = False
    named: NamedWrite | None = None
    transactional: bool = False
    transaction_ms: int = TRANSACTION_MS
    """How long a transaction may be open before brokers abort it."""


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Parse the options, with names in any case. Raises OptionError."""
    given = {name.lower(): text for name, text in options.items()}
    reject_unknown(given, (*SINK_OPTIONS, *IGNORED), "the tidelog sink")
    _reject_weaker(given)
    codec = one_of(given, "kafka.compression.type", CODECS)
    batch_bytes = positive(given, "kafka.batch.size") or BATCH_BYTES
    delivery_ms = positive(given, "kafka.delivery.timeout.ms") or DELIVERY_MS
    client = client_settings({"kafka.request.timeout.ms": str(REQUEST_MS), **given})
    mismatch = one_of(given, "onReplayMismatch", ("fail", "accept"))
    return WriteOptions(
        client,
        text_of(given, "topic") or None,
        CODECS[codec or "none"],
        max(batch_bytes, BATCH_BYTES_MIN),
        delivery_ms / 1000,
        text_of(given, "ledgerTopic") or LEDGER_TOPIC,
        mismatch == "accept",
        _named(given),
        truth(given, "transactional") or False,
        _transaction_ms(given),
    )


def _reject_weaker(given: Mapping[str, str]) -> None:
    acks = text_of(given, "kafka.acks")
    if acks is not None and acks not in ("all", "-1"):
        raise OptionError(
            f"kafka.acks is {acks!r}; the sink always waits for all in-sync replicas: leave it out"
        )
    if truth(given, "kafka.enable.idempotence") is False:
        raise OptionError("kafka.enable.idempotence is false; the sink needs it: leave it out")
    if text_of(given, "kafka.transactional.id"):
        raise OptionError(
            "kafka.transactional.id can't be set: each task has its own; use transactional=true"
        )


def _transaction_ms(given: Mapping[str, str]) -> int:
    name = "kafka.transaction.timeout.ms"
    found = positive(given, name)
    if found is not None and not truth(given, "transactional"):
        raise OptionError(f"{name} needs transactional=true")
    if found is not None and found >= 2**31:
        raise OptionError(f"{name} is {found}; give at most {2**31 - 1}")
    return found or TRANSACTION_MS


def _named(given: Mapping[str, str]) -> NamedWrite | None:
    app, version = text_of(given, "txnAppId"), text_of(given, "txnVersion")
    if app is None and version is None:
        return None
    if not app or not version:
        raise OptionError("txnAppId and txnVersion belong together; give both or none")
    if not version.isdecimal() or int(version) >= 2**63:
        raise OptionError(f"txnVersion is {version!r}; give a whole number of at least 0")
    return NamedWrite(app, int(version))


HEADERS_TYPE = "array<struct<key:string,value:binary>>"
_TEXT = ("string", "binary")
_TYPES = {
    "value": _TEXT,
    "key": _TEXT,
    "headers": (HEADERS_TYPE,),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp", "timestamp_ntz"),
}


class SinkColumns(NamedTuple):
    """The index of each column in a row; None if the column is missing."""

    value: int
    key: int | None = None
    headers: int | None = None
    topic: int | None = None
    partition: int | None = None
    timestamp: int | None = None


def sink_columns(schema: Any, topic: str | None) -> SinkColumns:
    """Find the columns in a StructType; `topic` is the option. Raises WrongColumns."""
    places: dict[str, int] = {}
    for place, column in enumerate(schema.fields):
        wanted = _TYPES.get(column.name)
        if wanted is None:
            continue
        if column.name in places:
            raise WrongColumns(f"the DataFrame has two columns {column.name!r}; keep one")
        found = column.dataType.simpleString()
        if _plain_type(found) not in wanted:
            types = " or ".join(wanted)
            raise WrongColumns(f"column {column.name!r} is {found}; cast it to {types}")
        places[column.name] = place
    if "value" not in places:
        names = ", ".join(column.name for column in schema.fields) or "none"
        raise WrongColumns(
            f"column 'value' is missing (columns: {names}); select a column AS value"
        )
    if topic is not None:
        places.pop("topic", None)
    elif "topic" not in places:
        raise WrongColumns("no topic is set: set the option 'topic', or select a column AS topic")
    return SinkColumns(**places)


def _plain_type(found: str) -> str:
    """Return a type's name without length and collation, which Arrow does not have."""
    plain = found.split(" collate")[0]
    return "string" if plain.startswith(("varchar(", "char(")) else plain
