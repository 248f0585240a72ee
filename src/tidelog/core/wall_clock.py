"""The wall clock of one broker, and how far it is trusted.

A node's own time (`now_ms`) is monotonic: timers, sessions and intervals use nothing else. The
wall clock is that time plus an offset, which an operator, NTP or a hypervisor can set.
Ages of records need the wall clock, because timestamps outlive a process, and a clock that was
wrong for a minute must not delete them (scenarios/storage/a-wrong-clock-deletes-nothing.txt).

So after a jump of more than JUMP_MS the new time is not trusted until it has run without another
jump for `hold_ms`. Meanwhile there are two clocks, the new one and the confirmed one. Ages are
computed from the earlier clock; timestamps from which ages will be computed come from the later
one. Deletion by age therefore continues, at the pace of the clock that deletes less.

Invariant: while the monotonic clock is right, and the confirmed one was right at some time,
`earliest_ms` is never ahead of the true time, unless a wrong time has held for `hold_ms`.
"""

JUMP_MS = 60_000
"""Larger differences are jumps. Leap seconds and corrections by NTP are far smaller, and no
retention that matters is this short."""


class WallClock:
    """The offset of the wall clock as it was last read, and the confirmed offset."""

    __slots__ = (
        "_confirmed_ms",
        "_held_ms",
        "_offset_ms",
        "_since_ms",
        "earliest_ahead_ms",
        "hold_ms",
        "latest_ahead_ms",
    )

    def __init__(self, hold_ms: int = 0) -> None:
        self.hold_ms = hold_ms
        self._offset_ms = 0
        self._confirmed_ms = 0
        self._held_ms = 0
        """The new offset, which is not trusted yet."""
        self._since_ms: int | None = None
        """When it was first read, on the monotonic clock. None: the clock is trusted."""
        self.earliest_ahead_ms = 0
        self.latest_ahead_ms = 0
        """The smaller and the larger offset, for code that needs them for every request."""

    def start(self, now_ms: int, wall_ms: int, confirmed_ms: int) -> None:
        """Start with the current reading and the time that an earlier run confirmed."""
        self._confirmed_ms = self._offset_ms = confirmed_ms - now_ms
        self.read(now_ms, wall_ms)

    def read(self, now_ms: int, wall_ms: int) -> int:
        """Apply a reading; return by how much the clock jumped since the last one, 0 for no jump.
        A time that has held for long enough is trusted from here on. No time is trusted without
        a reading: a process that was stopped for a day has not seen its clock hold for a day."""
        moved_ms = wall_ms - now_ms - self._offset_ms
        self._offset_ms = offset = wall_ms - now_ms
        if abs(offset - self._confirmed_ms) <= JUMP_MS:
            self._since_ms = None
        elif self._since_ms is None or abs(offset - self._held_ms) > JUMP_MS:
            self._since_ms, self._held_ms = now_ms, offset
        if self._since_ms is not None and now_ms - self._since_ms >= self.hold_ms:
            self._confirmed_ms, self._since_ms = offset, None
        self.earliest_ahead_ms = min(offset, self._confirmed_ms)
        self.latest_ahead_ms = max(offset, self._confirmed_ms)
        return moved_ms if abs(moved_ms) > JUMP_MS else 0

    @property
    def doubt_ms(self) -> int:
        """How far the clock is ahead of the confirmed time; negative if it is behind."""
        return 0 if self._since_ms is None else self._offset_ms - self._confirmed_ms

    def at_ms(self, now_ms: int) -> int:
        """Return the wall-clock time, as users and clients see it."""
        return now_ms + self._offset_ms

    def confirmed_ms(self, now_ms: int) -> int:
        """Return the confirmed time, from which a later run may start."""
        return now_ms + self._confirmed_ms

    def earliest_ms(self, now_ms: int) -> int:
        """Return the time to compute ages from, where an age decides about deletion."""
        return now_ms + self.earliest_ahead_ms

    def latest_ms(self, now_ms: int) -> int:
        """Return the time to write where the broker will later compute an age from it."""
        return now_ms + self.latest_ahead_ms


class ClockReading:
    """A reading of the host's wall clock and of its clock since boot."""

    __slots__ = ("boot_id", "boot_ms", "wall_ms")

    def __init__(self, wall_ms: int, boot_id: str, boot_ms: int) -> None:
        self.wall_ms = wall_ms
        self.boot_id = boot_id
        self.boot_ms = boot_ms


def confirmed_at_start(
    reading: ClockReading, saved: ClockReading | None, newest_record_ms: int | None
) -> int:
    """Return the time up to which a starting broker trusts its clock. `saved` is the time that an
    earlier run confirmed; in the same boot, the boot clock shows how long ago that was. Without
    it, use the newest record's timestamp; without records, the wall clock."""
    if saved is None:
        known = reading.wall_ms if newest_record_ms is None else newest_record_ms
        return min(known, reading.wall_ms)
    same_boot = saved.boot_id == reading.boot_id and saved.boot_ms <= reading.boot_ms
    return saved.wall_ms + (reading.boot_ms - saved.boot_ms if same_boot else 0)
