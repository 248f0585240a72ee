"""Check the moves of replicas between the two log directories of a broker.

one-folder   a partition has one folder in the two directories of a broker, and no copy is left over

The check is made at each start of a broker that can read both directories, and once the cluster has
settled. Then no move is in progress either: each has ended or was discarded.
"""

from collections.abc import Callable

from tidelog.core.storage import layout
from tidelog.core.storage.log_directories import LogDirectories
from tidelog.core.types import BrokerId, TopicPartition
from tidelog.lab.sim.clients.brief_topics import BRIEF
from tidelog.lab.sim.machine.process import Process, Site

BEGUN, FINISHED, INTERRUPTED = "move begun", "move finished", "move interrupted"
FINISHED_AT_START = "move finished at startup"


class MoveOracle:
    """Follows the moves of all brokers, counts them, and checks the folders."""

    def __init__(self, site: Site, report: Callable[[str, str], None]) -> None:
        self._site = site
        self._report = report
        self._running: dict[BrokerId, dict[TopicPartition, int]] = {}
        """The target of each move that is in progress."""
        self._killed: dict[BrokerId, dict[TopicPartition, int]] = {}
        """The moves that were in progress when the broker stopped."""

    def stepped(self, process: Process) -> None:
        """Count the moves that began or ended since the last step."""
        directory = _directories(process)
        running = self._running.setdefault(process.id, {})
        if not running and not directory.moves:
            return
        now = {name: move.target for name, move in directory.moves.items()}
        if now == running:
            return
        for name, target in running.items():
            if now.get(name) != target:
                moved = name in directory.logs and directory.place_of(name) == target
                self._site.world.count(FINISHED if moved else INTERRUPTED)
        for name, target in now.items():
            if running.get(name) != target:
                self._site.world.count(BEGUN)
        self._running[process.id] = now

    def stopped(self, process: Process) -> None:
        """Discard the moves of a broker that stops."""
        killed = self._killed[process.id] = self._running.pop(process.id, {})
        for _ in killed:
            self._site.world.count(INTERRUPTED)

    def started(self, process: Process) -> None:
        """Check the folders that a broker has after it settled the copies."""
        directory = _directories(process)
        for name, target in self._killed.pop(process.id, {}).items():
            if name not in directory.logs and not directory.offline and name != BRIEF:
                what = f"broker {process.id} has no folder of {name}, which it was moving"
                self._report("one-folder", what)
            if name in directory.logs and directory.place_of(name) == target:
                self._site.world.count(FINISHED_AT_START)
        if not directory.offline:
            self._check_folders(process)

    def why_not_settled(self) -> str | None:
        """Return which move has not ended; None if all have."""
        for process in self._site.brokers.values():
            if process.node is not None:
                directory = _directories(process)
                # The move of a damaged log waits for its repair.
                left = sorted(directory.moves.keys() - directory.damaged.keys())
                if left:
                    return f"broker {process.id} still moves {left}"
        return None

    def check_settled(self) -> None:
        for process in self._site.brokers.values():
            if process.node is not None:
                self._check_folders(process)

    def _check_folders(self, process: Process) -> None:
        waiting = {layout.partition_dir(name) for name in _directories(process).moves}
        with process.switch_fault.suspend():
            names = [name for one in process.directories for name in one.list_dir("")]
        for name in sorted(set(names)):
            if layout.parse_mark(name) == "future" and name.rpartition(".")[0] not in waiting:
                what = f"broker {process.id} has the copy {name} of a move that has ended"
                self._report("one-folder", what)
            elif layout.parse_dir(name) is not None and names.count(name) > 1:
                what = f"broker {process.id} has the folder {name} in both log directories"
                self._report("one-folder", what)


def _directories(process: Process) -> LogDirectories:
    assert process.node is not None, "the broker runs"
    directory = process.node.directory
    assert isinstance(directory, LogDirectories), "each broker has two log directories"
    return directory
