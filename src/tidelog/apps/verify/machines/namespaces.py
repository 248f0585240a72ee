"""Machines as Linux network namespaces, connected by a bridge in a namespace of its own.

Each machine has one interface, `eth0`, with an address in 10.77.0.0/24. The range exists only
inside these namespaces. One more namespace is for the clients; the run itself enters it, so its
probes and workers reach all machines.

A cut is made at the link of a machine, and no packet is refused: the other side learns nothing.
Both ways, the bridge's end of the link is down, like an unplugged cable. One way, a `blackhole`
queue drops everything that leaves one end of the link.

Invariants: the names of a run contain its pid, so runs do not disturb each other; `close` removes
all of them. If the process of the run is killed, a second process removes them; `remove_stale`
removes those of runs whose second process was killed too.
"""

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress

from tidelog.apps.verify.machines import enter_machine

ADDRESS = "10.77.0.{}"
CLIENTS = 254
"""The last byte of the clients' address."""
_PREFIX = "tidelog-verify"
_NAMES = re.compile(rf"{_PREFIX}-(\d+)-\w+")
_FOLDER = "/run/netns"
_BRIDGE_NAMESPACE = "bridge"
_CLIENT_NAMESPACE = "clients"
_CLONE_NEWNET = 0x40000000
_COMMAND_S = 120.0
_END_S = 10.0


class CannotMakeMachines(Exception):
    """Machines can't be made here; the text is one line that says what is missing."""


def check_requirements() -> None:
    """Raise CannotMakeMachines if this process can't make namespaces."""
    if sys.platform != "linux":
        raise CannotMakeMachines("machines are Linux network namespaces; run this on Linux")
    if os.geteuid() != 0:
        raise CannotMakeMachines("machines are network namespaces, which need root; run as root")
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            raise CannotMakeMachines(f"the command {program!r} is missing; install iproute2")
    name = f"{_PREFIX}-{os.getpid()}-probe"
    try:
        _ip("netns", "add", name)
        _ip("-n", name, "link", "add", "br0", "type", "bridge")
        _ip("-n", name, "link", "add", "m0", "type", "veth", "peer", "name", "eth0")
        _tc("-n", name, "qdisc", "replace", "dev", "m0", "root", "blackhole")
    finally:
        with suppress(CannotMakeMachines):
            _ip("netns", "del", name)


