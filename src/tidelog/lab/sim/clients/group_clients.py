"""Clients of consumer groups: a committer of offsets, and members that share partitions.

The group's coordinator changes with the leader of `__consumer_offsets`.
"""

from collections.abc import Callable, Sequence

from tidelog.core.coordinator.lookup import OFFSETS_TOPIC
from tidelog.core.errors import ErrorCode
from tidelog.core.groups.messages import (
    CONSUMER,
    NO_GENERATION,
    NO_MEMBER,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
    Request,
    SyncGroup,
    SyncGroupResponse,
)
from tidelog.core.types import BrokerId, Offset, TopicId, TopicPartition
from tidelog.lab.sim.clients.client import SimClient
from tidelog.lab.sim.machine.network import Address
from tidelog.lab.sim.machine.process import Site

GROUP = "sim"
PARTITION = TopicPartition("t", 0)
COORDINATED_BY = TopicPartition(OFFSETS_TOPIC, 0)
COMMIT_PAUSE_MS = 60
COMMIT_TIMEOUT_MS = 700


class SimCommitter(SimClient):
    """Commits 0, 1, 2, … and fetches the committed offset after each response.

    Once a commit is acknowledged, or a fetch returned it, every fetch must return it until a later
    commit replaces it. A commit without a response may become visible at any time.
    """

    def __init__(
        self, site: Site, address: Address, topic_id: TopicId, lost: Callable[[str], None]
    ) -> None:
        super().__init__(site, address, f"committer/{address}")
        self.acked: Offset | None = None
        """The latest offset that was acknowledged or that a fetch returned."""
        self.commits = 0
        """The number of acknowledged commits."""
        self._topic_id = topic_id
        self._lost = lost
        self.done = False
        """Whether it has fetched the final committed offset, after `finish`."""
        self._finishing = False
        self._next: Offset = 0
        self._unanswered: set[Offset] = set()
        """Commits with unknown outcome."""
        for broker in site.brokers:
            # A duplicated request would be a second, valid commit, not a fault of the broker.
            site.network.link(address, broker).doubles = False

    def finish(self) -> None:
        """Stop committing, and fetch the committed offset a last time."""
        self._finishing = True

    def commit(self) -> None:
        """Commit the next offset. The outcome of the one before is known, or stays unknown."""
        if self._finishing:
            self._fetch_committed()
            return
        offset, self._next = self._next, self._next + 1
        self._unanswered.add(offset)
        to_commit = OffsetToCommit(*PARTITION, offset, topic_id=self._topic_id)
        self._send_request(OffsetCommit(GROUP, NO_GENERATION, NO_MEMBER, None, [to_commit]))

    def _fetch_committed(self) -> None:
        self._send_request(OffsetFetch(GROUP, [PARTITION]))

    def _send_request(self, request: object) -> None:
        self._correlation += 1
        broker = self._find_leader(COORDINATED_BY)
        if broker is not None and self._knows_topic(broker):
            self._send(broker, request)
        self._world.after(COMMIT_TIMEOUT_MS, self._late, self._correlation)

    def _knows_topic(self, broker: BrokerId) -> bool:
        """Return whether the broker knows the topic; it rejects commits for unknown topics."""
        node = self._site.brokers[broker].node
        return node is not None and PARTITION.topic in node.image.topics

    def _late(self, correlation: int) -> None:
        if correlation == self._correlation and not self.done:
            self.commit()

    def refused(self, correlation: int) -> None:
        if correlation == self._correlation:
            self._pause_then(self.commit)

    def _pause_then(self, what: Callable[[], None]) -> None:
        self._correlation += 1
        self._world.after(COMMIT_PAUSE_MS, self._then, self._correlation, what)

    def _then(self, correlation: int, what: Callable[[], None]) -> None:
        if correlation == self._correlation:
            what()

    def answered(self, correlation: int, response: object) -> None:
        if correlation != self._correlation:
            return
        if isinstance(response, OffsetCommitResponse):
            if response.partitions[0].error_code is ErrorCode.NONE:
                self.acked = self._next - 1
                self.commits += 1
                self._unanswered.discard(self.acked)
            self._pause_then(self._fetch_committed)
            return
        assert isinstance(response, OffsetFetchResponse)
        if response.error_code is ErrorCode.NONE:
            self._check_committed(response.partitions[0].committed_offset)
            self.done = self._finishing
        if not self.done:
            self._pause_then(self.commit)

    def _check_committed(self, found: Offset) -> None:
        if found in self._unanswered:
            self._unanswered.discard(found)
            self.acked = found
        elif self.acked is not None and found != self.acked:
            self._lost(f"offset {self.acked} was committed, but a fetch returned {found}")


# -- members -----------------------------------------------------------------------------


SHARED = "shared"
PARTITIONS = 5
SESSION_MS = 1_200
REBALANCE_MS = 900
PAUSE_MS = 80
TIMEOUT_MS = 500
JOIN_TIMEOUT_MS = 2_500
RESTARTS = 0.05
"""The probability that a member restarts instead of sending a heartbeat."""


