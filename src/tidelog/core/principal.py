"""The identity that a connection's requests are authorised as."""

from typing import NamedTuple

USER = "User"
"""The only type of principals that Kafka's own authenticators make."""


class Principal(NamedTuple):
    """A type and a name, written `User:alice`.

    Invariant: a connection's principal changes only by its authentication, never by a request's
    content such as the client id.
    """

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


BROKER = Principal("Broker", "")
"""A broker of this cluster as a client, by the cluster's secret. No user has this type."""
ANONYMOUS = Principal(USER, "ANONYMOUS")
"""The principal of a connection that is not authenticated."""
