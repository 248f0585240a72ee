"""Requests to the controller, from their arrival to their one response.

A request about busy keys waits until they are free; so does one whose sender has seen a later
revision than the image. A request that passes the checks becomes a transaction, and is answered
when that is committed. If the store refuses the transaction, the request is checked again with
the image that includes the cause.
"""

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any

from tidelog.core.controller import (
    acl_changes,
    feature_levels,
    plans,
    quota_changes,
    scram_changes,
)
from tidelog.core.controller.broker_liveness import BrokerLiveness
from tidelog.core.controller.effects import (
    AlterPartitionAnswer,
    AlterPartitionResult,
    Answer,
    ControllerEffect,
    HeartbeatAnswer,
    PartitionErrorsAnswer,
    ProducerIdsAnswer,
    ReassignmentsAnswer,
    Response,
    TopicAnswer,
)
from tidelog.core.controller.events import (
    AllocateProducerIdsReceived,
    AlterConfigReceived,
    AlterPartitionReceived,
    AlterQuotasReceived,
    AlterReassignmentsReceived,
    AlterScramReceived,
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
    RequestToken,
    UnregisterBrokerReceived,
    UpdateFeaturesReceived,
)
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.features import OFFLINE_REPLICAS
from tidelog.core.controller.metadata.metadata_store import Guard, Put, Revision
from tidelog.core.controller.metadata.registrations import (
    PartitionKey,
    PartitionRegistration,
    encode_producer_ids,
)
from tidelog.core.controller.partition_changes import (
    LogChange,
    alter_partition,
    cancel,
    check_sender,
    damage_log,
    elect_on_request,
    find_log,
    lose_log,
    reassign,
    replace_leader,
    take_offline,
)
from tidelog.core.controller.plans import Plan, unregister_broker
from tidelog.core.controller.store_transactions import (
    Pending,
    Reply,
    TransactionsInFlight,
    Write,
    pack,
)
from tidelog.core.controller.upkeep import ControllerTerm
from tidelog.core.errors import ErrorCode
from tidelog.core.slotted import replace

PRODUCER_ID_BLOCK = 1000
"""Producer ids that a broker gets at a time."""

_PLANNERS: dict[type[Request], Callable[[ControllerTerm, Any], Plan]] = {
    CreateTopicReceived: plans.create_topic,
    DeleteTopicReceived: plans.delete_topic,
    CreatePartitionsReceived: plans.create_partitions,
    AlterConfigReceived: plans.alter_config,
    UnregisterBrokerReceived: unregister_broker,
    UpdateFeaturesReceived: feature_levels.update_features,
    CreateAclsReceived: acl_changes.create_acls,
    DeleteAclsReceived: acl_changes.delete_acls,
    AlterQuotasReceived: quota_changes.alter_quotas,
    AlterScramReceived: scram_changes.alter_scram,
}


def refusal(event: Request, error: ErrorCode) -> Response:
    """Return the response that refuses a whole request."""
    match event:
        case HeartbeatReceived():
            return HeartbeatAnswer(error)
        case AlterPartitionReceived():
            return AlterPartitionAnswer(error)
        case ListReassignmentsReceived():
            return ReassignmentsAnswer(error)
        case ElectLeadersReceived() | AlterReassignmentsReceived() | LogReportsReceived():
            return PartitionErrorsAnswer(error)
        case AllocateProducerIdsReceived():
            return ProducerIdsAnswer(error)
        case _:
            return TopicAnswer(error)


