"""The HTTP interface of a lesson's brokers.

    GET  /api/lesson                    whether and for which lesson they run
    POST /api/lesson/start {lesson}     start them
    POST /api/lesson/stop {lesson}      stop them

and their resources and actions, as those of the console's cluster: /api/lesson/R,
/api/live/lesson/R, POST /api/lesson/actions/NAME.
"""

from collections.abc import Sequence

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidelog.apps.console.failure import INVALID, Failure
from tidelog.apps.console.lesson.cluster import LessonCluster
from tidelog.apps.console.security import AsciiJson
from tidelog.apps.console.serving import json_of, resource_routes
from tidelog.apps.stories.lessons import lessons


def lesson_routes(cluster: LessonCluster) -> Sequence[BaseRoute]:
    """Return the routes, for the application of the console."""

    def state(_request: Request) -> Response:
        return AsciiJson(cluster.state())

    async def start(request: Request) -> Response:
        lesson = await _lesson(request)
        return AsciiJson(await run_in_threadpool(cluster.start, lesson))

    async def stop(request: Request) -> Response:
        lesson = await _lesson(request)
        return AsciiJson(await run_in_threadpool(cluster.stop, lesson))

    return [
        Route("/api/lesson", state, methods=["GET"]),
        Route("/api/lesson/start", start, methods=["POST"]),
        Route("/api/lesson/stop", stop, methods=["POST"]),
        *resource_routes("lesson/", cluster.serving),
    ]


async def _lesson(request: Request) -> int:
    lesson = (await json_of(request)).get("lesson")
    if type(lesson) is not int or not 1 <= lesson <= len(lessons()):
        raise Failure(INVALID, f"'lesson' must be 1 to {len(lessons())}")
    return lesson
