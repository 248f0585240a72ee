"""Apply readings of the wall clock, and save the confirmed time for the next run.

The confirmed time is written beside the logs with the boot clock of the same moment. So a broker
that starts with a wrong clock detects it.
"""

from tidelog.core.node.config import NodeConfig
from tidelog.core.node.events import WallClockRead
from tidelog.core.node.turn import Turn
from tidelog.core.storage import checkpoint
from tidelog.core.storage.log_directories import BrokerLogs
from tidelog.core.wall_clock import ClockReading, confirmed_at_start

FIRST_WRITE_MS = 1000
"""Delay of the first write: startup should not wait for another sync."""


class ClockWatch:
    """The node's wall clock (`turn.wall`), and its file."""

    def __init__(
        self, config: NodeConfig, turn: Turn, directory: BrokerLogs, reading: ClockReading | None
    ) -> None:
        self._turn = turn
        self._directory = directory
        self._interval_ms = config.log_flush_offset_checkpoint_interval_ms
        self._due_ms = turn.now_ms + FIRST_WRITE_MS
        # Without a reading, in tests and stories, the host's only clock is the wall clock.
        self._reading = reading = reading or ClockReading(turn.now_ms, "", turn.now_ms)
        self._boot_ahead_ms = reading.boot_ms - turn.now_ms
        saved = checkpoint.read_clock(directory.disk)
        newest = _newest_record_ms(directory) if saved is None else None
        turn.wall.hold_ms = config.clock_hold_ms
        confirmed_ms = confirmed_at_start(reading, saved, newest)
        turn.wall.start(turn.now_ms, reading.wall_ms, confirmed_ms)
        if turn.wall.doubt_ms:
            self._note_jump(turn.wall.doubt_ms)

    def read(self, event: WallClockRead) -> None:
        """Apply a reading of the wall clock."""
        turn, wall = self._turn, self._turn.wall
        doubt_ms, confirmed_ms = wall.doubt_ms, wall.confirmed_ms(turn.now_ms)
        jumped_ms = wall.read(turn.now_ms, event.wall_ms)
        if jumped_ms:
            self._note_jump(jumped_ms)
        ahead_ms = wall.confirmed_ms(turn.now_ms) - confirmed_ms
        if ahead_ms:
            turn.journal.note("clock_confirmed", ahead_ms, wall.hold_ms)
        elif doubt_ms and not wall.doubt_ms:
            turn.journal.note("clock_trusted")
        if doubt_ms != wall.doubt_ms:
            self._write()

    def _note_jump(self, jumped_ms: int) -> None:
        wall = self._turn.wall
        if wall.doubt_ms:
            self._turn.journal.note("clock_jumped", jumped_ms, wall.doubt_ms, wall.hold_ms)

    def tick(self) -> None:
        """Write the confirmed time if it is due."""
        if self._turn.now_ms >= self._due_ms:
            self._write()

    def next_ms(self) -> int:
        """When `tick` has something to do."""
        return self._due_ms

    @property
    def doubt_ms(self) -> int:
        """How far the wall clock is ahead of the confirmed time. While it is not 0, the host
        reads the clock even if it was not set, to detect the next jump."""
        return self._turn.wall.doubt_ms

    def _write(self) -> None:
        self._due_ms = self._turn.now_ms + self._interval_ms
        self.close()

    def close(self) -> None:
        """Write the confirmed time, as at a clean stop."""
        now = self._turn.now_ms
        confirmed_ms = self._turn.wall.confirmed_ms(now)
        clock = ClockReading(confirmed_ms, self._reading.boot_id, now + self._boot_ahead_ms)
        checkpoint.write_clock(self._directory.disk, clock)


def _newest_record_ms(directory: BrokerLogs) -> int | None:
    """The largest timestamp in the logs; None without a record that has one."""
    found = (segment.max_timestamp for log in directory.logs.values() for segment in log.segments)
    newest = max(found, default=-1)
    return newest if newest >= 0 else None
