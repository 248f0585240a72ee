"""Show the state of this machine's clusters, and stop them.

`up.json` names the brokers that a `tidelog up` started; the locks of the log folders show which
of them, and which other brokers, are alive (`live_brokers`).
Invariant: a process is signalled only if its pid and its start time are those in `up.json`, or
if it holds the lock of a broker of the folder.
"""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.shell.supervisor import (
    control_pipe,
    data_folder,
    metadata_probe,
    process_identity,
    throwaway_tls,
    up_file,
)
from tidelog.shell.supervisor.cluster_plan import join_address
from tidelog.shell.supervisor.live_brokers import (
    clusters,
    live_brokers,
    registered_address,
)
from tidelog.shell.supervisor.metadata_probe import ProbeFailed
from tidelog.shell.supervisor.up_file import BrokerEntry, UpFile

if TYPE_CHECKING:
    from ssl import SSLContext

ANSWER_S = 2.0
LOOK_S = 0.05
ESCALATED_S = 5.0
NO_ANSWER = "no answer"
_UNKNOWN_ADDRESS = ("?", 0)


class BrokerState(NamedTuple):
    """The current state of one broker."""

    id: int
    pid: int
    address: str
    state: str
    controller: bool
    log: str
    metrics: str | None


class ClusterState(NamedTuple):
    """The current state of a cluster."""

    up: UpFile | None
    brokers: list[BrokerState]
    all_up: bool
    summary: str

    def as_data(self) -> dict[str, Any]:
        """For `--format json`."""
        facts = self.up.as_data() if self.up else {}
        return {**facts, "summary": self.summary, "brokers": [b._asdict() for b in self.brokers]}


def read_state(data: str) -> ClusterState:
    """Query all brokers in `up.json`, and other live brokers of the folder."""
    up = up_file.read(data)
    entries = _entries(data, up)
    if not entries:
        return ClusterState(None, [], False, _nothing_up(data))
    tls = throwaway_tls.client_context(data)
    # All at once, so that several unresponsive brokers take no longer than one.
    with ThreadPoolExecutor(len(entries)) as asking:
        states = list(asking.map(lambda entry: _state(entry, tls), entries))
    well = sum(1 for broker in states if broker.state == up_file.UP)
    summary = f"{well} of {len(states)} brokers up"
    if without := sum(1 for broker in states if broker.state == up_file.NO_STORE):
        summary += f", {without} serving without the metadata store, which does not respond"
    if up is None:
        summary += "; no tidelog up supervises them"
    elif not up.alive():
        summary = f"the supervisor (pid {up.pid}) has ended; {summary}"
    else:
        summary += f" at {up.bootstrap}"
        dead = [str(broker.id) for broker in states if broker.state == up_file.DEAD]
        if dead and not up.supervise:
            again = f"tidelog broker start {' '.join(dead)}{up_file.option(data)}"
            summary += f"; to restart dead brokers: {again}"
    watched = up is None or up.alive()
    return ClusterState(up, states, well == len(states) and watched, summary)


def _nothing_up(data: str) -> str:
    summary = f"no cluster is up in {data}; start one: tidelog up{up_file.option(data)}"
    others = [f"tidelog status{up_file.option(folder)}" for folder in clusters()]
    if others:
        summary += f"; other clusters of this machine: {', '.join(others)}"
    return summary


def _entries(data: str, up: UpFile | None) -> list[BrokerEntry]:
    """The brokers in `up.json`, and other live brokers of the folder."""
    live = live_brokers(data)
    entries = []
    for entry in [] if up is None else up.brokers:
        pid = live.pop(entry.id, entry.pid)
        by_hand = pid != entry.pid
        entries.append(_started_by_hand(data, entry.id, pid) if by_hand else entry)
    entries += [_started_by_hand(data, broker, pid) for broker, pid in live.items()]
    return sorted(entries, key=lambda entry: entry.id)


