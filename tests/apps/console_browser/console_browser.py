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
CALM = [
    *("--set", "broker.session.timeout.ms=120000"),
    *("--set", "replica.lag.time.max.ms=120000"),
]
"""A broker that gets no CPU time for seconds causes no election. The end of a broker's process is
detected without its session timeout."""
UNAVAILABLE, NOT_FOUND = 503, 404
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
        [*TIDELOG, *words],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


@contextmanager
def cluster(data: Path) -> Iterator[str]:
    """Run three brokers with fault switches; yield the bootstrap addresses."""
    words = ["up", "--data", str(data), "--port", "0", "--detach", "--format", "json", *CALM]
    up = json.loads(tidelog(*words, "--set", "tidelog.fault.switches=true"))
    try:
        yield up["bootstrap"]
    finally:
        subprocess.run(
            [*TIDELOG, "down", "--data", str(data), "--wait", "10"],
            capture_output=True,
            check=False,
            timeout=PATIENCE_S,
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
        eventually(self._serves, "the console serves; after a kill, its port must be free")

    def _serves(self) -> bool:
        words = ["console", *self._data, "--port", str(self.port), *self._options]
        self._process = subprocess.Popen([*TIDELOG, *words], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:  # another process has taken the port meanwhile
            self.kill()
            return False
        self.port = int(line.strip().rstrip("/").rpartition(":")[2])
        return True

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

    def create_topic(self, topic: str, **more: Any) -> None:
        """Create a topic; a request whose response was late may have created it."""

        def created() -> bool:
            body = {"topic": topic, **more}
            status, found = self._request("POST", "/api/actions/create-topic", body)
            return status == 200 or "TOPIC_ALREADY_EXISTS" in found["error"]

        eventually(created, f"topic {topic} is created")

    def look(self, path: str) -> Any:
        """Return the data of a page; None if it has none, or the cluster did not respond."""
        status, found = self._request("GET", f"/api/{path}", None)
        assert status in (200, UNAVAILABLE, NOT_FOUND), found
        return found if status == 200 else None

    def read(self, path: str) -> Any:
        """Return the data of a page that exists, or will as soon as the console knows it."""
        return self.until_shown(path, lambda _: True)

    def until_shown(self, path: str, holds: Callable[[Any], object]) -> Any:
        """Read a page until `holds` is true of its data, and return them."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := self.look(path)) is None or not holds(found):
            assert time.monotonic() < deadline, (path, found)
            time.sleep(0.1)
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

        def in_sync(data: Any) -> bool:
            found = data["partition"]
            return found["leader"] is not None and len(found["isr"]) == len(found["replicas"])

        self.until_shown(f"partitions/{topic}/{partition}", in_sync)

    def until(self, topic: str, *, leader: int, isr: list[int], partition: int = 0) -> None:
        """Wait until a partition has this leader and ISR."""

        def reached(data: Any) -> bool:
            found = data["partition"]
            return (found["leader"], sorted(found["isr"])) == (leader, isr)

        self.until_shown(f"partitions/{topic}/{partition}", reached)


def eventually(look: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    """Call `look` until its result is true."""
    deadline = time.monotonic() + patience_s
    while not look():
        assert time.monotonic() < deadline, f"not seen: {what}"
        time.sleep(0.1)
