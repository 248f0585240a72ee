"""The tasks of `land`: decode rows, separate those that cannot be decoded, write files.

This is a data source of Spark's Python API. Its writers receive Arrow batches and do not need
pandas, unlike `mapInArrow`. It runs in Spark's Python workers. Invariant: each row goes to exactly
one table. `rejected` keeps every column of the record; `data` drops `value` only if `keep_value` is
false.
"""

import json
import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from tidelog.apps.pipeline.decoding import json_values
from tidelog.apps.pipeline.decoding.avro import AvroDecoder
from tidelog.apps.pipeline.lake import layout
from tidelog.apps.pipeline.lake.commit import StagedFile
from tidelog.apps.pipeline.lake.durable import read_json, write_json
from tidelog.apps.pipeline.lake.writing import BY_RECORD, Folders, write_staged
from tidelog.apps.pipeline.plan import Decode

FORMAT = "tidelog-staging"


@dataclass
class TaskFiles(WriterCommitMessage):
    """The files that a successful task wrote."""

    files: list[StagedFile]


class StagingSource(DataSource):
    """`format("tidelog-staging")`: write rows to files that no reader sees yet."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: Any, overwrite: bool) -> Any:  # noqa: ARG002 - Spark's signature
        decode = json.loads(self.options["decode"])
        return StagingWriter(
            self.options["folder"],
            self.options["report"],
            int(self.options["filebytes"]),
            Decode(**decode) if decode else None,
            Folders(*json.loads(self.options["by"])),
        )


class StagingWriter(DataSourceArrowWriter):
    """Writes files in tasks; `commit`, which runs in a Spark process, stores the list of files."""

    def __init__(
        self, folder: str, report: str, file_bytes: int, decode: Decode | None, by: Folders
    ) -> None:
        self._folder = folder
        self._report = report
        self._file_bytes = file_bytes
        self._decode = decode
        self._by = by

    def write(self, iterator: Iterator[Any]) -> TaskFiles:
        tables = _tables(iterator, self._decode)
        return TaskFiles(list(write_staged(tables, self._folder, self._file_bytes, self._by)))

    def commit(self, messages: list[Any]) -> None:
        files = [file for message in messages if message is not None for file in message.files]
        write_json(self._report, {"files": files})


def register_staging(spark: Any) -> None:
    """Register the format. Call it before a query starts: batches run in a copy of the session."""
    spark.dataSource.register(StagingSource)


def stage(
    frame: Any,
    folder: str,
    file_bytes: int,
    decode: Decode | None = None,
    by: Folders = BY_RECORD,
) -> list[StagedFile]:
    """Write a frame to staged files, and return them in an order independent of task timing.

    The session must know the format: call `register_staging` first.
    """
    report = os.path.join(folder, f"{uuid.uuid4().hex}.json")
    (
        frame.write.format(FORMAT)
        .mode("append")
        .option("folder", folder)
        .option("report", report)
        .option("fileBytes", str(file_bytes))
        .option("decode", json.dumps(asdict(decode) if decode else None))
        .option("by", json.dumps(by))
        .save()
    )
    files = (read_json(report) or {})["files"]
    os.unlink(report)
    return sorted(map(_staged_file, files), key=lambda f: (f[:3], sorted(f.offsets.items())))


def _staged_file(fields: list[Any]) -> StagedFile:
    file = StagedFile(*fields)
    ranges = {partition: (low, high) for partition, (low, high) in file.offsets.items()}
    return file._replace(offsets=ranges)


def _tables(batches: Iterable[Any], decode: Decode | None) -> Iterator[tuple[str, Any]]:
    avro = None
    if decode is not None and decode.format == "avro":
        avro = AvroDecoder(decode.schema, decode.framing)
    for batch in batches:
        if decode is None:
            yield layout.DATA, batch
        else:
            record, decoded, reasons = _avro(batch, avro) if avro is not None else _json(batch)
            yield from _good_and_bad(record, decoded, reasons, decode)


def _avro(batch: Any, decoder: AvroDecoder) -> tuple[Any, Any, list[str | None]]:
    decoded, reasons = decoder.decode(batch.column("value"))
    return batch, decoded, reasons


def _json(batch: Any) -> tuple[Any, Any, list[str | None]]:
    """Return a batch that Spark parsed, and the reasons for values that Spark could not parse."""
    decoded, bad = batch.column("decoded"), batch.column("bad")
    reasons: list[str | None] = [None] * batch.num_rows
    if bad.true_count:
        types = {field.name: str(field.type) for field in decoded.type}
        values = batch.column("value")
        for row, is_bad in enumerate(bad.to_pylist()):
            if is_bad:
                value = values[row].as_py()
                reasons[row] = json_values.reason(value, _readable_fields(decoded[row]), types)
    return batch.drop_columns(["decoded", "bad"]), decoded, reasons


def _readable_fields(row: Any) -> dict[str, Any] | None:
    """Return the fields that could be read, as Arrow values: Python has no year 10000."""
    if not row.is_valid:
        return None
    return {name: field if field.is_valid else None for name, field in row.items()}


def _good_and_bad(
    record: Any, decoded: Any, reasons: list[str | None], decode: Decode
) -> Iterator[tuple[str, Any]]:
    import pyarrow as pa
    from pyarrow import compute as pc

    reason_column = pa.array(reasons, pa.string())
    if reason_column.null_count < len(reason_column):
        is_bad = reason_column.is_valid()
        rejected = record.append_column("reason", reason_column).filter(is_bad)
        yield layout.REJECTED, rejected
        is_good = pc.invert(is_bad)
        record, decoded = record.filter(is_good), decoded.filter(is_good)
    good = record if decode.keep_value else record.drop_columns(["value"])
    columns = dict(zip(good.schema.names, good.columns, strict=True))
    for index, field in enumerate(decoded.type):
        # Not `decoded.field(index)`, which ignores that the whole struct may be null.
        columns[f"{decode.prefix}{field.name}"] = pc.struct_field(decoded, index)
    yield layout.DATA, pa.RecordBatch.from_pydict(columns)
