"""The supervisor of `tidelog up`: starts, watches, restarts and stops the brokers' processes.

It has no thread and waits in one place, `step`. Invariants: a broker that ends unexpectedly is
reported once. It is restarted only with `supervise` or on request, with a longer delay each time
it fails soon again. `stop` returns when no process is left.
"""

import gc
import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from tidelog.shell.supervisor import (
    broker_child,
    data_folder,
    metadata_probe,
    process_identity,
    throwaway_tls,
    up_file,
)
from tidelog.shell.supervisor.broker_child import Run
from tidelog.shell.supervisor.broker_process import BrokerProcess, Listening
from tidelog.shell.supervisor.cluster_plan import ClusterPlan, join_address
from tidelog.shell.supervisor.control_pipe import ControlPipe
from tidelog.shell.supervisor.metadata_probe import ProbeFailed
from tidelog.shell.supervisor.up_file import BrokerEntry, UpFile

if TYPE_CHECKING:
    from ssl import SSLContext

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """Turns SIGINT, SIGTERM and SIGHUP into a descriptor that the supervisor can wait for.

    Invariant: between `install` and `restore` these signals do not end the process; each one is
    recorded and makes `fd` readable.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self.fd, self._out = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._out, False)
        self._before: dict[int, Any] = {}

    @property
    def fds(self) -> list[int]:
        """Both ends of the pipe, for a forked child to close."""
        return [self.fd, self._out]

    def install(self) -> None:
        """Begin to record the signals."""
        signal.set_wakeup_fd(self._out, warn_on_full_buffer=False)
        for number in NUMBERS:
            if signal.getsignal(number) is not signal.SIG_IGN or number != signal.SIGHUP:
                self._before[number] = signal.signal(number, self._note)

    def wake_for_children(self) -> None:
        """Make `fd` readable too when a child of this process ends."""
        self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda _number, _frame: None)

    def restore(self) -> None:
        """Restore the previous signal handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        for file in self.fds:
            os.close(file)

    def drain(self) -> None:
        """Empty the pipe, so that `fd` is readable only after the next signal."""
        try:
            while os.read(self.fd, 256):
                pass
        except BlockingIOError:
            return

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(number)


PROBE_TIMEOUT_S = 0.5
PROBE_PAUSE_S, PROBE_PAUSE_MAX_S = 0.001, 0.05
STOP_S = 30.0
"""Time limit for a clean stop; then a broker is killed."""
BACK_OFF_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Delays before the first restart in a row, the second, and so on."""
SETTLED_S = 60.0
"""After running for this long, a broker's next restart has the first delay again."""

SettingsFor = Callable[[int, int], Any]
"""Returns the settings of a broker, from its id and port."""


class NotStarted(Exception):
    """The cluster did not start. Its text is one line with the reason."""


