"""The routes of one cluster's resources and actions; the console's cluster and a lesson's use them.

Handlers that wait for the cluster are plain functions, which Starlette runs in threads; only the
streams run in the event loop.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from tidelog.apps.console import resources
from tidelog.apps.console.actions import Actions
from tidelog.apps.console.failure import INVALID, Failure
from tidelog.apps.console.live import STREAMS_MAX, Live, unavailable
from tidelog.apps.console.pages import Pages
from tidelog.apps.console.resources import Resource
from tidelog.apps.console.security import BODY_MAX, AsciiJson

Json = dict[str, Any]
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
    "transactions": lambda _: Resource(resources.TRANSACTIONS),
    "transactions/{id:path}": lambda at: Resource(resources.TRANSACTION, at["id"]),
}
"""Each resource's path, below /api/ and /api/live/. Names of groups and transactional ids may
contain slashes."""


class Serving(NamedTuple):
    """What serves the pages of one cluster."""

    pages: Pages
    live: Live
    actions: Actions


def resource_routes(prefix: str, serving: Callable[[], Serving]) -> list[BaseRoute]:
    """Return the routes; `prefix` precedes each resource and `actions`, below /api/.

    `serving` is called for each request, and may raise Failure.
    """
    routes: list[BaseRoute] = []
    for path, parse in _PATHS.items():
        streaming, answering = _streaming(serving, parse), _answering(serving, parse)
        routes.append(Route(f"/api/live/{prefix}{path}", streaming, methods=["GET"]))
        routes.append(Route(f"/api/{prefix}{path}", answering, methods=["GET"]))
    routes.append(Route(f"/api/{prefix}actions/{{name}}", _acting(serving), methods=["POST"]))
    return routes


def _answering(
    serving: Callable[[], Serving], parse: Callable[[Json], Resource]
) -> Callable[[Request], Response]:
    def handle(request: Request) -> Response:
        pages, resource = serving().pages, parse(request.path_params)
        at_ms = number(request, "at")
        if at_ms is not None:
            return AsciiJson(pages.past(resource, at_ms))
        return AsciiJson(pages.now(resource))

    return handle


def _streaming(
    serving: Callable[[], Serving], parse: Callable[[Json], Resource]
) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        live = serving().live
        if live.page_count >= STREAMS_MAX:
            raise unavailable()
        stream = live.stream(parse(request.path_params))
        return StreamingResponse(stream, media_type="text/event-stream")

    return handle


def _acting(serving: Callable[[], Serving]) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        body = await json_of(request)
        done = await run_in_threadpool(serving().actions.run, request.path_params["name"], body)
        return AsciiJson(done)

    return handle


async def json_of(request: Request) -> Json:
    """Return the JSON object of a request's body. Raises Failure."""
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


def number(request: Request, name: str) -> int | None:
    """Return a whole number of the query; None if it is not given. Raises Failure."""
    text = request.query_params.get(name)
    if text is None or text == "":
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 18 or int(text) > TIME_MAX:
        raise Failure(INVALID, f"{name!r} must be a whole number")
    return int(text)
