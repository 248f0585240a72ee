"""Members of one group that share partitions: they join, sync, send heartbeats, and restart.

Invariant: in one generation no two members have the same partition, and no member receives two
different assignments. The group's leader draws a new assignment for every sync, so that the check
finds assignments that were mixed up.
"""

from collections.abc import Callable, Sequence

from tidelog.core.errors import ErrorCode
from tidelog.core.groups.messages import (
    CONSUMER,
    NO_MEMBER,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    Request,
    SyncGroup,
    SyncGroupResponse,
)
from tidelog.lab.sim.clients.committer import COORDINATED_BY
from tidelog.lab.sim.clients.metadata import find_leader
from tidelog.lab.sim.machine.network import Address
from tidelog.lab.sim.machine.process import Site

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
    """The partitions assigned to each member, by generation; reports violations."""

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


class SimMember:
    """One consumer. With an instance id it is a static member."""

    def __init__(self, site: Site, address: Address, shares: Shares, *, static: bool) -> None:
        self.name = f"member-{address}"
        self.generation = -1
        """The generation of the latest successful heartbeat; -1 if the member has to join."""
        self._site = site
        self._address = address
        self._shares = shares
        self._instance = self.name if static else None
        self._random = site.world.random(self.name)
        self._member_id = NO_MEMBER
        self._joined: JoinGroupResponse | None = None
        self._synced = False
        self._steady = False
        self._correlation = 0
        self._starts = 0
        site.clients[address] = self
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
        correlation = self._correlation = self._correlation + 1
        broker = find_leader(self._site, self._random, COORDINATED_BY)
        if broker is not None:
            target = self._site.brokers[broker].request
            address = self._address
            self._site.network.send(address, broker, target, address, 0, correlation, request)
        self._site.world.after(timeout_ms, self._late, correlation)

    def _late(self, correlation: int) -> None:
        if correlation == self._correlation:
            self.send_next()

    def _pause(self) -> None:
        self._correlation += 1
        self._site.world.after(PAUSE_MS, self._late, self._correlation)

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
