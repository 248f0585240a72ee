"""Requests that no honest client would send: well-formed with absurd values, cut, or damaged."""

from collections.abc import Iterator
from random import Random
from typing import Any

from tidelog.core.api.offered import OFFERED
from tidelog.core.wire.codec import REQUEST, _message, encode_request
from tidelog.core.wire.schema.notation import ARRAY, STRUCT, Field

NUMBERS = {"i8": 7, "i16": 15, "i32": 31, "i64": 63}
LONG = "long" * 80


class Absurd:
    """Draws requests of any offered API and version. The same seed, the same requests."""

    def __init__(self, seed: int, topic: str, topic_id: bytes, batch: bytes) -> None:
        self.random = Random(seed)
        self._topic = topic
        self._topic_id = topic_id
        self._batch = batch

    def frames(self, count: int) -> Iterator[bytes]:
        """Each with its length in front, which is right."""
        random = self.random
        keys = sorted(OFFERED)
        for number in range(count):
            key = keys[number % len(keys)]
            version = random.randint(OFFERED[key].first, OFFERED[key].last)
            whole = self.request(key, version)
            yield whole
            body = bytearray(whole[4:])
            damage = random.random()
            if damage < 0.4:
                del body[random.randrange(8, len(body) + 1) :]
            elif damage < 0.7:
                for _ in range(random.choice((1, 1, 2, 5))):
                    body[random.randrange(min(8, len(body) - 1), len(body))] = random.randrange(256)
            else:
                at = random.randrange(8, len(body) + 1)
                body[at:at] = random.randbytes(random.randrange(1, 9))
            yield len(body).to_bytes(4, "big") + body

    def request(self, key: int, version: int) -> bytes:
        """Well-formed; what it asks for is another matter."""
        fields = _message(key, version, REQUEST)[1]
        return encode_request(
            key, version, self.random.randrange(2**31), "", self._struct(fields, version)
        )

    def _struct(self, fields: tuple[Field, ...], version: int) -> dict[str, Any]:
        return {f.name: self._value(f, version) for f in fields if f.versions.hold(version)}

    def _value(self, field: Field, version: int) -> Any:
        random = self.random
        optional = field.nullable.hold(version) or (field.type == STRUCT and field.tag is not None)
        if optional and random.random() < 0.2:
            return None
        if field.type.startswith(ARRAY):
            element = field.type.removeprefix(ARRAY)
            count = random.choice((0, 1, 1, 1, 2, 3))
            return [self._element(element, field, version) for _ in range(count)]
        return self._element(field.type, field, version)

    def _element(self, kind: str, field: Field, version: int) -> Any:
        random = self.random
        if kind in NUMBERS:
            most = 2 ** NUMBERS[kind] - 1
            wanted = random.choice((0, 0, 0, 1, 1, 2, -1, -1, -2, 5, 1000, most, -most - 1))
            return min(wanted, most)
        plain: dict[str, Any] = {
            "bool": lambda: random.random() < 0.5,
            "u16": lambda: random.choice((0, 1, 2**16 - 1)),
            "u32": lambda: random.choice((0, 1, 2**32 - 1)),
            "f64": lambda: random.choice((0.0, -1.0, float("inf"), float("nan"))),
            "string": self._text,
            "uuid": lambda: random.choice((self._topic_id, self._topic_id, bytes(16), b"\1" * 16)),
            "bytes": lambda: random.randbytes(random.randrange(100)),
            "records": self._records,
        }
        return plain[kind]() if kind in plain else self._struct(field.fields, version)

    def _text(self) -> str:
        texts = (
            *(self._topic,) * 8,
            *("", ".", "..", "1", "-1", "made-by-chance", "with space", "ü\0", LONG),
            *("retention.ms", "cleanup.policy", "compression.type", "segment.bytes", "no.such"),
            *("__consumer_offsets", "PREFERRED", "99999999999999999999"),
        )
        return self.random.choice(texts)

    def _records(self) -> bytes:
        random = self.random
        batch = bytearray(self._batch)
        chance = random.random()
        if chance < 0.3:
            return bytes(batch)
        if chance < 0.5:
            return bytes(batch[: random.randrange(len(batch))])
        if chance < 0.9:
            batch[random.randrange(len(batch))] = random.randrange(256)
            return bytes(batch)
        return bytes(batch * 2)
