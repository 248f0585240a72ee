"""The brokers of a lesson: processes of this machine with data in a temporary folder.

Invariant: when the console ends, also by kill -9, no broker is left (`LocalCluster`).
"""

import threading

from tidelog.apps.console.failure import INVALID, UNAVAILABLE, Failure
from tidelog.apps.console.target import PAUSED, RUNNING, STOPPED
from tidelog.core.types import BrokerId
from tidelog.shell.supervisor.cluster import ClusterFailed, LocalCluster
from tidelog.shell.supervisor.metadata_probe import ProbeFailed

BROKERS = 3
START_S = 30.0


class LessonBrokers:
    """Starts in the constructor; is both what a collector watches and what actions control.

    Raises Failure if the brokers do not start.
    """

    data: str | None = None

    def __init__(self) -> None:
        self._cluster = LocalCluster(BROKERS, fault_switches=True, wait_s=START_S)
        self._lock = threading.Lock()
        try:
            self._cluster.start()
        except ClusterFailed as error:
            raise Failure(UNAVAILABLE, f"the brokers did not start: {error}") from error
        self._processes = dict.fromkeys(self._cluster.ids, RUNNING)
        self._isolated = dict.fromkeys(self._cluster.ids, False)

    def close(self) -> None:
        """Kill the brokers and delete their folder."""
        with self._lock:
            for broker in self._cluster.ids:
                self._cluster.kill(broker)
            self._cluster.close()

    # -- what a collector watches (Target) -------------------------------------------------------

    def security(self) -> None:
        return None

    def bootstrap(self) -> str:
        """Return the brokers' addresses."""
        return self._cluster.bootstrap

    def processes(self) -> dict[BrokerId, str]:
        """Return `running`, `paused` or `stopped` by broker."""
        # While a broker starts, return the last known conditions: live pages must not wait.
        if self._lock.acquire(blocking=False):
            try:
                for broker, condition in self._processes.items():
                    if condition != STOPPED and not self._cluster.is_running(broker):
                        self._processes[broker] = STOPPED
            finally:
                self._lock.release()
        return dict(self._processes)

    # -- what actions control (BrokerControl) ----------------------------------------------------

    @property
    def switches(self) -> bool:
        return True

    def found_switches(self) -> None:
        """Do nothing: the brokers always have fault switches."""

    def isolated(self) -> dict[BrokerId, bool]:
        """Return by broker whether it is isolated."""
        return dict(self._isolated)

    def run(self, action: str, broker: BrokerId) -> str:
        """Carry out an action and return a message. Raises Failure."""
        if broker not in self._processes:
            raise Failure(INVALID, f"there is no broker {broker}", f"there are 1 to {BROKERS}")
        with self._lock:
            running = self._cluster.is_running(broker)
            if running and action == "start":
                raise Failure(INVALID, f"broker {broker} is already running")
            if not running and action != "start":
                raise Failure(INVALID, f"broker {broker} is not running", "start it")
            try:
                return self._run(action, broker)
            except (ClusterFailed, ProbeFailed) as error:
                raise Failure(INVALID, f"can't {action} broker {broker}: {error}") from error

    def _run(self, action: str, broker: BrokerId) -> str:
        if action == "kill":
            self._cluster.kill(broker)
            self._processes[broker] = STOPPED
            self._isolated[broker] = False
            return f"killed broker {broker}"
        if action == "pause":
            self._cluster.pause(broker)
            self._processes[broker] = PAUSED
            return f"paused broker {broker}"
        if action == "resume":
            self._cluster.resume(broker)
            self._processes[broker] = RUNNING
            return f"resumed broker {broker}"
        if action == "start":
            self._cluster.start_broker(broker, wait=False)
            self._processes[broker] = RUNNING
            self._cluster.wait_ready(START_S, [broker])
            return f"broker {broker} is up"
        isolate = action == "isolate"
        (self._cluster.isolate if isolate else self._cluster.heal)(broker)
        self._isolated[broker] = isolate
        if isolate:
            return f"isolated broker {broker}: messages to and from other brokers are dropped"
        return f"reconnected broker {broker}"
