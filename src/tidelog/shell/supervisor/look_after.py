"""Clusters that somebody else's `tidelog up` runs: how they are, and how to end them.

Always true: a process is signalled only if its pid and its start time are those in `up.json`.
"""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from tidelog.shell.supervisor import metadata_probe, up_file
from tidelog.shell.supervisor.metadata_probe import ProbeFailed
from tidelog.shell.supervisor.process_identity import is_running
from tidelog.shell.supervisor.up_file import BrokerEntry, UpFile

ANSWER_S = 2.0
LOOK_S = 0.05
ESCALATED_S = 5.0
NO_ANSWER = "no answer"


class BrokerState(NamedTuple):
    """One broker, as it is now."""

    id: int
    pid: int
    address: str
    state: str
    controller: bool
    log: str
    metrics: str | None


class Standing(NamedTuple):
    """A cluster, as it is now."""

    up: UpFile | None
    brokers: list[BrokerState]
    all_up: bool
    summary: str

    def as_data(self) -> dict[str, Any]:
        """For `--format json`."""
        facts = self.up.as_data() if self.up else {}
        return {**facts, "summary": self.summary, "brokers": [b._asdict() for b in self.brokers]}


def look(data: str) -> Standing:
    """Ask every broker that `up.json` names."""
    up = up_file.read(data)
    if up is None:
        start = f"tidelog up{up_file.option(data)}"
        return Standing(None, [], False, f"no cluster is up in {data}; start one: {start}")
    # All at once: several that hang take no longer than one.
    with ThreadPoolExecutor(len(up.brokers) or 1) as asking:
        states = list(asking.map(_state, up.brokers))
    well = sum(1 for broker in states if broker.state == up_file.UP)
    summary = f"{well} of {len(states)} brokers up at {up.bootstrap}"
    if not up.alive():
        summary = f"the supervisor (pid {up.pid}) is gone; {well} of {len(states)} brokers up"
    elif not up.supervise and any(broker.state == up_file.DEAD for broker in states):
        where = up_file.option(data)
        again = f"tidelog down{where}, then tidelog up{where}"
        summary += f"; to start the dead again: {again}"
    return Standing(up, states, well == len(states) and up.alive(), summary)


def _state(entry: BrokerEntry) -> BrokerState:
    state, controller = entry.state, False
    if not entry.is_running():
        state = up_file.DEAD
    elif state == up_file.UP:
        try:
            view = metadata_probe.ask_metadata(entry.host, entry.port, ANSWER_S, [])
            controller = view.controller_id == entry.id
        except ProbeFailed:
            state = NO_ANSWER
    address = f"{entry.host}:{entry.port}"
    who = (entry.id, entry.pid, address, state, controller)
    return BrokerState(*who, entry.log, entry.metrics)


class Ending(NamedTuple):
    """What it took to stop a cluster."""

    clean: bool
    summary: str
    killed: list[int]

    def as_data(self) -> dict[str, Any]:
        """For `--format json`."""
        return {"summary": self.summary, "killed": self.killed}


def take_down(data: str, wait_s: float) -> Ending:
    """Ask the supervisor to stop; kill what has not ended after `wait_s`."""
    up = up_file.read(data)
    running = _running(up) if up else []
    if up is None or not running:
        _tidy(data, up)
        return Ending(True, f"nothing is up in {data}", [])
    asked = [up.pid] if up.alive() else running  # the supervisor tells its brokers
    try:
        for pid in asked:
            _send(pid, signal.SIGTERM)
    except PermissionError:
        return Ending(False, f"no permission to stop pid {up.pid}, which is another user's", [])
    if _gone(up, wait_s):
        _tidy(data, up)
        many = "broker" if len(up.brokers) == 1 else "brokers"
        return Ending(True, f"stopped {len(up.brokers)} {many} in {data}", [])
    left = _running(up)
    for pid in left:
        _send(pid, signal.SIGKILL)
    _gone(up, ESCALATED_S)
    _tidy(data, up)
    pids = ", ".join(map(str, left))
    return Ending(False, f"killed what had not stopped after {wait_s:g} s: pid {pids}", left)


def _tidy(data: str, up: UpFile | None) -> None:
    """What a supervisor that was killed could not remove any more."""
    if up is not None and up.ephemeral and up.data == data:
        from shutil import rmtree

        rmtree(data, ignore_errors=True)
    up_file.remove(data)


def _running(up: UpFile) -> list[int]:
    """Brokers first: a supervisor that is killed can no longer kill them."""
    processes = {(entry.pid, entry.started) for entry in up.brokers}
    pids = sorted(pid for pid, started in processes if is_running(pid, started))
    return [*pids, up.pid] if up.alive() else pids


def _gone(up: UpFile, wait_s: float) -> bool:
    until = time.monotonic() + wait_s
    while _running(up):
        if time.monotonic() >= until:
            return False
        time.sleep(LOOK_S)
    return True


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
