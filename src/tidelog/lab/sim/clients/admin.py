"""Clients that administrate: one sends the admin requests of a plan, one keeps creating topics."""

from collections.abc import Callable
from zlib import crc32

from tidelog.core.controller.effects import TopicAnswer
from tidelog.core.controller.events import (
    AlterReassignmentsReceived,
    CreateTopicReceived,
    ElectionType,
    ElectLeadersReceived,
    UnregisterBrokerReceived,
    UpdateFeaturesReceived,
    UpgradeType,
)
from tidelog.core.controller.metadata.features import TIDELOG_VERSION
from tidelog.core.controller.metadata.registrations import PartitionKey
from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import DeleteRecords, DeleteRecordsPartition
from tidelog.core.types import BrokerId, Offset, TopicPartition
from tidelog.lab.sim.clients.client import SimClient
from tidelog.lab.sim.machine.network import Address
from tidelog.lab.sim.machine.process import Site
from tidelog.lab.sim.text import plain

RETRY_MS = 250


class SimAdmin(SimClient):
    """Sends requests to any broker, which forwards them; retries only the topic's creation."""

    def __init__(self, site: Site, address: Address, topic: CreateTopicReceived) -> None:
        super().__init__(site, address, f"admin/{address}")
        self.topic_made = False
        self._topic = topic
        self._creations: set[int] = set()

    def create_topic(self) -> None:
        """Send the creation request, and retry until the topic exists."""
        if self.topic_made:
            return
        broker = self._find_broker()
        if broker is not None:
            self._send_request(broker, self._topic)
            self._creations.add(self._correlation)
        self._world.after(RETRY_MS, self.create_topic)

    def elect(
        self, election: ElectionType, partitions: tuple[PartitionKey, ...] | None = None
    ) -> None:
        """Request a leader election.

        A preferred election makes the first replica the leader if it is in sync. An unclean
        election lets any replica become the leader of a partition without one.
        """
        request = ElectLeadersReceived(0, election, partitions)
        self._send_request(self._find_broker(), request)

    def reassign(self, key: PartitionKey, replicas: tuple[BrokerId, ...]) -> None:
        """Move a partition to these brokers."""
        request = AlterReassignmentsReceived(0, {key: replicas})
        self._send_request(self._find_broker(), request)

    def unregister(self, broker: BrokerId) -> None:
        """Remove a broker's registration; the broker may be up when the request arrives."""
        self._send_request(self._find_broker(), UnregisterBrokerReceived(0, broker))

    def update_features(self, level: int, kind: UpgradeType) -> None:
        """Raise or lower the level of `tidelog.version`."""
        request = UpdateFeaturesReceived(0, ((TIDELOG_VERSION, level, kind),))
        self._send_request(self._find_broker(), request)

    def delete_records(self, partition: TopicPartition, offset: Offset) -> None:
        """Delete the records before `offset`."""
        leader = self._find_leader(partition)
        request = DeleteRecords(1_000, [DeleteRecordsPartition(partition, offset)])
        self._send_request(leader, request)

    def _send_request(self, broker: BrokerId | None, request: object) -> None:
        if broker is not None:
            self._correlation += 1
            self._send(broker, request)

    def answered(self, correlation: int, response: object) -> None:
        made = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        if correlation in self._creations and isinstance(response, TopicAnswer):
            self.topic_made |= response.error in made


# -- topics during the whole run ---------------------------------------------------------


TOPIC_PAUSE_MS = 350
_MADE = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
_TRY_AGAIN = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)


class SimTopicMaker(SimClient):
    """Creates topics during the whole run, each with a replica on every broker.

    It retries each creation until the topic exists, also while some brokers are down or cut off.
    """

    def __init__(self, site: Site, address: Address, refused: Callable[[str], None]) -> None:
        super().__init__(site, address, f"topic maker/{address}")
        self.made = 0
        self.finished = False
        self._refused = refused

    def create(self) -> None:
        """Send the request to create the current topic, now and again after each pause."""
        broker = self._find_broker()
        if broker is not None and not self.finished:
            self._correlation += 1
            name = _name(self.made)
            topic_id = crc32(name.encode()).to_bytes(4, "big") * 4
            request = CreateTopicReceived(0, name, topic_id, 1, len(self._site.brokers))
            self._send(broker, request)
        self._world.after(TOPIC_PAUSE_MS, self.create)

    def answered(self, correlation: int, response: object) -> None:
        """Count a topic as created on the first response to the latest request.

        Other responses may concern an earlier topic.
        """
        assert isinstance(response, TopicAnswer)
        if response.error in _MADE:
            if correlation == self._correlation:
                self.made += 1
                self._correlation += 1
        elif response.error not in _TRY_AGAIN:
            self._refused(f"{response.error.name}: {response.message}")

    def why_not_settled(self) -> str | None:
        """Return which created topic does not have all its replicas in sync, or None."""
        for process in self._site.brokers.values():
            for number in range(self.made if process.node is not None else 0):
                known = process.node.image.partition(_name(number), 0) if process.node else None
                if known is None or set(known.isr) != set(known.replicas):
                    what = f"topic {_name(number)} is not in sync on broker {process.id}"
                    return f"{what}: {plain(known)}"
        return None


def _name(number: int) -> str:
    return f"made-{number}"
