"""Check the invariants after every event, and report a violation at once.

A step changes one broker, so the oracle checks only that broker. Of its replicas, it checks
those whose offsets or epochs changed. The invariants have the names that stories use
(lab/spec/invariants.py). Nine more need a whole run:

flushed-records-survive  with flush-before-ack a power failure loses no committed record
emptied-never-leads      a replica whose folder was removed never leads while another has records
losses-reported          a replica reports exactly the records that it drops
losses-recorded          each removed record and each lost acknowledged one is in the loss ledger
no-silent-loss           where several replicas are damaged, each lost record was reported
no-duplicates            an idempotent producer's batch is in the log at most once
young-records-stay       retention deletes no record that is younger than retention.ms
fenced-leaders-stop      a leader whose session has ended acknowledges only what its followers have
one-folder               a partition has one folder on a broker with two log directories (moves.py)
transactions-atomic      once all has settled, a transaction is visible as a whole or not at all
                         (transactions.py has five more invariants of transactions)
settles                  once faults stop, all replicas become equal and in sync
"""

from collections.abc import Callable, Collection, Sequence

from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.registrations import (
    PartitionKey,
    decode_broker_state,
    decode_partition,
)
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.measuring.counters import Loss
from tidelog.core.node.measuring.journal import Note
from tidelog.core.storage import layout
from tidelog.core.storage.checkpoint import read_offsets
from tidelog.core.types import BrokerId, Offset, TopicPartition
from tidelog.lab.sim.machine.process import Process, Site
from tidelog.lab.sim.oracle.feature_levels import FeatureLevelOracle
from tidelog.lab.sim.oracle.ledger import LedgerOracle
from tidelog.lab.sim.oracle.moves import MoveOracle
from tidelog.lab.sim.oracle.promise import LossReports, Promise
from tidelog.lab.sim.oracle.registrations import RegistrationOracle
from tidelog.lab.sim.oracle.settled import check_equal_logs, check_repaired
from tidelog.lab.sim.oracle.shadow import Entry, Shadow, read_entries
from tidelog.lab.sim.oracle.table import TableOracle
from tidelog.lab.sim.oracle.transactions import TransactionOracle
from tidelog.lab.sim.oracle.truth import Truth
from tidelog.lab.sim.text import WHOLE_MAX, plain


