"""A record as applications see it: key, value, timestamp, headers."""

from typing import NamedTuple

from tidelog.core.slotted import slotted

NO_TIMESTAMP = -1


class Header(NamedTuple):
    """One header. Keys may repeat, and the order of headers is kept.

    A key should be UTF-8, but clients can send other bytes. Those survive decoding and encoding
    (surrogateescape).
    """

    key: str
    value: bytes | None

    @classmethod
    def of(cls, key: bytes, value: bytes | None) -> "Header":
        return cls(key.decode(errors="surrogateescape"), value)

    def key_bytes(self) -> bytes:
        return self.key.encode(errors="surrogateescape")


@slotted
class Record:
    """One record. A key or value of None differs from an empty one."""

    key: bytes | None
    value: bytes | None
    timestamp: int = NO_TIMESTAMP
    headers: tuple[Header, ...] = ()
