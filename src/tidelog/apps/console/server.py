"""Builds and runs the console: the collector, the pages and the HTTP server.

The socket is bound before anything else, so an address in use is reported at once, and the caller
knows the port.
"""

import os
import socket
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import uvicorn
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from tidelog.apps.console.actions import Actions
from tidelog.apps.console.app import Parts, make_app
from tidelog.apps.console.avro_values import AvroValues
from tidelog.apps.console.cluster_pool import ClusterPool
from tidelog.apps.console.collector import Collector, Pace
from tidelog.apps.console.failure import Failure
from tidelog.apps.console.fetched import Fetched
from tidelog.apps.console.group_sampler import GroupPace, GroupSampler
from tidelog.apps.console.history.event_file import EventFile
from tidelog.apps.console.history.file_collector import FileCollector
from tidelog.apps.console.lesson.cluster import LessonCluster
from tidelog.apps.console.lesson.routes import lesson_routes
from tidelog.apps.console.live import Live
from tidelog.apps.console.local_control import LocalControl
from tidelog.apps.console.pages import Pages
from tidelog.apps.console.recorder import NoRecorder, Recorder
from tidelog.apps.console.security import LOOPBACK, Guard, is_loopback
from tidelog.apps.console.static_files import FOLDER, StaticFiles
from tidelog.apps.console.story_routes import story_routes
from tidelog.apps.console.target import Target

STOP_S = 2
"""How long open requests may take at the end."""


class Options(NamedTuple):
    """How to serve the console."""

    target: Target
    listener: socket.socket
    host: str
    """The host that was given; the listener has its address."""
    token: str | None = None
    allow_actions: bool = False
    recorder: Recorder | None = None
    file: EventFile | None = None
    """Shows this file instead of a cluster."""
    static: str = FOLDER
    pace: Pace | None = None
    group_pace: GroupPace | None = None
    avro: AvroValues | None = None
    routes: Sequence[BaseRoute] = ()


class Console:
    """One console. `run` returns when the process is asked to stop, or after `stop`."""

    def __init__(self, options: Options) -> None:
        target = options.target
        self._options = options
        self._listener = options.listener
        self.port = int(options.listener.getsockname()[1])
        self._recorder: Recorder = options.file or options.recorder or NoRecorder()
        control = LocalControl(target.data) if target.data is not None else None
        self._pool = ClusterPool(target)
        self._collector: Collector = (
            Collector(target, self._recorder, control, options.pace)
            if options.file is None
            else FileCollector(target, options.file)
        )
        self._groups: GroupSampler | None = None
        if options.file is None and not isinstance(self._recorder, NoRecorder):
            self._groups = GroupSampler(
                self._pool, self._collector, self._recorder, options.group_pace
            )
        fetched, is_file = Fetched(self._pool), options.file is not None
        pages = Pages(self._collector, fetched, self._recorder, is_file=is_file)
        self._live = Live(pages, self._collector)
        self._actions = Actions(
            self._pool, control, self._collector.hurry, allowed=options.allow_actions
        )
        parts = Parts(
            pages,
            self._live,
            self._recorder,
            self._pool,
            self._actions,
            StaticFiles(options.static),
            self.session,
            options.avro or AvroValues({}),
        )
        self._lessons = LessonCluster(allowed=options.allow_actions, pace=options.pace)
        more = [*story_routes(), *lesson_routes(self._lessons), *options.routes]
        self.app = make_app(parts, self._guard, more)
        # The lifespan protocol, WebSockets and logs of requests are not used.
        config = uvicorn.Config(
            self.app,
            log_level="error",
            access_log=False,
            lifespan="off",
            ws="none",
            loop="asyncio",
            http="h11",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=STOP_S,
        )
        self._server = _Server(config, self._close_streams)

    def _guard(self, app: ASGIApp) -> Guard:
        host = self._options.host
        hosts = sorted({*LOOPBACK, host}) if is_loopback(host) else []
        return Guard(app, hosts=hosts, port=self.port, token=self._options.token)

    def url(self, *, token: bool = True) -> str:
        """Return the URL of the first page; with the token, if there is one."""
        host = self._options.host
        if host in ("0.0.0.0", "::", ""):
            host = socket.gethostname()
        name = f"[{host}]" if ":" in host else host
        secret = f"/?token={self._options.token}" if token and self._options.token else ""
        return f"http://{name}:{self.port}{secret}"

    def run(self) -> None:
        """Serve until the process is asked to stop (SIGINT, SIGTERM), or until `stop`."""
        self._collector.start()
        self._live.start()
        if self._groups is not None:
            self._groups.start()
        try:
            self._server.run([self._listener])
        finally:
            self._live.close()
            self._lessons.close()
            if self._groups is not None:
                self._groups.stop()
            self._collector.stop()
            self._pool.close()
            self._recorder.close()
            self._listener.close()

    def _close_streams(self) -> None:
        self._live.close()
        self._lessons.close_streams()

    def stop(self) -> None:
        """End `run`; may be called by another thread."""
        self._server.should_exit = True

    def session(self) -> dict[str, Any]:
        """Return what the frontend needs to know about this console."""
        update = self._collector.latest()
        sample = None if update is None else update.sample
        span = self._recorder.span()
        file = self._options.file
        try:
            bootstrap = self._options.target.bootstrap()
        except Failure:
            bootstrap = None
        return {
            "version": _version(),
            "kind": "tidelog" if sample is None or sample.is_tidelog else "kafka",
            "cluster_id": None if sample is None else sample.metadata.cluster_id,
            "bootstrap": bootstrap,
            "data": self._options.target.data,
            "local": self._options.target.data is not None,
            "allow_actions": self._actions.allowed,
            "actions": self._actions.offered(),
            "history": None if span is None else span._asdict(),
            "source": "cluster" if file is None else f"file {os.path.basename(file.path)}",
            "missing": None if file is None else file.missing,
        }


class _Server(uvicorn.Server):
    """Ends the streams of open pages first: uvicorn waits for the end of each request."""

    def __init__(self, config: uvicorn.Config, close_streams: Callable[[], None]) -> None:
        super().__init__(config)
        self._close_streams = close_streams

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._close_streams()
        await super().shutdown(sockets)


def _version() -> str:
    try:
        return version("tidelog")
    except PackageNotFoundError:
        return "unknown"
