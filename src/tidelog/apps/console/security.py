"""Check requests before a page or an action handles them.

- The Host header names this console (else a page of another site could reach it by DNS rebinding).
- With a token: the token, in the Authorization header, in the cookie, or once in the URL.
- A request that may change something has the header X-Tidelog-Console, which other sites can't
  send without permission that the console never gives, and comes from the console's own origin.

Every response has a strict Content-Security-Policy, so that a text from the cluster that got into
a page as HTML could not run. Invariant: responses are complete before this module sees the token
again; no log and no URL that stays in the browser contains it.
"""

import hmac
import json
import os
from collections.abc import Sequence
from http.cookies import CookieError, SimpleCookie
from secrets import token_urlsafe
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("localhost", "127.0.0.1", "::1")
ACTION_HEADER = "x-tidelog-console"
BODY_MAX = 2 << 20
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; object-src 'none';"
    " frame-ancestors 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class TokenUnusable(Exception):
    """The token file can't be read or written. Its text is one line."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to the address."""
    return host in LOOPBACK or host.startswith("127.")


def read_token(path: str | None) -> str:
    """Return the token in a file, which is created if it is missing; without a file a new one.

    Raises TokenUnusable.
    """
    if path is None:
        return token_urlsafe(24)
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read().strip()
    except FileNotFoundError:
        token = token_urlsafe(24)
        try:
            out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(out, "w", encoding="utf-8") as file:
                file.write(f"{token}\n")
        except OSError as error:
            raise TokenUnusable(f"can't write {path}: {error.strerror}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise TokenUnusable(f"can't read {path}: {error}") from error
    if len(token) < 16 or not token.isascii() or not token.isprintable() or " " in token:
        raise TokenUnusable(f"{path} has no usable token: it needs 16 or more letters and digits")
    return token


class Guard:
    """ASGI middleware: refuses requests, and adds headers to responses."""

    def __init__(self, app: ASGIApp, *, hosts: Sequence[str], port: int, token: str | None) -> None:
        """`hosts`: the names that the Host header may have; empty: any, because of the token."""
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._token = token
        self._cookie = f"tidelog_console_{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no WebSockets
        refusal = self._refuse(scope)
        if refusal is not None:
            await refusal(scope, receive, _with_headers(send))
        else:
            await self._app(scope, receive, _with_headers(send))

    def _refuse(self, scope: Scope) -> Response | None:
        """Return the error response to a request that is refused; None if it is accepted."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._hosts and _name(host) not in self._hosts:
            return _refusal(
                403,
                f"the console does not serve host {_name(host)!r}",
                f"open it at one of: {', '.join(sorted(self._hosts))}",
            )
        if self._token is not None:
            response = self._sign_in(scope)
            if response is not None or not self._authenticated(headers):
                return response or _no_token()
        if scope["method"] not in ("GET", "HEAD"):
            if headers.get(ACTION_HEADER) != "1":
                return _refusal(403, "header X-Tidelog-Console is missing", "")
            origin = headers.get("origin")
            if origin not in (None, f"http://{host}", f"https://{host}"):
                return _refusal(403, "the request comes from another site", "")
            length = headers.get("content-length", "")
            if not length.isdecimal() or int(length) > BODY_MAX:
                return _refusal(413, f"a request has up to {BODY_MAX} bytes", "")
        return None

    def _authenticated(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(given.strip()):
            return True
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        return self._cookie in cookies and self._is_token(cookies[self._cookie].value)

    def _is_token(self, given: str) -> bool:
        assert self._token is not None
        return hmac.compare_digest(given.encode(), self._token.encode())

    def _sign_in(self, scope: Scope) -> Response | None:
        """Replace the token in the URL by a cookie, also if the browser has the cookie already;
        None if the URL has no token, or a wrong one."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if scope["method"] != "GET" or not given or not self._is_token(given[-1]):
            return None
        rest = urlencode([pair for pair in query if pair[0] != "token"])
        path = "/" + scope["path"].lstrip("/\\")  # never to another site: //evil.example
        response = RedirectResponse(f"{path}{'?' if rest else ''}{rest}", 303)
        response.set_cookie(
            self._cookie, given[-1], path="/", httponly=True, samesite="strict", max_age=30 * 86400
        )
        return response


def _name(host: str) -> str:
    """Return the host of a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


class AsciiJson(JSONResponse):
    """JSON in ASCII: a name that is not UTF-8 has lone surrogates, which need escapes."""

    def render(self, content: object) -> bytes:
        return json.dumps(content, separators=(",", ":")).encode("ascii")


def _refusal(status: int, error: str, advice: str) -> Response:
    return AsciiJson({"error": error, "advice": advice}, status)


def _no_token() -> Response:
    advice = "open the URL that `tidelog console` printed, with its token"
    return _refusal(401, "the token is missing or wrong", advice)


def _with_headers(send: Send) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return wrapped
