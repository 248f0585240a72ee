"""What every SASL mechanism has in common."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

PLAIN = "PLAIN"
SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"
OAUTHBEARER = "OAUTHBEARER"
PASSWORD_MECHANISMS = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512)
"""The mechanisms by which a user proves a password."""
MECHANISMS = (*PASSWORD_MECHANISMS, OAUTHBEARER)
"""The supported mechanisms, by the names that clients use."""

RandomBytes: TypeAlias = Callable[[int], bytes]
"""Returns unpredictable bytes; the shell supplies it."""


class SaslFailed(Exception):
    """An authentication failed. The text is for the broker's log; it contains no password.

    `public` is the text for the client, if it may know more than that its credentials are invalid.
    With `challenge`, the client gets this message first, and fails with its next one.
    """

    def __init__(self, reason: str, public: str = "", challenge: bytes = b"") -> None:
        super().__init__(reason)
        self.public = public
        self.challenge = challenge


class SaslServer(Protocol):
    """A broker's side of one authentication."""

    user: str | None
    """The authenticated user; None until the exchange is complete."""

    def respond(self, token: bytes) -> bytes:
        """Return the response to a client's token. Raises SaslFailed."""
        ...


class SaslClient(Protocol):
    """A client's side of one authentication."""

    @property
    def complete(self) -> bool:
        """Whether the broker sent everything that the mechanism requires of it."""
        ...

    def first(self) -> bytes:
        """Return the first token."""
        ...

    def respond(self, token: bytes) -> bytes | None:
        """Return the next token; None if the exchange is complete. Raises SaslFailed."""
        ...
