"""Run a cluster on this machine from Python: for tests, `tidelog verify` and the demo.

Each broker is a separate process, spawned and not forked, so the caller may have threads. No
broker is restarted automatically. Invariants: brokers keep their ports over restarts (ports.py);
after `close`, or when the caller ends, no broker is left.
"""

import os
import signal
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidelog.core.api_table import DESCRIBE_STATE, SET_FAULTS
from tidelog.shell.supervisor import cluster_plan, data_folder, metadata_probe, throwaway_tls
from tidelog.shell.supervisor.broker_child import ENTRY
from tidelog.shell.supervisor.broker_process import BrokerProcess, Listening
from tidelog.shell.supervisor.cluster_plan import HOST, ClusterPlan
from tidelog.shell.supervisor.metadata_probe import MetadataView, ProbeFailed
from tidelog.shell.supervisor.ports import HeldPorts

if TYPE_CHECKING:
    from ssl import SSLContext

ANSWER_S = 60.0
"""For requests that are sent once: a broker that got no CPU for seconds responds later."""
QUICK_ANSWER_S = 2.0
"""For requests that are repeated, and may be sent to a broker that hangs."""
READY_S = 120.0
"""On a busy machine a start may take long. A process that ends is reported at once."""
STOP_S = 120.0
CLOSE_S = 30.0
"""After it, `close` kills."""
LOOK_S = 0.01
INTERNAL_HOST = "127.0.0.1"


class ClusterFailed(Exception):
    """A broker did not start, stop or answer. Its text is one line."""


