"""The controller of one broker: a candidate, or the controller of the cluster.

`step(event)` returns the effects in order. The controller decides by the shared image only, and
every decision is a transaction guarded by its token. A transaction that fails on the token ends
the term at once; one that fails on another guard is decided again when the image has caught up.

Invariants: a request is answered exactly once; at most one transaction is in flight for any key;
nothing is decided before the image has reached the token, that is, before everything that earlier
controllers did is known.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, ClassVar

from tidelog.core.controller.broker_liveness import BrokerLiveness
from tidelog.core.controller.candidacy import Candidacy
from tidelog.core.controller.effects import (
    Answer,
    BecameController,
    ControllerEffect,
    Resigned,
    StoreTransaction,
)
from tidelog.core.controller.election import UncleanRecovery
from tidelog.core.controller.events import (
    AllocateProducerIdsReceived,
    AlterConfigReceived,
    AlterPartitionReceived,
    AlterQuotasReceived,
    AlterReassignmentsReceived,
    AlterScramReceived,
    BrokerDied,
    ControllerEvent,
    CreateAclsReceived,
    CreatePartitionsReceived,
    CreateTopicReceived,
    DeleteAclsReceived,
    DeleteTopicReceived,
    ElectLeadersReceived,
    HeartbeatReceived,
    ListReassignmentsReceived,
    LogReportsReceived,
    Request,
    SessionLost,
    SessionOpened,
    StoreChanged,
    Ticked,
    TransactionAnswered,
    UnregisterBrokerReceived,
    UpdateFeaturesReceived,
)
from tidelog.core.controller.leader_balance import LeaderBalance
from tidelog.core.controller.log_reports import LogReports
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.features import SUPPORTED, FeatureRange
from tidelog.core.controller.metadata.metadata_store import Revision, TxnResult
from tidelog.core.controller.metadata.registrations import PartitionKey
from tidelog.core.controller.plans import sweep
from tidelog.core.controller.requests import Requests, refusal
from tidelog.core.controller.store_transactions import (
    Pending,
    TransactionsInFlight,
    Verdict,
    Write,
    pack,
)
from tidelog.core.controller.upkeep import ControllerTerm, upkeep
from tidelog.core.errors import ErrorCode
from tidelog.core.slotted import slotted
from tidelog.core.types import BrokerId


@slotted(frozen=True)
class ControllerSettings:
    """The controller's settings, with Kafka's defaults."""

    session_timeout_ms: int = 9000
    rebalance_interval_ms: int | None = 300_000
    """Time between two rounds of preferred elections; None: only on request."""
    unclean_recovery: UncleanRecovery = UncleanRecovery.BALANCED
    unclean_recovery_timeout_ms: int = 30_000
    partitions_at_once: int = 150
    """The number of partitions to check in one step, so that requests do not wait long."""
    unclean_leader_election: bool = False
    """`unclean.leader.election.enable` if it is set neither for the topic nor the cluster."""
    supported: tuple[FeatureRange, ...] = SUPPORTED
    """The feature levels that this broker's software supports."""


