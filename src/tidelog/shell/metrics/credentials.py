"""The credentials that a client of the metrics listener must send.

The file has one line: `user:password` for `Authorization: Basic`, or a token for `Authorization:
Bearer`. Prometheus can send both.
"""

from _operator import _compare_digest as compare_digest
from binascii import Error as NotBase64
from binascii import a2b_base64

from tidelog.core.sasl.digests import SHA_256

SETTING = "tidelog.metrics.credentials.file"
LENGTH_MAX = 4096


class UnusableCredentials(Exception):
    """The file can't be used. The text is one line."""


class Credentials:
    """Compares the credentials of requests with those of the file."""

    def __init__(self, line: str) -> None:
        self.scheme = "Basic" if ":" in line else "Bearer"
        self._digest = SHA_256.digest(line.encode())

    def __repr__(self) -> str:
        return f"Credentials({self.scheme})"

    def accept(self, header: str) -> bool:
        """Return whether a value of the header `Authorization` has these credentials.

        Digests of equal length are compared, in a time that does not depend on their content.
        """
        scheme, _, text = header.partition(" ")
        if scheme.lower() != self.scheme.lower():
            return False
        given = text.strip().encode("latin-1", "replace")
        if self.scheme == "Basic":
            try:
                given = a2b_base64(given)
            except NotBase64:
                return False
        return bool(compare_digest(SHA_256.digest(given), self._digest))


def read_credentials(path: str) -> Credentials:
    """Read the file. Raises UnusableCredentials, whose text contains no part of it."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(LENGTH_MAX + 1)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UnusableCredentials(f"{SETTING}: can't read {path}: {why}") from None
    line = text.strip()
    if not line or "\n" in line or len(text) > LENGTH_MAX or line.endswith(":"):
        raise UnusableCredentials(
            f"{SETTING}: {path} must have one line, user:password or a token, of at most"
            f" {LENGTH_MAX} bytes"
        )
    return Credentials(line)
