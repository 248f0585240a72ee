"""Simulated log cleanings of one broker.

Each cleaning is a separate process that needs some time for each group of segments. It uses the
broker's disk and ends with the broker. If a cleaning dies in a write, the broker dies too. The
time that a cleaning waits for the disk does not stall the broker.
"""

from collections.abc import Callable, Iterator
from random import Random

from tidelog.core.node.effects import CleanLog, StopCleaning
from tidelog.core.storage.cleaning.cleaner import clean
from tidelog.core.storage.cleaning.plan import CleaningMessage
from tidelog.core.storage.disk import Disk
from tidelog.lab.sim.machine.disk import ProcessDied, SimDisk
from tidelog.lab.sim.world import World

START_MAX_MS = 2000
GROUP_MAX_MS = 200


class SimCleaner:
    """The cleanings that a broker has in progress."""

    def __init__(
        self,
        world: World,
        disk: SimDisk,
        disk_of: Callable[[CleanLog], Disk],
        random: Random,
        notify: Callable[[int, CleaningMessage], None],
        die: Callable[[], None],
    ) -> None:
        self._world = world
        self._disk = disk
        self._disk_of = disk_of
        self._random = random
        self._notify = notify
        self._die = die
        self._running: dict[int, Iterator[CleaningMessage]] = {}

    def clean(self, effect: CleanLog) -> None:
        cleaning = self._running[effect.cleaning] = clean(self._disk_of(effect), effect.plan)
        takes = self._random.randint(1, START_MAX_MS)
        self._world.after(takes, self._continue, effect.cleaning, cleaning)

    def stop(self, effect: StopCleaning) -> None:
        self._running.pop(effect.cleaning, None)

    def stop_all(self) -> None:
        """Stop all cleanings because the broker has ended."""
        self._running.clear()

    def _continue(self, number: int, cleaning: Iterator[CleaningMessage]) -> None:
        if self._running.get(number) is not cleaning:
            return  # stopped; a later incarnation of the broker may reuse the number
        stalled = self._disk.stall_ms
        try:
            message = next(cleaning, None)
        except ProcessDied:
            self._die()
            return
        finally:
            self._disk.stall_ms = stalled
        if message is not None:
            takes = self._random.randint(0, GROUP_MAX_MS)
            self._world.after(takes, self._continue, number, cleaning)
            self._notify(number, message)
