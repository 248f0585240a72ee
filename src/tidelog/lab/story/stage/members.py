"""The consumer group of a story: its members, and the requests that a client library sends.

There is one group, which reads the story's partition. The member that leads a generation assigns
the partition to the last member by name. Members send no heartbeats: the coordinator removes a
member that has sent nothing for SESSION_MS.
"""

from dataclasses import dataclass

from tidelog.core.errors import ErrorCode
from tidelog.core.groups.messages import (
    CONSUMER,
    NO_GENERATION,
    NO_MEMBER,
    JoinGroup,
    JoinGroupResponse,
    OffsetFetch,
    OffsetFetchResponse,
    SyncGroup,
    SyncGroupResponse,
)
from tidelog.lab.story.grammar import StoryError
from tidelog.lab.story.stage.clients import Clients, Pending, Respond
from tidelog.lab.story.stage.controller import PARTITION
from tidelog.lab.story.stage.coordination import Coordination
from tidelog.lab.story.stage.world import World

GROUP = "g"
SESSION_MS = REBALANCE_MS = 45_000
"""Kafka's default of session.timeout.ms, also for a member that does not rejoin."""
_JOIN_VERSION = 3
"""The last version in which a new member joins with one request."""
_PROTOCOL = "story"
"""The name of the assignor, which only members read."""


@dataclass(slots=True)
class Member:
    """One consumer of the group, as it sees itself."""

    name: str
    id: str = NO_MEMBER
    generation: int = NO_GENERATION


class Members:
    """The consumers of the group."""

    def __init__(self, world: World, clients: Clients, coordination: Coordination) -> None:
        self.world = world
        self.clients = clients
        self.coordination = coordination
        self._known: dict[str, Member] = {}
        self._joined: list[tuple[Member, JoinGroupResponse]] = []
        """Members with a new generation, and without an assignment."""

    def known(self, name: str) -> Member:
        """Return a member that has joined."""
        if name not in self._known:
            raise StoryError(f"{name} is not in the group; first run: join {name}")
        return self._known[name]

    def join(self, name: str) -> None:
        """Send JoinGroup; the response has the generation, and may come later."""
        member = self._known.setdefault(name, Member(name))

        def respond(response: JoinGroupResponse) -> str | ErrorCode:
            if response.error_code is not ErrorCode.NONE:
                return response.error_code
            member.id, member.generation = response.member_id, response.generation_id
            self._joined.append((member, response))
            return f"generation={member.generation}"

        request = JoinGroup(
            GROUP,
            SESSION_MS,
            REBALANCE_MS,
            member.id,
            None,
            CONSUMER,
            [(_PROTOCOL, b"")],
            name,
            "/story",
            name,
            _JOIN_VERSION,
        )
        self._ask(name, "JoinGroup", request, respond)

    def run(self) -> None:
        """Send SyncGroup for each member that got a new generation."""
        while self._joined:
            self._sync(*self._joined.pop(0))

    def _sync(self, member: Member, joined: JoinGroupResponse) -> None:
        def respond(response: SyncGroupResponse) -> str | ErrorCode:
            if response.error_code is not ErrorCode.NONE:
                return response.error_code
            return f"assigned {response.assignment.decode() or 'nothing'}"

        last = max((each.member_id for each in joined.members), default=NO_MEMBER)
        request = SyncGroup(
            GROUP,
            member.generation,
            member.id,
            None,
            CONSUMER,
            _PROTOCOL,
            [(last, PARTITION.topic.encode())] if last else [],
        )
        self._ask(member.name, f"SyncGroup generation={member.generation}", request, respond)

    def fetch_offset(self, name: str) -> None:
        """Send OffsetFetch, as a member does that begins to read."""
        self.clients.listed = None

        def respond(response: OffsetFetchResponse) -> str | ErrorCode:
            fetched = response.partitions[0]
            if fetched.error_code is not ErrorCode.NONE:
                return fetched.error_code
            if fetched.committed_offset < 0:
                return "no offset"
            self.clients.listed = fetched.committed_offset
            return f"offset={fetched.committed_offset}"

        request = OffsetFetch(GROUP, [PARTITION], require_stable=True)
        self._ask(name, f"OffsetFetch {PARTITION.topic}", request, respond)

    def _ask(self, name: str, text: str, request: object, respond: Respond) -> None:
        """Send a request to the coordinator of the group, if there is one."""
        broker = self.world.group_coordinator()
        self.world.last_error = ErrorCode.NONE
        if broker is None:
            self.world.last_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            self.world.add_line(f"{name}: there is no group coordinator")
            return
        self.clients.send(text, request, Pending(broker, client=name, respond=respond))
        self.coordination.run()
