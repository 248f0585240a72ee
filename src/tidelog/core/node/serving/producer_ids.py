"""InitProducerId: producer ids from blocks that the controller allocates to each broker.

A block belongs to one process: the rest of it is never used after a stop. So no id is given twice,
whichever broker restarts and whichever response is lost. The first block is requested with the
first producer, the next one before a block is used up; producers wait while there is no id.

A detached broker gets no block before the metadata store responds again. So it returns the
retriable error at once when it has no id left.
"""

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from tidelog.core.controller.effects import ProducerIdsAnswer
from tidelog.core.controller.events import AllocateProducerIdsReceived
from tidelog.core.errors import ErrorCode
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.effects import Respond
from tidelog.core.node.events import Peer
from tidelog.core.node.hosting.gate import Gate
from tidelog.core.node.membership.controller_host import ControllerHost
from tidelog.core.node.membership.registration import Registration
from tidelog.core.node.messages import InitProducerId, InitProducerIdResponse
from tidelog.core.node.turn import Turn

RESERVE = 100
"""The next block is requested when no more ids than this are left."""
RETRY_MS = 50
REQUEST_TIMEOUT_MS = 1500
WAIT_MAX_MS = 3000
"""After this time a producer gets a retriable error: an election of a controller may take a second
or two, and `tidelog` waits 5 s for a response."""
_NO_ID = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
"""Kafka's error while it has no id; all clients retry it."""

Allocated: TypeAlias = Callable[[ErrorCode, int], None]
"""Called with NONE and a producer id, or with an error."""


class ProducerIds:
    """The blocks of this broker, and the requests that wait for the next."""

    def __init__(
        self,
        config: NodeConfig,
        turn: Turn,
        controller: ControllerHost,
        registration: Registration,
        gate: Gate,
    ) -> None:
        self._config = config
        self._turn = turn
        self._controller = controller
        self._registration = registration
        self._gate = gate
        self._block = range(0)
        self._next_block: range | None = None
        self._requesting = False
        self._request_at_ms: int | None = None
        self._waiting: deque[tuple[int, Allocated]] = deque()
        """(deadline, callback), the earliest deadline first."""

    def init_producer_id(self, peer: Peer, correlation: int, _request: InitProducerId) -> None:
        """Serve InitProducerId."""

        def respond(error: ErrorCode, producer_id: int) -> None:
            response = InitProducerIdResponse(error)
            if error is ErrorCode.NONE:
                response = InitProducerIdResponse(error, producer_id, 0)
            self._turn.emit(Respond(peer, correlation, response))

        self.allocate(respond)

    def allocate(self, allocated: Allocated) -> None:
        """Allocate one producer id, now or when there is a block."""
        self._waiting.append((self._turn.now_ms + WAIT_MAX_MS, allocated))
        self._serve()

    def _serve(self) -> None:
        """Respond with the ids that are left, and request the next block if needed."""
        while self._waiting:
            if not self._block and self._next_block is not None:
                self._block, self._next_block = self._next_block, None
            if not self._block:
                break
            producer_id, self._block = self._block[0], self._block[1:]
            self._report(ErrorCode.NONE, producer_id)
            if len(self._block) <= RESERVE:
                self._request_block()
        if self._waiting:
            self._request_block()
        while self._waiting and self._gate.detached:
            self._report(_NO_ID)

    def _report(self, error: ErrorCode, producer_id: int = -1) -> None:
        _, allocated = self._waiting.popleft()
        allocated(error, producer_id)

    def _request_block(self) -> None:
        if self._requesting or self._next_block is not None or self._request_at_ms is not None:
            return
        epoch = self._registration.broker_epoch
        if epoch is None:
            self._failed()
            return
        # Before the call: this broker's own controller may respond at once.
        self._requesting = True
        request = AllocateProducerIdsReceived(0, self._config.broker_id, epoch)
        if not self._controller.call(request, REQUEST_TIMEOUT_MS, self._answered, self._failed):
            self._failed()

    def _answered(self, answer: ProducerIdsAnswer) -> None:
        if answer.error is not ErrorCode.NONE:
            self._failed()
            return
        self._requesting = False
        self._next_block = range(answer.first, answer.first + answer.count)
        self._serve()

    def _failed(self) -> None:
        self._requesting = False
        self._request_at_ms = self._turn.now_ms + RETRY_MS

    def tick(self) -> None:
        """Request the block again; respond to requests that waited too long with an error."""
        now = self._turn.now_ms
        while self._waiting and self._waiting[0][0] <= now:
            self._report(_NO_ID)
        if self._request_at_ms is not None and now >= self._request_at_ms:
            self._request_at_ms = None
            self._serve()

    def next_ms(self) -> int | None:
        """When `tick` has something to do."""
        request_ms = self._request_at_ms
        if not self._waiting:
            return request_ms
        waits_ms = self._waiting[0][0]
        return waits_ms if request_ms is None or waits_ms < request_ms else request_ms
