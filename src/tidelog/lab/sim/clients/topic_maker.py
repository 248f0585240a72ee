"""A client that creates topics during the whole run, with a replica on every broker.

It sends requests to any broker that is up, also while others are down or cut off.
"""

from collections.abc import Callable
from zlib import crc32

from tidelog.core.controller.effects import TopicAnswer
from tidelog.core.controller.events import CreateTopicReceived
from tidelog.core.errors import ErrorCode
from tidelog.lab.sim.clients.metadata import find_broker
from tidelog.lab.sim.machine.network import Address
from tidelog.lab.sim.machine.process import Site
from tidelog.lab.sim.plain_values import plain

PAUSE_MS = 350
_MADE = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
_TRY_AGAIN = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)


class SimTopicMaker:
    """Retries each creation until the topic exists, then creates the next topic."""

    def __init__(self, site: Site, address: Address, refused: Callable[[str], None]) -> None:
        self.made = 0
        self.finished = False
        self._site = site
        self._address = address
        self._refused = refused
        self._random = site.world.random(f"topic maker/{address}")
        self._correlation = 0
        site.clients[address] = self

    def create(self) -> None:
        """Send the request to create the current topic, now and again after each pause."""
        broker = find_broker(self._site, self._random)
        if broker is not None and not self.finished:
            self._correlation += 1
            name = _name(self.made)
            topic_id = crc32(name.encode()).to_bytes(4, "big") * 4
            request = CreateTopicReceived(0, name, topic_id, 1, len(self._site.brokers))
            target, address = self._site.brokers[broker], self._address
            self._site.network.send(
                address, broker, target.request, address, 0, self._correlation, request
            )
        self._site.world.after(PAUSE_MS, self.create)

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

    def refused(self, correlation: int) -> None:
        """Do nothing: the client retries after its pause anyway."""

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
