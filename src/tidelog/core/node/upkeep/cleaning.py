"""Compaction: choose the log to clean next, and replace its segments with cleaned ones.

The host does the work (`CleanLog`), for minutes if needed, while the log is in use. It reports
group by group (`LogCleaned`). A cleaned group replaces its segments only if they are still in the
log and unchanged: a truncation, a log start that moved past them, or a deleted topic ends the
cleaning (`StopCleaning`). Every replica cleans its own log, up to its own high watermark.

A file is replaced by another of the same name. So no file is replaced while responses that refer to
parts of it are not sent yet, and waiting fetches that refer to it are checked again.
"""

from collections import deque
from contextlib import suppress
from typing import NamedTuple, TypeVar

from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.node.config import NodeConfig
from tidelog.core.node.effects import CleanLog, StopCleaning
from tidelog.core.node.hosting.hosted_replica import HostedReplica
from tidelog.core.node.hosting.replicas import Replicas
from tidelog.core.node.turn import Turn
from tidelog.core.slotted import slotted
from tidelog.core.storage.cleaning.dirtiness import Dirtiness, dirtiness, plan_cleaning
from tidelog.core.storage.cleaning.plan import (
    CleanedGroup,
    CleaningMessage,
    CleaningPlan,
    CleaningResult,
)
from tidelog.core.storage.segment.damage import DamagedRecords
from tidelog.core.storage.segment.segment import Segment
from tidelog.core.storage.segment_swap import is_ready
from tidelog.core.types import Offset, TopicPartition

_DOUBLINGS_MAX = 6
_Number = TypeVar("_Number", int, float)


@slotted
class CleaningStats:
    """Statistics for metrics."""

    cleanings: int = 0
    failures: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


class _Running(NamedTuple):
    """A running cleaning."""

    number: int
    replica: HostedReplica
    plan: CleaningPlan
    generation: int
    segments: dict[Offset, Segment]
    """The segments that are being cleaned, as they were at the start."""


class _Failing(NamedTuple):
    """A log whose cleaning failed, and when to retry."""

    times: int
    until_ms: int


