"""Which broker coordinates a key: the leader of the key's partition of an internal topic."""

from enum import IntEnum

from tidelog.core.errors import ErrorCode
from tidelog.core.slotted import slotted
from tidelog.core.types import CLIENT_LISTENER

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
NO_BROKER = -1
_SIGN = 0x7FFF_FFFF


class CoordinatorType(IntEnum):
    """Kafka's `key_type` in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


@slotted(frozen=True)
class FindCoordinator:
    """Find the coordinator of a key. Every broker can answer from its metadata."""

    key: str
    key_type: CoordinatorType = CoordinatorType.GROUP
    listener: str = CLIENT_LISTENER
    """The listener on which the client's request arrived, by its `endpoint_name`."""


@slotted(frozen=True)
class FindCoordinatorResponse:
    """The coordinator's id and client endpoint, or an error."""

    error_code: ErrorCode
    node_id: int = NO_BROKER
    host: str = ""
    port: int = NO_BROKER
    error_message: str | None = None


def partition_for(key: str, partitions: int) -> int:
    """Return the partition of a key: Java's hash of the string without its sign, as in Kafka."""
    number = 0
    utf16 = key.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(utf16), 2):
        number = number * 31 + (utf16[at] << 8 | utf16[at + 1]) & 0xFFFF_FFFF
    return (number & _SIGN) % partitions
