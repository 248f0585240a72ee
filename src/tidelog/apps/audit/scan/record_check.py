"""Decode batches and check that their records match their headers.

All batches of a piece are decoded at once. Only if that fails, or counts or timestamps differ,
each batch is decoded alone. Callers import this module late, because it loads the decoder.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tidelog.apps.audit.scan.walk import Framed, Headers
from tidelog.apps.spark.columns import ARROW_TYPES, OFFSET, TIMESTAMP
from tidelog.apps.spark.decoding.batch_headers import BatchHeaders, Selected
from tidelog.apps.spark.decoding.decoder import new_decoder
from tidelog.core.record.decoder import decode
from tidelog.core.record.record_batch import (
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    CorruptRecord,
    parse,
)

_COLUMNS = pa.schema([(name, ARROW_TYPES[name]) for name in (OFFSET, TIMESTAMP)])
_SAME = ("leader_epoch", "crc", "attributes", "base_timestamp", "max_timestamp")
_PRODUCER = ("producer_id", "producer_epoch", "base_sequence", "count")
_NO_TIME = -1


def batch_headers(framed: Framed) -> BatchHeaders:
    """Convert the headers to the decoder's type."""
    headers: Headers = framed.headers
    return BatchHeaders(
        position=framed.places,
        size=framed.sizes,
        base_offset=headers["base_offset"].astype(np.int64),
        last_offset=framed.last,
        tail=0,
        **{name: headers[name].astype(np.int64) for name in (*_SAME, *_PRODUCER)},
    )


def wrong_batches(framed: Framed) -> Iterator[tuple[int, str]]:
    """Yield the batches whose records do not match their header, each with the reason.

    Batches with a wrong checksum are left out.
    """
    count = framed.headers["count"]
    opened = np.flatnonzero(framed.sound & ((count > 0) | (framed.sizes > HEADER_SIZE)))
    if len(opened) and not _all_fit(framed, opened):
        for at in opened.tolist():
            problem = _problem(framed, at)
            if problem:
                yield at, problem


def _all_fit(framed: Framed, opened: np.ndarray[tuple[int], np.dtype[np.int64]]) -> bool:
    headers = batch_headers(framed)
    decoder = new_decoder(_COLUMNS, "", 0, keep=True)
    try:
        rows = list(decoder.decode(Selected(framed.data, headers, opened)))
        rows += decoder.flush()
    except CorruptRecord:
        return False
    if not rows:
        return int(headers.count[opened].sum()) == 0
    table = pa.Table.from_batches(rows)
    offsets = table[OFFSET].to_numpy()
    times = table[TIMESTAMP].cast(pa.int64()).to_numpy() // 1000
    owner = np.searchsorted(headers.base_offset[opened], offsets, "right") - 1
    if (owner < 0).any():
        return False
    found = np.bincount(owner, minlength=len(opened))
    youngest = np.full(len(opened), np.iinfo(np.int64).min)
    np.maximum.at(youngest, owner, times)
    claimed = headers.max_timestamp[opened]
    fits = (found == headers.count[opened]) & ((youngest == claimed) | (found == 0))
    return bool(fits.all())


def _problem(framed: Framed, at: int) -> str:
    batch = parse(framed.data, int(framed.places[at]))
    try:
        records = decode(batch)
    except CorruptRecord as error:
        return f"its records can't be read: {error.reason}"
    youngest = max((record.timestamp for record in records), default=batch.max_timestamp)
    plain = not batch.attributes & (LOG_APPEND_TIME | DELETE_HORIZON)
    if plain and youngest != batch.max_timestamp and youngest > _NO_TIME:
        return f"its newest record has {youngest}, its header has {batch.max_timestamp}"
    return ""
