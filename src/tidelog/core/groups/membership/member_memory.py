"""How much memory the members of all groups of a broker take.

A member's metadata and its assignment are kept until its session ends, which may be half an
hour after its connection was closed. So both are counted, over all shards of a broker, and a
join or an assignment that does not fit is refused; a client joins again later.
"""

from typing import Final

MEMBERS_BYTES_MAX: Final = 128 * 1024 * 1024
JOIN_BYTES_MAX: Final = 1024 * 1024
"""A generation is written as one batch of about that size at most, so a larger member could
never be part of one."""
_MEMBER_BYTES: Final = 1024
"""What a member takes without its metadata."""


class MemberMemory:
    """Bytes that members take now."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = 0

    def has_room_for(self, size: int) -> bool:
        return self.held + size <= MEMBERS_BYTES_MAX


def size_of_protocols(protocols: dict[str, bytes]) -> int:
    """What a member with these protocols takes."""
    return _MEMBER_BYTES + sum(len(name) + len(metadata) for name, metadata in protocols.items())