class Network:
    """The namespaces of a run: one for each machine, one for clients, one for the bridge."""

    def __init__(self, machines: Sequence[int], folder: str) -> None:
        """`folder` is where the boot ids of the machines are written."""
        self.machines = list(machines)
        self._folder = folder
        self._run = f"{_PREFIX}-{os.getpid()}"
        self._home = -1
        """The namespace that this process had before it entered that of the clients."""
        self._remover: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        """Make all namespaces, and move this process (its calling thread) to the clients'."""
        check_requirements()
        remove_stale()
        self._remover = _start_remover(f"{self._run}-")
        os.makedirs(self._folder, exist_ok=True)
        bridge = self._name(_BRIDGE_NAMESPACE)
        _ip("netns", "add", bridge)
        _ip("-n", bridge, "link", "add", "br0", "type", "bridge")
        _ip("-n", bridge, "link", "set", "br0", "up")
        for machine in self.machines:
            self._plug(f"m{machine}", machine)
            self.reboot(machine)
        self._plug(_CLIENT_NAMESPACE, CLIENTS)
        self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        _enter(os.path.join(_FOLDER, self._name(_CLIENT_NAMESPACE)))

    def close(self) -> None:
        """Return to the namespace that the process came from, and remove those of the run."""
        if self._home >= 0:
            _setns(self._home)
            os.close(self._home)
            self._home = -1
        remove_all(f"{self._run}-")
        if self._remover is not None:
            assert self._remover.stdin is not None
            self._remover.stdin.close()
            self._remover.wait()
            self._remover = None

    def address(self, machine: int) -> str:
        """The address of a machine."""
        return ADDRESS.format(machine)

    def command(self, machine: int) -> list[str]:
        """The words before a command that runs it on a machine, in the same process."""
        enter = [sys.executable, "-m", enter_machine.__name__]
        inside = [_program("ip"), "netns", "exec", self._name(f"m{machine}")]
        return [*inside, *enter, str(os.getpid()), self._boot(machine)]

    def reboot(self, machine: int) -> None:
        """Give the machine a new boot id, for processes that are started from now on."""
        beside = f"{self._boot(machine)}.new"
        with open(beside, "w", encoding="ascii") as file:
            file.write(f"{uuid.uuid4()}\n")
        os.replace(beside, self._boot(machine))

    # -- faults

    def cut(self, machine: int) -> None:
        """Cut a machine off, both ways."""
        self._bridge_link(machine, "down")

    def cut_outgoing(self, machine: int) -> None:
        """Drop all packets that the machine sends; it still receives."""
        _tc("-n", self._name(f"m{machine}"), "qdisc", "replace", "dev", "eth0", "root", "blackhole")

    def cut_incoming(self, machine: int) -> None:
        """Drop all packets to the machine; it can still send."""
        where = ("-n", self._name(_BRIDGE_NAMESPACE), "qdisc", "replace", "dev", f"m{machine}")
        _tc(*where, "root", "blackhole")

    def mend(self, machine: int) -> None:
        """Undo all cuts of a machine."""
        self._bridge_link(machine, "up")
        for name, link in ((f"m{machine}", "eth0"), (_BRIDGE_NAMESPACE, f"m{machine}")):
            _tc("-n", self._name(name), "qdisc", "replace", "dev", link, "root", "pfifo_fast")

    def _bridge_link(self, machine: int, state: str) -> None:
        _ip("-n", self._name(_BRIDGE_NAMESPACE), "link", "set", f"m{machine}", state)

    # -- names

    def _name(self, name: str) -> str:
        return f"{self._run}-{name}"

    def _boot(self, machine: int) -> str:
        return os.path.join(self._folder, f"machine-{machine}.boot-id")

    def _plug(self, name: str, number: int) -> None:
        """Make a namespace and connect it to the bridge."""
        bridge, namespace = self._name(_BRIDGE_NAMESPACE), self._name(name)
        _ip("netns", "add", namespace)
        peer = ("peer", "name", "eth0", "netns", namespace)
        _ip("-n", bridge, "link", "add", name, "type", "veth", *peer)
        _ip("-n", bridge, "link", "set", name, "master", "br0", "up")
        _ip("-n", namespace, "addr", "add", f"{ADDRESS.format(number)}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            _ip("-n", namespace, "link", "set", link, "up")


def _start_remover(prefix: str) -> "subprocess.Popen[bytes]":
    """Start a process that removes the namespaces if this process is killed."""
    entry = f"from {__name__} import remove_at_end; remove_at_end()"
    return subprocess.Popen(
        [sys.executable, "-c", entry, prefix],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C in the terminal must not reach it
    )


def remove_at_end() -> None:
    """Wait until stdin ends, because the process of the run has ended; then remove its namespaces.

    The prefix of their names is the argument.
    """
    while os.read(0, 1):
        pass
    remove_all(sys.argv[1])


def remove_all(prefix: str) -> None:
    """Remove the namespaces whose names start with `prefix`, and the processes in them."""
    for name in _existing():
        if name.startswith(prefix):
            _remove(name)


def remove_stale() -> None:
    """Remove the namespaces of runs whose process has ended, and the processes in them."""
    for name in _existing():
        found = _NAMES.fullmatch(name)
        if found and (int(found[1]) == os.getpid() or not os.path.exists(f"/proc/{found[1]}")):
            _remove(name)


def _existing() -> list[str]:
    try:
        return sorted(os.listdir(_FOLDER))
    except FileNotFoundError:
        return []


def _remove(name: str) -> None:
    """Remove a namespace; the processes that are still in it are killed.

    Another process may remove it at the same time: then nothing is left to do.
    """
    try:
        _empty_and_delete(name)
    except CannotMakeMachines:
        if name in _existing():
            raise


def _empty_and_delete(name: str) -> None:
    until = time.monotonic() + _END_S
    while time.monotonic() < until:
        pids = [int(pid) for pid in _ip("netns", "pids", name).split() if int(pid) != os.getpid()]
        if not pids:
            break
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    _ip("netns", "del", name)


def _enter(path: str) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _setns(file)
    finally:
        os.close(file)


def _setns(file: int) -> None:
    """Move this thread, and what it starts from now on, to a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(file, _CLONE_NEWNET):
        raise CannotMakeMachines(
            f"can't enter a network namespace: {os.strerror(ctypes.get_errno())}"
        )


def _ip(*words: str) -> str:
    return _output("ip", *words)


def _tc(*words: str) -> str:
    return _output("tc", *words)


def _program(name: str) -> str:
    return shutil.which(name) or name


def _output(program: str, *words: str) -> str:
    done = subprocess.run(
        [_program(program), *words],
        capture_output=True,
        text=True,
        timeout=_COMMAND_S,
        check=False,
    )
    if done.returncode:
        why = done.stderr.strip().replace("\n", "; ") or f"exit code {done.returncode}"
        raise CannotMakeMachines(f"`{program} {' '.join(words)}` failed: {why}")
    return done.stdout
