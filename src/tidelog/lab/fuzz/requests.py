"""Random requests of any API and version, made from their schemas.

Each request is well-formed, but its values may be nonsense: numbers are often the limits of their
types, names are often those of existing topics and groups, and sometimes a path. The same seed
gives the same requests.

Large requests have as many entries as allowed, to find those that take too long. For every array of
every offered API there are two: in one all entries are equal, in the other all entries differ. A
broker's work may grow with the number of entries, but not with that number times the number of
topics, partitions or members.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

from tidelog.core.api_table import APIS, OFFERED, REQUEST_BYTES_MAX, UNREGISTER_BROKER
from tidelog.core.record.compression import Codec
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Header, Record
from tidelog.core.wire.codec import REQUEST, encode_request, message_fields
from tidelog.core.wire.notation import ARRAY, STRUCT, Field

BITS = {"i8": 7, "i16": 15, "i32": 31, "i64": 63}
LONG = "long" * 80
NAMES = (
    *("", ".", "..", "../x", "a/b", "/etc", "x\0y", "with space", "ü", LONG, "made-by-chance"),
    *("__consumer_offsets", "__transaction_state", "1", "-1", "99999999999999999999"),
    *("retention.ms", "cleanup.policy", "compact", "compression.type", "gzip", "segment.bytes"),
    *("max.message.bytes", "no.such", "consumer", "range", "ElectionNotNeeded"),
)
LIKELY: dict[str, tuple[Any, ...]] = {
    "partition_index": (0, 0, 1),
    "partition": (0, 0, 1),
    "index": (0, 0, 1),
    "replicas": ([1], None),
    "broker_ids": ([1],),
    "num_partitions": (1, 2, -1),
    "count": (2, 3),
    "replication_factor": (1, -1),
    "acks": (-1, -1, 1, 0),
    "timeout_ms": (0, 100, 1000),
    "max_wait_ms": (0, 0, 100),
    "session_timeout_ms": (6000, 10_000, 45_000, 45_000),
    "rebalance_timeout_ms": (1000, 60_000),
    "resource_type": (2, 4),
    "timestamp": (-1, -2, -3, -4, -5, 0),
    "session_epoch": (-1, 0, 0, 1),
    "replica_id": (-1, -1, -1, 1),
    "transactional_id": (None,),
    "generation_id": (0, 1, 1, 2, -1),
    "group_instance_id": (None, None, "static-1", "static-2"),
    "generation_id_or_member_epoch": (0, 1, 1, 2, -1),
}
"""Values with which a request passes more checks than with random ones."""
HELLO_DOCUMENT = (
    b'{"cluster": "RnV6ei10aGUtYnJva2Vyc", "from": 2, "to": 1, "address": "localhost:1",'
    b' "nonce": "' + b"00" * 32 + b'"}'
)
"""The one Hello to which `MemoryBroker` sends a Challenge."""
DOCUMENTS = (
    *(b"{}", b'{"topic": "orders"}', b'{"topic": "orders", "partition": 0}', b"null", b"[]", b""),
    *(b'{"topic": {}}', b'{"topic": "orders", "partition": []}', b'{"partition": 1e999}'),
    *(b'{"partition": ' + b"9" * 5000 + b"}", b'"\\ud800"', b'{"topic": "\\ud800"}', b"NaN"),
    *(b"[" * 3000, b'{"a":' * 3000, b'{"broker": 1, "secret": "guess"}', b'{"proof": 7}'),
    *(HELLO_DOCUMENT, HELLO_DOCUMENT.replace(b"00", b"zz"), HELLO_DOCUMENT.replace(b"2", b"-2")),
)
"""JSON documents for Tidelog's own APIs."""

MEMBERS_MAX = 9
BOMB_BYTES = {**dict.fromkeys(Codec, 500_000), Codec.ZSTD: 20_000_000}
"""Decompressed size of a batch that takes long to decompress; compressed it has 2 kB."""


def spare_brokers(frame: bytes, brokers: Sequence[int] = (1,)) -> bytes:
    """Truncate a request that unregisters one of these brokers.

    Any client may send such a request, but later frames would then find no broker.
    """
    unregisters = int.from_bytes(frame[:2], "big") == UNREGISTER_BROKER
    named = any(broker.to_bytes(4, "big") in frame[8:] for broker in brokers)
    return frame[:8] if unregisters and named else frame


