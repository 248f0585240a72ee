"""Repairs of damaged logs on this broker, a little in each turn of the loop.

A repair copies the damaged segment (storage/repair.py); the leader's records for it come by
ordinary fetches (following/leader_fetcher.py, replication/follower.py). Compaction writes files
of the same names, so the two never work on one log at the same time.

As with compaction, a copy replaces its segment only in a turn in which no response refers
to a part of that file.
"""

from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.hosting.replicas import Replicas, repair_event
from tidelog.core.node.turn import Turn
from tidelog.core.node.upkeep.cleaning import Cleaning
from tidelog.core.storage.disk import DiskError
from tidelog.core.storage.repair import CannotRepair, LogRepair

PIECE_BYTES = 1_048_576


class Repairs:
    """Advances the repairs that `Replicas` has begun."""

    def __init__(self, turn: Turn, replicas: Replicas, cleaning: Cleaning) -> None:
        self._turn = turn
        self._replicas = replicas
        self._cleaning = cleaning

    def tick(self) -> None:
        """Do one piece of work for one log."""
        for replica in list(self._replicas.repairing):
            repair = replica.repair
            assert repair is not None
            if self._is_due(replica, repair):
                # The next turn works on another log.
                del self._replicas.repairing[replica]
                self._replicas.repairing[replica] = None
                self._work(replica, repair)
                return

    def next_ms(self) -> int | None:
        """Now if a repair has work to do, else None."""
        for replica in self._replicas.repairing:
            if replica.repair is not None and self._is_due(replica, replica.repair):
                return self._turn.now_ms
        return None

    def _is_due(self, replica: HostedReplica, repair: LogRepair) -> bool:
        if self._cleaning.is_running(replica.topic_partition):
            return False
        return repair.needed is None or not repair.is_current or replica.partition.is_leader

    def _work(self, replica: HostedReplica, repair: LogRepair) -> None:
        name = replica.topic_partition
        if self._replicas.hosted.get(name) is not replica or replica.partition.is_leader:
            self._replicas.drop_repair(replica)
            if name in self._replicas.directory.damaged:
                self._replicas.newly_damaged[name] = None
            return
        if not repair.is_current:
            self._replicas.drop_repair(replica)
            self._replicas.begin_repair(replica)
            return
        try:
            if repair.ready:
                self._put_in_place(replica, repair)
            else:
                repair.work(PIECE_BYTES)
        except (CannotRepair, DiskError):
            if replica.log.offline:
                raise
            self._replicas.repair_failed(replica)
            return
        if repair.done:
            for start, end in repair.replaced:
                self._turn.journal.note("damage_repaired", *name, start, end)
            self._replicas.end_repair(replica)
        elif repair.needed is not None:
            self._replicas.step(replica, repair_event(repair))
            self._replicas.log_changed(replica)

    def _put_in_place(self, replica: HostedReplica, repair: LogRepair) -> None:
        if not self._turn.effects:
            repair.put_in_place(self._turn.now_ms)
            self._replicas.touched[replica] = None
