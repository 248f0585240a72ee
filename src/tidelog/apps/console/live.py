"""Pushes resources to open pages as Server-Sent Events.

Each resource that a page shows is rendered once for all of its pages: in the collector's thread
when a sample arrives, or in a thread of its own if it needs requests. A page that reads slowly
gets the newest state, never a queue of old ones. Invariant: the collector counts a page from
`stream` until its connection ends.
"""

import asyncio
import json
import threading
import traceback
from collections.abc import AsyncIterator
from typing import Any

from tidelog.apps.console.collector import Collector, Update
from tidelog.apps.console.failure import DEFECT, UNAVAILABLE, Failure
from tidelog.apps.console.pages import Pages
from tidelog.apps.console.resources import TOPIC, Resource

KEEP_ALIVE_S = 10.0
PUSH_GAP_S = 0.25
"""At most four messages a second for each page."""
REQUESTS_S = 1.0
"""How often a resource that needs requests is rendered."""
STREAMS_MAX = 200


class _Channel:
    """The pages of one resource."""

    def __init__(self) -> None:
        self.pages: set[asyncio.Event] = set()
        self.number = 0
        self.message = b""
        self._state = ""

    def set(self, event: str, at_ms: int, data: dict[str, Any]) -> bool:
        """Make this the newest message, unless only its time changed."""
        content = json.dumps(data, separators=(",", ":"))
        state = f"{event} {content}"
        if state == self._state:
            return False
        self._state = state
        if event == "state":
            content = f'{{"at_ms":{at_ms},{content[1:]}'
        self.message = f"event: {event}\ndata: {content}\n\n".encode()
        self.number += 1
        return True


class Live:
    """All channels. `stream` runs in the event loop, the rest in other threads."""

    def __init__(self, pages: Pages, collector: Collector) -> None:
        self._pages = pages
        self._collector = collector
        self._lock = threading.Lock()
        self._channels: dict[Resource, _Channel] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = threading.Event()
        collector.publish = self._publish
        self._thread = threading.Thread(
            target=self._render_requests, name="console-requests", daemon=True
        )

    def start(self) -> None:
        """Start the thread for resources that need requests."""
        self._thread.start()

    def close(self) -> None:
        """End all streams."""
        self._closing.set()
        self._wake(list(self._channels.values()))

    @property
    def page_count(self) -> int:
        """How many pages are open."""
        with self._lock:
            return sum(len(channel.pages) for channel in self._channels.values())

    async def stream(self, resource: Resource) -> AsyncIterator[bytes]:
        """Yield the messages for one page, until it is closed."""
        self._loop = asyncio.get_running_loop()
        changed = asyncio.Event()
        with self._lock:
            channel = self._channels.setdefault(resource, _Channel())
            channel.pages.add(changed)
        self._collector.page_opened(resource.key)
        try:
            yield b"retry: 1000\n\n"
            sent = 0
            while not self._closing.is_set():
                changed.clear()
                if channel.number != sent:
                    sent = channel.number
                    yield channel.message
                    await asyncio.sleep(PUSH_GAP_S)
                    continue
                try:
                    await asyncio.wait_for(changed.wait(), KEEP_ALIVE_S)
                except TimeoutError:
                    yield b": alive\n\n"
        finally:
            self._collector.page_closed(resource.key)
            with self._lock:
                channel.pages.discard(changed)
                if not channel.pages:
                    self._channels.pop(resource, None)

    # -- other threads -------------------------------------------------------------------------

    def _publish(self, update: Update) -> None:
        """Render what changed with a sample; called by the collector's thread."""
        with self._lock:
            channels = list(self._channels.items())
        changed = []
        for resource, channel in channels:
            if update.sample is None:
                assert update.failure is not None
                is_new = _set_failure(channel, update.failure)
            elif self._pages.needs_requests(resource, update.sample):
                continue
            else:
                is_new = _concerns(update, resource) and self._render(resource, channel, update)
            if is_new:
                changed.append(channel)
        self._wake(changed)

    def _render_requests(self) -> None:
        while not self._closing.wait(REQUESTS_S):
            update = self._collector.latest()
            if update is None or update.sample is None:
                continue
            with self._lock:
                channels = list(self._channels.items())
            for resource, channel in channels:
                needed = self._pages.needs_requests(resource, update.sample)
                if needed and self._render(resource, channel, update):
                    self._wake([channel])

    def _render(self, resource: Resource, channel: _Channel, update: Update) -> bool:
        assert update.sample is not None
        try:
            data = self._pages.render(resource, update.sample)
        except Failure as failure:
            return _set_failure(channel, failure)
        except Exception as error:  # noqa: BLE001 - a defect of one page must not end the others
            traceback.print_exc()
            what = f"defect of the console: {type(error).__name__}"
            return _set_failure(channel, Failure(DEFECT, what, "see its standard error"))
        return channel.set("state", data.pop("at_ms"), data)

    def _wake(self, channels: list[_Channel]) -> None:
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        for channel in channels:
            for page in list(channel.pages):
                try:
                    loop.call_soon_threadsafe(page.set)
                except RuntimeError:  # the loop was closed meanwhile
                    return


def _set_failure(channel: _Channel, failure: Failure) -> bool:
    data = {**failure.as_data(), "status": failure.status}
    return channel.set("error", 0, data)


def _concerns(update: Update, resource: Resource) -> bool:
    """Whether the update may have changed the resource."""
    if update.only is None:
        return True
    if resource.kind == TOPIC:
        return any(key.topic == resource.name for key in update.only)
    return resource.key in update.only


def unavailable() -> Failure:
    """Return the failure for a page above the limit."""
    return Failure(UNAVAILABLE, f"{STREAMS_MAX} pages are open", "close some of them")
