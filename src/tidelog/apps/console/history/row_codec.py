"""The state of one partition as a row: a shape that rarely changes, and numbers that move.

The shape is the partition's metadata and every field of its replicas' states that is not a
number that moves; equal shapes are stored once. The numbers are offsets, sizes, and the times of
followers' fetches, each encoded as its difference from a near number: a row of three replicas has
about 40 bytes.

A follower fetches at least every 500 ms, so a time of the last FRESH_MS is stored as "just now":
otherwise an idle partition would change with every sample. An older time is stored exactly.
Times inside texts, and lags, are computed again when a row is read.
"""

import json
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tidelog.apps.views.broker import State
from tidelog.core.types import BrokerId
from tidelog.shell.client.cluster_metadata import PartitionMetadata

FRESH_MS = 2_000
FRESH = -1
"""Stands for a time of the last FRESH_MS."""
NUMBERS = (
    "log_end_offset",
    "high_watermark",
    "last_stable_offset",
    "log_start_offset",
    "recovery_point",
    "size",
    "segments",
)
_BEFORE = {"high_watermark": "log_end_offset", "last_stable_offset": "high_watermark"}
"""Numbers that are encoded as a difference from another number of the same replica. All others are
encoded as a difference from the same number of the replica before it."""
UNSTABLE = ("offset", "producer_id", "producer_epoch", "last_write_ms", "open_transactions")
"""Numbers of the oldest transaction; a row has them only for a replica with one."""
OFFSETS, TIMES = ("log_end_offset", "log_start_offset"), ("last_fetch_ms", "last_caught_up_ms")
_FAST = frozenset((*NUMBERS, "followers", "topic", "partition"))
_FAST_OF_FOLLOWER = frozenset((*OFFSETS, *TIMES, "lag", "lag_ms", "waits_from"))
_MS = re.compile(r"\d+ ms")
_TYPICAL = json.dumps(
    {
        "m": [0, 1, 0, [1, 2, 3], [1, 2, 3], [], None, None],
        "t": [0, "", False],
        "c": {
            "topic_id": "AAAAAAAAAAAAAAAAAAAAAA",
            "role": "leader",
            "leader": 1,
            "leader_epoch": 0,
            "partition_epoch": 0,
            "epochs": [[0, 0]],
            "damage": None,
            "refused": None,
            "replicas": [1, 2, 3],
            "isr": [1, 2, 3],
            "maximal_isr": [1, 2, 3],
            "pending_isr": None,
            "elr": [],
            "lost": [],
            "min_isr": 2,
            "unclean_election": None,
        },
        "r": {"1": {"role": "follower", "maximal_isr": None}},
        "f": [{"broker": 2, "in_isr": True, "out_since_ms": None, "why": None}],
    },
    separators=(",", ":"),
).encode()

Numbers = tuple[int | None, ...]


class Shape(NamedTuple):
    """What rarely changes about a partition."""

    metadata: PartitionMetadata | None
    """With the number 0, so that partitions share shapes. None if only a broker knows it."""
    topic: tuple[int, str, bool] | None
    """Error code, topic id in hex, whether it is internal."""
    replicas: dict[BrokerId, dict[str, Any]]
    followers: dict[BrokerId, list[dict[str, Any]]]
    """By leader; usually there is one."""


def slow_part(state: State) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the fields of a replica's state that rarely change, and those of its followers."""
    slow = {name: value for name, value in state.items() if name not in _FAST}
    if slow.get("unstable"):
        slow["unstable"] = True  # its values are numbers of the row
    followers = []
    for each in state.get("followers") or ():
        kept = {name: value for name, value in each.items() if name not in _FAST_OF_FOLLOWER}
        if kept.get("why"):
            kept["why"] = _MS.sub("# ms", kept["why"])
        followers.append(kept)
    return slow, followers


def numbers_of(states: Mapping[BrokerId, State], now_ms: Mapping[BrokerId, int]) -> Numbers:
    """Return the numbers of all replicas, by broker."""
    found: list[int | None] = []
    for broker in sorted(states):
        state = states[broker]
        found += [state.get(name) for name in NUMBERS]
        if unstable := state.get("unstable"):
            found += [unstable.get(name) for name in UNSTABLE]
        now = now_ms.get(broker)
        for each in state.get("followers") or ():
            found += [each.get(name) for name in OFFSETS]
            for name in TIMES:
                at_ms = each.get(name)
                fresh = at_ms is not None and now is not None and now - at_ms <= FRESH_MS
                found.append(FRESH if fresh else at_ms)
    return tuple(found)


def join(
    shape: Shape, numbers: Numbers, topic: str, partition: int, now_ms: Mapping[BrokerId, int]
) -> dict[BrokerId, dict[str, Any]]:
    """Return the replicas' states again."""
    found = {}
    left = iter(numbers)
    for broker in sorted(shape.replicas):
        state = {"topic": topic, "partition": partition, **shape.replicas[broker]}
        for name in NUMBERS:
            state[name] = next(left)
        if state.get("unstable"):
            state["unstable"] = {name: next(left) for name in UNSTABLE}
        now = now_ms.get(broker)
        state["followers"] = [
            _follower(each, left, state["log_end_offset"], now)
            for each in shape.followers.get(broker, ())
        ]
        found[broker] = state
    return found


