"""A console on a port of its own, and a small HTTP and Server-Sent-Events client for it."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tidelog.apps.console.collector import Pace
from tidelog.apps.console.listener import bind
from tidelog.apps.console.server import Console, Options
from tidelog.apps.console.target import Target

PATIENCE_S = 120.0
CALM = {"broker.session.timeout.ms": "120000", "replica.lag.time.max.ms": "120000"}
"""Settings with which a broker that gets no CPU time for seconds causes no election and leaves no
ISR. The end of a broker's process is detected without its session timeout."""
UNAVAILABLE, NOT_FOUND = 503, 404
INDEX = "<!doctype html><title>Tidelog console</title>"
Json = dict[str, Any]


class Answer:
    """A response, complete."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    def json(self) -> Any:
        return json.loads(self.body)


class Page:
    """An open page: the messages of a stream."""

    def __init__(self, connection: http.client.HTTPConnection, path: str) -> None:
        self._connection = connection
        connection.request("GET", path)
        self.response = connection.getresponse()
        assert self.response.status == 200
        assert self.response.headers["content-type"].startswith("text/event-stream")

    def close(self) -> None:
        self.response.close()
        self._connection.close()

    def messages(self) -> Iterator[tuple[str, Json]]:
        """Yield (event, data); fails if none arrives for long."""
        event = ""
        deadline = time.monotonic() + PATIENCE_S
        while line := self.response.readline():
            assert time.monotonic() < deadline, "only comments arrive"
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                event = value
            elif name == "data":
                yield event, json.loads(value)
                deadline = time.monotonic() + PATIENCE_S

    def until(self, holds: Callable[[Json], object], event: str = "state") -> Json:
        """Return the first message of this kind for which `holds` is true."""
        deadline = time.monotonic() + PATIENCE_S
        last: object = None
        for kind, data in self.messages():
            if kind == event and holds(data):
                return data
            last = (kind, data)
            assert time.monotonic() < deadline, f"not seen; the last message: {last}"
        raise AssertionError(f"the stream ended; the last message: {last}")


class Client:
    """Sends requests to one console."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.console.port, timeout=PATIENCE_S)

    def get(self, path: str, headers: dict[str, str] | None = None, method: str = "GET") -> Answer:
        connection = self._connect()
        try:
            connection.request(method, path, headers=headers or {})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def settled(self, path: str) -> Answer:
        """Return the answer as soon as the cluster has responded to the console in time."""
        found: Answer = eventually(
            lambda: (answer := self.get(path)).status != UNAVAILABLE and answer,
            f"the cluster responds: {path}",
        )
        return found

    def read(self, path: str) -> Any:
        """Return the JSON of a page that exists, or will as soon as the console knows it."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := self.get(f"/api/{path}")).status in (UNAVAILABLE, NOT_FOUND):
            assert time.monotonic() < deadline, (path, found.status, found.body)
            time.sleep(0.02)
        assert found.status == 200, (found.status, found.body)
        return found.json()

    def until(self, path: str, holds: Callable[[Any], object]) -> Any:
        """Read a page until `holds` is true of its data. A single page may lack the state of a
        broker that responded too late."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds(data := self.read(path)):
            assert time.monotonic() < deadline, f"{path} does not show it: {data}"
            time.sleep(0.02)
        return data

    def post(self, name: str, body: object, headers: dict[str, str] | None = None) -> Answer:
        """Send an action, or a request to a path."""
        connection = self._connect()
        sent = {"X-Tidelog-Console": "1", "Content-Type": "application/json"}
        try:
            connection.request(
                "POST",
                name if name.startswith("/") else f"/api/actions/{name}",
                json.dumps(body),
                sent if headers is None else headers,
            )
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def post_settled(self, name: str, body: object) -> Answer:
        """Send an action that may be repeated, until the cluster responds to the console in
        time."""
        found: Answer = eventually(
            lambda: (answer := self.post(name, body)).status != UNAVAILABLE and answer,
            f"the cluster responds: {name}",
        )
        return found

    def post_until_done(self, name: str, body: object) -> Answer:
        """Repeat an action until it has succeeded; the result of a repeated one is the same."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := self.post(name, body)).status != 200:
            assert time.monotonic() < deadline, (name, found.status, found.body)
            time.sleep(0.02)
        return found

    def create_topic(self, topic: str, path: str = "create-topic", **more: Any) -> None:
        """Create a topic; a request whose response was late may have created it."""

        def created() -> bool:
            found = self.post(path, {"topic": topic, **more})
            return found.status == 200 or b"TOPIC_ALREADY_EXISTS" in found.body

        eventually(created, f"topic {topic} is created")

    @contextmanager
    def page(self, path: str) -> Iterator[Page]:
        page = Page(self._connect(), f"/api/live/{path}")
        try:
            yield page
        finally:
            page.close()


@contextmanager
def serve(target: Target, folder: Path, **options: Any) -> Iterator[Client]:
    """Run a console in a thread, with a placeholder as its pages."""
    (folder / "assets").mkdir(parents=True, exist_ok=True)
    (folder / "index.html").write_text(INDEX)
    (folder / "assets" / "app-1a2b.js").write_text("export {}")
    host = options.pop("host", "localhost")
    settings = {"static": str(folder), "pace": Pace(open_s=0.1, idle_s=1.0), **options}
    console = Console(Options(target, bind("127.0.0.1", 0), host, **settings))
    thread = threading.Thread(target=console.run)
    thread.start()
    try:
        yield Client(console)
    finally:
        console.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def eventually(look: Callable[[], Any], what: str) -> Any:
    """Call `look` until its result is true, and return it."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := look()):
        assert time.monotonic() < deadline, f"not seen: {what}"
        time.sleep(0.02)
    return found
