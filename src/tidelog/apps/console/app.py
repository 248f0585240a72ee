"""The console's HTTP interface: which path is answered by what.

Handlers that wait for the cluster are plain functions, which Starlette runs in threads; only the
streams run in the event loop.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from tidelog.apps.console import resources
from tidelog.apps.console.actions import Actions
from tidelog.apps.console.cluster_pool import ClusterPool
from tidelog.apps.console.failure import INVALID, NOT_FOUND, Failure, before_history, of_client
from tidelog.apps.console.history.diff import diff
from tidelog.apps.console.live import STREAMS_MAX, Live, unavailable
from tidelog.apps.console.pages import Pages
from tidelog.apps.console.record_browser import LIMIT, read_records
from tidelog.apps.console.recorder import Recorder
from tidelog.apps.console.resources import Resource
from tidelog.apps.console.security import BODY_MAX, AsciiJson, Guard
from tidelog.apps.console.static_files import StaticFiles
from tidelog.apps.views.losses import view_losses
from tidelog.core.types import TopicPartition
from tidelog.shell.client.client_errors import ClientError

Json = dict[str, Any]
EVENTS, EVENTS_MAX = 200, 5000
TIME_MAX = 1 << 53
_PATHS: dict[str, Callable[[Json], Resource]] = {
    "overview": lambda _: Resource(resources.OVERVIEW),
    "topics/{topic}": lambda at: Resource(resources.TOPIC, at["topic"]),
    "partitions/{topic}/{partition:int}": lambda at: Resource(
        resources.PARTITION, at["topic"], at["partition"]
    ),
    "brokers/{broker:int}": lambda at: Resource(resources.BROKER, "", at["broker"]),
    "groups": lambda _: Resource(resources.GROUPS),
    "groups/{group:path}": lambda at: Resource(resources.GROUP, at["group"]),
}
"""Each resource's path, below /api/ and /api/live/. A group's name may contain slashes."""


class Parts(NamedTuple):
    """What the handlers use."""

    pages: Pages
    live: Live
    recorder: Recorder
    pool: ClusterPool
    actions: Actions
    static: StaticFiles
    session: Callable[[], Json]
    """Returns what does not change while a page is open."""


def make_app(
    parts: Parts, guard: Callable[..., Guard], more: Sequence[BaseRoute] = ()
) -> Starlette:
    """Return the application; `more` are routes of other parts, such as stories."""
    routes: list[BaseRoute] = [*more]
    for path, parse in _PATHS.items():
        routes.append(Route(f"/api/live/{path}", _streaming(parts, parse), methods=["GET"]))
        routes.append(Route(f"/api/{path}", _answering(parts, parse), methods=["GET"]))
    routes += [
        _get("/api/session", lambda _: parts.session()),
        _get("/api/events", partial(_events, parts)),
        _get("/api/timeline", partial(_timeline, parts)),
        _get("/api/diff", partial(_diff, parts)),
        _get("/api/losses", partial(_losses, parts)),
        _get("/api/records/{topic}/{partition:int}", partial(_records, parts)),
        Route("/api/actions/{name}", _acting(parts), methods=["POST"]),
        Route("/api/{rest:path}", _unknown, methods=["GET", "POST", "PUT", "DELETE", "PATCH"]),
        Route("/{rest:path}", parts.static.serve, methods=["GET"]),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(guard)],
        exception_handlers={Failure: _failed, ClientError: _client_failed, HTTPException: _http},
    )


# -- kinds of handlers -----------------------------------------------------------------------


def _get(path: str, answer: Callable[[Request], Json]) -> Route:
    def handle(request: Request) -> Response:
        return AsciiJson(answer(request))

    return Route(path, handle, methods=["GET"])


def _answering(parts: Parts, parse: Callable[[Json], Resource]) -> Callable[[Request], Response]:
    def handle(request: Request) -> Response:
        resource = parse(request.path_params)
        at_ms = _number(request, "at")
        if at_ms is not None:
            return AsciiJson(parts.pages.past(resource, at_ms))
        return AsciiJson(parts.pages.now(resource))

    return handle


def _streaming(
    parts: Parts, parse: Callable[[Json], Resource]
) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        if parts.live.page_count >= STREAMS_MAX:
            raise unavailable()
        stream = parts.live.stream(parse(request.path_params))
        return StreamingResponse(stream, media_type="text/event-stream")

    return handle


def _acting(parts: Parts) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        body = await _body(request)
        done = await run_in_threadpool(parts.actions.run, request.path_params["name"], body)
        return AsciiJson(done)

    return handle


async def _body(request: Request) -> Json:
    data = b""
    async for part in request.stream():
        data += part
        if len(data) > BODY_MAX:
            raise Failure(413, f"a request has up to {BODY_MAX} bytes")
    try:
        found = json.loads(data or b"{}")
    except (ValueError, RecursionError) as error:
        raise Failure(INVALID, "the request is not JSON") from error
    if not isinstance(found, dict):
        raise Failure(INVALID, "the request is not a JSON object")
    return found


# -- handlers --------------------------------------------------------------------------------


def _events(parts: Parts, request: Request) -> Json:
    limit = max(1, min(_number(request, "limit") or EVENTS, EVENTS_MAX))
    topic = request.query_params.get("topic")
    span = _number(request, "from"), _number(request, "to")
    return {"events": parts.recorder.events(*span, topic, _number(request, "partition"), limit)}


def _timeline(parts: Parts, request: Request) -> Json:
    topic = request.query_params.get("topic")
    return parts.recorder.timeline(topic, _number(request, "partition"))


def _diff(parts: Parts, request: Request) -> Json:
    from_ms, to_ms = _number(request, "from"), _number(request, "to")
    if from_ms is None or to_ms is None or from_ms > to_ms:
        raise Failure(INVALID, "'from' and 'to' must be times, the earlier one first")
    found = diff(parts.recorder, from_ms, to_ms)
    if found is None:
        raise before_history()
    return found


def _losses(parts: Parts, request: Request) -> Json:
    topic = request.query_params.get("topic") or None
    since_ms = _number(request, "since") or 0
    with parts.pool.borrow() as cluster:
        return view_losses(cluster, topic, since_ms).as_data()


def _records(parts: Parts, request: Request) -> Json:
    key = TopicPartition(request.path_params["topic"], request.path_params["partition"])
    offset, limit = _number(request, "offset"), _number(request, "limit")
    return read_records(parts.pool, key, offset, LIMIT if limit is None else limit)


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None or text == "":
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 18 or int(text) > TIME_MAX:
        raise Failure(INVALID, f"{name!r} must be a whole number")
    return int(text)


def _unknown(request: Request) -> Response:
    raise Failure(NOT_FOUND, f"there is no {request.url.path}", "")


# -- failures --------------------------------------------------------------------------------


def _failed(_request: Request, failure: Exception) -> Response:
    assert isinstance(failure, Failure)
    return AsciiJson(failure.as_data(), failure.status)


def _client_failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, ClientError)
    return _failed(request, of_client(error))


def _http(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return AsciiJson({"error": error.detail, "advice": ""}, error.status_code)