def _follower(
    slow: Mapping[str, Any], left: Iterator[int | None], leader_end: int | None, now: int | None
) -> dict[str, Any]:
    state = dict(slow)
    for name in OFFSETS:
        state[name] = next(left)
    for name in TIMES:
        at_ms = next(left)
        state[name] = now if at_ms == FRESH else at_ms
    end, caught_up = state["log_end_offset"], state["last_caught_up_ms"]
    state["lag"] = None if end is None or leader_end is None else leader_end - end
    state["lag_ms"] = None if caught_up is None or now is None else max(0, now - caught_up)
    if state.get("why"):
        state["why"] = _with_times(state["why"], state, now)
    return state


def _with_times(why: str, state: Mapping[str, Any], now: int | None) -> str:
    """Put the time since the last fetch, or since the last catch-up, into the text again."""
    at_ms = state["last_fetch_ms" if why.startswith("no fetch") else "last_caught_up_ms"]
    if now is None or at_ms is None:
        return why
    return why.replace("# ms", f"{max(0, now - at_ms)} ms")


# -- as bytes --------------------------------------------------------------------------------


def pack(data: Any) -> bytes:
    """Encode a value that JSON can represent, compressed."""
    body = json.dumps(data, separators=(",", ":"), sort_keys=True).encode()
    packer = zlib.compressobj(6, zlib.DEFLATED, -15, 8, zlib.Z_DEFAULT_STRATEGY, _TYPICAL)
    return packer.compress(body) + packer.flush()


def unpack(body: bytes) -> Any:
    """Return the value that `pack` encoded. Raises zlib.error, ValueError."""
    return json.loads(zlib.decompressobj(-15, _TYPICAL).decompress(body))


def encode_shape(shape: Shape) -> bytes:
    """Encode a shape; fields that the replicas share are stored once."""
    replicas = shape.replicas
    first: dict[str, Any] = next(iter(replicas.values()), {})
    common = {
        name: value
        for name, value in first.items()
        if all(name in each and each[name] == value for each in replicas.values())
    }
    return pack(
        {
            "m": None if shape.metadata is None else list(shape.metadata),
            "t": None if shape.topic is None else list(shape.topic),
            "c": common,
            "r": {
                broker: {name: v for name, v in each.items() if name not in common}
                for broker, each in replicas.items()
            },
            "f": {broker: each for broker, each in shape.followers.items() if each},
        }
    )


def decode_shape(body: bytes) -> Shape:
    """Return the shape that `encode_shape` encoded."""
    data = unpack(body)
    topic = data["t"]
    return Shape(
        None if data["m"] is None else PartitionMetadata(*data["m"]),
        None if topic is None else (topic[0], topic[1], topic[2]),
        {int(broker): {**data["c"], **each} for broker, each in data["r"].items()},
        {int(broker): each for broker, each in data["f"].items()},
    )


def encode_numbers(shape: Shape, numbers: Numbers) -> bytes:
    """Encode numbers as differences: zigzag and varint; 0 stands for None."""
    found = bytearray()
    append = found.append
    last = [0] * _SLOTS
    for value, (reference, slot) in zip(numbers, _plan(shape), strict=True):
        code = 0
        if value is not None:
            gap = value - last[reference]
            code = ((gap << 1) if gap >= 0 else (-gap << 1) - 1) + 1
            last[slot] = value
        else:
            last[slot] = last[reference]
        while code > 127:
            append(code & 127 | 128)
            code >>= 7
        append(code)
    return bytes(found)


def decode_numbers(shape: Shape, body: bytes) -> Numbers:
    """Return the numbers that `encode_numbers` encoded."""
    found: list[int | None] = []
    append = found.append
    last = [0] * _SLOTS
    plan = _plan(shape)
    at = code = shift = 0
    for byte in body:
        code |= (byte & 127) << shift
        if byte & 128:
            shift += 7
            continue
        reference, slot = plan[at]
        at += 1
        if code == 0:
            append(None)
            last[slot] = last[reference]
        else:
            gap = code - 1
            value = last[reference] + (-((gap + 1) >> 1) if gap & 1 else gap >> 1)
            append(value)
            last[slot] = value
        code = shift = 0
    return tuple(found)


_ZERO = len(NUMBERS)
_UNUSED = _ZERO + 1
_SLOTS = _ZERO + 2
"""The last value of each of NUMBERS, a zero, and a place for values that no other refers to."""
_OF_REPLICA = [(NUMBERS.index(_BEFORE.get(name, name)), NUMBERS.index(name)) for name in NUMBERS]
_OF_FOLLOWER = [(NUMBERS.index(name), _UNUSED) for name in OFFSETS] + [(_ZERO, _UNUSED)] * len(
    TIMES
)


_OF_UNSTABLE = [
    (NUMBERS.index("last_stable_offset") if name == "offset" else _ZERO, _UNUSED)
    for name in UNSTABLE
]


def _plan(shape: Shape) -> list[tuple[int, int]]:
    """Return for each number which earlier value its difference is from, and where it is kept.

    It depends on the shape only, so that a reader can compute it.
    """
    found: list[tuple[int, int]] = []
    for broker in sorted(shape.replicas):
        found += _OF_REPLICA
        if shape.replicas[broker].get("unstable"):
            found += _OF_UNSTABLE
        found += _OF_FOLLOWER * len(shape.followers.get(broker, ()))
    return found
