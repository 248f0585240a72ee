"""What all the published rules share: one partition's replicas, its controller, its actions.

After the TLA+ module KafkaReplication. Nothing crashes and no time passes: any step whose guard
holds may be the next. Requests of the controller stay for ever, so a replica may take any that is
newer than its own epoch, and may skip some.

Every action looks at one replica, or at a leader and one follower. `packed_model` relies on that:
it asks each question here once for every pair that occurs, and remembers the answer.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple, TypeAlias

NONE = -1
"""No leader; as an epoch: none heard of yet."""


class Size(NamedTuple):
    """The bounds that make the state space finite."""

    replicas: int
    log_size: int
    max_records: int
    max_leader_epoch: int

    def __str__(self) -> str:
        return ",".join(map(str, self))


class Record(NamedTuple):
    """A record: who it is, and the epoch of the leader that wrote it."""

    id: int
    epoch: int


Log: TypeAlias = tuple[Record, ...]


class Replica(NamedTuple):
    """One replica's log and what it believes of the partition."""

    name: int
    log: Log
    high_watermark: int
    leader_epoch: int
    leader: int
    isr: frozenset[int]

    @property
    def log_end_offset(self) -> int:
        return len(self.log)

    @property
    def presumes_leadership(self) -> bool:
        return self.leader == self.name

    def has_offset(self, offset: int) -> bool:
        return offset < len(self.log)


class LeaderAndIsr(NamedTuple):
    """A request of the controller: who leads an epoch, with which ISR at its start."""

    leader_epoch: int
    leader: int
    isr: frozenset[int]


class Quorum(NamedTuple):
    """What is true of the partition: the requests issued, one an epoch, and the ISR now."""

    requests: tuple[LeaderAndIsr, ...]
    isr: frozenset[int]
    next_record_id: int

    @property
    def leader_epoch(self) -> int:
        return len(self.requests) - 1

    @property
    def leader(self) -> int:
        return self.requests[-1].leader if self.requests else NONE


def controller_moves(quorum: Quorum, size: Size) -> list[tuple[str, int, Quorum]]:
    """What the controller may do: the action, the replica it is about, the quorum after it."""
    if quorum.leader_epoch == size.max_leader_epoch:
        return []
    moves = []
    for replica in sorted(quorum.isr):
        if replica != quorum.leader:
            moves.append(("ControllerElectLeader", replica, replica, quorum.isr))
            moves.append(("ControllerShrinkIsr", replica, quorum.leader, quorum.isr - {replica}))
        elif quorum.isr == {replica}:  # the last member stays, or no one could ever be elected
            moves.append(("ControllerShrinkIsr", replica, NONE, quorum.isr))
        else:
            moves.append(("ControllerShrinkIsr", replica, NONE, quorum.isr - {replica}))
    return [
        (action, replica, _issue(quorum, leader, isr)) for action, replica, leader, isr in moves
    ]


def _issue(quorum: Quorum, leader: int, isr: frozenset[int]) -> Quorum:
    request = LeaderAndIsr(quorum.leader_epoch + 1, leader, isr)
    return Quorum((*quorum.requests, request), isr, quorum.next_record_id)


def take_request(request: LeaderAndIsr, replica: Replica) -> Replica:
    """Believe the controller. A new leader keeps its high watermark, often behind the true one."""
    return replica._replace(
        leader_epoch=request.leader_epoch, leader=request.leader, isr=request.isr
    )


def leader_write(leader: Replica, record_id: int) -> Replica:
    return leader._replace(log=(*leader.log, Record(record_id, leader.leader_epoch)))


def truncate_to(replica: Replica, end: int) -> Replica:
    """Cut the tail; the high watermark never stays above the end."""
    return replica._replace(log=replica.log[:end], high_watermark=min(end, replica.high_watermark))


class KafkaReplication(ABC):
    """The rules of Kafka before any leader epoch was looked at. Only truncation is left open."""

    name: str

    @abstractmethod
    def truncation_offset(self, leader: Replica, follower: Replica) -> int:
        """Where a replica that begins to follow cuts its log."""

    def become_follower(
        self, request: LeaderAndIsr, leader: Replica, follower: Replica
    ) -> Replica | None:
        """The follower after the request; none if it can not take it now.

        An offset past the follower's end stops it, as in the published models; Kafka would clamp.
        """
        end = self.truncation_offset(leader, follower)
        if end > follower.log_end_offset:
            return None
        return take_request(request, truncate_to(follower, end))

    def may_fetch(self, leader: Replica, follower: Replica) -> bool:
        return leader.presumes_leadership and follower.leader == leader.name

    def may_truncate_while_following(
        self,
        leader: Replica,  # noqa: ARG002
        follower: Replica,  # noqa: ARG002
    ) -> bool:
        return False

    def acknowledges(self, leader: Replica, follower: Replica, offset: int) -> bool:
        """Does this follower allow the leader's high watermark to pass the offset?"""
        return follower.leader == leader.name and follower.has_offset(offset)

    def is_caught_up(self, leader: Replica, follower: Replica, end: int) -> bool:
        if follower.leader != leader.name:
            return False
        return end == 0 or (leader.has_offset(end - 1) and follower.has_offset(end - 1))

    def may_shrink(self, leader: Replica, follower: Replica) -> bool:
        return not self.is_caught_up(leader, follower, leader.log_end_offset)

    def may_expand(self, leader: Replica, follower: Replica) -> bool:
        return self.is_caught_up(leader, follower, leader.high_watermark)


def fetch(leader: Replica, follower: Replica) -> Replica | None:
    """Copy the next record and learn the leader's high watermark as it is now."""
    end = follower.log_end_offset
    if not leader.has_offset(end):
        return None
    return follower._replace(
        log=(*follower.log, leader.log[end]),
        high_watermark=min(leader.high_watermark, end + 1),
    )


def letter(name: int) -> str:
    return "none" if name == NONE else chr(ord("A") + name)


def letters(isr: frozenset[int]) -> str:
    return "{" + " ".join(letter(name) for name in sorted(isr)) + "}"


def describe(quorum: Quorum, replicas: list[Replica]) -> list[str]:
    """The replica table: a line for each replica, and one for what is true."""
    lines = []
    for replica in replicas:
        role = "leader" if replica.presumes_leadership else "follower"
        log = " ".join(f"m{record.id}@{record.epoch}" for record in replica.log)
        lines.append(
            f"{letter(replica.name)} {role:<8} epoch={replica.leader_epoch}"
            f" LEO={replica.log_end_offset} HW={replica.high_watermark} log=[{log}]"
            f" leader={letter(replica.leader)} ISR={letters(replica.isr)}"
        )
    lines.append(
        f"quorum     epoch={quorum.leader_epoch} leader={letter(quorum.leader)}"
        f" ISR={letters(quorum.isr)}"
    )
    return lines
