"""Chunks of a log in, RecordBatches out.

Rows of several chunks go into one RecordBatch until it is full, so that small chunks do not
make small RecordBatches. Always true: rows come in the order of their offsets, and every
record of a chosen batch that lies in the range asked for is a row, or CorruptRecord is
raised.
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from tidelog.apps.spark.decoding.engines import NUMBA, chosen_engine
from tidelog.apps.spark.decoding.selection import Selected
from tidelog.apps.spark.decoding.unpacking import Unpacked, UnpackMemory, unpack
from tidelog.core.types import Offset

ROWS = 16 * 1024
DATA_BYTES = 8 * 1024 * 1024
OFFSET_MAX = 2**63 - 1


class Engine(Protocol):
    """What turns records into columns."""

    def fill(self, unpacked: Unpacked, start: Offset, end: Offset) -> Iterator[Any]: ...

    def rest(self) -> Iterator[Any]: ...


def _engine(name: str) -> Callable[..., Engine]:
    """Imported when it is asked for: compiling takes a while, and numba may be missing."""
    if name == NUMBA:
        from tidelog.apps.spark.decoding.filling import Filling

        return Filling
    from tidelog.apps.spark.decoding.vectorised import Vectorised

    return Vectorised


class Decoder:
    """Makes RecordBatches of `schema` (of columns.py) from the records of one partition."""

    def __init__(
        self,
        schema: Any,
        topic: str,
        partition: int,
        *,
        rows: int = ROWS,
        data_bytes: int = DATA_BYTES,
        keep: bool = False,
        engine: str | None = None,
    ) -> None:
        """`rows` and `data_bytes` bound a RecordBatch; one record may be larger. Unless `keep`
        is set, a RecordBatch is good only until the next one is asked for."""
        make = _engine(chosen_engine(engine))
        self._memory = UnpackMemory()
        self._engine: Engine = make(schema, topic, partition, rows, data_bytes, keep)

    def decode(
        self, selected: Selected, start: Offset = 0, end: Offset = OFFSET_MAX
    ) -> Iterator[Any]:
        """The RecordBatches that became full. Raises CorruptRecord."""
        for unpacked in unpack(selected, self._memory):
            yield from self._engine.fill(unpacked, start, end)

    def flush(self) -> Iterator[Any]:
        """What is left."""
        yield from self._engine.rest()