class Supervisor:
    """Starts and watches the processes of one cluster."""

    def __init__(
        self,
        plan: ClusterPlan,
        settings_for: SettingsFor,
        say: Callable[[str], None],
        *,
        ephemeral: bool = False,
        supervise: bool = False,
        private: Sequence[int] = (),
    ) -> None:
        self.plan = plan
        self.signals = StopSignals()
        self.processes: list[BrokerProcess] = []
        self._run: Run | None = None
        self._settings_for = settings_for
        self.say = say
        self._ephemeral = ephemeral
        self._supervise = supervise
        self._private = private
        """Descriptors that brokers must not inherit."""
        self._folder = -1
        self._control: ControlPipe | None = None
        self._life_line = (-1, -1)
        self.tls: SSLContext | None = None
        """How to query brokers whose clients use TLS."""
        self._ports = {broker: plan.port_of(broker) for broker in plan.brokers}
        self._ready = False
        self._stopping = False
        self._to_restart: dict[BrokerProcess, float] = {}
        """Processes that ended and will be replaced, with the time of the restart."""
        self._failures: dict[tuple[int, ...], int] = {}
        """Failures in a row, by the process's brokers."""

    def start(self, entry: str) -> None:
        """Start all brokers, each in its process; returns before they are up. Raises Refusal.

        `entry` names the function that runs a broker. It is imported once, for all of them, while
        the store is created.
        """
        self._folder = data_folder.claim(self.plan.data)
        data_folder.note_disks(self.plan.data, self.plan.disks)
        if self.plan.tls:
            if not throwaway_tls.is_made(self.plan.data):
                throwaway_tls.make(self.plan.data)
            self.tls = throwaway_tls.client_context(self.plan.data)
        first = self.plan.brokers[0], self._ports[self.plan.brokers[0]]
        store = data_folder.StorePreparation(
            self.plan.data,
            self.plan.store_url,
            lambda: self._settings_for(*first),
            self._prepare_machine,
        )
        self._run = broker_child.resolve_entry(entry)
        store.join()
        self.signals.install()
        self._control = self._open_control()
        self._life_line = os.pipe()
        gc.freeze()  # keeps existing objects shared with the children
        together = self.plan.one_process
        groups = [self.plan.brokers] if together else [(b,) for b in self.plan.brokers]
        for group in groups:
            self.processes.append(self._start(group))
        gc.enable()  # the caller may have turned it off for a faster start
        self._write_up_file()

    def _prepare_machine(self, settings: Any) -> None:
        if self.plan.machine is not None:
            from tidelog.shell.supervisor import machine

            machine.check_ids(self.plan, settings)
            machine.note(self.plan.data, self.plan.machine)

    def _open_control(self) -> ControlPipe | None:
        try:
            return ControlPipe(self.plan.data)
        except OSError as error:  # a file system without pipes
            self.say(f"`tidelog broker start` will not work: {error.filename}: {error.strerror}")
            return None

    def _start(self, brokers: tuple[int, ...]) -> BrokerProcess:
        assert self._run is not None
        settings = {broker: self._settings_for(broker, self._ports[broker]) for broker in brokers}
        mine = [p.reports_fd for p in self.processes if not p.has_ended()]
        mine += [] if self._control is None else [self._control.fd]
        return BrokerProcess.fork(
            self._run,
            settings,
            self.plan.log_of(brokers[0]),
            self._life_line,
            closed_in_child=[*mine, *self.signals.fds, *self._private, self._folder],
        )

    def wait_until_ready(self, wait_s: float) -> None:
        """Wait until every broker answers Metadata and lists all brokers. Raises NotStarted."""
        until = time.monotonic() + wait_s
        pause_s = PROBE_PAUSE_S
        while not self.is_ready():
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise NotStarted(f"not ready after {wait_s:g} s: {self._first_problem()}")
            if self._all_acting():  # no more reports will arrive, so probe again soon
                self.step(min(pause_s, left_s))
                pause_s = min(pause_s * 1.5, PROBE_PAUSE_MAX_S)
            else:
                self.step(left_s)
            for process in self.processes:
                if process.has_ended():
                    who = broker_names(process.brokers)
                    raise NotStarted(f"{who} did not start: {process.how_it_ended()}")
            if self.signals.received:
                raise NotStarted("interrupted")
        self._ready = True
        self._write_up_file()

    def is_ready(self) -> bool:
        """Whether every broker lists all brokers in its Metadata."""
        if not self._all_acting():
            return False
        wanted = set(self.plan.brokers)
        for where in self.listening().values():
            try:
                view = metadata_probe.ask_metadata(
                    self.plan.host, where.port, PROBE_TIMEOUT_S, [], self.tls
                )
            except ProbeFailed:
                return False
            if not wanted <= view.brokers.keys() or view.controller_id < 0:
                return False
        return True

    def _all_acting(self) -> bool:
        return all(process.is_acting() for process in self.processes)

    def listening(self) -> dict[int, Listening]:
        """The addresses of the brokers that run and listen."""
        return {
            broker: where
            for process in self.processes
            if not process.has_ended()
            for broker, where in process.listening.items()
        }

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers for clients, including brokers that are down."""
        host = self.plan.host
        return ",".join(join_address(host, self._ports[broker]) for broker in self.plan.brokers)

    def step(self, timeout_s: float) -> None:
        """Wait for an event, at most for this long, and handle it."""
        due = min(self._to_restart.values(), default=float("inf")) - time.monotonic()
        poll = select.poll()
        poll.register(self.signals.fd, select.POLLIN)
        if self._control is not None:
            poll.register(self._control.fd, select.POLLIN)
        for process in self.processes:
            if not process.has_ended():
                poll.register(process.reports_fd, select.POLLIN)
        poll.poll(max(min(timeout_s, due), 0) * 1000)
        self.signals.drain()
        changed = False
        for process in self.processes:
            if not process.has_ended():
                changed |= bool(process.read_reports())
                self._ports.update({b: where.port for b, where in process.listening.items()})
                if process.has_ended():
                    self._handle_end(process)
                    changed = True
        self._handle_requests()
        changed |= self._restart_due()
        if changed:
            self._write_up_file()

    def _handle_end(self, process: BrokerProcess) -> None:
        if self._stopping or not self._ready:
            return
        self._end_dead_sessions(process.brokers[0])
        what = f"{broker_names(process.brokers)} (pid {process.pid}) died: {process.how_it_ended()}"
        it = "it" if len(process.brokers) == 1 else "them"
        if not self._supervise:
            if all(other.has_ended() for other in self.processes):
                self.say(what)  # the cluster ends
                return
            command = f"tidelog broker start {process.brokers[0]}{up_file.option(self.plan.data)}"
            self.say(f"{what}; to restart {it}: {command}")
            return
        failures = self._failures.get(process.brokers, 0)
        if time.monotonic() - process.since_s > SETTLED_S:
            failures = 0
        self._failures[process.brokers] = failures + 1
        pause_s = BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)]
        self._to_restart[process] = time.monotonic() + pause_s
        self.say(f"{what}; restarting {it} in {pause_s:g} s")

    def _end_dead_sessions(self, broker: int) -> None:
        if self.plan.machine is not None:
            from tidelog.shell.supervisor import machine

            mine = [*self._life_line, self._folder, *self.signals.fds]
            mine += [p.reports_fd for p in self.processes if not p.has_ended()]
            mine += [] if self._control is None else [self._control.fd]
            settings = self._settings_for(broker, self._ports[broker])
            machine.end_dead_sessions(self.plan, settings, mine)

    def _handle_requests(self) -> None:
        """Schedule requested restarts for now."""
        asked = [] if self._control is None else self._control.read_starts()
        for process in self.processes:
            if process.has_ended() and not self._stopping and set(asked) & set(process.brokers):
                self._failures.pop(process.brokers, None)
                self._to_restart[process] = 0.0

    def _restart_due(self) -> bool:
        now = time.monotonic()
        due = [process for process, when in self._to_restart.items() if when <= now]
        for ended in due:
            del self._to_restart[ended]
            restarted = self._start(ended.brokers)
            self.processes[self.processes.index(ended)] = restarted
            self.say(f"{broker_names(restarted.brokers)} restarted (pid {restarted.pid})")
        return bool(due)

    def all_dead(self) -> bool:
        """Whether no broker runs and none will be restarted."""
        return not self._to_restart and all(p.has_ended() for p in self.processes)

    def stop(self) -> bool:
        """Stop all brokers; kill them after a second signal or STOP_S. True: all were clean."""
        if self._stopping:
            return True
        self._stopping = True
        self._to_restart.clear()
        running = [process for process in self.processes if not process.has_ended()]
        for process in running:
            process.send(signal.SIGTERM)
            process.send(signal.SIGCONT)  # a paused process would not receive SIGTERM
        asked, until = len(self.signals.received), time.monotonic() + STOP_S
        while any(not p.has_ended() for p in running):
            if len(self.signals.received) > asked or time.monotonic() > until:
                for process in running:
                    process.kill()
                break
            self.step(until - time.monotonic())
        self._release()
        return all(process.exit_code == 0 for process in running)

    def _release(self) -> None:
        if self._folder >= 0:
            up_file.remove(self.plan.data)
        if self._control is not None:
            self._control.close()
            self._control = None
        for file in (*self._life_line, self._folder):
            if file >= 0:
                os.close(file)
        self._life_line, self._folder = (-1, -1), -1

    def _first_problem(self) -> str:
        for process in self.processes:
            for broker in process.brokers:
                if broker not in process.listening:
                    return f"broker {broker} does not listen yet; {self._see_log(broker)}"
                if broker not in process.acting:
                    return (
                        f"broker {broker} is not yet part of the cluster; {self._see_log(broker)}"
                    )
        return f"the brokers do not list each other; {self._see_log(self.plan.brokers[0])}"

    def _see_log(self, broker: int) -> str:
        """The last line of a broker's log, and the log's path unless it will be deleted."""
        path = self.plan.log_of(broker)
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = file.read().splitlines()
        except OSError:
            lines = []
        last = f"last line of its log: {lines[-1]}" if lines else "its log is empty"
        return last if self._ephemeral else f"see {path}; {last}"

    def up(self) -> UpFile:
        """The contents of `up.json`."""
        entries = [
            self._entry(process, broker) for process in self.processes for broker in process.brokers
        ]
        return UpFile(
            pid=os.getpid(),
            started=process_identity.started(os.getpid()) or "",
            bootstrap=self.bootstrap,
            data=self.plan.data,
            ephemeral=self._ephemeral,
            one_process=self.plan.one_process,
            supervise=self._supervise,
            brokers=entries,
        )

    def _entry(self, process: BrokerProcess, broker: int) -> BrokerEntry:
        where = process.listening.get(broker)
        state = up_file.UP if broker in process.acting else up_file.STARTING
        if broker in process.detached:
            state = up_file.NO_STORE
        if process.has_ended():
            state = up_file.STOPPED if self._stopping else up_file.DEAD
        return BrokerEntry(
            id=broker,
            pid=process.pid,
            started=process.started,
            host=self.plan.host,
            port=where.port if where else self._ports[broker],
            internal_port=where.internal_port if where else 0,
            log=self.plan.log_of(broker),
            state=state,
            metrics=where.metrics_url if where else None,
        )

    def _write_up_file(self) -> None:
        try:
            up_file.write(self.up())
        except OSError as error:  # the disk is full: the cluster continues without it
            self.say(f"can't write {up_file.path(self.plan.data)}: {error.strerror}")


def broker_names(brokers: Sequence[int]) -> str:
    """For messages: "broker 1" or "brokers 1, 2"."""
    word = "broker" if len(brokers) == 1 else "brokers"
    return f"{word} {', '.join(map(str, brokers))}"
