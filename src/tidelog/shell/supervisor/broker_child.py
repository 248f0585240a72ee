"""The main function of a broker's process that `tidelog up`, a test or `verify` started.

Its stdin is the life line: nothing is sent over it, and its end means that the parent process has
ended. Its stdout carries reports, one JSON object a line. Its stderr is the log.

Invariants: the process ends when its parent ends, cleanly if possible; a parent that does not read
never blocks a broker.
"""

import _thread
import gc
import json
import os
import signal
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, NoReturn, TypeAlias

from tidelog.shell.supervisor.report_line import Report, line_writer

ENTRY = "tidelog.shell.broker.process:run_brokers"
"""The function that runs brokers until they are stopped, as "module:function"."""
SETTINGS_FILE = 3
"""The descriptor from which a spawned process reads one line of JSON. It does not wait for the
pipe's end, which comes only when each process with a copy of the other end has closed it."""
FAILED = 1
GRACE_S = 30.0
"""Time limit for a clean stop after the parent ended; then the process kills itself."""
REPORT_MAX = 4000
"""Bytes of a line: a pipe accepts that many completely or not at all."""
YOUNG_OBJECTS = 10_000
"""The garbage collector runs after this many new objects. A request about thousands of partitions
makes more than Python's default of 700 and lives until it is answered, so the collector would scan
it repeatedly."""

Run: TypeAlias = Callable[[list[Any], Callable[[dict[str, object]], None]], int]


def resolve_entry(entry: str) -> Run:
    """The function that an entry names."""
    module, _, name = entry.partition(":")
    run: Run = getattr(import_module(module), name)
    return run


def serve(run: Run, settings: list[Any]) -> NoReturn:
    """Run brokers until they stop, then end the process with their exit code."""
    status = FAILED
    report = reporter("text")
    try:
        report = reporter(settings[0].get("tidelog.log.format"))
        os.set_blocking(1, False)
        gc.enable()  # the parent may have turned it off
        gc.set_threshold(YOUNG_OBJECTS)
        _start_watching_parent()
        status = run(settings, report)
    except Exception as error:  # noqa: BLE001 - the last report of the process
        import traceback

        _write(2, traceback.format_exc().encode())
        report({"event": "crashed", "reason": f"{type(error).__name__}: {error}"})
    finally:
        # Skip the interpreter's clean-up: in a fork it shares objects with the parent.
        os._exit(status)


def reporter(form: str) -> Callable[[dict[str, object]], None]:
    """A function that writes reports to the log in this format, and all but log lines to the
    parent."""
    line_of = line_writer(form)

    def report(said: Report) -> None:
        _write(2, f"{line_of(said)}\n".encode())
        if said["event"] != "log":
            line = json.dumps(said)
            if len(line) > REPORT_MAX:
                line = json.dumps({**said, "reason": str(said.get("reason"))[: REPORT_MAX // 8]})
            _write(1, f"{line}\n".encode())

    return report


def _write(file: int, data: bytes) -> None:
    try:
        os.write(file, data)
    except OSError:
        return  # the parent has ended or the disk is full: the broker continues


def _start_watching_parent() -> None:
    """Start the thread with all signals blocked: one that it received would not wake the loop."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    _thread.start_new_thread(_end_with_parent, ())
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    while True:
        try:
            if not os.read(0, 1):
                break
        except InterruptedError:
            continue
        except OSError:
            break
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> NoReturn:
    """The entry of a spawned process, which reads the function and settings from SETTINGS_FILE."""
    os.setsid()  # Ctrl-C in the terminal must reach only the parent
    with open(SETTINGS_FILE, encoding="utf-8") as file:
        wanted = json.loads(file.readline())
    from tidelog.shell.settings_sources import load_settings

    settings = [load_settings(None, {}, sets).settings for sets in wanted["brokers"]]
    serve(resolve_entry(wanted["entry"]), settings)
