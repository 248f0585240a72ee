"""A fault in the middle of a switch: a log's copy in another log directory replaces the log.

The switch is one step of the broker, so faults at random times do not hit it. This fault counts the
disk operations of the next switch, and occurs before one of them: the process is killed, the power
fails, or one of the two directories fails.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidelog.core.storage import layout
from tidelog.lab.sim.machine.disk import SimDisk
from tidelog.lab.sim.world import World

if TYPE_CHECKING:
    from tidelog.lab.sim.machine.directory import SimDirectory

KILL, LOSE_POWER, FAIL_SOURCE, FAIL_TARGET = "kill", "lose power", "fail source", "fail target"
SWITCH_FAULTS = (KILL, KILL, KILL, LOSE_POWER, LOSE_POWER, LOSE_POWER, FAIL_SOURCE, FAIL_TARGET)
SWITCH_INTERRUPTED = "switch interrupted"
SMALL_FILES, RENAMES = 40, 12
"""The largest number of disk operations before the fault: from the first small file of the copy on,
and from its mark on."""
_FUTURE = "-future/"


class SwitchFault:
    """The fault of one broker that waits for the next switch, if there is one."""

    def __init__(self, world: World, disk: SimDisk) -> None:
        self.suspended = False
        """Whether the oracle uses the directories: then no fault happens."""
        self._world = world
        self._disk = disk
        self._kind: str | None = None
        self._from = ""
        self._left = 0
        self._begun = False

    def arm(self, kind: str, number: int) -> None:
        """Let the next switch be interrupted, after a number of operations drawn from `number`."""
        self._kind, self._begun = kind, False
        number, late = divmod(number, 2)
        self._from = layout.MOVE_COMPLETE if late else layout.LEADER_EPOCHS
        self._left = number % (RENAMES if late else SMALL_FILES)

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """Let the oracle use both directories without a fault."""
        self.suspended = True
        try:
            yield
        finally:
            self.suspended = False

    def disarm(self) -> None:
        self._kind = None

    def before_operation(self, directory: "SimDirectory", other: "SimDirectory", path: str) -> None:
        """Cause the fault if this is its operation, which then fails or kills the process. The copy
        is in `directory` when the switch begins."""
        if self._kind is None:
            return
        if not self._begun:
            self._begun = _FUTURE in path and self._from in path
            self._target, self._source = directory, other
            if not self._begun:
                return
        if self._left > 0:
            self._left -= 1
            return
        kind, self._kind = self._kind, None
        self._world.count(SWITCH_INTERRUPTED)
        if kind in (KILL, LOSE_POWER):
            self._disk.die_now(power=kind == LOSE_POWER)
        failing = self._source if kind == FAIL_SOURCE else self._target
        failing.broken = True
        self._world.count("directory failed")
