"""Group requests as bytes to a handler, and a coordinator with prepared responses."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.api_table import APIS
from tidelog.core.controller.metadata.features import TRANSACTIONS
from tidelog.core.coordinator.lookup import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tidelog.core.errors import ErrorCode
from tidelog.core.wire.codec import decode_request, decode_response, encode_request, encode_response
from tidelog.core.wire.frames import parse_request_header

ORDERS_ID = bytes(15) + b"\1"
UNKNOWN_ID = bytes(15) + b"\2"
RANDOM = bytes(range(16))
RANDOM_TEXT = "00010203-0405-0607-0809-0a0b0c0d0e0f"
PARTITIONS = 2


class Image:
    """An image with topics of two partitions each, by default one: `orders`."""

    def __init__(
        self, topic_names: dict[bytes, str] | None = None, tidelog_version: int = TRANSACTIONS
    ) -> None:
        self.tidelog_version = tidelog_version
        self.topic_names = topic_names or {ORDERS_ID: "orders"}
        self.topic_names[bytes(15) + b"\3"] = OFFSETS_TOPIC
        self.topic_names[bytes(15) + b"\4"] = TRANSACTIONS_TOPIC
        self.topics = {
            name: SimpleNamespace(topic_id=topic_id) for topic_id, name in self.topic_names.items()
        }

    def partition(self, topic: str, index: int) -> object | None:
        return object() if topic in self.topics and 0 <= index < PARTITIONS else None


class Coordinator:
    """Records its requests, and returns prepared responses."""

    def __init__(self, *answers: object) -> None:
        self.asked: list[Any] = []
        self._answers = list(answers)

    @property
    def only(self) -> Any:
        [asked] = self.asked
        return asked

    def answer(self, request: object) -> object:
        self.asked.append(request)
        return self._answers.pop(0)


def ask(
    handler: Callable[[Any, Struct], Handling],
    api_key: int,
    version: int,
    request: Struct,
    *answers: object,
    client_id: str | None = "app",
    image: Any = None,
    software: str = "",
) -> tuple[Struct, Coordinator]:
    """The handler's response, decoded, and the coordinator with the requests that it got."""
    sent = encode_request(api_key, version, 7, client_id, request)[4:]
    frame = memoryview(bytearray(sent))
    decoded = decode_request(api_key, version, frame, parse_request_header(sent).position)
    coordinator = Coordinator(*answers)
    broker: Any = SimpleNamespace(
        node=SimpleNamespace(image=image or Image()), new_topic_id=lambda: RANDOM, settings=None
    )
    context = BrokerContext(broker, version, client_id, "CLIENT", 1000, "127.0.0.1", software)
    handling = handler(context, decoded)
    replies: list[Any] | None = None
    while True:
        try:
            requests = next(handling) if replies is None else handling.send(replies)
        except StopIteration as done:
            encoded = encode_response(api_key, version, 7, done.value)
            correlation_id, response = decode_response(api_key, version, encoded[4:])
            assert correlation_id == 7
            return response, coordinator
        frame[:] = bytes(len(frame))  # the buffer is used again while the coordinator thinks
        replies = [coordinator.answer(one) for one in requests]


def versions(api_key: int) -> range:
    return range(APIS[api_key].first, APIS[api_key].last + 1)


def code(response: Struct) -> ErrorCode:
    return ErrorCode(response["error_code"])
