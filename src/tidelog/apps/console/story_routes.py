"""The HTTP interface of stories and lessons.

    GET  /api/stories                  all stories and lessons
    GET  /api/stories/FOLDER/NAME      one story, played under each of its rules
    POST /api/stories/run {text}       an edited story, played within bounds

Handlers are plain functions, which Starlette runs in threads, except the one that reads a body.
"""

import json
from collections.abc import Sequence
from threading import BoundedSemaphore

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from tidelog.apps.console.failure import INVALID, NOT_FOUND, UNAVAILABLE, Failure
from tidelog.apps.stories.bounded import TEXT_BYTES_MAX, RunRefused, run_edited
from tidelog.apps.stories.lessons import lessons
from tidelog.apps.stories.shelf import included, played, summaries

RUNS_MAX = 2
"""How many edited stories run at once."""
BODY_BYTES_MAX = 8 * TEXT_BYTES_MAX
"""JSON may need several bytes for one of the text."""
_runs = BoundedSemaphore(RUNS_MAX)


def story_routes() -> Sequence[BaseRoute]:
    """Return the routes, for the application of the console."""
    return [
        Route("/api/stories", _list, methods=["GET"]),
        Route("/api/stories/run", _run, methods=["POST"]),
        Route("/api/stories/{folder}/{name}", _story, methods=["GET"]),
    ]


def _list(_request: Request) -> Response:
    found = [lesson.as_data() for lesson in lessons()]
    return JSONResponse({"stories": summaries(), "lessons": found})


def _story(request: Request) -> Response:
    name = f"{request.path_params['folder']}/{request.path_params['name']}"
    if name not in included():
        raise Failure(NOT_FOUND, f"there is no story {name!r}", "Open the list of stories.")
    return JSONResponse(played(name))


async def _run(request: Request) -> Response:
    text = _text_of(await _body(request))
    return await run_in_threadpool(_run_bounded, text)


def _run_bounded(text: str) -> Response:
    if not _runs.acquire(blocking=False):
        raise Failure(UNAVAILABLE, f"{RUNS_MAX} edited stories are running", "Try again soon.")
    try:
        return JSONResponse(run_edited(text))
    except RunRefused as refused:
        data = {"error": refused.message, "advice": refused.advice, "line": refused.line or None}
        return JSONResponse(data, INVALID)
    finally:
        _runs.release()


async def _body(request: Request) -> bytes:
    data = b""
    async for part in request.stream():
        data += part
        if len(data) > BODY_BYTES_MAX:
            raise Failure(413, "the story is too large", "Remove steps from it.")
    return data


def _text_of(body: bytes) -> str:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Failure(INVALID, "the request is not JSON") from error
    text = found.get("text") if isinstance(found, dict) else None
    if not isinstance(text, str):
        raise Failure(INVALID, "'text' must be a string")
    return text
