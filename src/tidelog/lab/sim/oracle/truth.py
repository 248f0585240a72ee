"""The true history of one partition: its committed records and its leaders.

`committed` only grows, except when a new leader lacks some of its records. If the promise
(promise.py) does not allow that loss, the simulator has found the kind of bug it looks for.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeAlias

from tidelog.core.controller.metadata.registrations import PartitionRegistration
from tidelog.core.storage.disk import Disk
from tidelog.core.types import BrokerId, LeaderEpoch, Offset, TopicPartition
from tidelog.lab.sim.oracle.promise import LossReports, Promise
from tidelog.lab.sim.oracle.shadow import DELETED, HOLE, Entry, Shadow, entries_on_disk
from tidelog.lab.sim.text import WHOLE_MAX, plain

Report: TypeAlias = Callable[[str, str], None]
"""Called with the name of the invariant and a description of the violation."""


class Truth:
    """One partition's history, and the checks against it."""

    def __init__(
        self,
        name: TopicPartition,
        report: Report,
        promise: Promise,
        session_ended: Callable[[BrokerId], bool],
        *,
        unclean_allowed: bool,
    ) -> None:
        self.name = name
        self.promise = promise
        self.shadows: dict[BrokerId, Shadow] = {}
        self.committed: list[Entry] = []
        self.lost: dict[Offset, list[Entry]] = {}
        """Records that were committed and that a later leader lacks, by offset. Acknowledgements
        and reads of them are no violation."""
        self._fenced: dict[Offset, list[Entry]] = {}
        """Those of them that a leader counted as committed only after its session had ended. Its
        high watermark may pass them when an old fetch arrives, but clients must not see them."""
        self.deleted_upto: Offset = 0
        """The highest log start that retention or an administrator set."""
        self.acked: dict[Offset, Entry] = {}
        """Batches that acks=all acknowledged, by base offset."""
        self.loss_reports: LossReports | None = None
        """Set in runs that damage several replicas at a time: then losses must be reported."""
        self.registration: PartitionRegistration | None = None
        self._report = report
        self._session_ended = session_ended
        self._unclean_allowed = unclean_allowed
        self._unclean_epochs: dict[LeaderEpoch, bool] = {}
        """Epochs that began with an unclean election; true if the controller compared the logs."""
        self._leaders: dict[LeaderEpoch, tuple[BrokerId, int]] = {}
        self._newest: LeaderEpoch = -1
        self._written: dict[tuple[Offset, LeaderEpoch], Entry] = {}

    def report(self, invariant: str, what: str) -> None:
        self._report(invariant, f"{self.name}: {what}")

    @property
    def unclean_epochs_to_record(self) -> set[LeaderEpoch]:
        """The epochs that began with an unclean election which a ledger must have.

        No replica may have led after an election before the next unclean one replaced it. Then only
        the controller could write it, and its disk may have failed. The next one has an entry.
        """
        newest = max(self._unclean_epochs, default=None)
        return {
            epoch for epoch in self._unclean_epochs if epoch == newest or epoch in self._leaders
        }

    # -- the store -------------------------------------------------------------------------

    def registered(self, new: PartitionRegistration, away: Collection[BrokerId]) -> None:
        """Check a new registration of the partition in the store.

        The brokers in `away` have not registered since they stopped. The registration may still
        show their state before the stop.
        """
        old = self.registration
        self.registration = new
        unclean = new.unclean_election
        if unclean is not None:
            self._unclean_epochs.setdefault(unclean.leader_epoch, unclean.recovered)
        if old is None:
            return
        if new.leader_epoch < old.leader_epoch or new.partition_epoch < old.partition_epoch:
            self.report("epochs-monotonic", _went(old, new))
        if new.leader != old.leader and new.leader_epoch == old.leader_epoch:
            self.report("one-leader-per-epoch", _went(old, new))
        for broker in new.isr:
            late = broker in away and broker in self.promise.damaged
            if broker not in old.isr and broker not in self.promise.first_lost and not late:
                self._check_complete(broker)

    def _check_complete(self, broker: BrokerId) -> None:
        if self.registration is not None and broker == self.registration.leader:
            return  # became_leader checks the leader
        missing = self.shadows[broker].first_difference(self.committed)
        if missing is not None:
            self.report(
                "isr-holds-committed",
                f"broker {broker} joined the ISR without the committed offset {missing}",
            )

    # -- replicas --------------------------------------------------------------------------

    def appended(self, shadow: Shadow, entries: Iterable[Entry], start: Offset) -> None:
        """Check appended records. Epochs never fall along a log.

        Invariant: the same offset and epoch mean the same record, on every replica, at all times.
        """
        written = self._written
        before = shadow.entry(start - 1)
        epoch = -1 if before is None else before.epoch
        for offset, entry in enumerate(entries, start):
            if entry is HOLE:
                continue
            known = written.setdefault((offset, entry.epoch), entry)
            if known != entry:
                what = f"broker {shadow.broker} has {entry} at {offset}, another had {known}"
                self.report("log-matching", what)
            if entry.epoch < epoch:
                what = f"broker {shadow.broker} has epoch {entry.epoch} after {epoch} at {offset}"
                self.report("epochs-monotonic", what)
            epoch = entry.epoch

    def truncated(self, shadow: Shadow, to: Offset, end: Offset) -> None:
        """Check that no ISR member truncates committed records; its log ended at `end` before.

        It may, if it lost some of them before in a power failure. It may also truncate records that
        were deleted: after a crash it may have them again.
        """
        isr = () if self.registration is None else self.registration.isr
        counts = shadow.broker in isr and shadow.broker not in self.promise.first_lost
        removes = max(to, self.deleted_upto) < min(end, len(self.committed))
        if removes and counts and not shadow.leads:
            what = f"broker {shadow.broker} truncated its log to offset {to}, "
            what += f"but the records before offset {len(self.committed)} are committed"
            self.report("isr-holds-committed", what)

    def became_leader(self, shadow: Shadow, epoch: LeaderEpoch) -> None:
        leader = (shadow.broker, shadow.incarnation)
        known = self._leaders.setdefault(epoch, leader)
        if known != leader:
            both = [f"broker {broker} (incarnation {life})" for broker, life in (known, leader)]
            what = f"epoch {epoch} has two leaders: {' and '.join(both)}"
            self.report("one-leader-per-epoch", what)
        if epoch > self._newest:
            before, self._newest = self._newest, epoch
            missing = shadow.first_difference(self.committed)
            # Followers report a leader with an old copy of the log, and the controller replaces it,
            # unless an unclean election chose it.
            replaced = shadow.broker in self.promise.outdated
            if missing is not None and (not replaced or self._elected_uncleanly(before, epoch)):
                self._lose(shadow, before, epoch, missing)
            if self._elected_uncleanly(before, epoch):
                self.deleted_upto = max(self.deleted_upto, shadow.start)
            self.check_log_start(shadow, f"at the start of leader epoch {epoch}")

    def check_log_start(self, shadow: Shadow, when: str) -> None:
        """Report a log start above all deletions: it hides committed records."""
        if shadow.start > self.deleted_upto and not self._was_reported(self.deleted_upto):
            what = f"the log of broker {shadow.broker} starts at offset {shadow.start} {when}, "
            what += f"but only the records before offset {self.deleted_upto} were deleted"
            self.report("acked-records-survive", what)

    def may_damage(self, broker: BrokerId, disks: Mapping[BrokerId, Disk]) -> bool:
        """Return whether the simulator may damage this replica.

        Another replica that may lead must have all its records and all committed ones, and no
        other replica may have a fault. Runs that damage several replicas skip this condition. The
        disks are read, because a power failure changes the files of a broker that is down.
        """
        known, promise = self.registration, self.promise
        if known is None or broker not in known.replicas or not self.shadows[broker].entries:
            return False
        if self.loss_reports is not None:
            return True
        if promise.folderless or {*promise.damaged, *promise.first_lost} - {broker}:
            return False
        eligible = {*known.isr, *known.elr, *known.last_known_elr} - {broker}
        others = [self.shadows[other] for other in sorted(eligible)]
        mine = self.shadows[broker]
        wanted = self.committed[: mine.start] + mine.entries
        wanted += self.committed[len(wanted) :]
        return any(
            other.first_difference(wanted) is None and other.is_sound(disks[other.broker])
            for other in others
        )

    def _elected_uncleanly(self, after: LeaderEpoch, upto: LeaderEpoch) -> bool:
        """Return whether an unclean election began one of these epochs.

        Only elections with a free choice among all replicas count, and the settings must allow
        them. The elected leader may have been replaced before it acted as leader.
        """
        return self._unclean_allowed and any(
            after < epoch <= upto and not recovered
            for epoch, recovered in self._unclean_epochs.items()
        )

    def check_needs_operator(self, reported: Collection[BrokerId]) -> None:
        """Report a partition that waits for an operator without need.

        Damage to one replica must not leave the partition without a leader while another
        replica was in sync. A power failure counts as damage if the log lost records and its
        broker reported that (one of `reported`): a broker can't distinguish the two above its last
        checkpoint, and the last replica in sync may have committed these records alone.
        """
        known, promise = self.registration, self.promise
        if known is None or self.loss_reports is not None or not promise.is_intact():
            return
        damaged = promise.damaged | promise.shortened.intersection(reported)
        if not damaged.issuperset((*known.isr, *known.elr, *known.last_known_elr)):
            what = f"no leader, though only brokers {sorted(damaged)} are damaged"
            self.report("settles", what)

    def _was_reported(self, offset: Offset) -> bool:
        """Return whether this record may be missing because a broker reported its loss."""
        return self.loss_reports is not None and self.loss_reports.covers(offset)

    def close_loss_reports(self) -> None:
        """Accept the reported losses, now that every replica is repaired; later losses need new
        reports. A reported record that no replica has can't come back."""
        known = self.registration
        if self.loss_reports is None or known is None:
            return
        replicas = [self.shadows[broker] for broker in known.replicas]
        for offset, entry in list(self.acked.items()):
            kept = any(replica.entry(offset) == entry for replica in replicas)
            if not kept and self.loss_reports.covers(offset):
                del self.acked[offset]
        if self.loss_reports.covers(self.deleted_upto):
            self.deleted_upto = max(self.deleted_upto, min(r.start for r in replicas))
        self.loss_reports.clear()

    def check_losses_reported(self, disk: Disk) -> None:
        """Check that each acknowledged record is on the leader's disk, or its loss was reported."""
        known = self.registration
        log = None if known is None or known.leader is None else self.shadows[known.leader].log
        if self.loss_reports is None or log is None or log.offline:
            return  # without a leader no record is served
        found = dict(enumerate(entries_on_disk(disk, log, damaged=True), log.log_start_offset))
        for offset, entry in self.acked.items():
            deleted = offset < min(log.log_start_offset, self.deleted_upto)
            if not deleted and found.get(offset) != entry and not self._was_reported(offset):
                what = f"the leader lacks the acknowledged record at offset {offset} ({entry})"
                self.report("no-silent-loss", f"{what}, and no broker reported the loss")

    def _lose(
        self, shadow: Shadow, before: LeaderEpoch, epoch: LeaderEpoch, offset: Offset
    ) -> None:
        """Remove the records that a new leader lacks, from `offset` on; report a forbidden loss."""
        unclean = self._elected_uncleanly(before, epoch)
        if shadow.broker in self.promise.folderless and not unclean:
            self._check_emptied(shadow.broker, epoch, offset)
        if self.loss_reports is not None:
            recorded = any(before < one <= epoch for one in self._unclean_epochs)
            if not recorded and not self._was_reported(offset):
                what = f"broker {shadow.broker} leads epoch {epoch} without the committed record"
                what += f" at offset {offset}, and no broker reported the loss"
                self.report("no-silent-loss", what)
        elif not unclean and not self.promise.allows_loss_from(offset):
            acked = [at for at in self.acked if at >= offset]
            invariant = "acked-records-survive" if acked else "leader-complete"
            what = f"broker {shadow.broker} leads epoch {epoch} without the committed record"
            what += f" at offset {offset}, {self.committed[offset]}"
            if acked:
                what += f"; acknowledged batches lost at offsets {sorted(acked)}"
            self.report(invariant, what)
        for at in range(offset, len(self.committed)):
            entry = self.committed[at]
            self.lost.setdefault(at, []).append(entry)
            if entry in self._fenced.get(at, ()):
                self._fenced[at].remove(entry)  # a later leader committed it
        del self.committed[offset:]
        for at in [at for at in self.acked if at >= offset]:
            del self.acked[at]

    def _check_emptied(self, leader: BrokerId, epoch: LeaderEpoch, offset: Offset) -> None:
        replicas = () if self.registration is None else self.registration.replicas
        for broker in set(replicas) - self.promise.damaged:
            kept = max(offset, self.shadows[broker].start)
            if kept < len(self.committed) and self._has(broker, kept):
                what = f"broker {leader}, whose folder was removed, leads epoch {epoch}"
                self.report("emptied-never-leads", f"{what}; broker {broker} has offset {kept}")

    def _has(self, broker: BrokerId, offset: Offset) -> bool:
        return self.shadows[broker].entry(offset) == self.committed[offset]

    def advanced(self, shadow: Shadow, old: Offset, new: Offset) -> None:
        """Check the records that a replica's high watermark has just passed."""
        if shadow.leads:
            self._commit(shadow, old, new)
        committed = self.committed
        for offset in range(max(old, shadow.start), new):
            entry = shadow.entry(offset)
            if entry is HOLE or (offset < len(committed) and committed[offset] == entry):
                continue  # reads of a hole fail
            if entry is not None and entry in self.lost.get(offset, ()):
                continue
            what = f"broker {shadow.broker} has {entry} at offset {offset}, below its HW; "
            if offset < len(committed):
                what += f"the committed record is in {committed[offset]}"
            else:
                what += "no record is committed there"
            self.report("committed-agree", what)
            return

    def _commit(self, shadow: Shadow, old: Offset, new: Offset) -> None:
        committed = self.committed
        begin = len(committed)
        deposed = begin < new and shadow.leader_epoch < self._newest
        if deposed and self._stale_commit(shadow, new):
            return
        committed += [DELETED] * (shadow.start - begin)
        while len(committed) < new:
            entry = shadow.entry(len(committed))
            if entry is None:
                what = f"broker {shadow.broker} commits offset {len(committed)}, which it lacks"
                self.report("leader-complete", what)
                return
            committed.append(DELETED if entry is HOLE else entry)
        if self.registration is None or self.registration.leader_epoch != shadow.leader_epoch:
            return
        if len(committed) > begin:
            self.promise.committed(begin, self.registration.isr)
        for broker in self.registration.isr:
            if broker in self.promise.unsettled or broker == shadow.broker:
                continue
            member = self.shadows[broker]
            for offset in range(max(begin, old, member.start), new):
                if committed[offset] not in (DELETED, member.entry(offset)):
                    what = f"offset {offset} is committed, but broker {broker} of the ISR lacks it"
                    self.report("isr-holds-committed", what)
                    return

    def _stale_commit(self, shadow: Shadow, new: Offset) -> bool:
        """Return whether a deposed leader commits a record that the newest leader lacks.

        The deposed leader does not know yet that it is deposed. Only an unclean election may
        lead to this. Clients may see these records only if their commit precedes the end of the
        deposed leader's session.
        """
        broker, incarnation = self._leaders[self._newest]
        newer = self.shadows[broker]
        if newer.incarnation != incarnation or broker in self.promise.unsettled:
            return False
        for offset in range(max(len(self.committed), newer.start), new):
            if newer.entry(offset) != shadow.entry(offset):
                if not self._elected_uncleanly(shadow.leader_epoch, self._newest):
                    what = (
                        f"broker {shadow.broker}, deposed in epoch {shadow.leader_epoch}, "
                        f"commits offset {offset}, which the leader of epoch {self._newest} lacks"
                    )
                    self.report("leader-complete", what)
                elif self._session_ended(shadow.broker):
                    self._remember(self._fenced, shadow, offset, new)
                self._remember(self.lost, shadow, offset, new)
                return True
        return False

    def _remember(
        self, records: dict[Offset, list[Entry]], shadow: Shadow, start: Offset, end: Offset
    ) -> None:
        """Add the records that an unclean election discarded before their commit."""
        for offset in range(start, end):
            entry = shadow.entry(offset)
            if entry is not None:
                records.setdefault(offset, []).append(entry)

    # -- clients ---------------------------------------------------------------------------

    def acknowledged(self, base: Offset, crc: int) -> None:
        """Check a batch that acks=all acknowledged to a producer."""
        entry = self.committed[base] if base < len(self.committed) else None
        if entry is not None and (entry.base, entry.crc) == (base, crc):
            self.acked[base] = entry
        elif any(fenced.crc == crc for fenced in self._fenced.get(base, ())):
            what = f"acks=all acknowledged the batch at offset {base} (crc {crc:08x})"
            self.report("fenced-leaders-stop", f"{what} after the leader's session had ended")
        elif all(lost.crc != crc for lost in self.lost.get(base, ())):
            what = f"acks=all acknowledged a batch at offset {base} (crc {crc:08x}), "
            what += f"the committed batch there is {entry}"
            self.report("acked-records-survive", what)

    def acknowledged_alone(self, broker: BrokerId) -> None:
        """Report a batch that acks=1 acknowledged after the leader's session had ended."""
        self.report("fenced-leaders-stop", f"broker {broker} acknowledged acks=1 without a session")

    def consumed(self, offset: Offset, entry: Entry) -> None:
        """Check a record that a consumer read."""
        known = self.committed[offset] if offset < len(self.committed) else None
        if known != entry and entry in self._fenced.get(offset, ()):
            what = f"a consumer read {entry} at offset {offset}"
            self.report("fenced-leaders-stop", f"{what} after the leader's session had ended")
        elif known != entry and entry not in self.lost.get(offset, ()):
            what = f"a consumer read {entry} at offset {offset}, committed there is {known}"
            self.report("consumers-see-no-change", what)


def _went(old: PartitionRegistration, new: PartitionRegistration) -> str:
    return f"the store went from {plain(old, WHOLE_MAX)} to {plain(new, WHOLE_MAX)}"
