"""Reports to the controller: this broker's logs (lost, damaged, found, and how far they reach),
and leaders that lost committed records.

*Lost*: a log that should be on this disk when the broker starts, and is not. A folder was
removed, or the disk is another one. *Damaged*: recovery found less than the log once held
(`LogDirectory.damaged`). The controller may count this broker among those that have every
committed record. So from its first heartbeat on the broker asks to stay fenced until the image
shows the loss. Until then a lost folder is not recreated: after a crash the loss must be
found again. Without a leader it is not recreated at all: there is nothing to copy into it, and
an operator may restore the old folder.

A folder that could not be opened (`LogDirectory.unreadable`) counts as lost, but no empty log
replaces it while this broker leads or the partition has no leader: it may hold the only copy.

*Offline*: a log in a directory that failed, at startup or later. It is not lost: no new log is
created for it while the directory is offline, because it may be the only one. While a directory is
offline, every log that is missing at startup may be in it. When the directory is back, its logs
are *found*.

Lost logs are looked for only once, in the first image: a log that is missing later is of a new
replica. So is one that was created after the last revision on this disk
(`LogDirectory.revision`), and one that is still being copied here (`adding`).

*How far they reach*: for each partition without a leader the broker reports the leader epoch of
its last record and its log end, so that the controller can elect the replica with the most
records (controller/election.py). A new controller gets these reports again.

*Leaders*: a replica here keeps committed records that its leader lacks (`Replicas.refused`). The
controller elects another leader if one is available. Until then the report is repeated: a
replica that can lead may restart later.
"""

from collections.abc import Iterable, Mapping

from tidelog.core.controller.effects import PartitionErrorsAnswer
from tidelog.core.controller.events import LogReportsReceived, LogState
from tidelog.core.controller.metadata.cluster_image import ClusterImage, ImageDelta
from tidelog.core.controller.metadata.features import OFFLINE_REPLICAS
from tidelog.core.controller.metadata.registrations import PartitionKey
from tidelog.core.errors import ErrorCode
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.membership.controller_host import ControllerHost
from tidelog.core.node.turn import Turn
from tidelog.core.storage.log import Log
from tidelog.core.storage.segment.damage import Damage
from tidelog.core.types import BrokerEpoch, LeaderEpoch, TopicPartition

BEFORE_ANY_EPOCH: LeaderEpoch = -1
"""For damage found at startup: any leader epoch is newer."""
RETRY_MS = 50
REFUSED_RETRY_MS = 1000
"""Between reports of a leader that can't be replaced yet."""
REPORTED_AT_ONCE_MAX = 1000


