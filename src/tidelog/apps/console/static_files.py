"""The built frontend, in memory. Paths are looked up in a dict, so none leads out of the folder."""

import hashlib
import mimetypes
import os
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

FOLDER = os.path.join(os.path.dirname(__file__), "static")
INDEX = "index.html"
ASSETS = "assets/"
"""Names below this are files, never pages."""
NOT_BUILT = "The console's pages are not built. In a clone of Tidelog, run: make console\n"


class _File(NamedTuple):
    content: bytes
    type: str
    etag: str


class StaticFiles:
    """Serves the files; any other path is a page of the frontend, and gets its index."""

    def __init__(self, folder: str = FOLDER) -> None:
        self._files: dict[str, _File] = {}
        for where, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(where, name)
                with open(path, "rb") as file:
                    content = file.read()
                kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
                if name.endswith(".js"):
                    kind = "text/javascript"
                etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
                key = os.path.relpath(path, folder).replace(os.sep, "/")
                self._files[key] = _File(content, kind, etag)

    async def serve(self, request: Request) -> Response:
        """Answer a request for a file or a page."""
        path = request.url.path.lstrip("/")
        found = self._files.get(path)
        if found is None:
            if path.startswith(ASSETS):
                return PlainTextResponse("there is no such file\n", 404)
            found = self._files.get(INDEX)
        if found is None:
            return PlainTextResponse(NOT_BUILT, 503)
        # Names have no hash of the content: browsers ask each time whether it changed.
        headers = {"Cache-Control": "no-cache", "ETag": found.etag}
        if request.headers.get("if-none-match") == found.etag:
            return Response(status_code=304, headers=headers)
        return Response(found.content, headers=headers, media_type=found.type)