class Controller:
    """One broker's controller, over the image that it shares with the broker.

    `requests` is set while this broker is the controller and the image has reached its token.
    """

    __slots__ = (
        "_out",
        "_room",
        "_to_check",
        "_upkeep_needed",
        "_waiting",
        "balance",
        "broker",
        "candidacy",
        "image",
        "liveness",
        "reports",
        "requests",
        "settings",
        "transactions",
    )

    def __init__(
        self, broker: BrokerId, image: ClusterImage, settings: ControllerSettings | None = None
    ) -> None:
        self.broker = broker
        self.image = image
        self.settings = settings or ControllerSettings()
        self.candidacy = Candidacy(broker)
        self.liveness = BrokerLiveness(self.settings.session_timeout_ms)
        self.balance = LeaderBalance(self.settings.rebalance_interval_ms)
        self.transactions = TransactionsInFlight()
        self.reports = LogReports(image, self.settings.unclean_recovery_timeout_ms)
        self.requests: Requests | None = None
        self._waiting: list[Request] = []
        self._to_check: set[PartitionKey] = set()
        self._room = self.settings.partitions_at_once
        """The number of partitions that may still be checked before the next tick."""
        self._upkeep_needed = False
        self._out: list[ControllerEffect] = []

    @property
    def is_active(self) -> bool:
        """Whether this broker is the active controller."""
        return self.requests is not None

    def step(self, event: ControllerEvent) -> list[ControllerEffect]:
        """Handle an event. Return the effects, to be carried out in order."""
        self._HANDLERS[type(event)](self, event)
        self._seek_role()
        return self._finish()

    @property
    def unfinished(self) -> bool:
        """Whether more partitions must be checked than one step allows: `continue_upkeep`."""
        return self._upkeep_needed and self.requests is not None

    def continue_upkeep(self) -> list[ControllerEffect]:
        """Check the next partitions. Return the effects, to be carried out in order."""
        self._room = self.settings.partitions_at_once
        return self._finish()

    def _finish(self) -> list[ControllerEffect]:
        if self.requests is not None and self._upkeep_needed:
            self._run_upkeep(self.requests.term)
        out = list(self._out)
        self._out.clear()
        return out

    def freeze(self) -> Hashable:
        """Return the state that determines all further decisions, without image and clock."""
        return (
            self.candidacy.freeze(),
            self.liveness.freeze(),
            self.transactions.freeze(),
            None if self.requests is None else self.requests.freeze(),
            tuple(event.request for event in self._waiting),
            frozenset(self._to_check),
            self.balance.freeze(),
        )

    def _seek_role(self) -> None:
        """Claim the role of controller; begin the term when the image has reached the token."""
        candidacy = self.candidacy
        self._emit(
            candidacy.pursue(
                self.image,
                self.liveness.now_ms,
                self.liveness.proved_dead,
                self.transactions.new_tag,
            )
        )
        if candidacy.token is None or self.image.revision < candidacy.token:
            return
        claim = self.image.controller
        if claim is None or claim.token != candidacy.token:
            self._end_term("another broker became controller")
        elif self.requests is None:
            self._begin_term(candidacy.token)

    def _begin_term(self, token: Revision) -> None:
        epoch = self.candidacy.controller_epoch
        term = ControllerTerm(
            self.image,
            epoch,
            self.reports,
            self.settings.unclean_recovery,
            self.settings.unclean_leader_election,
            self.settings.supported,
        )
        self.transactions.begin(token)
        self.liveness.begin(self.image, self.candidacy.former)
        self.requests = Requests(term, self.liveness, self.transactions, self._out)
        self._to_check = set(self.image.leaderless)
        starting = self.broker not in self.image.active
        self.balance.begin(self.image, self.liveness.now_ms, starting=starting)
        self._out.append(BecameController(epoch))
        self._send(sweep(self.image))
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            self.requests.receive(event)
        self._upkeep_needed = True

    def _end_term(self, reason: str) -> None:
        """End the term: answer all requests. Transactions in flight fail on the token."""
        self.candidacy.token = None
        for event in self._waiting:
            self._refuse(event)
        self._waiting.clear()
        if self.requests is not None:
            self.requests.close()
            self.requests = None
            self.transactions.begin(0)
            self._out.append(Resigned(reason))

    def _refuse(self, event: Request) -> None:
        self._out.append(Answer(event.request, refusal(event, ErrorCode.NOT_CONTROLLER)))

    def _run_upkeep(self, term: ControllerTerm) -> None:
        busy = self.transactions.busy_partitions
        self._to_check |= term.reports.due(self.liveness.now_ms)
        groups, left = upkeep(term, self.liveness, self.transactions, self._to_check, self._room)
        self._room = max(self._room - sum(map(len, groups)), 0)
        self._to_check = left.to_check
        self._send(groups)
        elections = self.balance.writes(term, busy, self._room)
        self._room -= len(elections)
        self._send(elections)
        self._upkeep_needed = left.unfinished or self.balance.has_due(busy)

    def _send(self, groups: Iterable[list[Write]]) -> None:
        for writes in pack(groups):
            self._out.append(self.transactions.send([writes]))

    def _emit(self, transaction: StoreTransaction | None) -> None:
        if transaction is not None:
            self._out.append(transaction)

    def _on_session_opened(self, event: SessionOpened) -> None:
        self.candidacy.open(event.session, event.broker_epoch)

    def _on_session_lost(self, _: SessionLost) -> None:
        self.candidacy.lose_session()
        self._end_term("session lost")

    def _on_store_changed(self, event: StoreChanged) -> None:
        if self.requests is None:
            return
        delta = event.delta
        self.liveness.note_drained(self.image)
        if delta.brokers or delta.configs:
            self._to_check |= self.image.leaderless
        else:
            self._to_check |= delta.partitions & self.image.leaderless
        self.balance.changed(self.image, delta.partitions)
        self._upkeep_needed = True
        self._settle(self.requests)
        self.requests.retry_deferred()

    def _settle(self, requests: Requests) -> None:
        for pending in self.transactions.settle(self.image.revision):
            self._upkeep_needed = True
            if pending.ok:
                requests.settled(pending)
            else:
                self._to_check |= self.image.leaderless
                self.balance.refused(self.image)
                requests.refused(pending)

    def _on_transaction_answered(self, event: TransactionAnswered) -> None:
        if self.candidacy.owns(event.tag):
            self.candidacy.answered(event.answer)
            return
        pending = self.transactions.pending.get(event.tag)
        if pending is None or self.requests is None:
            return
        verdict = self.transactions.answered(pending, event.answer)
        if not isinstance(event.answer, TxnResult):
            return
        if verdict is Verdict.FENCED:
            self.candidacy.fenced_at(event.answer.rev)
            self._end_term("fenced by the store")
        else:
            self._settled(self.requests, pending, event.answer.rev)

    def _settled(self, requests: Requests, pending: Pending, revision: Revision) -> None:
        if pending.ok:
            requests.committed(pending, revision)
            if pending.rest:
                self._out.append(self.transactions.next_step(pending))
        self._settle(requests)
        requests.retry_deferred()

    def _on_ticked(self, event: Ticked) -> None:
        self._room = self.settings.partitions_at_once
        self.liveness.tick(event.now_ms)
        self._emit(self.candidacy.resend())
        if self.requests is None:
            return
        if self.liveness.lost_majority(self.image, self.broker):
            self._resign()
            return
        self._out.extend(self.transactions.resend())
        self.balance.tick(self.image, event.now_ms)
        self._upkeep_needed = True

    def _resign(self) -> None:
        """Release the role: this broker is cut off from the others. Do not claim it for a while."""
        token = self.candidacy.token
        assert token is not None
        self._end_term("receives no heartbeats from a majority of the brokers")
        self.candidacy.not_before_ms = self.liveness.now_ms + self.settings.session_timeout_ms
        self._emit(self.candidacy.release(token, self.transactions.new_tag()))

    def _on_broker_died(self, event: BrokerDied) -> None:
        self.liveness.note_death(event.broker, event.broker_epoch)
        self._upkeep_needed = True

    def _on_request(self, event: Request) -> None:
        if self.requests is not None:
            self.requests.receive(event)
            self._upkeep_needed = True
        elif self.candidacy.token is not None:
            self._waiting.append(event)
        else:
            self._refuse(event)

    _HANDLERS: ClassVar[dict[type[ControllerEvent], Callable[["Controller", Any], None]]] = {
        SessionOpened: _on_session_opened,
        SessionLost: _on_session_lost,
        StoreChanged: _on_store_changed,
        TransactionAnswered: _on_transaction_answered,
        Ticked: _on_ticked,
        BrokerDied: _on_broker_died,
        HeartbeatReceived: _on_request,
        AlterPartitionReceived: _on_request,
        LogReportsReceived: _on_request,
        CreateTopicReceived: _on_request,
        DeleteTopicReceived: _on_request,
        CreatePartitionsReceived: _on_request,
        AlterConfigReceived: _on_request,
        UnregisterBrokerReceived: _on_request,
        UpdateFeaturesReceived: _on_request,
        CreateAclsReceived: _on_request,
        DeleteAclsReceived: _on_request,
        AlterQuotasReceived: _on_request,
        AlterScramReceived: _on_request,
        ElectLeadersReceived: _on_request,
        AlterReassignmentsReceived: _on_request,
        ListReassignmentsReceived: _on_request,
        AllocateProducerIdsReceived: _on_request,
    }