class LogReporter:
    """The reports that the controller has not stored yet."""

    def __init__(
        self,
        config: NodeConfig,
        turn: Turn,
        image: ClusterImage,
        controller: ControllerHost,
        replicas: Replicas,
    ) -> None:
        self.lost: dict[PartitionKey, None] = {}
        """Lost, and the image does not show it yet."""
        self.damaged: dict[PartitionKey, LeaderEpoch] = {}
        """Damaged, and the image does not show it yet: this broker is in ISR or ELR, or the
        leader epoch is still this one."""
        self.found: dict[PartitionKey, None] = {}
        """On this disk, although the image says that it is lost."""
        self.offline: dict[PartitionKey, None] = {}
        """In a directory that failed, and the image does not show it yet."""
        self.leaderless: dict[PartitionKey, None] = {}
        """Without a leader, and the controller does not know how far the log reaches."""
        self._at_start: set[PartitionKey] = set()
        """Partitions that were found to be damaged or offline before this broker could act."""
        self._alone: dict[TopicPartition, None] = {}
        """Damaged, but the partition has no leader or no other replica in sync: the log stays."""
        self._config = config
        self._turn = turn
        self._image = image
        self._controller = controller
        self._replicas = replicas
        self._directory = replicas.directory
        self._checked = False
        self._round = 0
        self._sent = False
        self._send_at_ms: int | None = None

    def image_advanced(self, delta: ImageDelta) -> None:
        """Find lost logs in the first image; in later ones, drop the reports that are stored."""
        if not self._checked:
            self._checked = True
            for key in sorted(delta.partitions):
                self._check_log(key)
            if self._directory.revision is None:
                self._directory.seen = self._image.point
                self._directory.write_revision(self._image.revision)
        else:
            self.lost = {key: None for key in self.lost if self._counts_as_kept(key)}
            changed = delta.partitions if self._directory.offline else ()
            offline = [*self.offline, *filter(self._is_in_failed_directory, sorted(changed))]
            self.offline = {key: None for key in offline if self._counts_as_online(key)}
            self._update_damage_reports()
            self._at_start.intersection_update({*self.damaged, *self.offline})
            self._note_damaged_leaders()
            if self._alone:
                self._note_damage()
        found = [key for key in (*self.found, *delta.partitions) if self._is_found(key)]
        self.found = dict.fromkeys(sorted(found))
        self._note_leaderless(delta)
        if delta.controller or self._config.broker_id in delta.brokers:
            # The old controller may never answer: report to the new one.
            self._retry(0)

    @property
    def pending(self) -> bool:
        """Whether there is anything to report."""
        if self._replicas.newly_damaged:
            self._note_damage()
        return bool(self._changes or self.leaderless or self._replicas.refused)

    @property
    def _changes(self) -> bool:
        """Whether the controller has to store anything about this broker's own logs."""
        return bool(self.lost or self.damaged or self.found or self.offline)

    @property
    def undecided(self) -> bool:
        """Whether there may be losses that the cluster does not know of."""
        return self.must_stay_fenced or bool(self.offline)

    @property
    def must_stay_fenced(self) -> bool:
        """Whether the cluster may rely on logs that were not found at startup.

        A directory that fails later takes only its own replicas offline.
        """
        return not self._checked or bool(self.lost or self._at_start)

    def is_reporting(self, key: PartitionKey) -> bool:
        """Whether the controller may not know yet that this partition's log is damaged."""
        return key in self.damaged

    def withheld(self, key: PartitionKey) -> bool:
        """Whether this partition's log must not be created yet."""
        if key in self.lost:
            return True
        known = self._image.partitions[key]
        if self._directory.offline and self._log_of(key) is None:
            me = self._config.broker_id
            offline = key in self.offline or me in known.offline
            if offline or (self._was_here(key) and me not in known.adding):
                return True  # it may be in the directory that failed
        if self._is_unreadable(key) and known.leader in (None, self._config.broker_id):
            return True
        return (
            known.leader is None
            and self._config.broker_id in known.lost
            and self._log_of(key) is None
        )

    def _check_log(self, key: PartitionKey) -> None:
        me, known = self._config.broker_id, self._image.partitions[key]
        log = self._log_of(key)
        if log is None:
            # If the log is registered as offline, it was here, and its directory was replaced.
            expected = me in known.offline or (me not in known.adding and self._was_here(key))
            alone = self._is_unreadable(key) and len(known.replicas) == 1
            if expected and self._counts_as_kept(key) and not alone:
                if self._directory.offline:
                    self._log_offline(key)
                    return
                self.lost[key] = None
                name = self._image.name_of(key)
                self._turn.journal.note("log_lost", *name or ())
                if name is not None:
                    self._replicas.recorder.log_lost(name, key)
        elif self._is_in_failed_directory(key):
            self._log_offline(key)
        elif (damage := self._directory.damaged.get(log.partition)) is not None:
            self._log_damaged(log.partition, damage)
            if self._is_eligible(key):
                self.damaged[key] = BEFORE_ANY_EPOCH
                self._at_start.add(key)

    def directory_failed(self, partitions: Iterable[TopicPartition]) -> None:
        """Report the logs of a directory that failed while this broker was running."""
        for name in partitions:
            known = self._image.partition(*name)
            if known is not None and self._checked and self._counts_as_online(known.key):
                self.offline[known.key] = None
            if known is not None:
                self.damaged.pop(known.key, None)
                self.leaderless.pop(known.key, None)
                self.found.pop(known.key, None)
        if self.offline:
            self._retry(0)

    def _is_in_failed_directory(self, key: PartitionKey) -> bool:
        """Whether this broker's log is in a directory that failed. The image may show it as online
        again: an earlier report that it was found may be applied after the failure."""
        log = self._log_of(key)
        return log is not None and self._directory.is_offline(log.partition)

    def _log_offline(self, key: PartitionKey) -> None:
        if self._counts_as_online(key):
            self.offline[key] = None
            self._at_start.add(key)
            self._turn.journal.note("log_offline", *self._image.name_of(key) or ())

    def _note_damage(self) -> None:
        """Report logs that were found damaged, if another replica in sync can take over."""
        for name in [*self._replicas.newly_damaged, *self._alone]:
            damage, replica = self._directory.damaged.get(name), self._replicas.hosted.get(name)
            if damage is None or replica is None:
                self._alone.pop(name, None)
                continue
            key = PartitionKey(replica.topic_id, name.partition)
            known = self._image.partitions.get(key)
            if name in self._replicas.newly_damaged:
                self._log_damaged(name, damage)
                if key in self._image.leaderless:
                    # The controller may have an earlier report of an undamaged log.
                    self.leaderless[key] = None
            if known is None or known.leader is None:
                self._alone[name] = None
            elif known.leader != self._config.broker_id:
                self._replicas.hold_fetches(replica, damage)
                self.damaged[key] = known.leader_epoch
                self._alone.pop(name, None)
            elif len(known.isr) > 1:
                self.damaged[key] = known.leader_epoch
                self._alone.pop(name, None)
            else:
                self._alone[name] = None
        self._replicas.newly_damaged.clear()

    def _update_damage_reports(self) -> None:
        """Drop reports that the image shows; postpone those of a leader alone in the ISR."""
        me = self._config.broker_id
        for key, epoch in list(self.damaged.items()):
            known = self._image.partitions.get(key)
            if self._is_stored(key, epoch):
                del self.damaged[key]
            elif known is not None and known.leader == me and known.isr == (me,):
                del self.damaged[key]
                name = self._image.name_of(key)
                if name is not None:
                    self._alone[name] = None

    def _note_damaged_leaders(self) -> None:
        """Also remember logs whose damage was stored before this broker was elected, uncleanly or
        by comparing logs."""
        for name, damage in self._directory.damaged.items():
            replica = self._replicas.hosted.get(name)
            if replica is not None and damage.inside:
                key = PartitionKey(replica.topic_id, name.partition)
                known = self._image.partitions.get(key)
                leads = known is not None and known.leader == self._config.broker_id
                if leads and key not in self.damaged:
                    self._alone[name] = None

    def _log_damaged(self, name: TopicPartition, damage: Damage) -> None:
        self._turn.counters.damages += 1
        self._turn.journal.note("log_damaged", *name, damage.offset, damage.reason)

    def _note_leaderless(self, delta: ImageDelta) -> None:
        """Find the partitions without a leader whose log the controller has to know."""
        me = self._config.broker_id
        # A new controller has no reports, and reports of an older broker epoch do not count.
        again = delta.controller or me in delta.brokers
        changed = self._image.leaderless if again else delta.partitions
        for key in sorted(changed & self._image.leaderless):
            known = self._image.partitions[key]
            # The log of a new replica is created a moment later.
            out = me in known.lost or me in known.offline or key in self.lost
            if me in known.replicas and not out and key not in self.offline:
                self.leaderless[key] = None
        for key in self.leaderless.keys() - self._image.leaderless:
            del self.leaderless[key]

    def _log_of(self, key: PartitionKey) -> Log | None:
        """Return the log of that incarnation of the topic, if it is on this disk."""
        name = self._image.name_of(key)
        log = None if name is None else self._directory.logs.get(name)
        if log is None or log.topic_id == key.topic_id:
            return log
        # Without a topic id: the folder was emptied, or its creation was interrupted.
        return log if log.topic_id is None and log.log_end_offset > 0 else None

    def _is_unreadable(self, key: PartitionKey) -> bool:
        """Whether the log may be in a folder that could not be opened."""
        unreadable = self._directory.unreadable
        return bool(unreadable) and self._image.name_of(key) in unreadable and self._was_here(key)

    def _was_here(self, key: PartitionKey) -> bool:
        upto = self._directory.revision
        return upto is None or self._image.created[key] <= upto

    def _counts_as_kept(self, key: PartitionKey) -> bool:
        """Whether the image still assumes that this broker has the log."""
        if not self._image.committed(key):
            return False
        me, known = self._config.broker_id, self._image.partitions[key]
        reported = me in known.lost or (known.leader is not None and me in known.behind)
        return me in known.replicas and not reported

    def _counts_as_online(self, key: PartitionKey) -> bool:
        """Whether the image still assumes that this broker's log directory is in use."""
        if not self._image.committed(key):
            return False
        me, known = self._config.broker_id, self._image.partitions[key]
        if self._image.tidelog_version < OFFLINE_REPLICAS:
            return self._counts_as_kept(key)
        return me in known.replicas and me not in known.offline

    def _is_eligible(self, key: PartitionKey) -> bool:
        """Whether the image assumes that this broker has every committed record."""
        if not self._image.committed(key):
            return False
        known = self._image.partitions[key]
        return self._config.broker_id in (*known.isr, *known.elr)

    def _is_stored(self, key: PartitionKey, epoch: LeaderEpoch) -> bool:
        """Whether the image shows the damage that was found in this leader epoch. In a newer epoch,
        fetches that were sent before do not count."""
        known = self._image.partitions.get(key)
        if known is None or self._is_eligible(key):
            return known is None
        return known.leader is None or known.leader_epoch > epoch

    def _is_found(self, key: PartitionKey) -> bool:
        """Whether this disk has a log that the image says is lost, and it may be the old one."""
        known = self._image.partitions.get(key)
        me = self._config.broker_id
        if known is not None and me in known.offline:
            log = self._log_of(key)
            return log is not None and not self._is_in_failed_directory(key)
        if known is None or known.leader is not None or not known.lost:
            return False
        return me in known.lost and me in known.last_known_elr and self._log_of(key) is not None

    # -- sending ---------------------------------------------------------------------------

    def pump(self, broker_epoch: BrokerEpoch | None) -> None:
        """Send the next report, if it is time."""
        if broker_epoch is None or self._sent or not self.pending:
            return
        if self._send_at_ms is not None and self._turn.now_ms < self._send_at_ms:
            return
        report = LogReportsReceived(
            0,
            self._config.broker_id,
            broker_epoch,
            tuple(self.lost)[:REPORTED_AT_ONCE_MAX],
            tuple(self.found)[:REPORTED_AT_ONCE_MAX],
            tuple(self.damaged)[:REPORTED_AT_ONCE_MAX],
            self._states(),
            self._refused(),
            tuple(self.offline)[:REPORTED_AT_ONCE_MAX],
        )
        if not (self._changes or report.logs or report.refused):
            self._retry(RETRY_MS)  # the replicas have not applied the image yet
            return
        self._sent = True
        self._round += 1
        this_round = self._round

        def answered(answer: PartitionErrorsAnswer) -> None:
            if this_round == self._round:
                if answer.error is ErrorCode.NONE:
                    # For these the response is enough. The others wait until the image shows them.
                    for key in report.found:
                        self.found.pop(key, None)
                    self._logs_known(report.logs)
                waits = self._changes or self.leaderless
                self._retry(RETRY_MS if waits else REFUSED_RETRY_MS)

        def failed() -> None:
            if this_round == self._round:
                self._retry(RETRY_MS)

        timeout_ms = self._config.broker_session_timeout_ms // 2
        if not self._controller.call(report, timeout_ms, answered, failed):
            failed()

    def _logs_known(self, reported: Mapping[PartitionKey, LogState]) -> None:
        """Forget the logs that the controller knows now, unless the leader epoch rose since the
        report: then the controller ignores it."""
        for key, state in reported.items():
            known = self._image.partitions.get(key)
            if known is None or known.leader_epoch == state.as_of:
                self.leaderless.pop(key, None)

    def _states(self) -> dict[PartitionKey, LogState]:
        """Return the ends of the logs whose replicas no longer follow a leader."""
        states = {}
        for key in tuple(self.leaderless)[:REPORTED_AT_ONCE_MAX]:
            name, as_of = self._image.name_of(key), self._image.partitions[key].leader_epoch
            hosted = None if name is None else self._replicas.hosted.get(name)
            log = self._log_of(key)
            if log is None or hosted is None or hosted.partition.leader_epoch != as_of:
                continue
            if hosted.partition.offline:
                continue
            damage = self._directory.damaged.get(log.partition)
            states[key] = _log_state(log, damage)._replace(as_of=as_of)
        return states

    def _refused(self) -> dict[PartitionKey, LeaderEpoch]:
        """Return the leader epochs of the leaders that replicas here refuse to follow."""
        refused = {}
        for name in tuple(self._replicas.refused)[:REPORTED_AT_ONCE_MAX]:
            key = PartitionKey(self._replicas.hosted[name].topic_id, name.partition)
            refused[key] = self._replicas.refused[name].leader_epoch
        return refused

    def _retry(self, after_ms: int) -> None:
        """Report again after this time all that the image does not show by then."""
        self._round += 1
        self._sent = False
        self._send_at_ms = self._turn.now_ms + after_ms

    def next_ms(self, broker_epoch: BrokerEpoch | None) -> int | None:
        """Return when the next report may be sent."""
        return None if broker_epoch is None or self._sent else self._send_at_ms


def _log_state(log: Log, damage: Damage | None) -> LogState:
    """Return the end of the undamaged part of the log."""
    end = log.log_end_offset if damage is None else min(damage.offset, log.log_end_offset)
    # An empty log keeps the epoch of the deleted records before it. If records at the start are
    # missing, the later ones do not count.
    last = log.epochs.epoch_for_offset(end if end == log.log_start_offset else end - 1)
    return LogState(-1 if last is None else last, end, cut=damage is not None)
