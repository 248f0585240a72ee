"""The controller of one broker: a candidate until it holds the role, then the cluster's.

`step(event)` returns the effects in order. It decides on the shared image only, and every
decision ends in a transaction guarded by its token: one that fails on the token ends the
term at once; one that fails on anything else is thought over once the image has caught up.

Always true: a request is answered exactly once; there is at most one transaction out for
any key; nothing is decided before the image has reached the token, that is, before all that
earlier controllers did is known.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, ClassVar

from tidelog.core.controller.broker_liveness import BrokerLiveness
from tidelog.core.controller.candidacy import Candidacy
from tidelog.core.controller.effects import (
    Answer,
    ControllerEffect,
    Resigned,
    StoreTransaction,
    TookOffice,
)
from tidelog.core.controller.election import UncleanRecovery
from tidelog.core.controller.events import (
    AllocateProducerIdsReceived,
    AlterConfigReceived,
    AlterPartitionReceived,
    AlterReassignmentsReceived,
    BrokerDied,
    ControllerEvent,
    CreatePartitionsReceived,
    CreateTopicReceived,
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
)
from tidelog.core.controller.leader_balance import LeaderBalance
from tidelog.core.controller.log_reports import LogReports
from tidelog.core.controller.metadata.cluster_image import ClusterImage
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
from tidelog.core.controller.upkeep import Office, upkeep
from tidelog.core.errors import ErrorCode
from tidelog.core.slotted import slotted
from tidelog.core.types import BrokerId


@slotted(frozen=True)
class ControllerSettings:
    """Times and habits, with Kafka's defaults."""

    session_timeout_ms: int = 9000
    rebalance_interval_ms: int | None = 300_000
    """Between two rounds of preferred elections; None: there are none without a request."""
    unclean_recovery: UncleanRecovery = UncleanRecovery.BALANCED
    unclean_recovery_timeout_ms: int = 30_000
    partitions_at_once: int = 150
    """How many partitions are looked at before others have their turn."""
    unclean_leader_election: bool = False
    """`unclean.leader.election.enable` where neither topic nor cluster say anything."""


class Controller:
    """One broker's controller, over the image that it shares with the broker.

    `requests` and its office exist while it holds the role and knows all that was before.
    """

    __slots__ = (
        "_look_at",
        "_out",
        "_room",
        "_stirred",
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
        self._look_at: set[PartitionKey] = set()
        self._room = self.settings.partitions_at_once
        """How many partitions may still be looked at before the clock ticks again."""
        self._stirred = False
        self._out: list[ControllerEffect] = []

    @property
    def in_office(self) -> bool:
        return self.requests is not None

    def step(self, event: ControllerEvent) -> list[ControllerEffect]:
        """Take in what happened; the effects are to be carried out in order."""
        self._HANDLERS[type(event)](self, event)
        self._pursue_office()
        return self._finish()

    @property
    def unfinished(self) -> bool:
        """Whether there are more partitions to look at than were looked at at once: `go_on`."""
        return self._stirred and self.requests is not None

    def go_on(self) -> list[ControllerEffect]:
        """Look at the next ones; the effects are to be carried out in order."""
        self._room = self.settings.partitions_at_once
        return self._finish()

    def _finish(self) -> list[ControllerEffect]:
        if self.requests is not None and self._stirred:
            self._keep_up(self.requests.office)
        out = list(self._out)
        self._out.clear()
        return out

    def freeze(self) -> Hashable:
        """All that decides what comes next, but for the image and the clock."""
        return (
            self.candidacy.freeze(),
            self.liveness.freeze(),
            self.transactions.freeze(),
            None if self.requests is None else self.requests.freeze(),
            tuple(event.request for event in self._waiting),
            frozenset(self._look_at),
            self.balance.freeze(),
        )

    def _pursue_office(self) -> None:
        """Seek the role; take it up once the image has reached its token."""
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
            self._end_term("the role went to another")
        elif self.requests is None:
            self._take_office(candidacy.token)

    def _take_office(self, token: Revision) -> None:
        epoch = self.candidacy.controller_epoch
        office = Office(
            self.image,
            epoch,
            self.reports,
            self.settings.unclean_recovery,
            self.settings.unclean_leader_election,
        )
        self.transactions.begin(token)
        self.liveness.begin(self.image)
        self.requests = Requests(office, self.liveness, self.transactions, self._out)
        self._look_at = set(self.image.leaderless)
        starting = self.broker not in self.image.active
        self.balance.begin(self.image, self.liveness.now_ms, starting=starting)
        self._out.append(TookOffice(epoch))
        self._send(sweep(self.image))
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            self.requests.receive(event)
        self._stirred = True

    def _end_term(self, reason: str) -> None:
        """Answer everybody and forget; transactions that are out fail on the token."""
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

    def _keep_up(self, office: Office) -> None:
        busy = self.transactions.busy
        self._look_at |= office.reports.due(self.liveness.now_ms)
        groups, left = upkeep(office, self.liveness, busy, self._look_at, self._room)
        self._room = max(self._room - sum(map(len, groups)), 0)
        self._look_at = left.look_at
        self._send(groups)
        elections = self.balance.writes(office, busy, self._room)
        self._room -= len(elections)
        self._send(elections)
        self._stirred = left.some or self.balance.has_due(busy)

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
        if delta.brokers or delta.configs:
            self._look_at |= self.image.leaderless
        else:
            self._look_at |= delta.partitions & self.image.leaderless
        self.balance.changed(self.image, delta.partitions)
        self._stirred = True
        self._settle(self.requests)
        self.requests.look_again()

    def _settle(self, requests: Requests) -> None:
        for pending in self.transactions.settle(self.image.revision):
            self._stirred = True
            if pending.ok:
                requests.settled(pending)
            else:
                self._look_at |= self.image.leaderless
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
        requests.look_again()

    def _on_ticked(self, event: Ticked) -> None:
        self._room = self.settings.partitions_at_once
        self.liveness.tick(event.now_ms)
        self._emit(self.candidacy.resend())
        if self.requests is None:
            return
        if self.liveness.lost_majority(self.image, self.broker):
            self._give_up()
            return
        self._out.extend(self.transactions.resend())
        self.balance.tick(self.image, event.now_ms)
        self._stirred = True

    def _give_up(self) -> None:
        """Cut off from the others: give the role back and leave it to them for a while."""
        token = self.candidacy.token
        assert token is not None
        self._end_term("hears no majority of the brokers")
        self.candidacy.not_before_ms = self.liveness.now_ms + self.settings.session_timeout_ms
        self._emit(self.candidacy.release(token, self.transactions.new_tag()))

    def _on_broker_died(self, event: BrokerDied) -> None:
        self.liveness.died(event.broker, event.broker_epoch)
        self._stirred = True

    def _on_request(self, event: Request) -> None:
        if self.requests is not None:
            self.requests.receive(event)
            self._stirred = True
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
        ElectLeadersReceived: _on_request,
        AlterReassignmentsReceived: _on_request,
        ListReassignmentsReceived: _on_request,
        AllocateProducerIdsReceived: _on_request,
    }
