"""A controller that applies the shipped rules, but only when the story says so.

core/controller decides who may lead, what happens to the ISR, and which proposal is rejected
and why. This controller does not detect failed brokers and starts nothing by itself. The story
decides when the controller notices that a broker failed, when it elects, and when it handles a
proposal. The controller's own code handles the brokers' reports about their logs. With
`unclean.recovery.strategy` the controller also elects by these reports.
"""

from collections.abc import Callable

from tidelog.core.controller.broker_liveness import BrokerLiveness
from tidelog.core.controller.effects import (
    AlterPartitionAnswer,
    AlterPartitionResult,
    Answer,
    ControllerEffect,
    StoreTransaction,
)
from tidelog.core.controller.election import (
    ElectionRules,
    Target,
    UncleanRecovery,
    next_registration,
)
from tidelog.core.controller.events import (
    UNKNOWN_LOG,
    AllocateProducerIdsReceived,
    AlterPartitionReceived,
    CreateTopicReceived,
    ElectionType,
    LogReportsReceived,
)
from tidelog.core.controller.log_reports import LogReports
from tidelog.core.controller.metadata import features, keys
from tidelog.core.controller.metadata import registrations as values
from tidelog.core.controller.metadata.cluster_image import (
    MIN_INSYNC_REPLICAS,
    UNCLEAN_LEADER_ELECTION,
    ClusterImage,
)
from tidelog.core.controller.metadata.history import NO_CHECKSUM
from tidelog.core.controller.metadata.metadata_store import (
    KV,
    Batch,
    Operation,
    Put,
    Revision,
    Snapshot,
    TxnResult,
)
from tidelog.core.controller.metadata.mvcc import Mvcc
from tidelog.core.controller.metadata.registrations import (
    BrokerState,
    PartitionKey,
    PartitionRegistration,
)
from tidelog.core.controller.partition_changes import alter_partition, check_sender
from tidelog.core.controller.plans import create_topic
from tidelog.core.controller.requests import Requests
from tidelog.core.controller.store_transactions import TransactionsInFlight
from tidelog.core.controller.upkeep import ControllerTerm
from tidelog.core.coordinator.lookup import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tidelog.core.errors import ErrorCode
from tidelog.core.node.measuring.journal import Note
from tidelog.core.types import BrokerId, TopicId, TopicPartition

CONTROLLER_ID = 0
"""Not a broker's id: stories number their brokers from 1."""
TOPIC_ID = bytes(15) + b"\x01"
PARTITION = TopicPartition("story", 0)
KEY = PartitionKey(TOPIC_ID, 0)
OTHER = TopicPartition("other", 0)
"""A second partition, of stories about transactions."""
_TOPIC_IDS: dict[str, TopicId] = {
    name: bytes(15) + bytes((number,))
    for number, name in enumerate(
        (PARTITION.topic, OTHER.topic, TRANSACTIONS_TOPIC, OFFSETS_TOPIC), start=1
    )
}
RECOVERY_TIMEOUT_MS = 30_000


