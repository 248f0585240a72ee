"""The common part of all simulated clients: they find brokers and send requests to them."""

from tidelog.core.types import BrokerId, TopicPartition
from tidelog.lab.sim.machine.network import Address
from tidelog.lab.sim.machine.process import Site


class SimClient:
    """A client with an address. It learns of leaders from any broker, so perhaps too late."""

    def __init__(self, site: Site, address: Address, name: str) -> None:
        self._site = site
        self._world = site.world
        self._address = address
        self._random = site.world.random(name)
        self._correlation = 0
        site.clients[address] = self

    def _find_broker(self) -> BrokerId | None:
        """Return a random broker that is up, or None; it forwards requests to the controller."""
        up = [broker for broker, process in self._site.brokers.items() if process.node is not None]
        return self._random.choice(up) if up else None

    def _find_leader(self, partition: TopicPartition) -> BrokerId | None:
        """Return the partition's leader in the image of a random broker, or None if unknown."""
        broker = self._find_broker()
        node = None if broker is None else self._site.brokers[broker].node
        known = None if node is None else node.image.partition(*partition)
        return None if known is None else known.leader

    def _send(self, broker: BrokerId, request: object) -> None:
        """Send a request under the current correlation id."""
        target, address = self._site.brokers[broker].request, self._address
        self._site.network.send(address, broker, target, address, 0, self._correlation, request)

    def answered(self, correlation: int, response: object) -> None:
        """Receive a response."""
        raise NotImplementedError

    def refused(self, correlation: int) -> None:
        """Do nothing if the connection is refused or closed: the client retries after a pause."""
