"""The common part of all published rules: one partition's replicas, controller and actions.

It follows the TLA+ module KafkaReplication. Nothing crashes and no time passes: any step whose
guard holds may be the next one. Requests of the controller never disappear. So a replica may
apply any request that is newer than its own epoch, and may skip some.

Invariant: every action reads one replica, or a leader and one follower. `packed_model` relies on
this: it calls each rule once for every pair that occurs, and stores the result.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple, TypeAlias

NONE = -1
"""No leader; as an epoch: the replica has not received any request yet."""


class Size(NamedTuple):
    """The bounds that make the state space finite."""

    replicas: int
    log_size: int
    max_records: int
    max_leader_epoch: int

    def __str__(self) -> str:
        return ",".join(map(str, self))


class Record(NamedTuple):
    """A record: its id, and the epoch of the leader that wrote it."""

    id: int
    epoch: int


Log: TypeAlias = tuple[Record, ...]


class Replica(NamedTuple):
    """One replica's log, and its view of the partition."""

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
    """A request of the controller: the leader of an epoch and the ISR at its start."""

    leader_epoch: int
    leader: int
    isr: frozenset[int]


class Quorum(NamedTuple):
    """The controller's state of the partition: one request per epoch, and the current ISR."""

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
    """Return the controller's possible actions: name, affected replica, quorum afterwards."""
    if quorum.leader_epoch == size.max_leader_epoch:
        return []
    moves = []
    for replica in sorted(quorum.isr):
        if replica != quorum.leader:
            moves.append(("ControllerElectLeader", replica, replica, quorum.isr))
            moves.append(("ControllerShrinkIsr", replica, quorum.leader, quorum.isr - {replica}))
        elif quorum.isr == {replica}:  # the last member stays: an empty ISR has no candidate
            moves.append(("ControllerShrinkIsr", replica, NONE, quorum.isr))
        else:
            moves.append(("ControllerShrinkIsr", replica, NONE, quorum.isr - {replica}))
    return [
        (action, replica, _issue(quorum, leader, isr)) for action, replica, leader, isr in moves
    ]


def _issue(quorum: Quorum, leader: int, isr: frozenset[int]) -> Quorum:
    request = LeaderAndIsr(quorum.leader_epoch + 1, leader, isr)
    return Quorum((*quorum.requests, request), isr, quorum.next_record_id)


def apply_request(request: LeaderAndIsr, replica: Replica) -> Replica:
    """Apply a request. A new leader keeps its high watermark, often lower than the real one."""
    return replica._replace(
        leader_epoch=request.leader_epoch, leader=request.leader, isr=request.isr
    )


def leader_write(leader: Replica, record_id: int) -> Replica:
    """Append a record of the leader's epoch to the leader's log."""
    return leader._replace(log=(*leader.log, Record(record_id, leader.leader_epoch)))


def truncate_to(replica: Replica, end: int) -> Replica:
    """Truncate the log; lower the high watermark to the new end if it is above."""
    return replica._replace(log=replica.log[:end], high_watermark=min(end, replica.high_watermark))


class KafkaReplication(ABC):
    """Kafka's rules before any check of leader epochs. Subclasses define the truncation."""

    name: str

    @abstractmethod
    def truncation_offset(self, leader: Replica, follower: Replica) -> int:
        """Return the offset to which a new follower truncates its log."""

    def become_follower(
        self, request: LeaderAndIsr, leader: Replica, follower: Replica
    ) -> Replica | None:
        """Return the follower after the request, or None if it cannot apply the request now.

        It cannot if the truncation offset is past its log end, as in the published models. Kafka
        uses the log end then.
        """
        end = self.truncation_offset(leader, follower)
        if end > follower.log_end_offset:
            return None
        return apply_request(request, truncate_to(follower, end))

    def may_fetch(self, leader: Replica, follower: Replica) -> bool:
        return leader.presumes_leadership and follower.leader == leader.name

    def may_truncate_while_following(
        self,
        leader: Replica,  # noqa: ARG002
        follower: Replica,  # noqa: ARG002
    ) -> bool:
        return False

    def acknowledges(self, leader: Replica, follower: Replica, offset: int) -> bool:
        """Return whether this follower lets the leader's high watermark pass the offset."""
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
    """Copy the next record and the leader's current high watermark to the follower."""
    end = follower.log_end_offset
    if not leader.has_offset(end):
        return None
    return follower._replace(
        log=(*follower.log, leader.log[end]), high_watermark=min(leader.high_watermark, end + 1)
    )


def letter(name: int) -> str:
    """Return a replica's letter, `A` for 0, or `none`."""
    return "none" if name == NONE else chr(ord("A") + name)


def letters(isr: frozenset[int]) -> str:
    """Return an ISR as text, such as `{A B}`."""
    return "{" + " ".join(letter(name) for name in sorted(isr)) + "}"


def describe(quorum: Quorum, replicas: list[Replica]) -> list[str]:
    """Return the replica table: a line for each replica, and one for the quorum."""
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
