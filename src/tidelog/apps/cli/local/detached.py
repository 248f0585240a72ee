"""`tidelog up --detach`: the supervisor goes on by itself, and whoever called gets the answer.

Always true: the caller's process ends only when the cluster is ready or has failed; the
supervisor belongs to no terminal, and what it has to say later goes to `up.log`.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import NoReturn, TypeAlias

from tidelog.apps.cli.local import bring_up, up_text
from tidelog.apps.cli.local.up_options import UpOptions
from tidelog.shell.supervisor import up_file
from tidelog.shell.supervisor.preflight.refusal import Refusal
from tidelog.shell.supervisor.supervisor import NotStarted, Supervisor

LOG = "up.log"
Start: TypeAlias = Callable[[int], Supervisor]
"""Starts the brokers, none of which gets the descriptor given."""


def bring_up_detached(options: UpOptions, start: Start, began: float) -> int:
    """Start in a process of its own; the exit code once it is ready or has failed."""
    answer, out = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(answer)
        _be_the_supervisor(options, start, out)
    os.close(out)
    try:
        with open(answer, encoding="utf-8") as file:
            text = file.read()
    except KeyboardInterrupt:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        raise
    if not text:
        up_text.complain("the supervisor died before the cluster was ready")
        return bring_up.NOT_UP
    said = json.loads(text)
    if "problem" in said:
        up_text.complain(said["problem"])
        return bring_up.NOT_UP
    up = up_file.read(said["data"])
    if up is None:
        up_text.complain(f"the cluster in {said['data']} stopped at once")
        return bring_up.NOT_UP
    up_text.show(up, time.monotonic() - began, options.form, detached=True)
    return 0


def _be_the_supervisor(options: UpOptions, start: Start, out: int) -> NoReturn:
    status = bring_up.NOT_UP
    try:
        os.setsid()
        os.chdir("/")  # no disk is kept in use for the folder it was started in
        status = _supervise(options, start, out)
    finally:
        os._exit(status)


def _supervise(options: UpOptions, start: Start, out: int) -> int:
    try:
        supervisor = start(out)
    except Refusal as refusal:
        _answer(out, {"problem": str(refusal)})
        return bring_up.NOT_UP
    data = supervisor.plan.data
    try:
        supervisor.wait_until_ready(options.wait)
        _leave_the_terminal(os.path.join(data, LOG))
        _answer(out, {"data": data})
        return bring_up.watch_over(supervisor)
    except NotStarted as reason:
        _answer(out, {"problem": str(reason)})
        return bring_up.NOT_UP
    finally:
        bring_up.end(supervisor, options)


def _answer(out: int, said: dict[str, str]) -> None:
    os.write(out, json.dumps(said).encode())
    os.close(out)


def _leave_the_terminal(log: str) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    for source, target in ((null, 0), (null, 1), (file, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(file)