class Cleaning:
    """The running cleanings, and the choice of the next one."""

    def __init__(
        self, config: NodeConfig, turn: Turn, image: ClusterImage, replicas: Replicas
    ) -> None:
        self.stats = CleaningStats()
        self._config = config
        self._image = image
        self._turn = turn
        self._replicas = replicas
        self._running: dict[int, _Running] = {}
        self._reports: deque[tuple[int, CleaningMessage]] = deque()
        """Reports of the host that can't be processed yet."""
        self._failing: dict[TopicPartition, _Failing] = {}
        self._number = 0
        self._due_ms = turn.now_ms + config.log_cleaner_backoff_ms

    def next_ms(self) -> int | None:
        """When `tick` has something to do."""
        if not self._config.log_cleaner_enable:
            return None
        return self._turn.now_ms if self._reports else self._due_ms

    def tick(self) -> None:
        """Process waiting reports, and start a cleaning if a log needs it."""
        self._process_reports()
        now = self._turn.now_ms
        if now >= self._due_ms and self._config.log_cleaner_enable:
            self._due_ms = now + self._backoff_ms
            while len(self._running) < self._threads and self._begin():
                pass

    # -- dynamic settings ------------------------------------------------------------------

    @property
    def _backoff_ms(self) -> int:
        return self._now("log.cleaner.backoff.ms", self._config.log_cleaner_backoff_ms)

    @property
    def _threads(self) -> int:
        return self._now("log.cleaner.threads", self._config.log_cleaner_threads)

    def _now(self, name: str, at_start: _Number) -> _Number:
        """The value set for this broker, for all brokers, or at startup."""
        for key in (keys.broker_config(self._config.broker_id), keys.DEFAULT_CONFIG):
            text = self._image.configs.get(key, {}).get(name)
            if text is not None:
                return type(at_start)(text)
        return at_start

    # -- the next log ----------------------------------------------------------------------

    def _begin(self) -> bool:
        """Start to clean the dirtiest log; return False if none needs it."""
        dirtiest: tuple[HostedReplica, Dirtiness] | None = None
        for replica in self._replicas.hosted.values():
            if replica.log.config.cleanup_compact and self._may_clean(replica):
                found = self._dirtiness_of(replica)
                if found and (dirtiest is None or found.ratio > dirtiest[1].ratio):
                    dirtiest = replica, found
        if dirtiest is None:
            return False
        self._start(*dirtiest)
        return True

    def _may_clean(self, replica: HostedReplica) -> bool:
        name = replica.topic_partition
        failing = self._failing.get(name)
        if failing is not None and self._turn.now_ms < failing.until_ms:
            return False
        if name in self._replicas.directory.damaged:
            return False  # a repair writes files of the same names
        if replica.log.offline or name in self._replicas.directory.moves:
            return False  # compaction would restart the copy
        return not self.is_running(name)

    def is_running(self, name: TopicPartition) -> bool:
        """Whether a log of this name is being cleaned. By name: a log that was recreated has
        the folder of the one before it."""
        return any(running.plan.partition == name for running in self._running.values())

    def _dirtiness_of(self, replica: HostedReplica) -> Dirtiness | None:
        first_dirty = self._replicas.directory.cleaner_offsets.get(replica.topic_partition)
        stable = replica.partition.last_stable_offset
        wall_ms = self._turn.wall.earliest_ms(self._turn.now_ms)
        with suppress(DamagedRecords), replica.log.reading():
            return dirtiness(replica.log, first_dirty, stable, wall_ms)
        return None

    def _start(self, replica: HostedReplica, found: Dirtiness) -> None:
        log = replica.log
        config = self._config
        memory = self._now("log.cleaner.dedupe.buffer.size", config.log_cleaner_dedupe_buffer_size)
        map_bytes = memory // self._threads
        all_in_sync = bool(replica.isr) and not replica.out_since_ms
        now, wall = self._turn.now_ms, self._turn.wall
        between = wall.earliest_ms(now), wall.latest_ms(now)
        plan = plan_cleaning(log, found, map_bytes, *between, all_in_sync=all_in_sync)
        segments = {s.base_offset: s for s in log.segments if s.base_offset < found.end_offset}
        self._number += 1
        self._running[self._number] = _Running(
            self._number, replica, plan, log.generation, segments
        )
        rate = self._now(
            "log.cleaner.io.max.bytes.per.second", config.log_cleaner_io_max_bytes_per_second
        )
        place = self._replicas.directory.place_of(log.partition)
        self._turn.emit(CleanLog(self._number, plan, rate, place))

    # -- reports ---------------------------------------------------------------------------

    def progressed(self, number: int, what: CleaningMessage) -> None:
        """Queue a report of the host: a group is ready, or the cleaning has ended."""
        self._reports.append((number, what))
        self._process_reports()

    def _process_reports(self) -> None:
        # A response that is not sent yet may refer to a part of a file.
        while self._reports and not self._turn.effects:
            number, what = self._reports.popleft()
            running = self._running.get(number)
            if running is None:
                continue  # it was stopped
            if isinstance(what, CleanedGroup):
                self._put_in_place(running, what)
            else:
                self._end(running, what)

    def _put_in_place(self, running: _Running, group: CleanedGroup) -> None:
        replica = running.replica
        replaced = [running.segments[base] for base in group.base_offsets]
        if not self._untouched(running, replaced, group.size):
            del self._running[running.number]
            self._turn.emit(StopCleaning(running.number))
            return
        self._replicas.directory.expect_gaps(replica.topic_partition)
        replica.log.replace_segments(replaced, self._turn.now_ms)
        self._replicas.touched[replica] = None

    def _untouched(self, running: _Running, replaced: list[Segment], size: int) -> bool:
        log = running.replica.log
        if not self._is_current(running) or log.segments.active in replaced:
            return False
        present = {id(segment) for segment in log.segments}
        return all(id(segment) in present for segment in replaced) and is_ready(
            self._replicas.directory.disk_of(log.partition), replaced, size
        )

    def _is_current(self, running: _Running) -> bool:
        """Whether the log is still hosted and was not truncated."""
        replica = running.replica
        return (
            self._replicas.hosted.get(replica.topic_partition) is replica
            and not replica.log.offline
            and replica.log.generation == running.generation
        )

    def _end(self, running: _Running, outcome: CleaningResult | str) -> None:
        del self._running[running.number]
        self._due_ms = self._turn.now_ms  # another log may be waiting
        if not self._is_current(running):
            return
        name = running.plan.partition
        if isinstance(outcome, str):
            if running.replica.log.segments.first.base_offset in running.segments:
                self._failed(name, outcome)
            return  # else the files it read were deleted with old records
        self._failing.pop(name, None)
        self._replicas.directory.set_cleaner_offset(name, outcome.end_offset)
        self.stats.cleanings += 1
        self.stats.bytes_read += outcome.bytes_read
        self.stats.bytes_written += outcome.bytes_written
        self._turn.journal.note("compacted", *name, *outcome[:5])

    def _failed(self, name: TopicPartition, reason: str) -> None:
        self.stats.failures += 1
        times = self._failing[name].times + 1 if name in self._failing else 1
        wait_ms = self._backoff_ms << min(times - 1, _DOUBLINGS_MAX)
        self._failing[name] = _Failing(times, self._turn.now_ms + wait_ms)
        self._turn.journal.note("compaction_failed", *name, reason, wait_ms)
