"""Answers that are sent again as they are, until something changes.

Where topics are is asked by every client, often by many at once, and a cluster of thousands
of partitions takes tens of milliseconds to spell out, on the one thread that serves all. But
equal questions have equal answers as long as the image of the cluster stays the same. So a
large answer is kept as bytes; those who wait for it at the same time share them.

Always true: what is kept was made at the image's revision, with the brokers that lately left.
An answer that tells of a topic that is not there is not kept: the next one to ask may make it.
"""

from struct import Struct as Layout

from tidelog.core.api.context import Broker, Struct
from tidelog.core.api.exchange import Chunks
from tidelog.core.errors import ErrorCode
from tidelog.core.wire.apis import DESCRIBE_TOPIC_PARTITIONS, METADATA

KEPT_APIS = frozenset({METADATA, DESCRIBE_TOPIC_PARTITIONS})
QUESTION_BYTES_MAX = 1024
ANSWER_BYTES_MIN = 2048
"""Smaller ones cost little."""
KEPT_BYTES_MAX = 8 * 1024 * 1024

_HEAD = Layout(">ii")


class KnownAnswers:
    """By API, version and the request's bytes: all of the answer but its head."""

    __slots__ = ("_broker", "_kept", "_size", "_state")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._kept: dict[tuple[int, int, bytes], bytes] = {}
        self._size = 0
        self._state: tuple[object, ...] = ()

    def find(
        self, key: int, version: int, question: bytes, correlation_id: int, now_ms: int
    ) -> Chunks | None:
        """The answer for this asker, if it is known."""
        self._follow(now_ms)
        body = self._kept.get((key, version, question))
        return None if body is None else [_HEAD.pack(4 + len(body), correlation_id), body]

    def keep(
        self, key: int, version: int, question: bytes, response: Struct, answer: bytes, now_ms: int
    ) -> None:
        """Remember the whole frame that was made of a response."""
        size = len(answer)
        if len(question) > QUESTION_BYTES_MAX or not ANSWER_BYTES_MIN <= size <= KEPT_BYTES_MAX:
            return
        if any(topic["error_code"] is not ErrorCode.NONE for topic in response["topics"]):
            return
        self._follow(now_ms)
        if self._size + size > KEPT_BYTES_MAX:
            self._forget()
        self._kept[key, version, question] = answer[_HEAD.size :]
        self._size += size

    def _follow(self, now_ms: int) -> None:
        departed = (known.id for known in self._broker.departed.lately(now_ms))
        state = (self._broker.node.image.revision, *departed)
        if state != self._state:
            self._state = state
            self._forget()

    def _forget(self) -> None:
        self._kept.clear()
        self._size = 0