class InvariantBroken(Exception):
    """An invariant does not hold."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant
        self.what = what


class Oracle:
    """Checks every partition of the simulated topic against its true history."""

    def __init__(
        self,
        site: Site,
        partitions: dict[TopicPartition, PartitionKey],
        *,
        min_isr: int,
        unclean_allowed: bool,
        flush_before_ack: bool,
        retention_ms: int | None,
        two_damaged: bool,
        report: Callable[[str, str], None],
    ) -> None:
        self._site = site
        self._report = report
        self._flush_before_ack = flush_before_ack
        self._retention_ms = retention_ms
        """None: ages are not checked, because records are also deleted for other reasons."""
        self.damages = 0
        """Number of damaged replicas; each counts once until it is repaired."""
        self.expired = 0
        """Number of records that replicas deleted because of their age."""
        self._skew_ms = 0
        """The most that any broker's monotonic clock has been ahead of the true time."""
        self._keys = {keys.partition(*key): name for name, key in partitions.items()}
        self._partition_keys = partitions
        self._admitted: dict[BrokerId, int] = {}
        self._controller_epoch = 0
        self._revision = 0
        self.registrations = RegistrationOracle(site, report)
        self.ledger = LedgerOracle(site, report)
        self.features: FeatureLevelOracle | None = None
        """The oracle of feature levels, if brokers run different software."""
        self.table: TableOracle | None = None
        """The oracle of the compacted topic, if the run has one."""
        self.moves: MoveOracle | None = None
        """The oracle of moves between log directories, if brokers have two."""
        self.transactions: TransactionOracle | None = None
        """The oracle of transactions, if clients use them."""
        site.store.on_early_end = self._session_ended_early
        self.truths: dict[TopicPartition, Truth] = {}
        for name in partitions:
            ended = site.store.ended_session
            truth = Truth(name, report, Promise(min_isr), ended, unclean_allowed=unclean_allowed)
            truth.shadows = {broker: Shadow(broker) for broker in site.brokers}
            if two_damaged:
                truth.loss_reports = LossReports(name)
            self.truths[name] = truth

    # -- the store -------------------------------------------------------------------------

    def _session_ended_early(self, broker: BrokerId) -> None:
        """Report that a silent session was ended while its broker still counted on it."""
        what = f"the session of broker {broker} was ended before the broker's own deadline"
        self._report("fenced-leaders-stop", what)

    def store_changed(self) -> None:
        """Check all new revisions of the store, before any broker receives them."""
        mvcc = self._site.store.mvcc
        batches = mvcc.watch("", self._revision)
        assert isinstance(batches, list), "the oracle follows every revision"
        self._revision = mvcc.revision
        for batch in batches:
            self.registrations.store_changed(batch)
            if self.features is not None:
                self.features.store_changed(batch)
            for key, kv in batch.changes:
                if kv is None:
                    if key.startswith(keys.BROKER_STATES):
                        self._unregistered(int(key[len(keys.BROKER_STATES) :]))
                    continue
                if key in self._keys:
                    name = self._keys[key]
                    new = decode_partition(self._partition_keys[name], kv.value)
                    self.truths[name].registered(new, self._away(self.truths[name]))
                    if new.controller_epoch < self._controller_epoch:
                        what = f"the replaced controller of epoch {new.controller_epoch} wrote "
                        what += plain(new, WHOLE_MAX)
                        self.truths[name].report("one-controller", what)
                elif key == keys.CONTROLLER_EPOCH:
                    self._controller_epoch = int(kv.value)
                elif key.startswith(keys.BROKER_STATES):
                    state = decode_broker_state(kv.value)
                    self._admitted[int(key[len(keys.BROKER_STATES) :])] = state.epoch
        for truth in self.truths.values():
            self._settle(truth)

    def _unregistered(self, broker: BrokerId) -> None:
        """Treat a removed registration like a crash.

        The replicas of this broker do not count until they are in the ISR again.
        """
        for truth in self.truths.values():
            truth.promise.stopped_uncleanly(broker, self._revision)

    def _away(self, truth: Truth) -> set[BrokerId]:
        """Return the brokers that stopped and have not registered since."""
        stops = truth.promise.unsettled.items()
        return {broker for broker, at in stops if self._admitted.get(broker, -1) <= at}

    def _settle(self, truth: Truth) -> None:
        if not truth.promise.unsettled or truth.registration is None:
            return
        away = self._away(truth)
        for broker in truth.promise.waiting(truth.registration.isr):
            if broker in away:
                continue
            shadow = truth.shadows[broker]
            damaged = broker in truth.promise.damaged
            if damaged and not shadow.is_sound(self._site.brokers[broker].disk):
                continue
            if shadow.first_difference(truth.committed) is None:
                truth.promise.settle(broker, self._site.world.now_ms)
                if not truth.promise.unsettled:
                    truth.close_loss_reports()

    def check_settled(self, excused: Collection[TopicPartition]) -> None:
        """Check the end of a run, when the cluster has settled.

        The replicas of the partitions in `excused` can't become equal: too many of them are
        damaged, and reported it.
        """
        for name, truth in self.truths.items():
            known = truth.registration
            if known is not None and known.leader is not None:
                truth.check_losses_reported(self._site.brokers[known.leader].disk)
            self._settle(truth)
            if name not in excused:
                check_equal_logs(self._site, name, truth)
                check_repaired(truth)
                self.ledger.check_settled(name, truth)
        if self.table is not None:
            self.table.check_settled(self._site)
        if self.moves is not None:
            self.moves.check_settled()
        if self.transactions is not None:
            self.transactions.check_settled()

    # -- processes -------------------------------------------------------------------------

    def stopped(self, process: Process, *, clean: bool) -> None:
        if self.moves is not None:
            self.moves.stopped(process)
        for truth in self.truths.values():
            truth.shadows[process.id].forget_run()
            truth.promise.stopped(process.id, self._site.world.now_ms)
            if not clean:
                truth.promise.stopped_uncleanly(process.id, self._revision)

    def emptied(self, process: Process, partition: TopicPartition) -> None:
        """Record that a replica's folder was removed while its broker was down."""
        truth = self.truths[partition]
        shadow = truth.shadows[process.id]
        truth.promise.emptied(process.id, self._revision)
        self.ledger.taken(partition, 0)
        shadow.start, shadow.entries = 0, []

    def is_damaged(self, partition: TopicPartition) -> bool:
        """Return whether a replica of this partition is damaged and not repaired yet."""
        return bool(self.truths[partition].promise.damaged)

    def may_damage(self, process: Process, partition: TopicPartition) -> bool:
        disks = {broker: each.disk for broker, each in self._site.brokers.items()}
        return self.truths[partition].may_damage(process.id, disks)

    def damaged(self, process: Process, partition: TopicPartition) -> None:
        """Record damage to a replica's files, whether its broker runs or is down."""
        promise = self.truths[partition].promise
        self.ledger.taken(partition, 0)
        self.damages += process.id not in promise.damaged
        if process.node is None:
            promise.damage(process.id, self._revision)
        else:
            promise.decay(process.id)

    def log_end(self, process: Process, partition: TopicPartition) -> Offset:
        return self.truths[partition].shadows[process.id].end

    def may_put_back(
        self, process: Process, partition: TopicPartition, log_end_offset: Offset
    ) -> bool:
        """Return whether a replica's log may be replaced by an old copy with this log end offset.

        The copy must lack records that all other replicas know to be committed. All brokers
        are down.
        """
        truth = self.truths[partition]
        known = () if truth.registration is None else truth.registration.replicas
        disks = [self._site.brokers[broker].disk for broker in known if broker != process.id]
        checkpoints = [read_offsets(disk, layout.HIGH_WATERMARKS)[0] for disk in disks]
        marks = [marks.get(partition, 0) for marks in checkpoints]
        return self.may_damage(process, partition) and log_end_offset < min(marks)

    def outdated(self, process: Process, partition: TopicPartition) -> None:
        """Record that a replica's files were replaced by an old copy."""
        self.damaged(process, partition)
        self.truths[partition].promise.outdated.add(process.id)

    def noted(self, process: Process, notes: Sequence[Note]) -> None:
        """Read the events that a broker logged."""
        for truth in self.truths.values():
            truth.shadows[process.id].noted(truth.name, notes)
            if truth.loss_reports is not None:
                truth.loss_reports.noted(notes)

    def may_serve_damage(
        self, partition: TopicPartition, broker: BrokerId, requested_ms: int
    ) -> bool:
        """Return whether this broker's response to a request of that time may have damaged records.

        Then only the reader can detect the damage, by a checksum or an offset.
        """
        return self.truths[partition].promise.may_serve_damage(broker, requested_ms)

    def started(self, process: Process) -> None:
        """Read the logs that a broker has on disk at startup."""
        assert process.node is not None
        if self.moves is not None:
            self.moves.started(process)
        if self.table is not None:
            with process.switch_fault.suspend():
                self.table.started(process)
        for name, truth in self.truths.items():
            shadow = truth.shadows[process.id]
            before = shadow.first_difference(truth.committed)
            had = shadow.start, shadow.entries
            log = shadow.log = process.node.directory.logs.get(name)
            shadow.incarnation = process.incarnation
            shadow.cuts = process.disk.cuts
            if log is None and process.node.directory.offline:
                continue  # its directory failed; the records may be in it
            if log is None:
                shadow.start, shadow.entries = 0, []
            else:
                if process.id not in truth.promise.damaged:
                    truth.deleted_upto = max(truth.deleted_upto, log.log_start_offset)
                damaged = process.id in truth.promise.damaged
                shadow.read_again(process.disk, log, damaged=damaged)
                entries, shadow.entries = shadow.entries, []
                truth.appended(shadow, entries, shadow.start)
                shadow.entries = entries
            shadow.high_watermark = (
                0 if log is None else process.node.directory.high_watermarks[name]
            )
            self._check_taken(name, shadow, *had)
            after = shadow.first_difference(truth.committed)
            if after is not None and (before is None or after < before):
                self._lost_committed(truth, process.id, after)

    def _check_taken(
        self, name: TopicPartition, shadow: Shadow, start: Offset, entries: list[Entry]
    ) -> None:
        """Note the first record that a replica lost while its broker was down."""
        for offset, entry in enumerate(entries, start):
            if offset >= shadow.start and shadow.entry(offset) != entry:
                self.ledger.taken(name, offset)
                self.truths[name].promise.shortened.add(shadow.broker)
                return

    def _lost_committed(self, truth: Truth, broker: BrokerId, offset: int) -> None:
        """Record that this replica lost committed records by a power failure or by damage."""
        if broker in truth.promise.damaged:
            return
        truth.promise.lost(broker, offset)
        member = truth.registration is not None and broker in truth.registration.isr
        if self._flush_before_ack and member:
            what = f"{truth.name}: broker {broker} of the ISR lost the flushed offset {offset}"
            self._report("flushed-records-survive", what)

    def stepped(self, process: Process) -> None:
        """Check a broker after one of its steps.

        This is the hot path: it compares a few numbers for each replica.
        """
        assert process.node is not None
        if self.table is not None:
            with process.switch_fault.suspend():
                self.table.stepped(process)
        if process.node.halted is not None:
            self._check_halted(process)
            return  # its disk failed; its state in memory no longer counts
        if self.features is not None:
            self.features.stepped(process)
        if self.moves is not None:
            self.moves.stepped(process)
        if self.transactions is not None:
            self.transactions.stepped(process)
        cuts = process.disk.cuts
        for name, replica in process.node.replicas.items():
            truth = self.truths.get(name)
            if truth is None:
                continue  # the compacted topic, which TableOracle checks
            partition = replica.partition
            shadow = truth.shadows[process.id]
            if partition.offline:
                self._check_last_commits(process, replica, truth)
                continue  # its directory failed; its state in memory no longer counts
            seen = (
                partition.log_end_offset,
                partition.high_watermark,
                partition.partition_epoch,
                partition.leader_epoch,
                partition.log_start_offset,
                cuts,
            )
            if seen != shadow.seen:
                shadow.seen = seen
                self._check_replica(process, replica, shadow, truth)
        if process.node.refused:
            self._check_refusals(process)

    def _check_halted(self, process: Process) -> None:
        assert process.node is not None
        for name, replica in process.node.replicas.items():
            if name in self.truths:
                self._check_last_commits(process, replica, self.truths[name])

    def _check_last_commits(self, process: Process, replica: HostedReplica, truth: Truth) -> None:
        """Record what a leader committed in the step in which its directory or its only disk
        failed: the failure of a move or of a write follows in the same step, and producers and
        followers get their responses."""
        shadow = truth.shadows[process.id]
        mark, same = replica.partition.high_watermark, shadow.leader_epoch
        led = shadow.seen and shadow.leads and replica.partition.leader_epoch == same
        shadow.seen = ()
        if led and shadow.high_watermark < mark <= shadow.end:
            truth.advanced(shadow, shadow.high_watermark, mark)
            shadow.high_watermark = mark

    def _check_refusals(self, process: Process) -> None:
        """Check that a follower refuses a leader only if one of their two logs is damaged."""
        assert process.node is not None
        for name, refused in process.node.refused.items():
            truth = self.truths.get(name)
            if truth is None or truth.registration is None:
                continue
            current = refused.leader_epoch == truth.registration.leader_epoch
            if current and truth.promise.damaged.isdisjoint({refused.leader, process.id}):
                what = (
                    f"broker {process.id} refuses an undamaged leader: {plain(refused, WHOLE_MAX)}"
                )
                truth.report("leader-complete", what)

    def _check_replica(
        self, process: Process, replica: HostedReplica, shadow: Shadow, truth: Truth
    ) -> None:
        partition = replica.partition
        mark, end = partition.high_watermark, partition.log_end_offset
        log = replica.log
        if not partition.log_start_offset <= mark <= end or (
            end != log.log_end_offset and not log.offline
        ):
            what = (
                f"broker {process.id}: log start {partition.log_start_offset}, HW {mark}, "
                f"LEO {end}, end of the log files {log.log_end_offset}"
            )
            truth.report("hw-below-leo", what)
        if (
            partition.leader_epoch < shadow.leader_epoch
            or partition.partition_epoch < shadow.partition_epoch
        ):
            what = f"broker {process.id} applied an older leader epoch or partition epoch"
            truth.report("epochs-monotonic", what)
        led = shadow.leads and shadow.leader_epoch == partition.leader_epoch
        self._check_log(process, replica, shadow, truth, led=led)
        old_mark = shadow.high_watermark
        if shadow.leads and not partition.is_leader and mark > old_mark:
            # The metadata change that deposed this leader also let its HW advance.
            truth.advanced(shadow, old_mark, mark)
            old_mark = mark
        shadow.leader_epoch = partition.leader_epoch
        shadow.partition_epoch = partition.partition_epoch
        shadow.leads = partition.is_leader
        shadow.high_watermark = mark
        if shadow.leads and not led:
            truth.became_leader(shadow, partition.leader_epoch)
        if led and mark < old_mark:
            what = f"the HW of broker {process.id}, the leader, fell from {old_mark} to {mark}"
            truth.report("hw-below-leo", what)
        if mark > old_mark:
            truth.advanced(shadow, old_mark, mark)

    def _check_log(
        self, process: Process, replica: HostedReplica, shadow: Shadow, truth: Truth, *, led: bool
    ) -> None:
        log = replica.log
        if log.offline:
            return
        if log is not shadow.log:
            shadow.begin(log)
        # If damage removed the end of a file, a truncation cuts no bytes. So compare the LEO too.
        if process.disk.cuts != shadow.cuts or log.log_end_offset < shadow.end:
            shadow.cuts = process.disk.cuts
            self._check_truncation(process, replica, shadow, truth, led=led)
        if log.log_start_offset > shadow.start:
            truth.deleted_upto = max(truth.deleted_upto, log.log_start_offset)
            self._check_age(truth, process, shadow.drop_before(log.log_start_offset))
        if log.log_end_offset > shadow.end:
            new = read_entries(process.disk, log, shadow.end, log.log_end_offset)
            truth.appended(shadow, new, shadow.end)
            shadow.entries += new
        if log.log_end_offset != shadow.end and process.id not in truth.promise.damaged:
            what = f"broker {process.id}: LEO {log.log_end_offset}, readable up to {shadow.end}"
            truth.report("hw-below-leo", what)

    def _check_age(self, truth: Truth, process: Process, deleted: list[Entry]) -> None:
        """Check that retention deleted no record that is younger than retention.ms.

        Ages count by the true time plus the largest lead of a monotonic clock, not by any wall
        clock.
        """
        world, retention_ms = self._site.world, self._retention_ms
        if retention_ms is None or process.id in truth.promise.damaged:
            return
        self.expired += len(deleted)
        skews = [process.clocks.skew_ms for process in self._site.brokers.values()]
        self._skew_ms = max(self._skew_ms, *skews)
        now_ms = world.now_ms + self._skew_ms
        for entry in deleted:
            if now_ms - entry.newest_ms <= retention_ms:
                what = f"broker {process.id} deleted {entry}, {now_ms - entry.newest_ms} ms old"
                truth.report("young-records-stay", f"{what}; retention.ms is {retention_ms}")

    def _check_truncation(
        self, process: Process, replica: HostedReplica, shadow: Shadow, truth: Truth, *, led: bool
    ) -> None:
        """Read a log again after its files lost bytes, and check which records it dropped."""
        log = replica.log
        end = log.log_end_offset
        old_start, old = shadow.start, shadow.entries
        old_end = old_start + len(old)
        damaged = process.id in truth.promise.damaged
        shadow.read_again(process.disk, log, damaged=damaged)
        if damaged:
            truth.appended(shadow, shadow.entries, shadow.start)  # some may be repaired
        if shadow.start > old_start:
            truth.deleted_upto = max(truth.deleted_upto, shadow.start)
        reported = self._new_losses(process, shadow, truth)
        restarted = any(loss.restarted_at is not None for loss in reported)
        if shadow.start > old_end or (restarted and shadow.start == old_end):
            kept = old_start  # the log restarted at a higher offset
        else:
            kept = max(old_start, shadow.start)
            self._check_age(truth, process, old[: kept - old_start])
            while kept < min(end, old_end) and shadow.entry(kept) == old[kept - old_start]:
                kept += 1
        if kept < old_end:
            if not damaged:
                self.ledger.truncated(process, truth.name, kept, old_end)
            if led:
                what = f"broker {process.id}, the leader, truncated its log to offset {kept}"
                truth.report("hw-below-leo", what)
            truth.truncated(shadow, kept, old_end)
        fresh = max(kept, shadow.start)
        if end > fresh:
            truth.appended(shadow, shadow.entries[fresh - shadow.start :], fresh)
        if process.id in truth.promise.damaged:
            return  # a damaged replica reports its damage instead
        # The broker must report exactly the records that it dropped.
        really = [(kept, old_end)] if kept < old_end else []
        told = [(loss.start, loss.end) for loss in reported]
        adds_missing = kept == old_start and shadow.adds_missing(
            told, old_start, old_end, truth.deleted_upto
        )
        if told != really and not adds_missing:
            what = f"broker {process.id} dropped the offsets {really}, but reported {reported}"
            truth.report("losses-reported", what)

    def _new_losses(self, process: Process, shadow: Shadow, truth: Truth) -> list[Loss]:
        assert process.node is not None
        recent = process.node.losses.recent
        reported = [loss for loss in recent if loss.topic_partition == truth.name]
        new = reported[shadow.losses :]
        shadow.losses = len(reported)
        return new
