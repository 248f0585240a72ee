"""A client that repeatedly creates a topic, starts to move its replicas and deletes it.

The topic always has the same name, so that leftovers of one topic may affect the next one.
"""

from zlib import crc32

from tidelog.core.controller.effects import TopicAnswer
from tidelog.core.controller.events import CreateTopicReceived, DeleteTopicReceived
from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import Produce, ProducePartition
from tidelog.core.record.encoder import encode_value
from tidelog.core.replication.events import ACKS_LEADER
from tidelog.core.types import TopicPartition
from tidelog.lab.sim.clients.client import SimClient
from tidelog.lab.sim.machine.network import Address
from tidelog.lab.sim.machine.process import Site

BRIEF = TopicPartition("brief", 0)
RETRY_MS = 250
BATCHES = 8
_MADE = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
_DELETED = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class SimBriefTopics(SimClient):
    """Creates and deletes the topic until `finish`, which leaves it deleted."""

    def __init__(self, site: Site, address: Address) -> None:
        super().__init__(site, address, f"brief topics/{address}")
        self._round = 0
        self._deleting = False
        self._finished = False
        self._gone = False
        """Whether the topic was deleted after `finish`."""
        self._latest = -1
        """The correlation of the last request to create or delete the topic."""
        self._waiting = False
        """Whether the topic must be created or deleted, and no response has confirmed it."""

    def begin(self) -> None:
        """Create the topic."""
        self._waiting = True
        self._send_next(self._round, self._deleting)

    def _send_next(self, number: int, deleting: bool) -> None:
        """Send the request of the current state, and repeat it until it is confirmed."""
        if (number, deleting) != (self._round, self._deleting):
            return
        broker = self._find_broker()
        if broker is not None:
            self._correlation += 1
            self._latest = self._correlation
            if deleting:
                self._send(broker, DeleteTopicReceived(0, BRIEF.topic))
            else:
                topic_id = crc32(b"brief %d" % number).to_bytes(4, "big") * 4
                brokers = len(self._site.brokers)
                self._send(broker, CreateTopicReceived(0, BRIEF.topic, topic_id, 1, brokers))
        self._world.after(RETRY_MS, self._retry, number, deleting)

    def _retry(self, number: int, deleting: bool) -> None:
        # A late request may create the topic after its deletion.
        if self._waiting or self._gone:
            self._send_next(number, deleting)

    def finish(self) -> None:
        """Delete the topic, and create no other one."""
        self._finished = True

    def answered(self, correlation: int, response: object) -> None:
        if correlation != self._latest or not isinstance(response, TopicAnswer):
            return
        if response.error not in (_DELETED if self._deleting else _MADE):
            return
        self._latest, self._waiting = -1, False
        if not self._deleting:
            self._world.after(self._random.randint(50, 400), self._fill)
        elif self._finished:
            self._gone = True
        else:
            self._deleting = False
            self._round += 1
            self._world.after(self._random.randint(1, 600), self.begin)

    def _fill(self) -> None:
        """Write a few batches, and delete the topic a moment after its replicas begin to move."""
        for _ in range(self._random.randint(0, BATCHES)):
            leader = self._find_leader(BRIEF)
            if leader is not None:
                self._correlation += 1
                data = encode_value(b"x" * 50, self._world.now_ms)
                self._send(leader, Produce(ACKS_LEADER, 500, [ProducePartition(BRIEF, data)]))
        self._world.after(self._random.randint(20, 200), self._move)

    def _move(self) -> None:
        for process in self._site.brokers.values():
            process.move(BRIEF)
        self._world.after(self._random.randint(0, 30), self._delete)

    def _delete(self) -> None:
        self._deleting = self._waiting = True
        self._send_next(self._round, self._deleting)

    def why_not_settled(self) -> str | None:
        """Return why the topic is not deleted everywhere yet; None if it is."""
        if not self._gone:
            return f"{BRIEF} is not deleted"
        for process in self._site.brokers.values():
            node = process.node
            if node is not None and BRIEF in node.directory.logs:
                return f"broker {process.id} has {BRIEF}, which is deleted"
        return None
