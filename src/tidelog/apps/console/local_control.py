"""Kill, pause, resume, start and isolate brokers that are processes of this machine."""

import threading
from typing import Protocol

from tidelog.apps.console.failure import FORBIDDEN, INVALID, Failure
from tidelog.core.api_table import SET_FAULTS
from tidelog.core.types import BrokerId
from tidelog.shell.supervisor import broker_control, metadata_probe, up_file
from tidelog.shell.supervisor.data_folder import Refusal
from tidelog.shell.supervisor.metadata_probe import ProbeFailed
from tidelog.shell.supervisor.up_file import BrokerEntry

START_S = 30.0
ANSWER_S = 2.0
NO_SWITCHES = (
    "the brokers were not started with fault switches",
    "restart them: tidelog up --set tidelog.fault.switches=true",
)
ACTIONS = ("kill", "pause", "resume", "start", "isolate", "reconnect")


class BrokerControl(Protocol):
    """Brokers that are processes of this machine."""

    @property
    def switches(self) -> bool:
        """Whether the brokers are known to have fault switches."""

    def found_switches(self) -> None:
        """Note that the brokers have fault switches."""

    def run(self, action: str, broker: BrokerId) -> str:
        """Carry out an action and return a message. Raises Failure."""

    def isolated(self) -> dict[BrokerId, bool]:
        """Return by broker whether this console isolated it; empty without fault switches."""


class LocalControl:
    """The brokers of one data folder."""

    def __init__(self, data: str) -> None:
        self._data = data
        self._lock = threading.Lock()
        self._isolated: dict[tuple[BrokerId, int], bool] = {}
        """By broker and pid: a broker that restarts is no longer isolated."""
        self._switches_of: int | None = None
        """The pid of the `tidelog up` whose brokers have fault switches."""

    @property
    def switches(self) -> bool:
        """Whether the brokers are known to have fault switches."""
        up = up_file.read(self._data)
        return up is not None and up.pid == self._switches_of

    def found_switches(self) -> None:
        """Note that the brokers have fault switches."""
        up = up_file.read(self._data)
        self._switches_of = None if up is None else up.pid

    def run(self, action: str, broker: BrokerId) -> str:
        """Carry out an action and return a message. Raises Failure."""
        try:
            if action == "kill":
                return broker_control.kill(self._data, broker)
            if action == "pause":
                return broker_control.pause(self._data, broker)
            if action == "resume":
                return broker_control.resume(self._data, broker)
            if action == "start":
                return broker_control.start(self._data, broker, START_S)
        except Refusal as refusal:
            what, _, advice = str(refusal).partition("; ")
            raise Failure(INVALID, what, advice) from refusal
        return self._isolate(broker, isolated=action == "isolate")

    def isolated(self) -> dict[BrokerId, bool]:
        """Return by broker whether this console isolated it; empty without fault switches."""
        up = up_file.read(self._data)
        if up is None or not self.switches:
            return {}
        with self._lock:
            return {each.id: self._isolated.get((each.id, each.pid), False) for each in up.brokers}

    def _isolate(self, broker: BrokerId, *, isolated: bool) -> str:
        if not self.switches:
            raise Failure(FORBIDDEN, *NO_SWITCHES)
        entry = self._entry(broker)
        try:
            metadata_probe.call_private(
                entry.host, entry.internal_port, SET_FAULTS, {"isolate": isolated}, ANSWER_S
            )
        except ProbeFailed as error:
            raise Failure(INVALID, f"broker {broker} did not respond: {error}") from error
        with self._lock:
            self._isolated[entry.id, entry.pid] = isolated
        if isolated:
            return f"isolated broker {broker}: messages to and from other brokers are dropped"
        return f"reconnected broker {broker}"

    def _entry(self, broker: BrokerId) -> BrokerEntry:
        up = up_file.read(self._data)
        for entry in [] if up is None else up.brokers:
            if entry.id == broker and entry.is_running():
                return entry
        raise Failure(INVALID, f"broker {broker} is not running", "start it")