class LocalCluster:
    """Brokers 1 to N in one data folder. Without `data`: a temporary one."""

    def __init__(
        self,
        brokers: int = 3,
        data: str | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        port: int = 0,
        racks: Sequence[str] = (),
        fault_switches: bool = False,
        one_process: bool = False,
        wait_s: float = READY_S,
        entry: str = ENTRY,
        store: str = "",
        disks: Sequence[str] = (),
        tls: bool = False,
    ) -> None:
        self.ids = list(range(1, brokers + 1))
        self._temporary = data is None
        self._entry = entry
        self._wait_s = wait_s
        wanted = {**cluster_plan.defaults(brokers), **(settings or {})}
        if fault_switches:
            wanted["tidelog.fault.switches"] = "true"
        self.plan = ClusterPlan(
            os.path.abspath(data) if data is not None else "",
            tuple(self.ids),
            port,
            tuple(f"{name}={value}" for name, value in wanted.items()),
            tuple(racks),
            one_process,
            store,
            disks=tuple(disks),
            tls=tls,
        )
        self._tls: SSLContext | None = None
        """How to query brokers whose clients use TLS."""
        self._ports = {broker: self.plan.port_of(broker) for broker in self.ids}
        self._held = HeldPorts()
        self._processes: dict[int, BrokerProcess] = {}
        self._paused: set[int] = set()
        self._life_line = (-1, -1)

    def __enter__(self) -> "LocalCluster":
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # -- the cluster -----------------------------------------------------------------------

    def start(self) -> None:
        """Start all brokers and wait until they list each other. Raises ClusterFailed."""
        if self._temporary and not self.plan.data:
            from tempfile import mkdtemp

            self.plan = self.plan._replace(data=mkdtemp(prefix="tidelog-"))
        os.makedirs(self.plan.data, mode=0o700, exist_ok=True)
        if self.plan.tls:
            try:
                self._make_certificates()
            except data_folder.Refusal as refusal:
                raise ClusterFailed(str(refusal)) from None
        self._life_line = os.pipe()
        try:
            self._ports = {b: self._reserve(b, port) for b, port in self._ports.items()}
            for group in [self.ids] if self.plan.one_process else [[b] for b in self.ids]:
                self._spawn(group)
            self.wait_ready(self._wait_s, self.ids)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop all brokers, kill those that do not stop in time, and remove a temporary folder."""
        running = {p.pid: p for p in self._processes.values() if not p.has_ended()}.values()
        for process in running:
            process.send(signal.SIGCONT)
            process.send(signal.SIGTERM)
        until = time.monotonic() + CLOSE_S
        for process in running:
            if not process.wait(max(until - time.monotonic(), 0)):
                process.kill()
        for file in self._life_line:
            if file >= 0:
                os.close(file)
        self._life_line = (-1, -1)
        self._held.close()
        if self._temporary and self.plan.data:
            from shutil import rmtree

            rmtree(self.plan.data, ignore_errors=True)

    def _make_certificates(self) -> None:
        if not throwaway_tls.is_made(self.plan.data):
            throwaway_tls.check_openssl()
            throwaway_tls.make(self.plan.data)
        self._tls = throwaway_tls.client_context(self.plan.data)

    @property
    def client_settings(self) -> str:
        """The path of a file with the security settings of clients; empty: they need none."""
        return throwaway_tls.path(self.plan.data, throwaway_tls.CLIENT) if self.plan.tls else ""

    @property
    def data(self) -> str:
        """The cluster's folder."""
        return self.plan.data

    @property
    def bootstrap(self) -> str:
        """All brokers' addresses, for clients."""
        return ",".join(f"{self.host(broker)}:{self._ports[broker]}" for broker in self.ids)

    def wait_ready(self, timeout_s: float = READY_S, started: Sequence[int] = ()) -> None:
        """Wait until every broker that runs and is not paused answers and lists all of them.

        Raises ClusterFailed, at once if one of `started` ends.
        """
        until = time.monotonic() + timeout_s
        while (missing := self._missing(started)) is not None:
            if time.monotonic() > until:
                raise ClusterFailed(f"not ready after {timeout_s:g} s: {missing}")
            time.sleep(LOOK_S)

    def _missing(self, started: Sequence[int]) -> str | None:
        running = {b for b in self._processes if self.is_running(b)} - self._paused
        for broker, process in self._processes.items():
            if broker in process.listening:
                self._ports[broker] = process.listening[broker].port
            if broker in started and process.has_ended():
                raise ClusterFailed(
                    f"broker {broker} ended: {process.how_it_ended()}; see {self.log_path(broker)}"
                )
        for broker in sorted(running):
            if broker not in self._processes[broker].listening:
                return f"broker {broker} does not listen yet; see {self.log_path(broker)}"
            # Metadata may still list a broker that was alive a moment ago.
            if broker not in self._processes[broker].acting:
                return f"broker {broker} is not part of the cluster; see {self.log_path(broker)}"
            try:
                view = self.metadata(broker, [], QUICK_ANSWER_S)
            except ProbeFailed as reason:
                return str(reason)
            if unseen := running - view.brokers.keys():
                return f"broker {broker} does not list brokers {sorted(unseen)}"
        return None

    # -- one broker ------------------------------------------------------------------------

    def pid(self, broker: int) -> int:
        """The pid of the broker's process, which may have ended."""
        return self._processes[broker].pid

    def host(self, broker: int) -> str:  # noqa: ARG002 - machines differ
        """The host for clients."""
        return HOST

    def internal_host(self, broker: int) -> str:  # noqa: ARG002
        """The address for other brokers."""
        return INTERNAL_HOST

    def port(self, broker: int) -> int:
        """The port for clients."""
        return self._ports[broker]

    def internal_port(self, broker: int) -> int:
        """The port for other brokers; it changes with each start."""
        return self._listening(broker).internal_port

    def _listening(self, broker: int) -> Listening:
        process = self._processes[broker]
        process.read_reports()
        if broker not in process.listening:
            raise ClusterFailed(f"broker {broker} does not listen; see {self.log_path(broker)}")
        return process.listening[broker]

    def metrics_url(self, broker: int) -> str:
        """The URL of the broker's metrics; it changes with each start."""
        url = self._listening(broker).metrics_url
        if url is None:
            raise ClusterFailed(f"broker {broker} has no metrics listener")
        return url

    def log_path(self, broker: int) -> str:
        """The path of the broker's log file."""
        return self.plan.log_of(broker)

    def log_dir(self, broker: int) -> str:
        """The broker's log directory."""
        return data_folder.log_dir(self.plan.data, broker)

    def is_running(self, broker: int) -> bool:
        """Whether the broker's process exists; a paused one does."""
        return self.exit_code(broker) is None

    def exit_code(self, broker: int) -> int | None:
        """The process's exit code, minus the signal that killed it; None while it runs."""
        process = self._processes[broker]
        process.read_reports()
        return process.exit_code

    def how_it_ended(self, broker: int) -> str:
        """How the process ended, for messages."""
        return self._processes[broker].how_it_ended()

    def kill(self, broker: int) -> None:
        """Kill the broker (SIGKILL) and wait until its process has ended."""
        self._processes[broker].kill()

    def pause(self, broker: int) -> None:
        """Pause the broker (SIGSTOP)."""
        self._paused.update(self._processes[broker].brokers)
        self._processes[broker].send(signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        """Continue a paused broker (SIGCONT)."""
        self._paused.difference_update(self._processes[broker].brokers)
        self._processes[broker].send(signal.SIGCONT)

    def stop(self, broker: int, timeout_s: float = STOP_S) -> int:
        """Stop the broker cleanly; return its exit code. Raises ClusterFailed after the timeout."""
        process = self._processes[broker]
        process.send(signal.SIGTERM)
        if not process.wait(timeout_s):
            raise ClusterFailed(f"broker {broker} did not stop within {timeout_s:g} s")
        assert process.exit_code is not None
        return process.exit_code

    def start_broker(self, broker: int, *, wait: bool = True, timeout_s: float = READY_S) -> None:
        """Start a broker whose process has ended. `wait`: until all brokers list each other."""
        if self.is_running(broker):
            raise ClusterFailed(f"broker {broker} is already running (pid {self.pid(broker)})")
        brokers = list(self._processes[broker].brokers)
        self._spawn(brokers)
        if wait:
            self.wait_ready(timeout_s, brokers)

    def restart(self, broker: int) -> None:
        """Stop the broker cleanly and start it; returns when it is ready."""
        self.stop(broker)
        self.start_broker(broker)

    def metadata(
        self, broker: int, topics: list[str] | None = None, timeout_s: float = ANSWER_S
    ) -> MetadataView:
        """The broker's Metadata response; all topics with None. Raises ProbeFailed."""
        address = self.host(broker), self._ports[broker]
        return metadata_probe.ask_metadata(*address, timeout_s, topics, self._tls)

    def describe_state(
        self, broker: int, topic: str, timeout_s: float = ANSWER_S
    ) -> dict[str, Any]:
        """The state of the broker and of its replicas of a topic. Raises ProbeFailed."""
        asked = {"topic": topic}
        address = self.host(broker), self._ports[broker]
        return metadata_probe.call_private(*address, DESCRIBE_STATE, asked, timeout_s, self._tls)

    def set_faults(self, broker: int, faults: dict[str, Any]) -> dict[str, Any]:
        """Set fault switches, such as {"disk_full": True}; needs `fault_switches`."""
        address = self.internal_host(broker), self.internal_port(broker)
        return metadata_probe.call_private(*address, SET_FAULTS, faults, ANSWER_S)

    def isolate(self, broker: int) -> None:
        """Drop all messages between this broker and the others; clients still reach it."""
        self.set_faults(broker, {"isolate": True})

    def heal(self, broker: int) -> None:
        """Undo `isolate`."""
        self.set_faults(broker, {"isolate": False})

    # -- what differs if the brokers are not all on this machine -------------------------------

    def _reserve(self, broker: int, port: int) -> int:
        """Reserve a port for clients; return it."""
        return self._held.hold(self.host(broker), port)

    def _own_settings(self, broker: int) -> list[str]:
        """The settings of this broker only."""
        return self.plan.own_settings(broker, self._ports[broker])

    def _command(
        self,
        broker: int,  # noqa: ARG002
    ) -> tuple[Sequence[str], Mapping[str, str]]:
        """The words before the command of the broker's process, and further variables for it."""
        return (), {}

    def _spawn(self, brokers: list[int]) -> None:
        sets = {b: [*self.plan.sets, *self._own_settings(b)] for b in brokers}
        log = self.plan.log_of(brokers[0])
        command, environ = self._command(brokers[0])
        process = BrokerProcess.spawn(self._entry, sets, log, self._life_line[0], command, environ)
        self._processes.update(dict.fromkeys(brokers, process))
        self._paused.difference_update(brokers)