def _started_by_hand(data: str, broker: int, pid: int) -> BrokerEntry:
    host, port = registered_address(data, broker) or _UNKNOWN_ADDRESS
    started = process_identity.started(pid) or ""
    log = data_folder.log_file(data, broker)
    return BrokerEntry(broker, pid, started, host, port, 0, log, up_file.UP)


def _state(entry: BrokerEntry, tls: "SSLContext | None") -> BrokerState:
    state, controller = entry.state, False
    if not entry.is_running():
        state = up_file.DEAD
    elif state in (up_file.UP, up_file.NO_STORE):
        try:
            view = metadata_probe.ask_metadata(entry.host, entry.port, ANSWER_S, [], tls)
            controller = view.controller_id == entry.id
        except ProbeFailed:
            state = NO_ANSWER
    address = join_address(entry.host, entry.port)
    who = (entry.id, entry.pid, address, state, controller)
    return BrokerState(*who, entry.log, entry.metrics)


class StopResult(NamedTuple):
    """The result of stopping a cluster."""

    clean: bool
    summary: str
    killed: list[int]

    def as_data(self) -> dict[str, Any]:
        """For `--format json`."""
        return {"summary": self.summary, "killed": self.killed}


def stop_cluster(data: str, wait_s: float) -> StopResult:
    """Stop the cluster: signal its supervisor, and brokers that run without one.

    Processes that have not ended after `wait_s` are killed.
    """
    up = up_file.read(data)
    brokers = [entry for entry in _entries(data, up) if entry.is_running()]
    running = _processes(up, brokers)
    if not running:
        _remove_files(data, up)
        return StopResult(True, f"nothing is up in {data}", [])
    try:
        _ask_to_stop(up, brokers)
    except PermissionError:
        pids = ", ".join(str(process.pid) for process in running)
        return StopResult(False, f"no permission to stop another user's processes: pid {pids}", [])
    if _await_end(running, wait_s):
        _remove_files(data, up)
        many = "broker" if len(brokers) == 1 else "brokers"
        return StopResult(True, f"stopped {len(brokers)} {many} in {data}", [])
    left = [process.pid for process in running if process.is_running()]
    for pid in left:
        _send(pid, signal.SIGKILL)
    _await_end(running, ESCALATED_S)
    _remove_files(data, up)
    pids = ", ".join(map(str, left))
    return StopResult(
        False, f"killed processes that had not stopped after {wait_s:g} s: pid {pids}", left
    )


def _ask_to_stop(up: UpFile | None, brokers: list[BrokerEntry]) -> None:
    """Signal the supervisor, which stops its brokers, and brokers without a supervisor."""
    supervised = up.brokers if up is not None and up.alive() else []
    for entry in brokers:
        if entry not in supervised:
            _send(entry.pid, signal.SIGTERM)
        _send(entry.pid, signal.SIGCONT)  # a paused process would not receive SIGTERM
    if up is not None and up.alive():
        _send(up.pid, signal.SIGTERM)


def _remove_files(data: str, up: UpFile | None) -> None:
    """Remove the files that a killed supervisor left behind."""
    if up is not None and up.ephemeral and up.data == data:
        from shutil import rmtree

        rmtree(data, ignore_errors=True)
    up_file.remove(data)
    control_pipe.remove(data)


class _Process(NamedTuple):
    pid: int
    started: str

    def is_running(self) -> bool:
        return process_identity.is_running(self.pid, self.started)


def _processes(up: UpFile | None, brokers: list[BrokerEntry]) -> list[_Process]:
    """The processes to stop. Brokers first: a killed supervisor can no longer kill them."""
    found = sorted({_Process(entry.pid, entry.started) for entry in brokers})
    return [*found, _Process(up.pid, up.started)] if up is not None and up.alive() else found


def _await_end(processes: list[_Process], wait_s: float) -> bool:
    until = time.monotonic() + wait_s
    while any(process.is_running() for process in processes):
        if time.monotonic() >= until:
            return False
        time.sleep(LOOK_S)
    return True


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
