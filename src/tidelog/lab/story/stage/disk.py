"""A disk whose power can fail: writes that were not synced are lost.

It is simpler than the simulator's disk, because a story says exactly what happens. A power
failure loses the bytes written since the last `sync`, all of them or all but the first few
batches. Truncations, renames and deletions are durable at once.
"""

from tidelog.core.record.crc32c import Buffer
from tidelog.core.record.record_batch import CorruptRecord, RecordBatch, batches, parse
from tidelog.core.types import LeaderEpoch, Offset
from tidelog.lab.memory_disk import MemoryDisk

LOG = ".log"


class StoryDisk(MemoryDisk):
    """Files, and the content of each that survives a power failure."""

    def __init__(self) -> None:
        super().__init__()
        self._durable: dict[str, bytes] = {}

    def sync(self, path: str) -> None:
        super().sync(path)
        self._durable[path] = bytes(self.files[path])

    def truncate(self, path: str, size: int) -> None:
        super().truncate(path, size)
        if path in self._durable:
            self._durable[path] = self._durable[path][:size]

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        for path in [path for path in self._durable if path == old or path.startswith(old + "/")]:
            self._durable[new + path[len(old) :]] = self._durable.pop(path)

    def delete(self, path: str) -> None:
        super().delete(path)
        self._durable.pop(path, None)

    def delete_dir(self, path: str) -> None:
        super().delete_dir(path)
        for name in [name for name in self._durable if name.startswith(path + "/")]:
            del self._durable[name]

    def lose_unsynced(self, keep_batches: int = 0) -> None:
        """Lose unsynced writes, except the first `keep_batches` unsynced batches of each log."""
        for path in list(self.files):
            durable = self._durable.get(path)
            if path.endswith(LOG):
                size = len(durable or b"")
                size += self._first_batches(path, size, keep_batches)
                if durable is not None or size:
                    del self.files[path][size:]
                    continue
            if durable is None:
                del self.files[path]
            else:
                self.files[path][:] = durable

    def _first_batches(self, path: str, position: int, count: int) -> int:
        sizes = [batch.size for batch in batches(self._tail(path, position))]
        return sum(sizes[:count])

    def _tail(self, path: str, position: int) -> Buffer:
        return memoryview(bytes(self.files[path]))[position:]

    def tear(self) -> bool:
        """Cut the last whole batch in half; return False if there is no batch."""
        logs = sorted(path for path in self.files if path.endswith(LOG))
        for path in reversed(logs):
            whole = list(batches(self._tail(path, 0)))
            if whole:
                last = whole[-1]
                del self.files[path][last.position + last.size // 2 :]
                return True
        return False

    def segment_of(self, offset: Offset) -> str | None:
        """Return the file of the batch that contains `offset`, if any."""
        logs = [path for path in self.files if path.endswith(LOG)]
        return next((path for path in logs if self._find(path, offset) is not None), None)

    def flip(self, path: str, offset: Offset) -> None:
        """Flip one bit in the batch that contains `offset`."""
        batch = self._batch(path, offset)
        self.files[path][batch.position + batch.size - 1] ^= 1

    def put_epoch(self, path: str, offset: Offset, epoch: LeaderEpoch) -> None:
        """Write another leader epoch into the batch that contains `offset`."""
        batch = self._batch(path, offset)
        whole = parse(self.files[path][batch.position : batch.position + batch.size])
        whole.assign(whole.base_offset, epoch)
        self.files[path][batch.position : batch.position + batch.size] = whole.view()

    def zero(self, path: str, offset: Offset) -> None:
        """Overwrite the batch that contains `offset` with zeros."""
        batch = self._batch(path, offset)
        self.files[path][batch.position : batch.position + batch.size] = bytes(batch.size)

    def cut(self, path: str, offset: Offset) -> None:
        """Truncate the file before the batch that contains `offset`."""
        self.truncate(path, self._batch(path, offset).position)

    def _batch(self, path: str, offset: Offset) -> RecordBatch:
        found = self._find(path, offset)
        assert found is not None, "segment_of has found it"
        return found

    def _find(self, path: str, offset: Offset) -> RecordBatch | None:
        try:
            for batch in batches(self._tail(path, 0)):
                if batch.base_offset <= offset <= batch.last_offset:
                    return batch
        except CorruptRecord:
            pass  # a batch with zeros: later batches cannot be found
        return None
