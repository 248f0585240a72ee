"""A cluster, its console as a process, and a headless browser for tests of the pages."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TIDELOG = [sys.executable, "-m", "tidelog"]
QUICK = ["--set", "broker.session.timeout.ms=2000", "--set", "broker.heartbeat.interval.ms=500"]
PATIENCE_S = 120.0
PATIENCE_MS = PATIENCE_S * 1000
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>{@html 1}\'"&amp;'


def browser_path() -> str:
    """Return the path of a browser, or skip the test."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no chromium in PATH: python scripts/set_up_browser.py installs it")
    return found


def tidelog(*words: str, given: str = "") -> str:
    done = subprocess.run(
        [*TIDELOG, *words], input=given, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


@contextmanager
def cluster(data: Path) -> Iterator[str]:
    """Run three brokers with fault switches; yield the bootstrap addresses."""
    words = ["up", "--data", str(data), "--port", "0", "--detach", "--format", "json", *QUICK]
    up = json.loads(tidelog(*words, "--set", "tidelog.fault.switches=true"))
    try:
        yield up["bootstrap"]
    finally:
        subprocess.run(
            [*TIDELOG, "down", "--data", str(data), "--wait", "10"],
            capture_output=True,
            check=False,
            timeout=60,
        )


class ConsoleProcess:
    """`tidelog console` on a port that stays the same after a restart."""

    def __init__(self, data: Path | None, *options: str) -> None:
        self._data = [] if data is None else ["--data", str(data)]
        self._options = options
        self.port = 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    def start(self) -> None:
        words = ["console", *self._data, "--port", str(self.port), *self._options]
        self._process = subprocess.Popen([*TIDELOG, *words], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.port = int(line.strip().rstrip("/").rpartition(":")[2])

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(PATIENCE_S)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def act(self, action: str, **body: Any) -> Any:
        """Carry out an action without a page."""
        status, found = self._request("POST", f"/api/actions/{action}", body)
        assert status == 200, found
        return found

    def read(self, path: str) -> Any:
        status, found = self._request("GET", f"/api/{path}", None)
        assert status == 200, found
        return found

    def _request(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        connection = HTTPConnection("localhost", self.port, timeout=PATIENCE_S)
        try:
            headers = {"X-Tidelog-Console": "1", "Content-Type": "application/json"}
            connection.request(method, path, body and json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def until_in_sync(self, topic: str, partition: int = 0) -> None:
        """Wait until all replicas of a partition are in sync."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = self.read(f"partitions/{topic}/{partition}")["partition"]
            if found["leader"] is not None and len(found["isr"]) == len(found["replicas"]):
                return
            assert time.monotonic() < deadline, found
            time.sleep(0.1)

    def until(self, topic: str, *, leader: int, isr: list[int], partition: int = 0) -> None:
        """Wait until a partition has this leader and ISR."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = self.read(f"partitions/{topic}/{partition}")["partition"]
            if (found["leader"], sorted(found["isr"])) == (leader, isr):
                return
            assert time.monotonic() < deadline, found
            time.sleep(0.1)


def eventually(look: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    """Call `look` until its result is true."""
    deadline = time.monotonic() + patience_s
    while not look():
        assert time.monotonic() < deadline, f"not seen: {what}"
        time.sleep(0.1)