class Shares:
    """The partitions assigned to each member, by generation; reports violations.

    Invariant: in one generation no two members have the same partition, and no member receives two
    different assignments. The group's leader draws a new assignment for every sync, so that the
    check finds assignments that were mixed up.
    """

    def __init__(self, broken: Callable[[str], None]) -> None:
        self.generations: dict[int, dict[str, bytes]] = {}
        self._broken = broken

    def assigned(self, generation: int, name: str, partitions: bytes) -> None:
        shares = self.generations.setdefault(generation, {})
        before = shares.get(name, partitions)
        shares[name] = partitions
        if before != partitions:
            both = f"{list(before)}, then {list(partitions)}"
            self._broken(f"generation {generation}: {name} was assigned {both}")
        for other, theirs in shares.items():
            if other != name and set(theirs) & set(partitions):
                both = f"{other} has {list(theirs)}, {name} has {list(partitions)}"
                self._broken(f"generation {generation}: {both}")


class SimMember(SimClient):
    """One consumer. With an instance id it is a static member."""

    def __init__(self, site: Site, address: Address, shares: Shares, *, static: bool) -> None:
        super().__init__(site, address, f"member-{address}")
        self.name = f"member-{address}"
        self.generation = -1
        """The generation of the latest successful heartbeat; -1 if the member has to join."""
        self._shares = shares
        self._instance = self.name if static else None
        self._member_id = NO_MEMBER
        self._joined: JoinGroupResponse | None = None
        self._synced = False
        self._steady = False
        self._starts = 0
        for broker in site.brokers:
            site.network.link(address, broker).doubles = False

    def finish(self) -> None:
        """Stop restarting, so that the group can settle."""
        self._steady = True

    def send_next(self) -> None:
        """Send the next request: join, sync or heartbeat; or restart."""
        joined = self._joined
        if joined is None:
            self._send_request(self._join(), JOIN_TIMEOUT_MS)
        elif not self._synced:
            self._send_request(self._sync(joined), TIMEOUT_MS)
        elif not self._steady and self._random.random() < RESTARTS:
            self._member_id = NO_MEMBER
            self._leave_generation()
            self._pause()
        else:
            beat = Heartbeat(SHARED, joined.generation_id, self._member_id, self._instance)
            self._send_request(beat, TIMEOUT_MS)

    def _join(self) -> JoinGroup:
        self._starts += 1
        return JoinGroup(
            SHARED,
            SESSION_MS,
            REBALANCE_MS,
            self._member_id,
            self._instance,
            CONSUMER,
            [("any", b"")],
            self.name,
            "/sim",
            str(self._starts),
            9 if self._address % 2 else 5,
        )

    def _sync(self, joined: JoinGroupResponse) -> SyncGroup:
        shares: dict[str, bytearray] = {one.member_id: bytearray() for one in joined.members}
        assigns = bool(shares) and not joined.skip_assignment
        for partition in range(PARTITIONS if assigns else 0):
            self._random.choice(list(shares.values())).append(partition)
        assignments = [(name, bytes(share)) for name, share in shares.items()] if assigns else []
        return SyncGroup(
            SHARED,
            joined.generation_id,
            self._member_id,
            self._instance,
            CONSUMER,
            joined.protocol_name,
            assignments,
        )

    def _send_request(self, request: Request, timeout_ms: int) -> None:
        self._correlation += 1
        broker = self._find_leader(COORDINATED_BY)
        if broker is not None:
            self._send(broker, request)
        self._world.after(timeout_ms, self._late, self._correlation)

    def _late(self, correlation: int) -> None:
        if correlation == self._correlation:
            self.send_next()

    def _pause(self) -> None:
        self._correlation += 1
        self._world.after(PAUSE_MS, self._late, self._correlation)

    def refused(self, correlation: int) -> None:
        if correlation == self._correlation:
            self._pause()

    def answered(self, correlation: int, response: object) -> None:
        if correlation != self._correlation:
            return
        assert isinstance(response, JoinGroupResponse | SyncGroupResponse | HeartbeatResponse)
        error = response.error_code
        if error is ErrorCode.NONE:
            self._served(response)
        elif isinstance(response, JoinGroupResponse) and error is ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = response.member_id
        elif error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._member_id = NO_MEMBER
            self._leave_generation()
        elif error in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            self._leave_generation()
        self._pause()

    def _served(self, response: JoinGroupResponse | SyncGroupResponse | HeartbeatResponse) -> None:
        if isinstance(response, JoinGroupResponse):
            self._member_id = response.member_id
            self._joined = response
            return
        assert self._joined is not None
        if isinstance(response, SyncGroupResponse):
            self._synced = True
            self._shares.assigned(self._joined.generation_id, self.name, response.assignment)
        else:
            self.generation = self._joined.generation_id

    def _leave_generation(self) -> None:
        self._joined = None
        self._synced = False
        self.generation = -1


def why_unshared(members: Sequence[SimMember], shares: Shares) -> str | None:
    """Return why the members do not share all partitions in one generation, or None."""
    generations = {one.generation for one in members}
    if len(generations) > 1 or -1 in generations:
        return f"members are in generations {sorted(generations)}"
    (generation,) = generations
    shared = shares.generations[generation]
    assigned = sorted(partition for one in members for partition in shared[one.name])
    if assigned != list(range(PARTITIONS)):
        return f"in generation {generation} the assigned partitions are {assigned}"
    return None