class Requests:
    """The requests of one term as controller."""

    __slots__ = ("_deferred", "liveness", "out", "term", "transactions", "unanswered")

    def __init__(
        self,
        term: ControllerTerm,
        liveness: BrokerLiveness,
        transactions: TransactionsInFlight,
        out: list[ControllerEffect],
    ) -> None:
        self.term = term
        self.liveness = liveness
        self.transactions = transactions
        self.out = out
        self.unanswered: dict[RequestToken, Request] = {}
        self._deferred: list[tuple[Request, Reply | None]] = []

    def receive(self, event: Request) -> None:
        self.unanswered[event.request] = event
        self._handle(event, None)

    def retry_deferred(self) -> None:
        """Check deferred requests again: the image changed or keys became free."""
        waiting, self._deferred = self._deferred, []
        for event, reply in waiting:
            self._handle(event, reply)

    def committed(self, pending: Pending, revision: Revision) -> None:
        """Emit the effects of a committed transaction, and collect its results."""
        for write in pending.writes:
            self.out.extend(write.effects)
            if pending.reply is not None and write.key is not None:
                if isinstance(write.result, AlterPartitionResult):
                    write.result.revision = revision
                self._gather(pending.reply, write.key, write.result)

    def settled(self, pending: Pending) -> None:
        """Answer a committed request, once the image shows the change: the next
        request of the client must see it."""
        if pending.answer is not None:
            self._answer(pending.answer.request, pending.answer.response)

    def refused(self, pending: Pending) -> None:
        """Check the request of a refused transaction again.

        Writes of its earlier steps are deleted first; the request waits for that.
        """
        if pending.begun:
            for writes in pack(plans.sweep(self.term.image, pending.busy)):
                self.out.append(self.transactions.send([writes]))
        if pending.retry is not None:
            self._deferred.append((pending.retry, pending.reply))

    def close(self) -> None:
        """End the term: answer all open requests."""
        for pending in self.transactions.pending.values():
            if pending.ok and not pending.rest:
                self.settled(pending)
        for event in list(self.unanswered.values()):
            self._answer(event.request, refusal(event, ErrorCode.NOT_CONTROLLER))
        self._deferred.clear()

    def freeze(self) -> Hashable:
        waiting = tuple(event.request for event, _ in self._deferred)
        return tuple(sorted(self.unanswered)), waiting, self.term.reports.freeze()

    def _handle(self, event: Request, reply: Reply | None) -> None:
        match event:
            case HeartbeatReceived():
                self._heartbeat(event)
            case AlterPartitionReceived():
                self._alter_partition(event, reply)
            case LogReportsReceived():
                self._log_reports(event, reply)
            case ElectLeadersReceived():
                self._elect_leaders(event, reply)
            case AlterReassignmentsReceived():
                self._alter_reassignments(event, reply)
            case ListReassignmentsReceived():
                self._list_reassignments(event)
            case AllocateProducerIdsReceived():
                self._allocate_producer_ids(event)
            case _:
                self._carry_out(event, _PLANNERS[type(event)](self.term, event))

    def _answer(self, request: RequestToken, response: Response) -> None:
        if self.unanswered.pop(request, None) is not None:
            self.out.append(Answer(request, response))

    def _open(self, event: Request, wanted: int) -> Reply:
        """Begin to collect results. If none is wanted, answer at once."""
        if wanted == 0:
            self._answer(event.request, refusal(event, ErrorCode.NONE))
        return Reply(event, wanted)

    def _gather(self, reply: Reply, key: PartitionKey, result: Any) -> None:
        reply.results[key] = result
        if len(reply.results) == reply.wanted:
            answer = refusal(reply.event, ErrorCode.NONE)
            assert isinstance(answer, AlterPartitionAnswer | PartitionErrorsAnswer)
            answer.results = reply.results
            self._answer(reply.event.request, answer)

    def _heartbeat(self, event: HeartbeatReceived) -> None:
        image = self.term.image
        if event.broker_epoch > image.revision:
            self._deferred.append((event, None))
            return
        error = self.liveness.receive_heartbeat(event, image)
        if error:
            self._answer(event.request, HeartbeatAnswer(error))
            return
        self._answer(
            event.request,
            HeartbeatAnswer(
                ErrorCode.NONE,
                caught_up=event.applied_revision >= event.broker_epoch,
                fenced=image.brokers[event.broker].fenced,
                should_shut_down=self.liveness.may_stop(event.broker, image),
            ),
        )

    def _alter_partition(self, event: AlterPartitionReceived, reply: Reply | None) -> None:
        image = self.term.image
        if event.broker_epoch > image.revision:
            self._deferred.append((event, reply))
            return
        error = check_sender(event.broker, event.broker_epoch, image.brokers)
        if error:
            self._answer(event.request, AlterPartitionAnswer(error))
            return
        proposals = {proposal.key: proposal for proposal in event.proposals}
        reply = reply or self._open(event, len(proposals))
        writes = []
        for key in self._free(proposals, reply):
            old = self._partition(key)
            rules = self.term.rules(key, image.active)
            done = alter_partition(old, proposals[key], event.broker, image.brokers, rules)
            if done.changed is not None:
                new = self.term.stamp(done.changed)
                writes.append(self._write(old, new, AlterPartitionResult(done.error, new)))
            elif done.error:
                self._gather(reply, key, AlterPartitionResult(done.error))
            else:
                unchanged = AlterPartitionResult(done.error, old, image.revision)
                self._gather(reply, key, unchanged)
        self._send(event, reply, writes)

    def _log_reports(self, event: LogReportsReceived, reply: Reply | None) -> None:
        image = self.term.image
        if event.broker_epoch > image.revision:
            self._deferred.append((event, reply))
            return
        error = check_sender(event.broker, event.broker_epoch, image.brokers)
        if error:
            self._answer(event.request, PartitionErrorsAnswer(error))
            return
        if event.offline and keys.FEATURES in self.transactions.busy:
            self._deferred.append((event, reply))  # the level may be one without the field
            return
        self.term.reports.receive(event.broker, event.broker_epoch, event.logs)
        changes: dict[PartitionKey, LogChange] = {
            **{k: partial(replace_leader, leader_epoch=e) for k, e in event.refused.items()},
            **dict.fromkeys(event.found, find_log),
            **dict.fromkeys(event.damaged, damage_log),
            **dict.fromkeys(event.lost, lose_log),
            **dict.fromkeys(event.offline, self._log_goes_offline()),
        }
        reply = reply or self._open(event, len(changes))
        writes = []
        for key in self._free(changes, reply):
            old = self._partition(key)
            if old is None:
                self._gather(reply, key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            rules = self.term.rules(key, image.active)
            writes += self._outcome(
                reply, old, ErrorCode.NONE, changes[key](old, event.broker, rules)
            )
        self._send(event, reply, writes, (keys.FEATURES,) if event.offline else ())

    def _log_goes_offline(self) -> LogChange:
        """At a lower level of `tidelog.version` the log counts as lost: the broker begins no new
        one while the directory is offline."""
        stored = self.term.image.tidelog_version >= OFFLINE_REPLICAS
        return take_offline if stored else lose_log

    def _elect_leaders(self, event: ElectLeadersReceived, reply: Reply | None) -> None:
        image = self.term.image
        if event.keys is None:
            event = replace(event, keys=tuple(k for k in image.partitions if image.committed(k)))
        assert event.keys is not None
        reply = reply or self._open(event, len(set(event.keys)))
        writes = []
        for key in self._free(event.keys, reply):
            old = self._partition(key)
            if old is None:
                self._gather(reply, key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            rules = self.term.rules(key, image.active)
            writes += self._outcome(reply, old, *elect_on_request(old, event.election, rules))
        self._send(event, reply, writes)

    def _alter_reassignments(self, event: AlterReassignmentsReceived, reply: Reply | None) -> None:
        image = self.term.image
        reply = reply or self._open(event, len(event.targets))
        writes = []
        for key in self._free(event.targets, reply):
            old, wanted = self._partition(key), event.targets[key]
            rules = self.term.rules(key, image.active)
            if old is None:
                self._gather(reply, key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif wanted is None:
                writes += self._outcome(reply, old, *cancel(old, rules))
            elif plans.assignment_problem(image, wanted) is not None:
                self._gather(reply, key, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
            else:
                writes += self._outcome(reply, old, *reassign(old, wanted, rules))
        self._send(event, reply, writes)

    def _list_reassignments(self, event: ListReassignmentsReceived) -> None:
        image = self.term.image
        moving = [image.partitions[k] for k in sorted(image.reassigning) if image.committed(k)]
        self._answer(event.request, ReassignmentsAnswer(ErrorCode.NONE, tuple(moving)))

    def _allocate_producer_ids(self, event: AllocateProducerIdsReceived) -> None:
        image = self.term.image
        key = keys.PRODUCER_IDS
        if event.broker_epoch > image.revision or key in self.transactions.busy:
            self._deferred.append((event, None))
            return
        error = check_sender(event.broker, event.broker_epoch, image.brokers)
        if error:
            self._answer(event.request, ProducerIdsAnswer(error))
            return
        first = image.next_producer_id
        value = encode_producer_ids(first + PRODUCER_ID_BLOCK, self.term.controller_epoch)
        write = Write(Put(key, value), (Guard(key, image.mod_rev(key)),))
        block = ProducerIdsAnswer(ErrorCode.NONE, first, PRODUCER_ID_BLOCK)
        answer = Answer(event.request, block)
        self.out.append(self.transactions.send([[write]], retry=event, answer=answer))

    def _carry_out(self, event: Request, plan: Plan) -> None:
        """Send a plan, when all its keys are free."""
        answer: Response = plan.answer or TopicAnswer(
            plan.error, plan.message, plan.topic_id, plan.partitions, plan.replication_factor
        )
        if plan.error or not plan.steps or _validates_only(event):
            self._answer(event.request, answer)
        elif not self.transactions.busy.isdisjoint(plans.keys_of(plan)):
            self._deferred.append((event, None))
        else:
            self.out.append(
                self.transactions.send(
                    plan.steps,
                    retry=event,
                    answer=Answer(event.request, answer),
                    also_busy=plan.also_busy,
                )
            )

    def _partition(self, key: PartitionKey) -> PartitionRegistration | None:
        return self.term.image.partitions.get(key) if self.term.image.committed(key) else None

    def _free(self, wanted: Iterable[PartitionKey], reply: Reply) -> list[PartitionKey]:
        """Return the partitions that may be decided now; defer the others as a request."""
        busy = [key for key in wanted if keys.partition(*key) in self.transactions.busy]
        if busy:
            self._deferred.append((narrowed(reply.event, busy), reply))
        return sorted(set(wanted).difference(busy))

    def _outcome(
        self,
        reply: Reply,
        old: PartitionRegistration,
        error: ErrorCode,
        new: PartitionRegistration,
    ) -> list[Write]:
        if new is old:
            self._gather(reply, old.key, error)
            return []
        return [self._write(old, new, error)]

    def _write(
        self, old: PartitionRegistration | None, new: PartitionRegistration, result: Any
    ) -> Write:
        write = self.term.write(old, new)
        write.result = result
        return write

    def _send(
        self, event: Request, reply: Reply, writes: list[Write], also_busy: Iterable[str] = ()
    ) -> None:
        for chunk in pack([write] for write in writes):
            retry = narrowed(event, [write.key for write in chunk if write.key is not None])
            self.out.append(
                self.transactions.send([chunk], reply=reply, retry=retry, also_busy=also_busy)
            )


def _validates_only(event: Request) -> bool:
    match event:
        case CreateTopicReceived() | CreatePartitionsReceived() | AlterConfigReceived():
            return event.validate_only
        case UpdateFeaturesReceived():
            return event.validate_only
        case _:
            return False


def narrowed(event: Request, wanted: list[PartitionKey]) -> Request:
    """Return the request restricted to some of its partitions."""
    match event:
        case AlterPartitionReceived():
            some = set(wanted)
            return replace(event, proposals=tuple(p for p in event.proposals if p.key in some))
        case LogReportsReceived():
            return replace(
                event,
                lost=_among(event.lost, wanted),
                found=_among(event.found, wanted),
                damaged=_among(event.damaged, wanted),
                refused={key: event.refused[key] for key in wanted if key in event.refused},
                offline=_among(event.offline, wanted),
            )
        case AlterReassignmentsReceived():
            return replace(event, targets={key: event.targets[key] for key in wanted})
        case ElectLeadersReceived():
            return replace(event, keys=tuple(wanted))
        case _:
            raise TypeError(f"{type(event).__name__} is not a request about partitions")


def _among(keys: tuple[PartitionKey, ...], wanted: list[PartitionKey]) -> tuple[PartitionKey, ...]:
    return tuple(key for key in keys if key in wanted)
