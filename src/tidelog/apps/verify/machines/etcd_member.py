"""One member of etcd on each machine, with etcd's default settings."""

import http.client
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tidelog.apps.verify.machines.namespaces import CannotMakeMachines, Network

CLIENT_PORT = 2379
PEER_PORT = 2380
START_S = 120.0
ANSWER_S = 1.0
POLL_S = 0.05
_ELSEWHERE = ("/usr/bin/etcd", "/usr/local/bin/etcd", "~/.cache/tidelog/etcd/3.5.1/etcd")
_PREFIX = "tidelog"


def find_etcd() -> str:
    """Return the path of etcd. Raises CannotMakeMachines."""
    named = os.environ.get("ETCD_BIN")
    places = [named] if named else [shutil.which("etcd"), *map(os.path.expanduser, _ELSEWHERE)]
    for place in places:
        if place and os.access(place, os.X_OK):
            return place
    raise CannotMakeMachines("etcd is missing; run scripts/set_up_etcd.py, or set ETCD_BIN")


class EtcdMember:
    """The etcd process of one machine."""

    def __init__(self, network: Network, machine: int, folder: str, binary: str) -> None:
        self.machine = machine
        self._network = network
        self._folder = folder
        self._log = os.path.join(folder, f"etcd-{machine}.log")
        self._binary = binary
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, on its earlier data if it has some."""
        network, address = self._network, self._network.address(self.machine)
        peers = [f"m{m}=http://{network.address(m)}:{PEER_PORT}" for m in network.machines]
        client, peer = f"http://{address}:{CLIENT_PORT}", f"http://{address}:{PEER_PORT}"
        words = [
            *network.command(self.machine),
            *(self._binary, "--name", f"m{self.machine}"),
            *("--data-dir", os.path.join(self._folder, f"etcd-{self.machine}")),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", ",".join(peers), "--initial-cluster-state", "new"),
            *("--logger", "zap", "--log-level", "warn"),
        ]
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "ETCD_UNSUPPORTED_ARCH": "arm64"},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The pid of the process, which may have ended."""
        assert self._process is not None, "the member was started"
        return self._process.pid

    def is_running(self) -> bool:
        """Whether the process exists; a paused one does."""
        return self._process is not None and self._process.poll() is None

    def last_log_line(self) -> str:
        """The last line of its log."""
        with open(self._log, errors="replace") as file:
            lines = file.read().strip().splitlines()
        return lines[-1] if lines else "no error output"

    def send(self, number: int) -> None:
        """Send a signal, if the process runs."""
        if self.is_running():
            assert self._process is not None
            self._process.send_signal(number)

    def await_end(self) -> None:
        """Wait until the process has ended."""
        if self._process is not None:
            self._process.wait()

    def kill(self) -> None:
        """Kill the process and wait until it has ended."""
        self.send(signal.SIGKILL)
        self.await_end()

    def is_leader(self) -> bool:
        """Whether this member leads etcd; False if it does not answer."""
        with suppress(OSError, ValueError, KeyError, http.client.HTTPException):
            status = self._post("/v3/maintenance/status", {})
            return bool(status["leader"] == status["header"]["member_id"])
        return False

    def hand_over(self, member: "EtcdMember") -> None:
        """Let another member lead instead of this one. Raises OSError."""
        self._post("/v3/maintenance/transfer-leadership", {"targetID": member.id()})

    def id(self) -> str:
        """The member's id in etcd. Raises OSError."""
        return str(self._post("/v3/maintenance/status", {})["header"]["member_id"])

    def is_ready(self) -> bool:
        """Whether a write through this member succeeds."""
        with suppress(OSError, ValueError, http.client.HTTPException):
            self._post("/v3/kv/put", {"key": "dmVyaWZ5", "value": ""})  # "verify"
            return True
        return False

    def _post(self, path: str, request: dict[str, Any]) -> dict[str, Any]:
        address = self._network.address(self.machine)
        connection = http.client.HTTPConnection(address, CLIENT_PORT, timeout=ANSWER_S)
        try:
            connection.request("POST", path, json.dumps(request))
            answer = connection.getresponse()
            body: dict[str, Any] = json.loads(answer.read())
            if answer.status != http.HTTPStatus.OK:
                raise OSError(str(body))
            return body
        finally:
            connection.close()


def store_url(network: Network, first: int) -> str:
    """The URL of the metadata store, for a broker on machine `first`: its own member first."""
    machines = sorted(network.machines, key=lambda machine: machine != first)
    nodes = ",".join(f"{network.address(machine)}:{CLIENT_PORT}" for machine in machines)
    return f"etcd://{nodes}/{_PREFIX}"


def await_ready(members: Sequence[EtcdMember]) -> None:
    """Wait until writes through all members succeed. Raises CannotMakeMachines."""
    until = time.monotonic() + START_S
    for member in members:
        while not member.is_ready():
            name = f"etcd of machine {member.machine}"
            if not member.is_running():
                raise CannotMakeMachines(f"{name} exited: {member.last_log_line()}")
            if time.monotonic() > until:
                raise CannotMakeMachines(f"{name} does not accept writes after {START_S:g} s")
            time.sleep(POLL_S)
