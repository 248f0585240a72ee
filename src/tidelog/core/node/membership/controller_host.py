"""This broker's own controller, and requests to the active controller.

Every broker has a controller, which is a candidate until it is elected; until then it responds
NOT_CONTROLLER to other brokers. Requests of clients are forwarded to the active controller, so
clients need not know it. Requests of this broker go to the controller that the image names: over
the network, or directly if that is this broker.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from tidelog.core.controller import effects as do
from tidelog.core.controller import events as on
from tidelog.core.controller.controller import Controller, ControllerSettings
from tidelog.core.controller.election import UncleanRecovery
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.features import FeatureRange
from tidelog.core.controller.metadata.metadata_store import TxnAnswer
from tidelog.core.controller.metadata.registrations import PartitionKey
from tidelog.core.controller.requests import refusal
from tidelog.core.errors import ErrorCode
from tidelog.core.node.calls import Answered, Calls, Failed
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.effects import Respond
from tidelog.core.node.events import Peer, RequestHandler
from tidelog.core.node.hosting.loss_recorder import LossRecorder
from tidelog.core.node.measuring.counters import NS_PER_MS
from tidelog.core.node.messages import Forwarded
from tidelog.core.node.turn import Turn
from tidelog.core.slotted import replace

FROM_BROKERS = (
    on.HeartbeatReceived,
    on.AlterPartitionReceived,
    on.LogReportsReceived,
    on.AllocateProducerIdsReceived,
)
"""Requests of brokers: they are not forwarded, so that the sender learns that it used the wrong
broker."""
FROM_CLIENTS = (
    on.CreateTopicReceived,
    on.DeleteTopicReceived,
    on.CreatePartitionsReceived,
    on.AlterConfigReceived,
    on.UnregisterBrokerReceived,
    on.UpdateFeaturesReceived,
    on.CreateAclsReceived,
    on.DeleteAclsReceived,
    on.AlterQuotasReceived,
    on.AlterScramReceived,
    on.ElectLeadersReceived,
    on.AlterReassignmentsReceived,
    on.ListReassignmentsReceived,
)
"""Requests of clients: forwarded to the active controller."""
UNCLEAN_KEPT_MAX = 1000


class Reply:
    """Identifies a request to the controller, and receives its response."""

    __slots__ = ("answered",)

    def __init__(self, answered: Callable[[object], None]) -> None:
        self.answered = answered


class ControllerHost:
    """Passes requests to the controller and carries out its effects."""

    def __init__(
        self,
        config: NodeConfig,
        turn: Turn,
        image: ClusterImage,
        calls: Calls,
        supported: tuple[FeatureRange, ...],
        recorder: LossRecorder,
    ) -> None:
        settings = ControllerSettings(
            session_timeout_ms=config.broker_session_timeout_ms,
            rebalance_interval_ms=config.rebalance_interval_ms,
            partitions_at_once=config.decisions_at_once,
            unclean_leader_election=config.unclean_leader_election_enable,
            unclean_recovery=UncleanRecovery(config.unclean_recovery_strategy),
            unclean_recovery_timeout_ms=config.unclean_recovery_timeout_ms,
            supported=supported,
        )
        self.controller = Controller(config.broker_id, image, settings)
        self.unclean_elections: deque[do.ElectedUncleanly] = deque(maxlen=UNCLEAN_KEPT_MAX)
        """The latest elections that may have lost committed records."""
        self._me = config.broker_id
        self._forward_timeout_ms = config.request_timeout_ms
        self._turn = turn
        self._image = image
        self._calls = calls
        self._recorder = recorder
        self._forwarded: dict[int, int] = {}
        """Forwarded requests by correlation, with the token of the controller that got them."""
        self._sent_ms: dict[int, int] = {}
        """By tag: when a transaction was first sent."""
        self._answered_after_ms = 0
        self._carry_out: dict[type, Callable[[Any], None]] = {
            do.StoreTransaction: self._send,
            do.Answer: self._answer,
            do.Elected: self._elected,
            do.ElectedUncleanly: self._elected_uncleanly,
            do.BecameController: self._became_controller,
            do.Resigned: self._resigned,
        }

    def handlers(self) -> dict[type, RequestHandler]:
        """The requests that this part serves."""
        return {
            Forwarded: self.receive_forwarded,
            **dict.fromkeys(FROM_BROKERS, self.receive),
            **dict.fromkeys(FROM_CLIENTS, self.receive_from_client),
        }

    def step(self, event: on.ControllerEvent) -> None:
        """Pass an event to the controller."""
        for effect in self.controller.step(event):
            self._carry_out[type(effect)](effect)

    def continue_upkeep(self) -> None:
        """Let the controller decide on the partitions that were too many for its last step."""
        for effect in self.controller.continue_upkeep():
            self._carry_out[type(effect)](effect)

    def next_ms(self) -> int | None:
        """Now if there are partitions to decide on, else None."""
        return self._turn.now_ms if self.controller.unfinished else None

    def receive(self, peer: Peer, correlation: int, request: Any) -> None:
        """Pass a broker's request to this broker's controller."""
        self._submit(request, self._responder(peer, correlation))

    def receive_forwarded(self, peer: Peer, correlation: int, forwarded: Forwarded) -> None:
        """Pass on a client's request that another broker forwarded."""
        self._submit(forwarded.request, self._responder(peer, correlation))

    def receive_from_client(self, peer: Peer, correlation: int, request: Any) -> None:
        """Pass or forward a client's request to the active controller."""
        respond = self._responder(peer, correlation)
        claim = self._image.controller
        elected = self.controller.candidacy.token is not None
        if claim is None or claim.broker == self._me or elected:
            self._submit(request, respond)
            return

        def answered(response: object) -> None:
            self._forwarded.pop(number, None)
            respond(response)

        def failed() -> None:
            answered(refusal(request, ErrorCode.NOT_CONTROLLER))

        timeout_ms = self._forward_timeout_ms
        number = self._calls.send(claim.broker, Forwarded(request), timeout_ms, answered, failed)
        self._forwarded[number] = claim.token

    def controller_changed(self) -> None:
        """Fail requests that were forwarded to the old controller, so that clients retry at once:
        it may never respond."""
        token = None if self._image.controller is None else self._image.controller.token
        for number, asked in list(self._forwarded.items()):
            if asked != token:
                self._calls.fail(number)

    def _responder(self, peer: Peer, correlation: int) -> Callable[[object], None]:
        def respond(response: object) -> None:
            self._turn.emit(Respond(peer, correlation, response))

        return respond

    def call(self, request: Any, timeout_ms: int, answered: Answered, failed: Failed) -> bool:
        """Send a request to the active controller; return False if none is known."""
        claim = self._image.controller
        if claim is None:
            return False
        if claim.broker == self._me:
            self._submit(request, answered)
        else:
            self._calls.send(claim.broker, request, timeout_ms, answered, failed)
        return True

    def _submit(self, request: Any, answered: Callable[[object], None]) -> None:
        changes: dict[str, Any] = {"request": Reply(answered)}
        if isinstance(request, on.HeartbeatReceived):
            changes["now_ms"] = self._turn.now_ms
        # A copy: the same request object may be used elsewhere or arrive twice.
        self.step(replace(request, **changes))

    def _answer(self, effect: do.Answer) -> None:
        effect.request.answered(effect.response)

    def transaction_answered(self, tag: int, answer: TxnAnswer) -> None:
        """Pass the outcome of a transaction to the controller."""
        self._answered_after_ms = self._turn.now_ms - self._sent_ms.pop(tag, self._turn.now_ms)
        self.step(on.TransactionAnswered(tag, answer))

    def _send(self, transaction: do.StoreTransaction) -> None:
        self._sent_ms.setdefault(transaction.tag, self._turn.now_ms)
        self._turn.emit(transaction)

    # -- counters and journal --------------------------------------------------------------

    def _elected(self, effect: do.Elected) -> None:
        self._turn.counters.elections.note(self._answered_after_ms * NS_PER_MS)
        fields = (effect.leader, effect.leader_epoch, effect.old_leader, effect.isr)
        self._turn.journal.note("leader_elected", *self._name(effect.key), *fields)

    def _elected_uncleanly(self, effect: do.ElectedUncleanly) -> None:
        self.unclean_elections.append(effect)
        self._turn.counters.elections_unclean += 1
        made = effect.election
        fields = (made.leader, made.leader_epoch, made.old_leader, made.old_isr, made.old_elr)
        self._turn.journal.note("unclean_election", *self._name(effect.key), *fields)
        self._recorder.elected_uncleanly(effect.key, made)

    def _name(self, key: PartitionKey) -> tuple[str | None, int]:
        return self._image.topic_names.get(key.topic_id), key.partition

    def _became_controller(self, effect: do.BecameController) -> None:
        self._turn.journal.note("controller_gained", effect.controller_epoch)

    def _resigned(self, effect: do.Resigned) -> None:
        self._sent_ms.clear()
        self._turn.journal.note("controller_lost", effect.reason)
