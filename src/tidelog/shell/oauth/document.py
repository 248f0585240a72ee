"""Read a document of the identity provider: from a file, or by HTTPS. This may take seconds, so
brokers call it in a thread.

Redirects are not followed, so that nothing is sent to or read from an address that is not in the
settings. For the same reason http addresses, which are on this machine, are never read through a
proxy. An https address is, if the environment says so: the proxy sees only encrypted bytes.
"""

import http.client
import io
import socket
import time
import urllib.error
import urllib.request
from functools import partial
from typing import Any, NamedTuple

from tidelog.core.settings.oauth import file_of
from tidelog.core.settings.setting import WrongValue
from tidelog.core.settings.tls import TlsSettings

TIMEOUT_S = 10.0
"""The longest wait for a connection, and for each part of the response."""
WHOLE_S = 30.0
"""The longest time for the whole response, its head included, from the start of the request."""
SIZE_MAX = 1 << 20


class CannotRead(Exception):
    """The document can't be read. The text is one line with the address and the reason."""


class Form(NamedTuple):
    """What is sent to a token endpoint; secret."""

    authorization: str
    body: bytes

    def __repr__(self) -> str:
        return "Form()"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class _ReadsUntil(io.RawIOBase):
    """Reads of a socket, none of which ends after the deadline."""

    def __init__(self, stream: io.RawIOBase, sock: socket.socket, deadline_s: float) -> None:
        self._stream = stream
        self._sock = sock
        self._deadline_s = deadline_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"the response takes longer than {WHOLE_S:.0f} s")
        self._sock.settimeout(min(TIMEOUT_S, left_s))
        return self._stream.readinto(buffer)

    def close(self) -> None:
        self._stream.close()
        super().close()


class _ResponseUntil(http.client.HTTPResponse):
    """A response that is received before the deadline, or not at all."""

    def __init__(self, deadline_s: float, sock: socket.socket, *args: Any, **named: Any) -> None:
        super().__init__(sock, *args, **named)
        self.fp = io.BufferedReader(_ReadsUntil(self.fp.detach(), sock, deadline_s))


class _WithDeadline(urllib.request.AbstractHTTPHandler):
    """Limits the time of a request as a whole.

    The timeout of a socket limits each part: a server that sends a byte now and then would keep a
    request open for ever.
    """

    def do_open(self, http_class: Any, req: urllib.request.Request, **options: Any) -> Any:
        response_class = partial(_ResponseUntil, time.monotonic() + WHOLE_S)

        def connection(*args: Any, **named: Any) -> Any:
            made = http_class(*args, **named)
            made.response_class = response_class
            return made

        return super().do_open(connection, req, **options)


class _Http(_WithDeadline, urllib.request.HTTPHandler):
    pass


class _Https(_WithDeadline, urllib.request.HTTPSHandler):
    pass


def read_document(url: str, tls: TlsSettings, form: Form | None = None) -> bytes:
    """Return the content of a file:// or https:// address; send `form` if given. Raises
    CannotRead."""
    path = file_of(url)
    try:
        if path is not None:
            with open(path, "rb") as file:
                return _limited(file.read(SIZE_MAX + 1))
        return _download(url, tls, form)
    except urllib.error.HTTPError as error:
        with error:
            raise CannotRead(f"can't read {url}: HTTP status {error.code}{_why(error)}") from None
    except (OSError, ValueError, WrongValue, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        raise CannotRead(f"can't read {url}: {text}") from None


def _download(url: str, tls: TlsSettings, form: Form | None) -> bytes:
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects(), _Http()]
    if url.startswith("https:"):
        from tidelog.shell.net.tls_context import client_context

        handlers.append(_Https(context=client_context(tls)))
    else:
        handlers.append(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, None if form is None else form.body)
    request.add_header("Accept", "application/json")
    if form is not None:
        request.add_header("Authorization", form.authorization)
        request.add_header("Content-Type", "application/x-www-form-urlencoded")
    data = b""
    with urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT_S) as response:
        while part := response.read1(65_536):
            data = _limited(data + part)
    return data


def _limited(data: bytes) -> bytes:
    if len(data) > SIZE_MAX:
        raise ValueError(f"it exceeds {SIZE_MAX} bytes")
    return data


def _why(error: urllib.error.HTTPError) -> str:
    """Return the error code in the response of a token endpoint (RFC 6749, section 5.2)."""
    from json import loads

    try:
        code = loads(error.read(4096))["error"]
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        return ""
    return f", {code!r:.80}"
