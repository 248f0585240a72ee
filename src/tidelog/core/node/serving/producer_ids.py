"""InitProducerId: ids out of blocks that the controller hands to each broker.

A block is this process's alone: whatever of it is left at a stop is never used. So no id is
given twice, whoever restarts, and whichever answer is lost on its way. The first block is
fetched when the first producer asks, the next one before the last is used up; producers who
come while there is none wait for it.
"""

from collections import deque

from tidelog.core.controller.effects import ProducerIdsAnswer
from tidelog.core.controller.events import AllocateProducerIdsReceived
from tidelog.core.errors import ErrorCode
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.effects import Respond
from tidelog.core.node.events import Peer
from tidelog.core.node.membership.controller_host import ControllerHost
from tidelog.core.node.membership.registration import Registration
from tidelog.core.node.messages import InitProducerId, InitProducerIdResponse
from tidelog.core.node.turn import Turn

RESERVE = 100
"""With no more ids than that, the next block is asked for."""
RETRY_MS = 50
ASK_TIMEOUT_MS = 1500
WAIT_MAX_MS = 5000
"""Then a producer is told to come again."""


class ProducerIds:
    """The blocks of this broker, and who waits for the next."""

    def __init__(
        self, config: NodeConfig, turn: Turn, controller: ControllerHost, registration: Registration
    ) -> None:
        self._config = config
        self._turn = turn
        self._controller = controller
        self._registration = registration
        self._block = range(0)
        self._next_block: range | None = None
        self._asking = False
        self._ask_at_ms: int | None = None
        self._waiting: deque[tuple[int, Peer, int]] = deque()
        """(deadline, peer, correlation), the earliest deadline first."""

    def init_producer_id(self, peer: Peer, correlation: int, _request: InitProducerId) -> None:
        self._waiting.append((self._turn.now_ms + WAIT_MAX_MS, peer, correlation))
        self._serve()

    def _serve(self) -> None:
        """Give out what there is, and see to it that there is more."""
        while self._waiting:
            if not self._block and self._next_block is not None:
                self._block, self._next_block = self._next_block, None
            if not self._block:
                break
            producer_id, self._block = self._block[0], self._block[1:]
            self._respond(InitProducerIdResponse(ErrorCode.NONE, producer_id, 0))
            if len(self._block) <= RESERVE:
                self._ask()
        if self._waiting:
            self._ask()

    def _respond(self, response: InitProducerIdResponse) -> None:
        _, peer, correlation = self._waiting.popleft()
        self._turn.emit(Respond(peer, correlation, response))

    def _ask(self) -> None:
        if self._asking or self._next_block is not None or self._ask_at_ms is not None:
            return
        epoch = self._registration.broker_epoch
        if epoch is None:
            self._failed()
            return
        # Before the call: this broker's own controller may refuse at once.
        self._asking = True
        request = AllocateProducerIdsReceived(0, self._config.broker_id, epoch)
        if not self._controller.call(request, ASK_TIMEOUT_MS, self._answered, self._failed):
            self._failed()

    def _answered(self, answer: ProducerIdsAnswer) -> None:
        if answer.error is not ErrorCode.NONE:
            self._failed()
            return
        self._asking = False
        self._next_block = range(answer.first, answer.first + answer.count)
        self._serve()

    def _failed(self) -> None:
        self._asking = False
        self._ask_at_ms = self._turn.now_ms + RETRY_MS

    def tick(self) -> None:
        """Ask again; send those away who waited too long."""
        now = self._turn.now_ms
        while self._waiting and self._waiting[0][0] <= now:
            self._respond(InitProducerIdResponse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        if self._ask_at_ms is not None and now >= self._ask_at_ms:
            self._ask_at_ms = None
            self._serve()

    def next_ms(self) -> int | None:
        """When `tick` has something to do."""
        ask_ms = self._ask_at_ms
        if not self._waiting:
            return ask_ms
        waits_ms = self._waiting[0][0]
        return waits_ms if ask_ms is None or waits_ms < ask_ms else ask_ms
