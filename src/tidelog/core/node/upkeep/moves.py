"""Move logs between the log directories of this broker, a piece in each turn (KIP-113).

The copy follows the log while the broker serves it. Large parts are synced outside the node; the
switch to the copy is one step (storage/log_copy.py). A log that moves is not compacted, and the
move of a damaged one waits for the repair. The quota limits all moves together; while it is
exceeded, no copy proceeds.
"""

from functools import partial

from tidelog.core.errors import ErrorCode
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.hosting.replication_quota import ReplicationQuota
from tidelog.core.node.turn import Turn
from tidelog.core.node.upkeep.cleaning import Cleaning
from tidelog.core.node.upkeep.duties import Duties
from tidelog.core.node.upkeep.flushing import Flushing
from tidelog.core.storage.disk import DiskError
from tidelog.core.storage.log_directories import LogDirectories, LogMove
from tidelog.core.types import TopicPartition


class Moves:
    """The moves of one broker, which are in `LogDirectories.moves`."""

    def __init__(
        self,
        turn: Turn,
        replicas: Replicas,
        cleaning: Cleaning,
        flushing: Flushing,
        duties: Duties,
        quota: ReplicationQuota,
    ) -> None:
        self._turn = turn
        self._replicas = replicas
        self._cleaning = cleaning
        self._flushing = flushing
        self._duties = duties
        self._quota = quota

    def move(self, name: TopicPartition, number: int) -> ErrorCode:
        """Start to move a replica that is hosted here, or cancel its move if `number` is its own
        directory."""
        directory = self._replicas.directory
        if directory.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if not isinstance(directory, LogDirectories):
            return ErrorCode.NONE
        if directory.place_of(name) != number and not directory.can_move(name, number):
            return ErrorCode.KAFKA_STORAGE_ERROR
        directory.move(name, number)
        return ErrorCode.NONE

    def tick(self) -> None:
        """Do one piece of work for one log."""
        directory = self._replicas.directory
        if not directory.moves or not isinstance(directory, LogDirectories):
            return
        if self._quota.wait_ms(self._turn.now_ms):
            return
        for name, move in directory.moves.items():
            if self._is_due(name, move):
                # The next turn works on another log.
                del directory.moves[name]
                directory.moves[name] = move
                self._work(directory, name, move)
                return

    def next_ms(self) -> int | None:
        """The time at which a log can be copied; None if no log can."""
        directory = self._replicas.directory
        if directory.moves and isinstance(directory, LogDirectories):
            for name, move in directory.moves.items():
                if self._is_due(name, move):
                    return self._turn.now_ms + self._quota.wait_ms(self._turn.now_ms)
        return None

    def _is_due(self, name: TopicPartition, move: LogMove) -> bool:
        replica = self._replicas.hosted.get(name)
        return not (
            move.syncing
            or replica is None
            or replica.log.offline
            or replica.repair is not None
            or replica.log.producers_incomplete_from is not None
            or name in self._replicas.directory.damaged
            or self._cleaning.is_running(name)
        )

    def _work(self, directory: LogDirectories, name: TopicPartition, move: LogMove) -> None:
        source, target = directory.place_of(name), move.target
        copied = 0 if move.copy is None else move.copy.copied
        limit = self._quota.most_bytes()
        try:
            piece = directory.copy_limits.piece_bytes
            copy = directory.copy_some(name, piece if limit is None else min(limit, piece))
            if copy.needs_sync:
                move.syncing = True
                self._flushing.sync(target, *copy.take_unsynced(), partial(_synced, move))
            elif copy.caught_up:
                marks = self._duties.high_watermarks()
                directory.complete_move(name, marks, self._turn.now_ms)
        except DiskError as error:
            directory.cancel_move(name)
            path = directory.paths[target]
            self._turn.journal.note("move_failed", *name, path, str(error))
            return
        finally:
            if move.copy is not None:
                size = move.copy.copied - copied
                self._quota.record(size, self._turn.now_ms, in_sync=False)
        if directory.place_of(name) == target and target not in directory.offline:
            paths = directory.paths
            self._turn.journal.note("log_moved", *name, paths[source], paths[target], copy.size)


def _synced(move: LogMove) -> None:
    move.syncing = False
