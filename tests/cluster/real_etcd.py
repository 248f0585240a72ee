"""Real etcd nodes for tests, on free ports of this machine; nothing is left over after a test.

A node counts as started when a put through it succeeds. Faults are SIGKILL, SIGSTOP and a
restart on the same data. Without etcd the tests are skipped with the reason; with REQUIRE_ETCD=1
they fail.
"""

import base64
import ctypes
import http.client
import importlib.util
import json
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

START_S = 120.0
FAST = ("--heartbeat-interval", "50", "--election-timeout", "300")
"""Elections in a third of a second; leases from one second on."""
WORKERS = 8
_DIE_WITH_PARENT = 1
_SCRIPT = Path(__file__).parents[2] / "scripts" / "set_up_etcd.py"


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("set_up_etcd", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def etcd_binary(*, newest: bool = False) -> str:
    """The path of etcd; skips the test if there is none."""
    script = _script()
    found: str | None = script.newest_etcd() if newest else script.find_etcd()
    if found is not None:
        return found
    option = " --newest" if newest else ""
    why = f"no etcd on this machine: run scripts/set_up_etcd.py{option}, or set ETCD_BIN"
    if os.environ.get("REQUIRE_ETCD") == "1":
        pytest.fail(f"REQUIRE_ETCD=1, but there is {why}")
    pytest.skip(why)


class EtcdNode:
    """One etcd process."""

    def __init__(self, cluster: "EtcdCluster", name: str, client: int, peer: int) -> None:
        self.name = name
        self.port = client
        self.peer_port = peer
        self._cluster = cluster
        self._process: subprocess.Popen[bytes] | None = None
        self.log = cluster.folder / f"{name}.log"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the process, on its earlier data if it has some."""
        cluster = self._cluster
        client, peer = f"{cluster.scheme}://{cluster.host}:{self.port}", self.peer_url
        words = [
            *(cluster.binary, "--name", self.name),
            *("--data-dir", str(cluster.folder / self.name)),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", cluster.initial, "--initial-cluster-state", "new"),
            *("--logger", "zap", *FAST, *cluster.options),
        ]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,
                env={**os.environ, "ETCD_UNSUPPORTED_ARCH": "arm64"},
            )

    @property
    def peer_url(self) -> str:
        return f"http://{self._cluster.host}:{self.peer_port}"

    def kill(self) -> None:
        """End the process as a crash would."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()

    def freeze(self) -> None:
        """Stop the process; its threads may run for a moment after the signal."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def post(
        self, path: str, request: dict[str, Any], timeout_s: float = START_S
    ) -> dict[str, Any]:
        """A call to this very node, without Tidelog's client."""
        connection = self._cluster.connection(self.port, timeout_s)
        try:
            headers = {"Authorization": self._cluster.token} if self._cluster.token else {}
            connection.request("POST", path, json.dumps(request), headers)
            answer = connection.getresponse()
            body: dict[str, Any] = json.loads(answer.read())
            if answer.status != 200:
                raise OSError(str(body))
            return body
        finally:
            connection.close()

    def put(self, key: str, value: str = "") -> dict[str, Any]:
        return self.post("/v3/kv/put", {"key": b64(key), "value": b64(value)})

    def metric(self, name: str) -> int:
        """The value of a metric of this node; `name` is how its line begins. Several are added."""
        connection = self._cluster.connection(self.port, START_S)
        try:
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        finally:
            connection.close()
        return int(sum(float(line.split()[-1]) for line in lines if line.startswith(name)))

    def is_leader(self) -> bool:
        status = self.post("/v3/maintenance/status", {}, timeout_s=2.0)  # it may be frozen
        return bool(status["leader"] == status["header"]["member_id"])


class EtcdCluster:
    """One or three nodes."""

    def __init__(
        self,
        folder: Path,
        binary: str,
        nodes: int = 1,
        *,
        options: tuple[str, ...] = (),
        tls: Any = None,
        ports: list[int] | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.folder = folder
        self.host = host
        """With brackets if it is an IPv6 address."""
        self.binary = binary
        self.options = options
        self.tls = tls
        self.scheme = "http" if tls is None else "https"
        self.token = ""
        free = ports or _free_ports(2 * nodes)
        self.nodes = [EtcdNode(self, f"n{i}", free[2 * i], free[2 * i + 1]) for i in range(nodes)]
        self.initial = ",".join(f"{node.name}={node.peer_url}" for node in self.nodes)

    def url(self, prefix: str = "tidelog") -> str:
        """The URL of a store in this etcd."""
        scheme = "etcd" if self.tls is None else "etcds"
        return f"{scheme}://{','.join(f'{self.host}:{n.port}' for n in self.nodes)}/{prefix}"

    def connection(self, port: int, timeout_s: float) -> http.client.HTTPConnection:
        host = self.host.strip("[]")
        if self.tls is None:
            return http.client.HTTPConnection(host, port, timeout=timeout_s)
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self.tls)

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            self.wait_for(node)

    def wait_for(self, node: EtcdNode) -> None:
        """Wait until a put through the node succeeds."""
        give_up = time.monotonic() + START_S
        while True:
            try:
                node.put("started")
            except (OSError, ValueError, http.client.HTTPException):
                assert time.monotonic() < give_up, node.log.read_text()[-2000:]
                time.sleep(0.03)
            else:
                return

    def leader(self) -> EtcdNode:
        give_up = time.monotonic() + START_S
        while time.monotonic() < give_up:
            for node in self.nodes:
                try:
                    if node.is_leader():
                        return node
                except (OSError, ValueError, KeyError, http.client.HTTPException):
                    continue
            time.sleep(0.05)
        raise AssertionError("no leader")

    def close(self) -> None:
        for node in self.nodes:
            node.kill()


@contextmanager
def running_etcd(
    nodes: int = 1,
    *,
    newest: bool = False,
    options: tuple[str, ...] = (),
    tls: Any = None,
    host: str = "127.0.0.1",
) -> Iterator[EtcdCluster]:
    """Run etcd; its data is deleted afterwards."""
    binary = etcd_binary(newest=newest)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidelog-etcd-")))
        cluster = EtcdCluster(folder, binary, nodes, options=options, tls=tls, host=host)
        stack.callback(cluster.close)
        cluster.start()
        yield cluster


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _die_with_parent() -> None:
    """Let the kernel end etcd with the test, however the test ends."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def _free_ports(count: int) -> list[int]:
    """Ports below those that the system gives to outgoing connections: a node that restarts must
    find its port free. Each worker of pytest-xdist has ports of its own."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(15_000, 32_000) // WORKERS * WORKERS + worker
        if port in found:
            continue
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            found.append(port)
    return found
