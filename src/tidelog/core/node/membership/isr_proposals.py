"""Send ISR proposals of leaders to the controller (AlterPartition).

One request is in flight at a time, with as many proposals as the controller decides on in one turn;
each partition has at most one, the latest. A proposal without a response is sent again, because the
leader keeps the maximal ISR until then: that costs availability, never records. The time limit is
the same if this broker is the controller itself.

A success is applied not from the response but from the image, once it shows the new ISR: only then
does this broker also know every setting that the controller's decision depends on. Several errors
also mean that the image will soon show a change. If it shows none for `UNSETTLED_MS`, the proposal
is sent again: otherwise the leader would never add or remove a follower again.
"""

from tidelog.core.controller.effects import AlterPartitionAnswer, AlterPartitionResult
from tidelog.core.controller.events import AlterPartitionReceived, IsrMember, IsrProposal
from tidelog.core.controller.metadata.registrations import NO_EPOCH, PartitionKey
from tidelog.core.errors import ErrorCode
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.hosting.replicas import IsrChange, Replicas
from tidelog.core.node.membership.controller_host import ControllerHost
from tidelog.core.node.turn import Turn
from tidelog.core.replication.events import IsrChangeAnswered
from tidelog.core.replication.isr import Committed
from tidelog.core.types import BrokerEpoch, TopicPartition

RETRY_MS = 50
UNSETTLED_MS = 10_000
"""How long an answered proposal may wait for the image. A watch that lags longer is opened again
before (shell/store)."""


class IsrProposals:
    """The proposals in flight, and those that wait (`Replicas.isr_changes`)."""

    def __init__(
        self, config: NodeConfig, turn: Turn, controller: ControllerHost, replicas: Replicas
    ) -> None:
        self._config = config
        self._turn = turn
        self._controller = controller
        self._replicas = replicas
        self._waiting = replicas.isr_changes
        self._in_flight: dict[PartitionKey, IsrChange] | None = None
        self._round = 0
        self._give_up_at_ms = 0
        """When the proposals in flight are sent again."""
        self._retry_at_ms: int | None = None
        self._unsettled: dict[TopicPartition, tuple[IsrChange, int]] = {}
        """Proposals that were answered and wait for the image, with the time of the next sending;
        the earliest first."""

    def controller_changed(self) -> None:
        """Send the proposals to the new controller: the old one may never respond."""
        self._give_up()
        self._retry_at_ms = None

    def pump(self, broker_epoch: BrokerEpoch | None, *, acting: bool) -> bool:
        """Send waiting proposals if it is time; return whether any were sent."""
        now = self._turn.now_ms
        if self._in_flight is not None and now >= self._give_up_at_ms:
            self._give_up()
        if self._unsettled:
            self._queue_unsettled(now)
        if not self._waiting or not acting or broker_epoch is None or self._in_flight is not None:
            return False
        if self._retry_at_ms is not None and now < self._retry_at_ms:
            return False
        self._retry_at_ms = None
        standing: list[IsrChange] = []
        for name, proposal in list(self._waiting.items()):
            if len(standing) == self._config.decisions_at_once:
                break
            del self._waiting[name]
            if _is_awaited(proposal):
                standing.append(proposal)
        if standing:
            self._send(broker_epoch, standing)
        return bool(standing)

    def _send(self, broker_epoch: BrokerEpoch, proposals: list[IsrChange]) -> None:
        requests = tuple(_request(proposal) for proposal in proposals)
        self._in_flight = {r.key: p for r, p in zip(requests, proposals, strict=True)}
        self._give_up_at_ms = self._turn.now_ms + self._config.request_timeout_ms
        self._round += 1
        this_round = self._round

        def answered(answer: AlterPartitionAnswer) -> None:
            if this_round == self._round:
                self._answered(answer)

        def failed() -> None:
            if this_round == self._round:
                self._give_up()

        sent = self._controller.call(
            AlterPartitionReceived(0, self._config.broker_id, broker_epoch, requests),
            self._config.request_timeout_ms,
            answered,
            failed,
        )
        if not sent:
            self._give_up()

    def _give_up(self) -> None:
        """Queue the unanswered proposals again, unless newer ones wait."""
        self._round += 1
        proposals, self._in_flight = self._in_flight or {}, None
        for proposal in proposals.values():
            self._waiting.setdefault(proposal.replica.topic_partition, proposal)
        self._retry_at_ms = self._turn.now_ms + RETRY_MS

    def _answered(self, answer: AlterPartitionAnswer) -> None:
        if answer.error is not ErrorCode.NONE:
            self._give_up()
            return
        proposals, self._in_flight = self._in_flight or {}, None
        failed = False
        for key, proposal in proposals.items():
            result = answer.results.get(key)
            failed |= result is None or result.error is not ErrorCode.NONE
            if result is None:
                self._waiting.setdefault(proposal.replica.topic_partition, proposal)
            else:
                self._report_error(proposal, result)
                self._await_image(proposal)
        if failed and self._waiting:
            self._retry_at_ms = self._turn.now_ms + RETRY_MS

    def _report_error(self, proposal: IsrChange, result: AlterPartitionResult) -> None:
        if result.error is ErrorCode.NONE:
            return
        self._turn.counters.isr_updates_failed += 1
        wanted = proposal.wanted
        event = IsrChangeAnswered(
            wanted.members,
            wanted.partition_epoch,
            result.error,
            wanted.leader_epoch,
            wanted.partition_epoch,
            (),
            self._turn.now_ms,
        )
        self._replicas.step(proposal.replica, event)
        self._replicas.rejoining[proposal.replica] = None

    def _await_image(self, proposal: IsrChange) -> None:
        """Send an answered proposal again later, if the partition still waits for it then."""
        name = proposal.replica.topic_partition
        if name not in self._waiting and _is_awaited(proposal):
            self._unsettled.pop(name, None)
            self._unsettled[name] = proposal, self._turn.now_ms + UNSETTLED_MS

    def _queue_unsettled(self, now_ms: int) -> None:
        """Queue the answered proposals whose change the image still does not show."""
        while self._unsettled:
            name, (proposal, due_ms) = next(iter(self._unsettled.items()))
            if now_ms < due_ms:
                break
            del self._unsettled[name]
            if _is_awaited(proposal):
                wanted = proposal.wanted
                about = (wanted.leader_epoch, tuple(sorted(wanted.members)))
                self._turn.journal.note("isr_change_overdue", *name, *about)
                self._waiting.setdefault(name, proposal)

    def next_ms(self) -> int | None:
        """When the next waiting proposals may be sent."""
        if self._in_flight is not None:
            return self._give_up_at_ms
        if self._waiting:
            return self._retry_at_ms
        return next(iter(self._unsettled.values()))[1] if self._unsettled else None


def _is_awaited(proposal: IsrChange) -> bool:
    """Whether the partition still waits for the answer to this proposal."""
    partition, wanted = proposal.replica.partition, proposal.wanted
    isr = partition.isr
    return (
        partition.is_leader
        and partition.leader_epoch == wanted.leader_epoch
        and not isinstance(isr, Committed)
        and (isr.proposed_at, isr.proposed) == (wanted.partition_epoch, wanted.members)
    )


def _request(proposal: IsrChange) -> IsrProposal:
    replica, wanted = proposal.replica, proposal.wanted
    return IsrProposal(
        PartitionKey(replica.topic_id, replica.topic_partition.partition),
        wanted.leader_epoch,
        wanted.partition_epoch,
        tuple(
            IsrMember(broker, NO_EPOCH if epoch is None else epoch) for broker, epoch in wanted.isr
        ),
    )
