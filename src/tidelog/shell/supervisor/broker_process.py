"""The parent's view of a broker's process: its reports, whether it runs, how it ended.

There are two ways to start one. `fork` is fast, for a parent without threads that has imported
everything. `spawn` starts a new interpreter, for any parent. Both run `broker_child`.
Invariant: an ended process is reaped once, and its pid is never signalled afterwards.
"""

import json
import os
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from tidelog.shell.supervisor import broker_child, process_identity
from tidelog.shell.supervisor.broker_child import Run
from tidelog.shell.supervisor.report_line import url_of_metrics

_BOOT = "from tidelog.shell.supervisor.broker_child import main; main()"
LONG_S = 3600.0
HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
"""Signals for which the parent may have handlers."""


class Listening(NamedTuple):
    """The addresses of a broker."""

    host: str
    port: int
    internal_port: int
    metrics: str | None = None
    """host:port; https://host:port with TLS."""

    @property
    def metrics_url(self) -> str | None:
        """The URL for Prometheus."""
        return None if self.metrics is None else url_of_metrics(self.metrics)


class BrokerProcess:
    """A process with one broker or several."""

    def __init__(self, pid: int, reports: int, brokers: tuple[int, ...]) -> None:
        self.pid = pid
        self.started = process_identity.started(pid) or ""
        self.brokers = brokers
        self.listening: dict[int, Listening] = {}
        self.acting: set[int] = set()
        self.detached: set[int] = set()
        """Brokers that serve although the metadata store does not respond."""
        self.exit_code: int | None = None
        """As in `subprocess`: minus the signal's number if a signal ended it."""
        self.reason = ""
        """The reason in its last report."""
        self.since_s = time.monotonic()
        self.reports_fd = reports
        self._unread = b""
        os.set_blocking(reports, False)

    @classmethod
    def fork(
        cls,
        run: Run,
        brokers: dict[int, Any],
        log: str,
        life_line: tuple[int, int],
        *,
        closed_in_child: list[int],
    ) -> "BrokerProcess":
        """Fork this process. `brokers`: settings by id."""
        reports, out = os.pipe()
        log_fd = _open_log(log)
        sys.stdout.flush()
        sys.stderr.flush()
        # Otherwise an early signal would run the parent's handler in the child.
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        pid = os.fork()
        if pid:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
            os.close(out)
            os.close(log_fd)
            return cls(pid, reports, tuple(brokers))
        try:
            os.setsid()  # Ctrl-C in the terminal must reach only the parent
            signal.set_wakeup_fd(-1)
            for number in HANDLED:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
            for source, target in ((life_line[0], 0), (out, 1), (log_fd, 2)):
                os.dup2(source, target)
            for file in {*life_line, out, log_fd, reports, *closed_in_child}:
                os.close(file)
            broker_child.serve(run, list(brokers.values()))
        finally:
            os._exit(broker_child.FAILED)

    @classmethod
    def spawn(
        cls,
        entry: str,
        brokers: dict[int, list[str]],
        log: str,
        life_line: int,
        command: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> "BrokerProcess":
        """Start a new interpreter. `brokers`: "key=value" settings by id.

        `command`: the words before it, of a program that replaces itself by the interpreter, such
        as `ip netns exec`. `environ`: further variables. Settings may have passwords, so they go
        through a pipe: every user of the machine can read the words of a command.
        """
        wanted = json.dumps({"entry": entry, "brokers": list(brokers.values())})
        words = [*command, sys.executable, "-c", _BOOT]
        reports, out = os.pipe()
        log_fd = _open_log(log)
        settings, into = os.pipe()
        if settings == broker_child.SETTINGS_FILE:
            os.set_inheritable(settings, True)  # some systems skip a copy to itself
        try:
            pid = os.posix_spawn(
                words[0],
                words,
                {**os.environ, **(environ or {})},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, life_line, 0),
                    (os.POSIX_SPAWN_DUP2, out, 1),
                    (os.POSIX_SPAWN_DUP2, log_fd, 2),
                    (os.POSIX_SPAWN_DUP2, settings, broker_child.SETTINGS_FILE),  # the last
                ],
            )
        except BaseException:
            os.close(reports)
            os.close(into)
            raise
        finally:
            for file in (out, log_fd, settings):
                os.close(file)
        # A process that has already ended is reported by its exit code.
        with suppress(BrokenPipeError), open(into, "w", encoding="utf-8") as pipe:
            pipe.write(f"{wanted}\n")
        return cls(pid, reports, tuple(brokers))

    def read_reports(self) -> list[dict[str, Any]]:
        """Read new reports, and detect whether the process has ended."""
        found = []
        while self.exit_code is None:
            try:
                data = os.read(self.reports_fd, 1 << 16)
            except BlockingIOError:
                break
            if not data:  # its stdout is closed: it has ended or is about to
                self._ended(os.waitpid(self.pid, 0)[1])
                break
            *lines, self._unread = (self._unread + data).split(b"\n")
            found += [json.loads(line) for line in lines]
        for said in found:
            self._note_report(said)
        return found

    def wait(self, timeout_s: float) -> bool:
        """Wait until the process has ended; False if it still runs."""
        if self.has_ended():
            return True
        until = time.monotonic() + timeout_s
        poll = select.poll()
        poll.register(self.reports_fd, select.POLLIN)
        self.read_reports()
        while self.exit_code is None and (left := until - time.monotonic()) > 0:
            poll.poll(left * 1000)
            self.read_reports()
        return self.exit_code is not None

    def send(self, number: int) -> None:
        """Send a signal, if the process still runs."""
        if self.exit_code is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process, even a paused one, and wait until it has ended."""
        if self.exit_code is None:
            os.kill(self.pid, signal.SIGKILL)
            while not self.wait(LONG_S):
                continue

    def has_ended(self) -> bool:
        """Whether the end of the process was detected."""
        return self.exit_code is not None

    def is_acting(self) -> bool:
        """Whether all its brokers listen and reported that they are part of the cluster."""
        return len(self.listening) == len(self.acting) == len(self.brokers)

    def how_it_ended(self) -> str:
        """How the process ended, for messages, such as "killed by SIGKILL"."""
        code = self.exit_code
        if code is None:
            return "still running"
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        if self.reason:
            return self.reason
        return "stopped" if code == 0 else f"exit code {code}"

    def _note_report(self, said: dict[str, Any]) -> None:
        event, broker = said["event"], said.get("broker")
        if event == "listening":
            where = (said["host"], said["port"], said["internal_port"], said.get("metrics"))
            self.listening[int(said["broker"])] = Listening(*where)
        elif event in ("acting", "detached", "not acting") and broker is not None:
            for state, brokers in (("acting", self.acting), ("detached", self.detached)):
                (brokers.add if event == state else brokers.discard)(int(broker))
        elif event in ("stopped", "failed", "crashed") and not said.get("clean"):
            self.reason = str(said.get("reason") or "")

    def _ended(self, status: int) -> None:
        self.exit_code = os.waitstatus_to_exitcode(status)
        os.close(self.reports_fd)
        self.reports_fd = -1


def _open_log(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
