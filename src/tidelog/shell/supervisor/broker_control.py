"""Restart, kill, pause and resume one broker of a cluster that `tidelog up` runs.

Invariants: only the cluster's supervisor starts a broker, so it has the
cluster's settings and ends with the cluster; a signal goes only to a process that is proved to
be the broker (`live_brokers`, or pid and start time in `up.json`).
"""

import os
import signal
import time

from tidelog.shell.supervisor import control_pipe, data_folder, process_identity, up_file
from tidelog.shell.supervisor.data_folder import Refusal
from tidelog.shell.supervisor.live_brokers import live_brokers
from tidelog.shell.supervisor.up_file import BrokerEntry, UpFile

LOOK_S = 0.02
ASK_AGAIN_S = 1.0
KILLED_S = 10.0


def start(data: str, broker: int, wait_s: float) -> str:
    """Start a broker that is down, wait until it is up, and return a message. Raises Refusal."""
    up = up_file.read(data)
    where = up_file.option(data)
    if up is None or not up.alive():
        raise Refusal(f"no cluster is up in {data}; start all its brokers: tidelog up{where}")
    before = _entry(up, broker)
    if (pid := _pid(data, up, broker)) is not None:
        raise Refusal(f"broker {broker} is already running (pid {pid})")
    asked, until = 0.0, time.monotonic() + wait_s
    while time.monotonic() < until:
        if time.monotonic() - asked > ASK_AGAIN_S:
            # The supervisor ignores a request before it has noticed that the broker ended.
            control_pipe.request_start(data, broker)
            asked = time.monotonic()
        now = up_file.read(data)
        entry = None if now is None else _entry(now, broker)
        if entry is None:
            raise Refusal(f"the cluster in {data} stopped before broker {broker} was up")
        if entry.pid != before.pid:
            asked = until
            if entry.state == up_file.UP:
                return f"broker {broker} is up at {entry.host}:{entry.port} (pid {entry.pid})"
            if not entry.is_running():
                raise Refusal(f"broker {broker} did not start; see {entry.log}")
        time.sleep(LOOK_S)
    raise Refusal(f"broker {broker} is not up after {wait_s:g} s; see {before.log}")


def kill(data: str, broker: int) -> str:
    """Kill a broker (SIGKILL) and wait until its process has ended. Raises Refusal."""
    pid = _signal(data, broker, signal.SIGKILL)
    until = time.monotonic() + KILLED_S
    while process_identity.started(pid) is not None and time.monotonic() < until:
        time.sleep(LOOK_S)
    return f"killed broker {broker} (pid {pid})"


def pause(data: str, broker: int) -> str:
    """Pause a broker (SIGSTOP); its connections stay open. Raises Refusal."""
    pid = _signal(data, broker, signal.SIGSTOP)
    again = f"tidelog broker resume {broker}{up_file.option(data)}"
    return f"paused broker {broker} (pid {pid}); to resume it: {again}"


def resume(data: str, broker: int) -> str:
    """Continue a paused broker (SIGCONT). Raises Refusal."""
    return f"resumed broker {broker} (pid {_signal(data, broker, signal.SIGCONT)})"


def _signal(data: str, broker: int, number: int) -> int:
    up = up_file.read(data)
    pid = _pid(data, up, broker)
    if pid is None:
        if up is None and broker not in data_folder.broker_ids(data):
            raise Refusal(f"no broker {broker} in {data}; name the cluster's folder with --data")
        if up is not None:
            _entry(up, broker)
        again = f"tidelog broker start {broker}{up_file.option(data)}"
        raise Refusal(f"broker {broker} is not running; to start it: {again}")
    try:
        os.kill(pid, number)
    except ProcessLookupError as error:
        raise Refusal(f"broker {broker} (pid {pid}) has just ended") from error
    except PermissionError as error:
        raise Refusal(f"no permission to signal broker {broker} (pid {pid})") from error
    return pid


def _pid(data: str, up: UpFile | None, broker: int) -> int | None:
    """The pid of a running broker."""
    if (pid := live_brokers(data).get(broker)) is not None:
        return pid
    entries = [] if up is None else up.brokers
    return next((e.pid for e in entries if e.id == broker and e.is_running()), None)


def _entry(up: UpFile, broker: int) -> BrokerEntry:
    for entry in up.brokers:
        if entry.id == broker:
            return entry
    known = ", ".join(str(entry.id) for entry in up.brokers)
    raise Refusal(f"no broker {broker} in the cluster of {up.data}; its brokers are {known}")
