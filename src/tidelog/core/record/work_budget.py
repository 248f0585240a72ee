"""The budget of one request for decompression, compression and record scans.

One thread serves all clients. A kilobyte may decompress to gigabytes, and a megabyte may hold a
million records. So both are counted: bytes that a codec processes, and steps over records and their
headers. Core has no clock; these two numbers represent the time that the work takes.

Invariant: work is charged when it is done, also if the batch is rejected afterwards. So all
batches of one request together cost no more than one budget.
"""

from tidelog.core.errors import ErrorCode
from tidelog.core.record.compression import Codec, decompress
from tidelog.core.record.crc32c import Buffer
from tidelog.core.record.record_batch import CorruptRecord

UNPACKED_BYTES_MAX = 64 * 1024 * 1024
STEPS_MAX = 400_000
"""Limits of one request: using up either of the two takes about a third of a second."""
RECORD_STEPS = 2
BATCH_STEPS = 20
"""A record takes as long as two headers, and finding a batch as long as ten records."""
ALWAYS_PACKED_BYTES = 1024 * 1024
"""The first batch of a request may be compressed up to this size, however slow its codec is."""
_SLOW_FRAMES = frozenset({Codec.GZIP, Codec.SNAPPY})
_FRAMES_PRICE = 8
"""A compressed byte costs at least this many decompressed ones: with these two codecs a megabyte
can be fifty thousand nearly empty frames."""
_GZIP_PRICE = 6
_ZSTD_PRICES = ((3, 2), (9, 10), (14, 50))
"""Highest level, and the price of a byte in decompressed bytes: 114, 26 and 10 MB/s of text,
where gzip decompresses 248."""
_ZSTD_SLOWEST_PRICE = 250
_LZ4_PRICE = 1


class WorkBudget:
    """The remaining budget of one request."""

    __slots__ = ("_bytes", "_first", "_steps", "bytes_left", "steps_left")

    def __init__(self, unpacked_bytes: int | None = None, steps: int | None = None) -> None:
        self._bytes = UNPACKED_BYTES_MAX if unpacked_bytes is None else unpacked_bytes
        self._steps = STEPS_MAX if steps is None else steps
        self.bytes_left = self._bytes
        self.steps_left = self._steps
        self._first = True

    @property
    def bytes_spent(self) -> int:
        return self._bytes - self.bytes_left

    @property
    def steps_spent(self) -> int:
        return self._steps - self.steps_left

    def begin_batch(self) -> None:
        """Start a batch. If the first one of a request exceeds the budget, a retry would too."""
        self._first = self.bytes_left == self._bytes and self.steps_left == self._steps
        self.steps_left -= BATCH_STEPS

    def charge_steps(self, steps: int) -> None:
        """Use up steps. Raises CorruptRecord if fewer are left, and sets the rest to 0."""
        if steps > self.steps_left:
            self.steps_left = 0
            raise self._refusal(f"more than {self._steps // RECORD_STEPS} records and headers")
        self.steps_left -= steps

    def unpack(self, codec: int, packed: Buffer) -> Buffer:
        """Decompress data. Raises CorruptRecord: invalid data, or more bytes than are left."""
        if codec == Codec.NONE:
            return packed
        least = len(packed) * _FRAMES_PRICE if codec in _SLOW_FRAMES else 0
        if self.bytes_left <= 0:
            raise self._too_large()
        try:
            records = decompress(codec, packed, self.bytes_left)
        except CorruptRecord as corrupt:
            self.bytes_left -= max(corrupt.unpacked_bytes, least)
            if corrupt.error is ErrorCode.MESSAGE_TOO_LARGE:
                raise self._too_large() from corrupt
            raise
        self.bytes_left -= max(len(records), least)
        return records

    def charge_packing(self, size: int, codec: Codec, level: int | None) -> None:
        """Use up bytes for compression. Raises CorruptRecord if that takes too long."""
        price = size * _price(codec, level)
        fits = price <= self.bytes_left or (self._first and size <= ALWAYS_PACKED_BYTES)
        self.bytes_left -= price if fits else self.bytes_left
        if not fits:
            raise self._refusal(f"{size} bytes are too many to compress as {codec.name.lower()}")

    def _too_large(self) -> CorruptRecord:
        return self._refusal(f"decompresses to more than {self._bytes} bytes")

    def _refusal(self, reason: str) -> CorruptRecord:
        """Return the error of a batch over budget: producers split a batch that never fits, and
        retry others."""
        if self._first:
            reason = f"{reason}; send fewer records at once"
            return CorruptRecord(reason, ErrorCode.MESSAGE_TOO_LARGE)
        reason = f"all batches of this request: {reason}; send fewer batches at once"
        return CorruptRecord(reason, ErrorCode.REQUEST_TIMED_OUT)


def _price(codec: Codec, level: int | None) -> int:
    if codec == Codec.GZIP:
        return _GZIP_PRICE
    if codec != Codec.ZSTD:
        return _LZ4_PRICE if codec else 0
    for highest, price in _ZSTD_PRICES:
        if level is None or level <= highest:
            return price
    return _ZSTD_SLOWEST_PRICE