class World(NamedTuple):
    """The existing topics and groups, which requests name."""

    topics: tuple[str, ...]
    topic_ids: tuple[bytes, ...]
    groups: tuple[str, ...] = ("readers", "readers", "readers", "others")


class RequestMaker:
    """Makes random requests."""

    def __init__(self, random: Random, world: World) -> None:
        self._random = random
        self._world = world
        self._batches = sample_batches(random)
        self._members = deque(("", "", "", "member"), MEMBERS_MAX)
        """Member ids, the latest last."""
        self._messages = [
            (key, version, message_fields(key, version, REQUEST))
            for key, api in sorted(APIS.items())
            for version in api.codec_versions
        ]

    def remember_member(self, member_id: str) -> None:
        """Use the id of a member that has joined in later requests."""
        if member_id:
            self._members.extend(("", member_id, member_id))

    def any(self) -> bytes:
        """A request of a random API and version, without its length."""
        return self._make(*self._random.choice(self._messages))

    def of(self, key: int, version: int) -> bytes:
        """A request of this API and version, without its length."""
        return self._make(key, version, message_fields(key, version, REQUEST))

    def _make(self, key: int, version: int, fields: tuple[Field, ...]) -> bytes:
        number = self._random.randrange(2**31)
        client_id = self._random.choice(("fuzz", "fuzz", "", None))
        return encode_request(key, version, number, client_id, self.struct(fields, version))[4:]

    def entry(self, field: Field, version: int) -> Any:
        """A random entry of an array."""
        return self._element(field.type.removeprefix(ARRAY), field, version)

    def struct(self, fields: tuple[Field, ...], version: int) -> dict[str, Any]:
        """A random message, or a part of it."""
        struct = {f.name: self._value(f, version) for f in fields if f.versions.hold(version)}
        if "metadata" in struct and "name" in struct and self._random.random() < 0.9:
            struct["name"] = "range"  # a known assignment strategy
        return struct

    def _value(self, field: Field, version: int) -> Any:
        random = self._random
        likely = LIKELY.get(field.name)
        if likely is not None and not field.fields and random.random() < 0.7:
            value = random.choice(likely)
            if value is not None or field.nullable.hold(version):
                return value
        optional = field.nullable.hold(version) or (field.type == STRUCT and field.tag is not None)
        if optional and random.random() < 0.15:
            return None
        if field.type.startswith(ARRAY):
            element = field.type.removeprefix(ARRAY)
            count = random.choice((0, 1, 1, 1, 1, 2, 3))
            return [self._element(element, field, version) for _ in range(count)]
        return self._element(field.type, field, version)

    def _element(self, kind: str, field: Field, version: int) -> Any:
        random = self._random
        if kind in BITS:
            most = 2 ** BITS[kind] - 1
            wanted = random.choice((0, 0, 0, 1, 1, 2, -1, -1, -2, 5, 60, most, -most - 1))
            return min(wanted, most)
        if kind == "string":
            return self._text(field.name)
        if kind == "records":
            return random.choice(self._batches)
        if kind == "uuid":
            return random.choice((*self._world.topic_ids * 3, bytes(16), b"\1" * 16))
        if kind == "bytes":
            if field.name == "document":
                return random.choice(DOCUMENTS)
            return random.randbytes(random.choice((0, 4, 30)))
        if kind == "bool":
            return random.random() < 0.5
        if kind == "f64":
            return random.choice((0.0, -1.0, float("inf"), float("nan")))
        if kind in ("u16", "u32"):
            return random.choice((0, 1, 2**16 - 1))
        return self.struct(field.fields, version)

    def _text(self, name: str) -> str:
        random, world = self._random, self._world
        if random.random() < 0.15:
            return random.choice(NAMES)
        if "group" in name or name in ("key", "coordinator_keys"):
            return random.choice(world.groups)
        if "member" in name:
            return random.choice(self._members)
        if name == "protocol_type":
            return "consumer"
        if name == "protocol_name":
            return "range"
        return random.choice((*world.topics * 4, *NAMES))


