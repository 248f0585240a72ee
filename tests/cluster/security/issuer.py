"""An identity provider for tests: its keys, and tokens that they sign, right and wrong ones."""

import json
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

AUDIENCE, ISSUER = "kafka", "https://issuer.example"
CURVES: dict[str, Any] = {"ES256": ec.SECP256R1, "ES384": ec.SECP384R1, "ES512": ec.SECP521R1}


@cache
def key_of(algorithm: str, number: int = 0) -> Any:
    """A private key for an algorithm; others with another number."""
    if algorithm in CURVES:
        return ec.generate_private_key(CURVES[algorithm]())
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def public_jwk(key: Any, key_id: str | None = "first", **fields: Any) -> dict[str, Any]:
    """The public key in the form of a JWKS."""
    if isinstance(key, rsa.RSAPrivateKey):
        found = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
        found.pop("key_ops", None)
    elif isinstance(key, ed25519.Ed25519PrivateKey):
        found = jwt.algorithms.OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
    else:
        found = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    named = {} if key_id is None else {"kid": key_id}
    return {**found, **named, **fields}


def jwks(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


def claims(**changed: Any) -> dict[str, Any]:
    """The claims of a valid token; None removes one."""
    now_s = int(time.time())
    usual = {"sub": "alice", "iat": now_s, "exp": now_s + 3600, "aud": AUDIENCE, "iss": ISSUER}
    return {name: value for name, value in {**usual, **changed}.items() if value is not None}


def token(
    algorithm: str = "RS256",
    key: Any = None,
    header: dict[str, Any] | None = None,
    **changed: Any,
) -> str:
    """A token, valid unless something is changed."""
    used = key if key is not None else key_of(algorithm)
    named = {"kid": "first"} if header is None else header
    return jwt.encode(claims(**changed), used, algorithm, headers=named)


def unsecured(**changed: Any) -> str:
    """A token without signature."""
    return jwt.encode(claims(**changed), "", "none")


class Provider:
    """The answers of a small HTTP server, which can be changed."""

    def __init__(self) -> None:
        self.port = 0
        self.scheme = "http"
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.requests: list[tuple[str, dict[str, str], bytes]] = []

    def url(self, path: str) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}{path}"


@contextmanager
def running_provider(context: ssl.SSLContext | None = None) -> Iterator[Provider]:
    """Serve the answers of a Provider on a port of this machine, by HTTPS with a context."""
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            provider.requests.append((self.path, dict(self.headers), body))
            status, answer = provider.answers.get(self.path, (404, b""))
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            if status == 302:
                self.send_header("Location", provider.url("/elsewhere"))
            self.end_headers()
            self.wfile.write(answer)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def get_request(self) -> tuple[Any, Any]:
            sock, address = super().get_request()
            if context is None:
                return sock, address
            try:
                return context.wrap_socket(sock, server_side=True), address
            except OSError:  # the client refuses the certificate
                sock.close()
                raise

    server = Server(("127.0.0.1", 0), Handler)
    provider.scheme = "http" if context is None else "https"
    provider.port = server.server_address[1]
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
