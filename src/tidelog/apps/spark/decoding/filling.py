"""The kernel at work: called again and again until the input is used up."""

from collections.abc import Iterator
from typing import Any

from tidelog.apps.spark.decoding import kernel
from tidelog.apps.spark.decoding.column_buffers import ColumnBuffers
from tidelog.apps.spark.decoding.unpacking import Unpacked
from tidelog.core.record.record_batch import CorruptRecord
from tidelog.core.types import Offset


class Filling:
    """Rows gathered in buffers until a RecordBatch is full."""

    def __init__(
        self, schema: Any, topic: str, partition: int, rows: int, data_bytes: int, keep: bool
    ) -> None:
        self._buffers = ColumnBuffers(schema, topic, partition, rows, data_bytes, keep)

    def fill(self, unpacked: Unpacked, start: Offset, end: Offset) -> Iterator[Any]:
        """The RecordBatches that became full. Raises CorruptRecord."""
        state = self._buffers.state
        state[kernel.BATCH : kernel.NEXT_DELTA + 1] = 0
        state[kernel.START], state[kernel.STOP] = start, end
        while True:
            told = kernel.fill(unpacked.batches, state, self._buffers.out)
            if told == kernel.END:
                return
            if told == kernel.CORRUPT:
                batch = unpacked.batches[state[kernel.BATCH]]
                raise CorruptRecord(
                    f"record {state[kernel.DONE]} of the batch at offset"
                    f" {batch[kernel.BASE_OFFSET]} is none"
                )
            if told == kernel.FULL:
                yield self._buffers.take()
            else:
                self._buffers.grow()

    def rest(self) -> Iterator[Any]:
        """A RecordBatch that is not full, if there is one."""
        if self._buffers.state[kernel.ROWS]:
            yield self._buffers.take()