class StoryController:
    """The metadata store, and all changes that a story can make to it."""

    def __init__(
        self,
        min_insync_replicas: int,
        unclean_allowed: bool,
        recovery: UncleanRecovery | None = None,
        transaction_version: int | None = None,
    ) -> None:
        self.store = Mvcc()
        self.image = ClusterImage()
        self.reports = LogReports(self.image, RECOVERY_TIMEOUT_MS)
        self._elects_itself = recovery is not None
        self._term = ControllerTerm(self.image, 1, self.reports, recovery or UncleanRecovery.NONE)
        self._out: list[ControllerEffect] = []
        self.on_note: Callable[[Note], None] = lambda _note: None
        """Called with each election, as the controller of a broker notes it in its journal."""
        self._transactions = TransactionsInFlight()
        self._requests = Requests(self._term, BrokerLiveness(0), self._transactions, self._out)
        config = {
            MIN_INSYNC_REPLICAS: str(min_insync_replicas),
            UNCLEAN_LEADER_ELECTION: str(unclean_allowed).lower(),
        }
        levels = features.newest_levels(())
        if transaction_version is not None:
            levels[features.TRANSACTION_VERSION] = transaction_version
        self._write(
            Put(keys.CONTROLLER_EPOCH, b"1"),
            Put(keys.CONTROLLER, values.encode_claim(CONTROLLER_ID, 0, 1)),
            Put(keys.DEFAULT_CONFIG, values.encode_config(config)),
            Put(keys.FEATURES, values.encode_features(levels)),
        )
        self._transactions.begin(self.store.revision)

    @property
    def partition(self) -> PartitionRegistration:
        """The one partition of the story."""
        return self.image.partitions[KEY]

    def changes_after(self, revision: Revision) -> list[Batch]:
        """Return the changes after this revision."""
        changes = self.store.watch("", revision)
        assert isinstance(changes, list), "stories never compact"
        return changes

    def last_before(self, partition_epoch: int) -> Revision:
        """Return the last revision before the partition got this epoch, or the newest revision."""
        name = keys.partition(TOPIC_ID, 0)
        for batch in self.changes_after(0):
            for change in batch.changes:
                if change.key == name and change.kv is not None:
                    changed = values.decode_partition(KEY, change.kv.value)
                    if changed.partition_epoch >= partition_epoch:
                        return batch.rev - 1
        return self.store.revision

    def as_of(self, revision: Revision | None, earlier: Revision) -> Snapshot:
        """Return the store's content at a revision."""
        if revision is None or revision == self.store.revision:
            return self.store.range("", earlier)
        found: dict[str, KV | None] = {}
        checksums = {0: NO_CHECKSUM}
        for batch in self.changes_after(0):
            if batch.rev <= revision:
                checksums[batch.rev] = batch.checksum
                found.update((change.key, change.kv) for change in batch.changes)
        kvs = tuple(sorted(kv for kv in found.values() if kv is not None))
        return Snapshot(kvs, revision, checksums[max(checksums)], checksums.get(earlier))

    def catch_up(self) -> None:
        """Apply the changes that brokers wrote themselves, such as their registrations."""
        old = self.image.partitions.get(KEY)
        self.image.apply(*self.changes_after(self.image.revision))
        if old is not None:
            self._note_election(old, self.partition)

    def _note_election(self, old: PartitionRegistration, new: PartitionRegistration) -> None:
        if new.leader is not None and new.leader_epoch > old.leader_epoch:
            fields = (new.leader, new.leader_epoch, old.leader, new.isr)
            self.on_note(Note("leader_elected", (*PARTITION, *fields)))
        made = new.unclean_election
        if made is not None and made != old.unclean_election:
            elected = (made.leader, made.leader_epoch, made.old_leader, made.old_isr, made.old_elr)
            self.on_note(Note("unclean_election", (*PARTITION, *elected)))

    def create_topic(
        self, replicas: tuple[BrokerId, ...], name: str = PARTITION.topic, **configs: str
    ) -> None:
        """Create a topic of one partition. The replicas that are up are in sync; the first leads
        epoch 0."""
        self.catch_up()
        wanted = CreateTopicReceived(0, name, _TOPIC_IDS[name], 0, 0, configs, (replicas,))
        plan = create_topic(self._term, wanted)
        self._write(*(write.op for step in plan.steps for write in step))

    def leader_of(self, partition: TopicPartition) -> BrokerId | None:
        """Return the leader of any partition."""
        known = self.image.partition(*partition)
        return None if known is None else known.leader

    def elect_others(self, able: frozenset[BrokerId]) -> None:
        """Elect a leader from `able` for each partition that stories do not show, without a
        command."""
        for key, known in list(self.image.partitions.items()):
            if key != KEY and known.leader not in able:
                isr = tuple(member for member in known.isr if member in able)
                changed = next_registration(known, Target(isr=isr), self._rules(able))
                self.commit(changed)

    def admit(self, broker: BrokerId) -> None:
        """Unfence a broker that has registered."""
        self.catch_up()
        self._write(self._state(broker, fenced=False))

    def set_fenced(self, broker: BrokerId, fenced: bool) -> None:
        """Fence or unfence a broker."""
        self._write(self._state(broker, fenced=fenced))

    def fence(self, broker: BrokerId, changed: PartitionRegistration) -> None:
        """Fence a broker and write the changed partition in one transaction."""
        self._write(self._state(broker, fenced=True), *self._changes(changed))

    def _state(self, broker: BrokerId, fenced: bool) -> Put:
        state = BrokerState(self.image.brokers[broker].epoch, fenced)
        return Put(keys.broker_state(broker), values.encode_broker_state(state))

    def elected(
        self, leader: BrokerId, able: frozenset[BrokerId], unclean: bool
    ) -> PartitionRegistration:
        """Return the partition with this leader, or with another if it may not lead.

        The same change removes brokers that are not `able` from the ISR. With `unclean`,
        the broker named is the only candidate.
        """
        if unclean and leader not in self.partition.isr:
            everyone = frozenset(self.partition.replicas)
            target = Target(isr=(), unclean_shutdown=everyone, election=ElectionType.UNCLEAN)
            return next_registration(self.partition, target, self._rules(able & {leader}))
        isr = tuple(broker for broker in self.partition.isr if broker in able)
        target = Target(isr=isr, candidate=leader)
        return next_registration(self.partition, target, self._rules(able))

    def without(
        self,
        broker: BrokerId,
        able: frozenset[BrokerId],
        *,
        lost_data: bool = False,
        candidate: BrokerId | None = None,
    ) -> PartitionRegistration:
        """Return the partition after the controller notices that this broker failed.

        With `lost_data` the broker has returned and cannot prove that it kept all records.
        `candidate` is the preferred next leader.
        """
        isr = tuple(member for member in self.partition.isr if member != broker)
        unclean = frozenset({broker}) if lost_data else frozenset()
        target = Target(isr=isr, unclean_shutdown=unclean, candidate=candidate)
        return next_registration(self.partition, target, self._rules(able - {broker}))

    def reelected(self, able: frozenset[BrokerId]) -> PartitionRegistration:
        """Return the partition with a new leader if it needs one; the ISR stays."""
        return next_registration(self.partition, Target(), self._rules(able))

    def reassigned(
        self, replicas: tuple[BrokerId, ...], able: frozenset[BrokerId]
    ) -> PartitionRegistration:
        """Return the partition in reassignment; it completes when the replicas are in sync."""
        old = self.partition.replicas
        target = Target(
            replicas=replicas + tuple(b for b in old if b not in replicas),
            adding=tuple(b for b in replicas if b not in old),
            removing=tuple(b for b in old if b not in replicas),
        )
        return next_registration(self.partition, target, self._rules(able))

    def stopped_uncleanly(self, broker: BrokerId) -> bool:
        """Return whether a newly registered broker cannot prove a clean shutdown."""
        return self.image.brokers[broker].stopped_uncleanly

    def commit(self, changed: PartitionRegistration) -> None:
        """Write the changed partition to the store."""
        self._write(*self._changes(changed))

    def _changes(self, changed: PartitionRegistration) -> list[Put]:
        if changed is self.image.partitions[changed.key]:
            return []
        return [Put(keys.partition(*changed.key), values.encode_partition(changed))]

    def alter(self, request: AlterPartitionReceived) -> AlterPartitionAnswer:
        """Handle a leader's ISR proposal; return the response."""
        self.catch_up()
        error = check_sender(request.broker, request.broker_epoch, self.image.brokers)
        if error is not ErrorCode.NONE:
            return AlterPartitionAnswer(error)
        results = {}
        for proposal in request.proposals:
            known, rules = self.image.partitions[proposal.key], self._rules(self.image.active)
            outcome = alter_partition(known, proposal, request.broker, self.image.brokers, rules)
            if outcome.changed is not None:
                self.commit(outcome.changed)
            after = self.image.partitions[proposal.key]
            results[proposal.key] = AlterPartitionResult(outcome.error, after, self.store.revision)
        return AlterPartitionAnswer(ErrorCode.NONE, results)

    def serve(self, request: LogReportsReceived | AllocateProducerIdsReceived) -> object:
        """Handle another request with the controller's own code; return its response."""
        self.catch_up()
        self._requests.receive(request)
        response = None
        while self._out:
            effect = self._out.pop(0)
            if isinstance(effect, Answer):
                response = effect.response
            elif isinstance(effect, StoreTransaction):
                self._transact(effect)
        return response

    def _transact(self, effect: StoreTransaction) -> None:
        result = self.store.txn(effect.guards, effect.ops)
        assert isinstance(result, TxnResult), "this store is always there"
        self.catch_up()
        pending = self._transactions.pending[effect.tag]
        self._transactions.answered(pending, result)
        self._requests.committed(pending, result.rev)
        for settled in self._transactions.settle(self.image.revision):
            self._requests.settled(settled)

    def _rules(self, able: frozenset[BrokerId]) -> ElectionRules:
        if self._elects_itself:
            return self._term.rules(KEY, able)
        # A story elects by name. Only `unclean=true` lets the controller choose by itself.
        allowed = self.image.unclean_election_allowed(TOPIC_ID)
        return ElectionRules(
            able,
            self.image.min_insync_replicas(TOPIC_ID),
            UncleanRecovery.AGGRESSIVE if allowed else UncleanRecovery.NONE,
            dict.fromkeys(able, UNKNOWN_LOG),
        )

    def _write(self, *ops: Operation) -> None:
        self.store.txn((), ops)
        self.catch_up()
