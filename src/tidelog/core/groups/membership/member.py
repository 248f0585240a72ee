"""One member of a group: what it told when it joined, and what it waits for.

Always true: a member waits for the answer to a join or to a sync, never to both.
"""

from collections.abc import Container, Iterable

from tidelog.core.groups.messages import DescribedMember
from tidelog.core.slotted import slotted


@slotted(eq=False)
class Member:
    """Its metadata is opaque here, unless the group is one of consumers."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: dict[str, bytes]
    """By name, the preferred one first."""
    assignment: bytes = b""
    is_new: bool = False
    """It has not been part of a generation yet, so it can't send heartbeats."""
    join_requester: object | None = None
    sync_requester: object | None = None

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_excused(self) -> bool:
        """While it waits for a rebalance it need not say that it lives. A new member that waits
        has a time-out all the same: it may have given up and come back as another."""
        return not self.is_new and (
            self.join_requester is not None or self.sync_requester is not None
        )

    def matches(self, protocols: Iterable[tuple[str, bytes]]) -> bool:
        """Whether these are its protocols already, in the same order."""
        return list(self.protocols.items()) == list(by_name(protocols).items())

    def vote(self, candidates: Container[str]) -> str:
        """Which of the candidates it likes best."""
        return next(name for name in self.protocols if name in candidates)

    def described(self, protocol_name: str | None) -> DescribedMember:
        """Without a protocol there is nothing to tell of metadata and assignment."""
        return DescribedMember(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            b"" if protocol_name is None else self.protocols[protocol_name],
            b"" if protocol_name is None else self.assignment,
        )


def by_name(protocols: Iterable[tuple[str, bytes]]) -> dict[str, bytes]:
    """A name that comes twice counts once, as it was said first."""
    named: dict[str, bytes] = {}
    for name, metadata in protocols:
        named.setdefault(name, metadata)
    return named
