"""The administrator: creates the topic, and sends the other admin requests of a plan."""

from tidelog.core.controller.effects import TopicAnswer
from tidelog.core.controller.events import (
    AlterReassignmentsReceived,
    CreateTopicReceived,
    ElectionType,
    ElectLeadersReceived,
    UnregisterBrokerReceived,
)
from tidelog.core.controller.metadata.registrations import PartitionKey
from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import DeleteRecords, DeleteRecordsPartition
from tidelog.core.types import BrokerId, Offset, TopicPartition
from tidelog.lab.sim.clients.metadata import find_broker, find_leader
from tidelog.lab.sim.machine.network import Address
from tidelog.lab.sim.machine.process import Site

RETRY_MS = 250


class SimAdmin:
    """Sends requests to any broker, which forwards them; retries only the topic's creation."""

    def __init__(self, site: Site, address: Address, topic: CreateTopicReceived) -> None:
        self.topic_made = False
        self._site = site
        self._world = site.world
        self._address = address
        self._topic = topic
        self._random = site.world.random(f"admin/{address}")
        self._correlation = 0
        self._creations: set[int] = set()
        site.clients[address] = self

    def create_topic(self) -> None:
        """Send the creation request, and retry until the topic exists."""
        if self.topic_made:
            return
        self._creations.add(self._correlation + 1)
        self._send_request(find_broker(self._site, self._random), self._topic)
        self._world.after(RETRY_MS, self.create_topic)

    def elect(
        self, election: ElectionType, partitions: tuple[PartitionKey, ...] | None = None
    ) -> None:
        """Request a leader election.

        A preferred election makes the first replica the leader if it is in sync. An unclean
        election lets any replica become the leader of a partition without one.
        """
        request = ElectLeadersReceived(0, election, partitions)
        self._send_request(find_broker(self._site, self._random), request)

    def reassign(self, key: PartitionKey, replicas: tuple[BrokerId, ...]) -> None:
        """Move a partition to these brokers."""
        request = AlterReassignmentsReceived(0, {key: replicas})
        self._send_request(find_broker(self._site, self._random), request)

    def unregister(self, broker: BrokerId) -> None:
        """Remove a broker's registration; the broker may be up when the request arrives."""
        self._send_request(
            find_broker(self._site, self._random), UnregisterBrokerReceived(0, broker)
        )

    def delete_records(self, partition: TopicPartition, offset: Offset) -> None:
        """Delete the records before `offset`."""
        leader = find_leader(self._site, self._random, partition)
        request = DeleteRecords(1_000, [DeleteRecordsPartition(partition, offset)])
        self._send_request(leader, request)

    def _send_request(self, broker: BrokerId | None, request: object) -> None:
        if broker is None:
            return
        self._correlation += 1
        target = self._site.brokers[broker]
        self._site.network.send(
            self._address, broker, target.request, self._address, 0, self._correlation, request
        )

    def answered(self, correlation: int, response: object) -> None:
        made = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        if correlation in self._creations and isinstance(response, TopicAnswer):
            self.topic_made |= response.error in made

    def refused(self, correlation: int) -> None:
        """Do nothing: the client retries after its pause anyway."""