def sample_batches(random: Random) -> list[bytes]:
    """Batches: with each codec, truncated, damaged, doubled, and with a huge decompressed size."""
    few = [Record(b"key", b"value" * 4, 1, ())] * 3
    keyless = [Record(None, b"v", 1, (Header("name", b"header"),))]
    sound = [bytes(encode_batch(few, attributes=codec)) for codec in Codec]
    sound.append(bytes(encode_batch(keyless)))
    bombs = [
        bytes(encode_batch([Record(b"k", bytes(BOMB_BYTES[codec]), 1, ())], attributes=codec))
        for codec in Codec
        if codec != Codec.NONE
    ]
    broken = []
    for batch in sound:
        broken.append(batch[: random.randrange(len(batch))])
        damaged = bytearray(batch)
        damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
        broken.append(bytes(damaged))
    return [*sound, *sound, *sound, *broken, *bombs, sound[0] * 2, b""]


# -- large requests ----------------------------------------------------------------------


ENTRIES = (1000, 9000)
_NUMBERED = ("name", "topic", "resource_name", "group_id", "member_id", "user", "key")
"""Text fields that get a number, so that entries differ."""
_INDEXES = ("partition_index", "partition", "index")


class LargeRequest(NamedTuple):
    """A frame without its length, the name of its large array, and the entries of all arrays."""

    name: str
    frame: bytes
    entries: int


def large_requests(maker: RequestMaker, entries: int) -> Iterator[LargeRequest]:
    """Large requests in the latest version of each API, if they fit into a frame."""
    for key, api in sorted(OFFERED.items()):
        fields = message_fields(key, api.last, REQUEST)
        for path in arrays(fields, api.last):
            for differ in (False, True):
                request = stretched(maker, fields, api.last, path, entries, differ)
                frame = encode_request(key, api.last, 1, "fuzz", request)[4:]
                if len(frame) <= REQUEST_BYTES_MAX:
                    where = ".".join(field.name for field in path)
                    how = "differ" if differ else "same"
                    yield LargeRequest(f"{api.name} {where} {how}", frame, _entries(request))


def _entries(value: Any) -> int:
    """The entries of all arrays in a value, with those inside entries."""
    if isinstance(value, dict):
        return sum(_entries(each) for each in value.values())
    if isinstance(value, list | tuple):
        return len(value) + sum(_entries(each) for each in value)
    return 0


def any_large(maker: RequestMaker, random: Random) -> bytes:
    """A large request in a random version; a small one if it does not fit into a frame."""
    key = random.choice(list(OFFERED))
    version = random.randint(OFFERED[key].first, OFFERED[key].last)
    fields = message_fields(key, version, REQUEST)
    paths = list(arrays(fields, version))
    if not paths:
        return maker.of(key, version)
    path, differ = random.choice(paths), random.random() < 0.5
    request = stretched(maker, fields, version, path, random.choice(ENTRIES), differ)
    frame = encode_request(key, version, 1, "fuzz", request)[4:]
    return frame if len(frame) <= REQUEST_BYTES_MAX else maker.of(key, version)


def arrays(
    fields: tuple[Field, ...], version: int, above: tuple[Field, ...] = ()
) -> Iterator[tuple[Field, ...]]:
    """The paths to all arrays of a message."""
    for field in fields:
        if field.versions.hold(version):
            path = (*above, field)
            if field.type.startswith(ARRAY):
                yield path
            if field.type.startswith(ARRAY) or field.type == STRUCT:
                yield from arrays(field.fields, version, path)


def stretched(
    maker: RequestMaker,
    fields: tuple[Field, ...],
    version: int,
    path: tuple[Field, ...],
    entries: int,
    differ: bool,
) -> dict[str, Any]:
    """A request whose array at the end of `path` has `entries` entries."""
    request = inner = maker.struct(fields, version)
    for field in path[:-1]:
        if field.type.startswith(ARRAY):
            inner[field.name] = inner[field.name] or [maker.struct(field.fields, version)]
            inner = inner[field.name][0]
        else:
            inner[field.name] = inner[field.name] or maker.struct(field.fields, version)
            inner = inner[field.name]
    field = path[-1]
    one = maker.entry(field, version)
    inner[field.name] = [_numbered(one, n) if differ else one for n in range(entries)]
    return request


def _numbered(entry: Any, number: int) -> Any:
    if isinstance(entry, str):
        return f"{entry}-{number}"
    if isinstance(entry, int) and not isinstance(entry, bool):
        return number % 128
    if not isinstance(entry, dict):
        return entry
    texts = {
        name: f"{entry[name]}-{number}" for name in _NUMBERED if isinstance(entry.get(name), str)
    }
    indexes = {name: number for name in _INDEXES if isinstance(entry.get(name), int)}
    return {**entry, **texts, **indexes}
