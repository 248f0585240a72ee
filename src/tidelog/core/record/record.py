"""What an application hands to a log: key, value, timestamp, headers."""

from typing import NamedTuple

from tidelog.core.slotted import slotted

NO_TIMESTAMP = -1


class Header(NamedTuple):
    """One header; keys may repeat, and their order counts.

    A key is text, but nothing stops a client from sending other bytes. Those survive the
    way through a str and back (surrogateescape).
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
    """One record. A None key or value is not the same as an empty one."""

    key: bytes | None
    value: bytes | None
    timestamp: int = NO_TIMESTAMP
    headers: tuple[Header, ...] = ()
