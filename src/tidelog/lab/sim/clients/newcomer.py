"""Somebody who asks for producer ids, again and again, of whatever broker is up.

Idempotence rests on them: two producers with one id would take each other's records for
retries. So no id may be given twice, whoever crashes, and whichever answer is lost.
"""

from collections.abc import Callable

from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import InitProducerId, InitProducerIdResponse
from tidelog.lab.sim.clients.metadata import find_broker
from tidelog.lab.sim.machine.network import Address
from tidelog.lab.sim.machine.process import Site

PAUSE_MS = 450


class SimNewcomer:
    """Remembers every id it was given."""

    def __init__(self, site: Site, address: Address, given_twice: Callable[[int], None]) -> None:
        self.ids: dict[int, int] = {}
        """By producer id, the question it was the answer to."""
        self._site = site
        self._address = address
        self._given_twice = given_twice
        self._random = site.world.random(f"newcomer/{address}")
        self._correlation = 0
        site.clients[address] = self

    def ask(self) -> None:
        """Now, and again after a pause."""
        broker = find_broker(self._site, self._random)
        if broker is not None:
            self._correlation += 1
            target = self._site.brokers[broker]
            address, number = self._address, self._correlation
            self._site.network.send(
                address, broker, target.request, address, 0, number, InitProducerId()
            )
        self._site.world.after(PAUSE_MS, self.ask)

    def answered(self, correlation: int, response: object) -> None:
        """The network may bring one answer twice; that is not two producers with one id."""
        assert isinstance(response, InitProducerIdResponse)
        if response.error is not ErrorCode.NONE:
            return
        if self.ids.setdefault(response.producer_id, correlation) != correlation:
            self._given_twice(response.producer_id)

    def refused(self, correlation: int) -> None:
        """The next try comes by itself."""
