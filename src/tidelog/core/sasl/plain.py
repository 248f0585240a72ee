"""SASL PLAIN (RFC 4616): the client sends user name and password in one token.

The password is readable for everyone who can read the connection, so use it over TLS.
"""

from _operator import _compare_digest as compare_digest
from collections.abc import Mapping

from tidelog.core.sasl.digests import SHA_256
from tidelog.core.sasl.mechanism import SaslFailed

_NO_USER = bytes(32)
"""Compared with instead of a digest if the user is unknown."""
_TOKENS_MAX = 4


class PlainUsers:
    """The users that a broker's settings name, with digests of their passwords.

    Digests have equal lengths, so the time of a comparison tells nothing about a password, not even
    its length. An unknown user takes as long as a wrong password.
    """

    __slots__ = ("_digests",)

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._digests = {user: _digest(password) for user, password in passwords.items()}

    def accept(self, user: str, password: str) -> bool:
        """Return whether this is the user's password."""
        expected = self._digests.get(user, _NO_USER)
        return compare_digest(_digest(password), expected) and user in self._digests


class PlainServer:
    """The broker's side: one token, and an empty response."""

    __slots__ = ("_users", "user")

    def __init__(self, users: PlainUsers) -> None:
        self._users = users
        self.user: str | None = None

    def respond(self, token: bytes) -> bytes:
        """Check the client's token. Raises SaslFailed, with Kafka's texts."""
        fields = token.decode(errors="replace").split("\0", _TOKENS_MAX - 1)
        if len(fields) != 3:
            text = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(fields)}"
            raise SaslFailed(text, text)
        acts_as, user, password = fields
        for name, value in (("username", user), ("password", password)):
            if not value:
                text = f"Authentication failed: {name} not specified"
                raise SaslFailed(text, text)
        if not self._users.accept(user, password):
            raise SaslFailed(
                f"wrong password or unknown user {user!r:.80}",
                "Authentication failed: Invalid username or password",
            )
        if acts_as not in ("", user):
            raise SaslFailed(
                f"user {user!r:.80} requested to act as {acts_as!r:.80}",
                "Authentication failed: Client requested an authorization id that is different"
                " from username",
            )
        self.user = user
        return b""


class PlainClient:
    """The client's side."""

    __slots__ = ("_token", "complete")

    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode()
        self.complete = False

    def first(self) -> bytes:
        """Return the token."""
        return self._token

    def respond(self, _token: bytes) -> bytes | None:
        """The broker accepted the password."""
        self.complete = True
        return None


def _digest(password: str) -> bytes:
    return SHA_256.digest(password.encode())
