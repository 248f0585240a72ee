"""A client that repeatedly requests producer ids from any broker that is up.

Idempotence relies on unique ids: with one id for two producers, brokers would treat records of
one as retries of the other. So no id may be assigned twice, even if brokers crash or responses
get lost.
"""

from collections.abc import Callable

from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import InitProducerId, InitProducerIdResponse
from tidelog.lab.sim.clients.metadata import find_broker
from tidelog.lab.sim.machine.network import Address
from tidelog.lab.sim.machine.process import Site

PAUSE_MS = 450


class SimIdRequester:
    """Requests producer ids and reports each id that two requests received."""

    def __init__(self, site: Site, address: Address, assigned_twice: Callable[[int], None]) -> None:
        self.ids: dict[int, int] = {}
        """The correlation id of the request that received each producer id."""
        self._site = site
        self._address = address
        self._assigned_twice = assigned_twice
        self._random = site.world.random(f"newcomer/{address}")
        self._correlation = 0
        site.clients[address] = self

    def request_id(self) -> None:
        """Request a producer id, now and again after each pause."""
        broker = find_broker(self._site, self._random)
        if broker is not None:
            self._correlation += 1
            target = self._site.brokers[broker]
            address, number = self._address, self._correlation
            self._site.network.send(
                address, broker, target.request, address, 0, number, InitProducerId()
            )
        self._site.world.after(PAUSE_MS, self.request_id)

    def answered(self, correlation: int, response: object) -> None:
        """Store the id. A response that the network duplicated does not count as a second use."""
        assert isinstance(response, InitProducerIdResponse)
        if response.error is not ErrorCode.NONE:
            return
        if self.ids.setdefault(response.producer_id, correlation) != correlation:
            self._assigned_twice(response.producer_id)

    def refused(self, correlation: int) -> None:
        """Do nothing: the client retries after its pause anyway."""
