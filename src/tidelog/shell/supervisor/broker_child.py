"""Inside a broker's process that somebody watches over: `tidelog up`, a test, `verify`.

Its stdin is the life line: nothing ever comes over it, and its end means that whoever started
this process is gone. Its stdout carries reports, a JSON object a line; its stderr is the log.
Always true: a process without its starter ends, cleanly if it can; a starter that does not
read never blocks a broker.
"""

import _thread
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, NoReturn, TypeAlias

from tidelog.shell.supervisor.report_line import Report, line_writer

ENTRY = "tidelog.shell.broker.process:run_brokers"
"""What runs brokers until it is told to stop: "module:function"."""
FAILED = 1
GRACE_S = 30.0
"""For a clean stop once the starter is gone; then the process ends itself."""
REPORT_MAX = 4000
"""Bytes of a line: what a pipe takes whole or not at all."""
YOUNG_OBJECTS = 10_000
"""So many may be new before the garbage collector looks through them. A request about thousands of
partitions makes more than Python's 700, lives until it is answered, and would be looked through
again and again."""

Run: TypeAlias = Callable[[list[Any], Callable[[dict[str, object]], None]], int]


def resolve_entry(entry: str) -> Run:
    """The function that an entry names."""
    module, _, name = entry.partition(":")
    run: Run = getattr(import_module(module), name)
    return run


def serve(run: Run, settings: list[Any]) -> NoReturn:
    """Run brokers until they end, and end the process with their exit code."""
    status = FAILED
    report = reporter("text")
    try:
        report = reporter(settings[0].get("tidelog.log.format"))
        os.set_blocking(1, False)
        gc.enable()  # a starter may have left it off
        gc.set_threshold(YOUNG_OBJECTS)
        _start_following()
        status = run(settings, report)
    except Exception as error:  # noqa: BLE001 - a process's last words
        import traceback

        _write(2, traceback.format_exc().encode())
        report({"event": "crashed", "reason": f"{type(error).__name__}: {error}"})
    finally:
        # No clean-up of the interpreter: in a fork its objects are the starter's too.
        os._exit(status)


def reporter(form: str) -> Callable[[dict[str, object]], None]:
    """What puts reports into the log in that form, and, unless they are only log lines, to the
    starter."""
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
        return  # nobody reads, or the disk is full: no reason to stop a broker


def _start_following() -> None:
    """In a thread that no signal is given to: one that it took would not wake the brokers."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    _thread.start_new_thread(_follow_the_starter, ())
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _follow_the_starter() -> None:
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
    """The process of its own: what it is to run comes as JSON in its one argument."""
    os.setsid()  # a Ctrl-C in the terminal is the starter's to answer
    wanted = json.loads(sys.argv[1])
    from tidelog.shell.settings_sources import load_settings

    settings = [load_settings(None, {}, sets).settings for sets in wanted["brokers"]]
    serve(resolve_entry(wanted["entry"]), settings)
