"""The budget of one request for decompression, compression and record scans.

One thread serves all clients. A kilobyte may decompress to gigabytes, and a megabyte may hold a
million records, so both are counted: bytes that go through a codec, and steps over records
and their headers. Core has no clock; these two numbers stand for the time that they take.

Invariant: work is charged when it is done, also when the batch is refused afterwards. So all
batches of one request together cost no more than one budget.
"""

from tidelog.core.errors import ErrorCode
from tidelog.core.record.compression import Codec, decompress
from tidelog.core.record.crc32c import Buffer
from tidelog.core.record.record_batch import CorruptRecord

UNPACKED_BYTES_MAX = 64 * 1024 * 1024
STEPS_MAX = 400_000
"""Each of the two takes about a third of a second."""
RECORD_STEPS = 2
BATCH_STEPS = 20
"""A record takes as long as two headers, and finding a batch as long as ten records."""
ALWAYS_PACKED_BYTES = 1024 * 1024
"""The first batch of a request may be packed if it is no larger, however slow its codec is."""
_SLOW_FRAMES = frozenset({Codec.GZIP, Codec.SNAPPY})
_FRAMES_PRICE = 8
"""A packed byte costs as much as so many unpacked ones at least: of these two a megabyte can be
fifty thousand frames that are all but empty."""
_GZIP_PRICE = 6
_ZSTD_PRICES = ((3, 2), (9, 10), (14, 50))
"""Highest level, and the price of a byte in decompressed bytes: 114, 26 and 10 MB/s of text,
where gzip decompresses 248."""
_ZSTD_SLOWEST_PRICE = 250
_LZ4_PRICE = 1


class WorkBudget:
    """What is left for one request."""

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
        """Note whether this is the first batch that costs anything: if it does not fit, it
        never will."""
        self._first = self.bytes_left == self._bytes and self.steps_left == self._steps
        self.steps_left -= BATCH_STEPS

    def charge_steps(self, steps: int) -> None:
        """Raises CorruptRecord if fewer are left; then none are."""
        if steps > self.steps_left:
            self.steps_left = 0
            raise self._refusal(f"more than {self._steps // RECORD_STEPS} records and headers")
        self.steps_left -= steps

    def unpack(self, codec: int, packed: Buffer) -> Buffer:
        """Raises CorruptRecord: bad data, or more bytes than are left."""
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
        """Raises CorruptRecord if packing so many bytes takes too long."""
        price = size * _price(codec, level)
        fits = price <= self.bytes_left or (self._first and size <= ALWAYS_PACKED_BYTES)
        self.bytes_left -= price if fits else self.bytes_left
        if not fits:
            raise self._refusal(f"{size} bytes are too many to pack as {codec.name.lower()}")

    def _too_large(self) -> CorruptRecord:
        return self._refusal(f"unpacks to more than {self._bytes} bytes")

    def _refusal(self, reason: str) -> CorruptRecord:
        """The error of a batch over budget: producers split one that never fits, retry others."""
        if self._first:
            reason = f"{reason}; send fewer records at once"
            return CorruptRecord(reason, ErrorCode.MESSAGE_TOO_LARGE)
        reason = f"the batches of this request together: {reason}; send fewer of them at once"
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
