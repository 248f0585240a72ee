"""Level `batch`: one row for each batch, with its header fields and whether its checksum matches.

Bytes that are not a valid batch raise an error, or are skipped if `onDamage` is `skip`. An
incomplete batch at the end of a file is not an error: a broker may be writing it.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tidelog.apps.audit.scan.walk import WINDOW, Framed, SegmentWalk
from tidelog.apps.audit.source.planning import Unit
from tidelog.core.record.compression import Codec
from tidelog.core.record.record_batch import CODEC_MASK, CONTROL, LOG_APPEND_TIME, TRANSACTIONAL

CODECS = [codec.name.lower() for codec in Codec]


class Damaged(Exception):
    """A file is damaged or unreadable; the text is one line for users."""


def framed_pieces(unit: Unit, skip_damage: bool) -> Iterator[Framed]:
    """Yield the batches of a stretch piece by piece; a piece is valid until the next one."""
    stretch = unit.stretch
    assert stretch is not None
    try:
        fd = os.open(stretch.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # retention deleted the file after the plan was made
    except OSError as error:
        if skip_damage:
            return
        raise Damaged(f"can't read {stretch.path}: {(error.strerror or '').lower()}") from None
    try:
        size = os.fstat(fd).st_size
        end = size if stretch.to_end else min(stretch.end, size)
        walk = SegmentWalk(fd, stretch.start, end, size, stretch.base_offset)
        for piece in walk.stretches():
            if isinstance(piece, Framed):
                yield piece
            elif not skip_damage and piece.end < size:  # otherwise it may be an unfinished write
                raise Damaged(
                    f"{stretch.path}: bytes {piece.position} to {piece.end} have no valid batch"
                    f" ({piece.reason}); run tidelog audit, or set onDamage to skip"
                )
        if walk.position != end and not skip_damage and end < size:
            raise Damaged(
                f"{stretch.path}: no batch ends at byte {end}, although the index names that byte;"
                " set splitBytes to 0 to read the file without its index"
            )
    except OSError as error:
        if not skip_damage:
            why = (error.strerror or str(error)).lower()
            raise Damaged(f"can't read {stretch.path}: {why}") from None
    finally:
        os.close(fd)


def batch_rows(
    units: list[Unit],
    schema: pa.Schema,
    skip_damage: bool,
    windows: Mapping[str, tuple[int, ...]],
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of the units, or only those that begin in the given windows."""
    for unit in units:
        if unit.stretch is not None:
            for framed in framed_pieces(unit, skip_damage):
                if windows:
                    inside = framed.headers["base_offset"] // WINDOW
                    framed = framed.only(np.isin(inside, windows[str(unit.partition)]))
                columns = _columns(unit, framed)
                arrays = [_array(columns[field.name], field.type) for field in schema]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values * 1000, pa.int64()).cast(kind)
    return pa.array(values, kind)


def repeated(value: str | int | None, count: int) -> list[str | int | None]:
    """Return a column with the same value in each row."""
    return [value] * count


def _columns(unit: Unit, framed: Framed) -> dict[str, Any]:
    headers, count = framed.headers, len(framed.sizes)
    assert unit.stretch is not None
    assert unit.partition is not None
    attributes = headers["attributes"].astype(np.int32)
    plain = {
        name: headers[name].astype(np.int64)
        for name in ("base_offset", "leader_epoch", "magic", "crc", "producer_id", "count")
    }
    return plain | {
        "replica": repeated(unit.replica, count),
        "log_dir": repeated(unit.log_dir, count),
        "topic": repeated(unit.partition.topic, count),
        "partition": repeated(unit.partition.partition, count),
        "segment": repeated(os.path.basename(unit.stretch.path), count),
        "position": framed.positions,
        "size": framed.sizes,
        "last_offset": framed.last,
        "crc_ok": framed.sound,
        "attributes": attributes,
        "codec": [codec_name(int(codec)) for codec in attributes & CODEC_MASK],
        "timestampType": (attributes & LOG_APPEND_TIME) // LOG_APPEND_TIME,
        "is_transactional": (attributes & TRANSACTIONAL) != 0,
        "is_control": (attributes & CONTROL) != 0,
        "base_timestamp": headers["base_timestamp"].astype(np.int64),
        "max_timestamp": headers["max_timestamp"].astype(np.int64),
        "producer_epoch": headers["producer_epoch"].astype(np.int64),
        "base_sequence": headers["base_sequence"].astype(np.int64),
    }


def codec_name(number: int) -> str:
    """Return the name of a compression codec, or `codec N` if it is unknown."""
    return CODECS[number] if number < len(CODECS) else f"codec {number}"
