"""The console's HTTP interface: paths and their handlers.

Handlers that wait for the cluster are plain functions, which Starlette runs in threads.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidelog.apps.console.actions import Actions
from tidelog.apps.console.avro_values import AvroValues
from tidelog.apps.console.cluster_pool import ClusterPool
from tidelog.apps.console.failure import INVALID, NOT_FOUND, Failure, before_history, of_client
from tidelog.apps.console.history.diff import diff
from tidelog.apps.console.live import Live
from tidelog.apps.console.pages import Pages
from tidelog.apps.console.record_browser import LIMIT, read_records
from tidelog.apps.console.recorder import Recorder
from tidelog.apps.console.security import AsciiJson, Guard
from tidelog.apps.console.serving import Serving, number, resource_routes
from tidelog.apps.console.static_files import StaticFiles
from tidelog.apps.views.losses import view_losses
from tidelog.core.types import TopicPartition
from tidelog.shell.client.client_errors import ClientError

Json = dict[str, Any]
EVENTS, EVENTS_MAX = 200, 5000


class Parts(NamedTuple):
    """The objects that handlers use."""

    pages: Pages
    live: Live
    recorder: Recorder
    pool: ClusterPool
    actions: Actions
    static: StaticFiles
    session: Callable[[], Json]
    """Returns the data that does not change while a page is open."""
    avro: AvroValues


def make_app(
    parts: Parts, guard: Callable[..., Guard], more: Sequence[BaseRoute] = ()
) -> Starlette:
    """Return the application; `more` are routes of other parts, such as stories."""
    routes: list[BaseRoute] = [*more]
    serving = Serving(parts.pages, parts.live, parts.actions)
    routes += [
        *resource_routes("", lambda: serving),
        _get("/api/session", lambda _: parts.session()),
        _get("/api/events", partial(_events, parts)),
        _get("/api/timeline", partial(_timeline, parts)),
        _get("/api/diff", partial(_diff, parts)),
        _get("/api/losses", partial(_losses, parts)),
        _get("/api/records/{topic}/{partition:int}", partial(_records, parts)),
        Route("/api/{rest:path}", _unknown, methods=["GET", "POST", "PUT", "DELETE", "PATCH"]),
        Route("/{rest:path}", parts.static.serve, methods=["GET"]),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(guard)],
        exception_handlers={Failure: _failed, ClientError: _client_failed, HTTPException: _http},
    )


def _get(path: str, answer: Callable[[Request], Json]) -> Route:
    def handle(request: Request) -> Response:
        return AsciiJson(answer(request))

    return Route(path, handle, methods=["GET"])


# -- handlers --------------------------------------------------------------------------------


def _events(parts: Parts, request: Request) -> Json:
    limit = max(1, min(number(request, "limit") or EVENTS, EVENTS_MAX))
    topic = request.query_params.get("topic")
    span = number(request, "from"), number(request, "to")
    return {"events": parts.recorder.events(*span, topic, number(request, "partition"), limit)}


def _timeline(parts: Parts, request: Request) -> Json:
    topic = request.query_params.get("topic")
    return parts.recorder.timeline(topic, number(request, "partition"))


def _diff(parts: Parts, request: Request) -> Json:
    from_ms, to_ms = number(request, "from"), number(request, "to")
    if from_ms is None or to_ms is None or from_ms > to_ms:
        raise Failure(INVALID, "'from' and 'to' must be times, the earlier one first")
    found = diff(parts.recorder, from_ms, to_ms)
    if found is None:
        raise before_history()
    return found


def _losses(parts: Parts, request: Request) -> Json:
    topic = request.query_params.get("topic") or None
    since_ms = number(request, "since") or 0
    with parts.pool.borrow() as cluster:
        return view_losses(cluster, topic, since_ms).as_data()


def _records(parts: Parts, request: Request) -> Json:
    key = TopicPartition(request.path_params["topic"], request.path_params["partition"])
    offset, limit = number(request, "offset"), number(request, "limit")
    return read_records(parts.pool, key, offset, LIMIT if limit is None else limit, parts.avro)


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
