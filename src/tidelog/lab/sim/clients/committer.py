"""A client that commits offsets of a group, one after the other, and fetches the committed offset.

The group's coordinator changes with the leader of `__consumer_offsets`. Once a commit is
acknowledged, or a fetch returned it, every fetch must return it until a later commit replaces it.
A commit without a response may become visible at any time.
"""

from collections.abc import Callable

from tidelog.core.coordinator.lookup import OFFSETS_TOPIC
from tidelog.core.errors import ErrorCode
from tidelog.core.groups.messages import (
    NO_GENERATION,
    NO_MEMBER,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
)
from tidelog.core.types import BrokerId, Offset, TopicId, TopicPartition
from tidelog.lab.sim.clients.metadata import find_leader
from tidelog.lab.sim.machine.network import Address
from tidelog.lab.sim.machine.process import Site

GROUP = "sim"
PARTITION = TopicPartition("t", 0)
COORDINATED_BY = TopicPartition(OFFSETS_TOPIC, 0)
PAUSE_MS = 60
TIMEOUT_MS = 700


class SimCommitter:
    """Commits 0, 1, 2, … and fetches the committed offset after each response."""

    def __init__(
        self, site: Site, address: Address, topic_id: TopicId, lost: Callable[[str], None]
    ) -> None:
        self.acked: Offset | None = None
        """The latest offset that was acknowledged or that a fetch returned."""
        self.commits = 0
        """The number of acknowledged commits."""
        self._site = site
        self._world = site.world
        self._address = address
        self._topic_id = topic_id
        self._lost = lost
        self._random = site.world.random(f"committer/{address}")
        self.done = False
        """Whether it has fetched the final committed offset, after `finish`."""
        self._finishing = False
        self._next: Offset = 0
        self._unanswered: set[Offset] = set()
        """Commits with unknown outcome."""
        self._correlation = 0
        site.clients[address] = self
        for broker in site.brokers:
            # A duplicated request would be a second, valid commit, and no fault of the broker.
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
        correlation = self._correlation = self._correlation + 1
        broker = find_leader(self._site, self._random, COORDINATED_BY)
        if broker is not None and self._knows_topic(broker):
            target = self._site.brokers[broker].request
            address = self._address
            self._site.network.send(address, broker, target, address, 0, correlation, request)
        self._world.after(TIMEOUT_MS, self._late, correlation)

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
        self._world.after(PAUSE_MS, self._then, self._correlation, what)

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
