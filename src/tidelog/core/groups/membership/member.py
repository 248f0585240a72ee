"""One member of a group, and the memory that all members of a broker use.

Invariant: a member waits for the response to a join or to a sync, never to both.
"""

from collections.abc import Container, Iterable
from typing import Final

from tidelog.core.groups.messages import DescribedMember
from tidelog.core.slotted import slotted


@slotted(eq=False)
class Member:
    """A member as it described itself when it joined, and the requests that wait.

    The broker does not read its metadata, unless it is a consumer.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: dict[str, bytes]
    """The metadata by protocol name, the preferred protocol first."""
    assignment: bytes = b""
    is_new: bool = False
    """Whether the member has not been part of a generation yet, so it sends no heartbeats."""
    join_requester: object | None = None
    sync_requester: object | None = None

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_excused(self) -> bool:
        """Whether it need not send heartbeats because it waits for a rebalance.

        A new member that waits still has a time-out: it may have given up, and joined
        again under another id.
        """
        return not self.is_new and (
            self.join_requester is not None or self.sync_requester is not None
        )

    def matches(self, protocols: Iterable[tuple[str, bytes]]) -> bool:
        """Whether these are its protocols, in the same order."""
        return list(self.protocols.items()) == list(by_name(protocols).items())

    def vote(self, candidates: Container[str]) -> str:
        """Return the candidate that it prefers."""
        return next(name for name in self.protocols if name in candidates)

    def described(self, protocol_name: str | None) -> DescribedMember:
        """Describe the member. Metadata and assignment are empty without a chosen protocol."""
        return DescribedMember(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            b"" if protocol_name is None else self.protocols[protocol_name],
            b"" if protocol_name is None else self.assignment,
        )


def by_name(protocols: Iterable[tuple[str, bytes]]) -> dict[str, bytes]:
    """Return protocols by name. Of a name that occurs twice, the first counts."""
    named: dict[str, bytes] = {}
    for name, metadata in protocols:
        named.setdefault(name, metadata)
    return named


MEMBERS_BYTES_MAX: Final = 128 * 1024 * 1024
JOIN_BYTES_MAX: Final = 1024 * 1024
"""A generation is written as one batch of at most about this size, so a larger member could
never be part of one."""
_MEMBER_BYTES: Final = 1024
"""Memory of a member without its metadata."""


class MemberMemory:
    """The memory that the members of all groups of a broker take.

    A member's metadata and assignment are kept until its session ends, which may be half an hour
    after its connection was closed. So both are counted over all shards of a broker, and a join
    or an assignment that does not fit is refused; the client retries later.
    """

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = 0

    def has_room_for(self, size: int) -> bool:
        return self.held + size <= MEMBERS_BYTES_MAX


def size_of_protocols(protocols: dict[str, bytes]) -> int:
    """Return the memory that a member with these protocols takes."""
    return _MEMBER_BYTES + sum(len(name) + len(metadata) for name, metadata in protocols.items())
