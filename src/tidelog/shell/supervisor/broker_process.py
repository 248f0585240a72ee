"""A broker's process as its starter sees it: what it reported, whether it lives, how it ended.

Two ways to start one: `fork` is fast, for a starter without threads that has imported all;
`spawn` starts anew, for any starter. Inside both the same runs: `broker_child`.
Always true: a process that has ended is waited for once, and its pid is never signalled again.
"""

import json
import os
import select
import signal
import sys
import time
from typing import Any, NamedTuple

from tidelog.shell.supervisor import broker_child, process_identity
from tidelog.shell.supervisor.broker_child import Run

_BOOT = "from tidelog.shell.supervisor.broker_child import main; main()"
LONG_S = 3600.0
HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
"""Signals for which the starter may have handlers."""


class Listening(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int
    internal_port: int
    metrics: str | None = None
    """host:port."""


class BrokerProcess:
    """One process with one broker, or with all of them."""

    def __init__(self, pid: int, reports: int, brokers: tuple[int, ...]) -> None:
        self.pid = pid
        self.started = process_identity.started(pid) or ""
        self.brokers = brokers
        self.listening: dict[int, Listening] = {}
        self.acting: set[int] = set()
        self.exit_code: int | None = None
        """As of subprocess: minus the signal's number if one ended it."""
        self.reason = ""
        """What it said when it stopped."""
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
        not_for_it: list[int],
    ) -> "BrokerProcess":
        """Start from this very process. `brokers`: settings by id. `not_for_it`: descriptors
        that the child must not keep."""
        reports, out = os.pipe()
        log_fd = _open_log(log)
        sys.stdout.flush()
        sys.stderr.flush()
        # Else a signal that comes at once would be noted by the starter's handler, in the child.
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        pid = os.fork()
        if pid:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
            os.close(out)
            os.close(log_fd)
            return cls(pid, reports, tuple(brokers))
        try:
            os.setsid()  # a Ctrl-C in the terminal is the starter's to answer
            signal.set_wakeup_fd(-1)
            for number in HANDLED:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
            for source, target in ((life_line[0], 0), (out, 1), (log_fd, 2)):
                os.dup2(source, target)
            for file in {*life_line, out, log_fd, reports, *not_for_it}:
                os.close(file)
            broker_child.serve(run, list(brokers.values()))
        finally:
            os._exit(broker_child.FAILED)

    @classmethod
    def spawn(
        cls, entry: str, brokers: dict[int, list[str]], log: str, life_line: int
    ) -> "BrokerProcess":
        """Start a new interpreter. `brokers`: "key=value" settings by id."""
        wanted = json.dumps({"entry": entry, "brokers": list(brokers.values())})
        reports, out = os.pipe()
        log_fd = _open_log(log)
        try:
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-c", _BOOT, wanted],
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, life_line, 0),
                    (os.POSIX_SPAWN_DUP2, out, 1),
                    (os.POSIX_SPAWN_DUP2, log_fd, 2),
                ],
            )
        except BaseException:
            os.close(reports)
            raise
        finally:
            os.close(out)
            os.close(log_fd)
        return cls(pid, reports, tuple(brokers))

    def read_reports(self) -> list[dict[str, Any]]:
        """What it has reported since; sees too whether it has ended."""
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
            self._heed(said)
        return found

    def wait(self, timeout_s: float) -> bool:
        """Until it has ended; False if it still runs."""
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
        """A signal, if it still runs."""
        if self.exit_code is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it now, and wait until it is gone. A stopped process is killed as well."""
        if self.exit_code is None:
            os.kill(self.pid, signal.SIGKILL)
            while not self.wait(LONG_S):
                continue

    def has_ended(self) -> bool:
        """Whether it has, as far as was looked."""
        return self.exit_code is not None

    def is_acting(self) -> bool:
        """Whether all its brokers listen and have said that they are part of the cluster."""
        return len(self.listening) == len(self.acting) == len(self.brokers)

    def how_it_ended(self) -> str:
        """In a few words, such as "killed by SIGKILL"."""
        code = self.exit_code
        if code is None:
            return "it runs"
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        if self.reason:
            return self.reason
        return "stopped" if code == 0 else f"exit code {code}"

    def _heed(self, said: dict[str, Any]) -> None:
        event, broker = said["event"], said.get("broker")
        if event == "listening":
            where = (said["host"], said["port"], said["internal_port"], said.get("metrics"))
            self.listening[int(said["broker"])] = Listening(*where)
        elif event == "acting" and broker is not None:
            self.acting.add(int(broker))
        elif event == "not acting" and broker is not None:
            self.acting.discard(int(broker))
        elif event in ("stopped", "failed", "crashed") and not said.get("clean"):
            self.reason = str(said.get("reason") or "")

    def _ended(self, status: int) -> None:
        self.exit_code = os.waitstatus_to_exitcode(status)
        os.close(self.reports_fd)
        self.reports_fd = -1


def _open_log(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
