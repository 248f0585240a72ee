"""Encoded responses that are sent again until the cluster's image changes.

Every client requests metadata, often many clients at once, and a cluster of thousands of
partitions takes tens of milliseconds to encode, on the one thread that serves all clients. But
equal requests have equal responses as long as the image stays the same. So large responses are
kept as bytes.

Invariant: a cached response was made at the image's current revision, with the same recently
departed brokers. A response with an error (a missing topic) is not cached: the next request may
create the topic.
"""

from struct import Struct as Layout

from tidelog.core.api.context import Broker, Struct
from tidelog.core.api.exchange import Chunks
from tidelog.core.api_table import DESCRIBE_TOPIC_PARTITIONS, METADATA
from tidelog.core.errors import ErrorCode

CACHED_APIS = frozenset({METADATA, DESCRIBE_TOPIC_PARTITIONS})
REQUEST_BYTES_MAX = 1024
RESPONSE_BYTES_MIN = 2048
"""Smaller responses cost little to encode."""
CACHE_BYTES_MAX = 8 * 1024 * 1024

_HEAD = Layout(">ii")


class ResponseCache:
    """Responses without length and correlation id, by API, version and the request's bytes."""

    __slots__ = ("_broker", "_responses", "_size", "_state")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._responses: dict[tuple[int, int, bytes], bytes] = {}
        self._size = 0
        self._state: tuple[object, ...] = ()

    def find(
        self, key: int, version: int, request: bytes, correlation_id: int, now_ms: int
    ) -> Chunks | None:
        """The whole response to a request, or None if it is not cached."""
        self._drop_outdated(now_ms)
        body = self._responses.get((key, version, request))
        return None if body is None else [_HEAD.pack(4 + len(body), correlation_id), body]

    def add(
        self, key: int, version: int, request: bytes, response: Struct, encoded: bytes, now_ms: int
    ) -> None:
        """Cache the encoded response, if it is large and has no error."""
        size = len(encoded)
        if (
            len(request) > REQUEST_BYTES_MAX
            or not RESPONSE_BYTES_MIN <= size <= CACHE_BYTES_MAX
            or any(topic["error_code"] is not ErrorCode.NONE for topic in response["topics"])
        ):
            return
        self._drop_outdated(now_ms)
        if self._size + size > CACHE_BYTES_MAX:
            self._clear()
        self._responses[key, version, request] = encoded[_HEAD.size :]
        self._size += size

    def _drop_outdated(self, now_ms: int) -> None:
        departed = (known.id for known in self._broker.departed.lately(now_ms))
        state = (self._broker.node.image.revision, *departed)
        if state != self._state:
            self._state = state
            self._clear()

    def _clear(self) -> None:
        self._responses.clear()
        self._size = 0
