"""The cost of decoding and encoding Kafka's messages: by Tidelog's tables, by hand, with kio.

Estimate: CPython takes about 0.05 µs for a bytecode-light operation, and 0.1 µs for a call. A
Produce request with one partition has nine fields. Decoded by hand it needs two unpacks and three
objects, 1 to 2 µs. Decoded by table it needs a generated function with a dict for each struct,
twice as long. A reader in C should be faster than both until it copies records. A writer in Python
that calls a function for each field can't be.

    python benchmarks/how_fast_is_a_codec.py [--format json]

The kio column needs kio (`pip install kio`), which is not a dependency of Tidelog. Figures are CPU
time, the best of several rounds, because other work on the machine only adds to it.
"""

import argparse
import importlib
import io
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import (
    FetchPartitionResponse,
    FetchResponse,
    ProducePartitionResponse,
    ProduceResponse,
)
from tidelog.core.types import TopicPartition
from tidelog.core.wire.codec import decode_request, decode_response, encode_request, encode_response
from tidelog.core.wire.fetch_request import decode_fetch
from tidelog.core.wire.fetch_response import encode_fetch_response
from tidelog.core.wire.frames import LENGTH_SIZE, parse_request_header
from tidelog.core.wire.produce import decode_produce, encode_produce_response

PRODUCE, FETCH, METADATA, API_VERSIONS, CREATE_TOPICS = 0, 1, 3, 18, 19
ROUNDS = 7
ROUND_S = 0.03
NO_BYTECODE = ("PYTHONDONTWRITEBYTECODE",)
"""With this variable every start compiles the sources again; installed brokers do not do that."""


class Row(NamedTuple):
    """One line of the table, in µs; None where the codec does not exist."""

    message: str
    tables: float
    by_hand: float | None
    kio: float | None


def cost_us(work: Callable[[], object]) -> float:
    """Return the CPU microseconds of one call."""
    times = 1
    while True:
        began = time.process_time()
        for _ in range(times):
            work()
        spent = time.process_time() - began
        if spent >= ROUND_S:
            break
        times = max(times * 2, int(times * ROUND_S / max(spent, 1e-6)))
    best = spent / times
    for _ in range(ROUNDS - 1):
        began = time.process_time()
        for _ in range(times):
            work()
        best = min(best, (time.process_time() - began) / times)
    return best * 1e6


# -- kio ---------------------------------------------------------------------------------------


def kio_reader(api_key: int, version: int, kind: str, body: bytes) -> Callable[[], Any] | None:
    """Return a function that decodes `body` with kio; None without kio."""
    try:
        index = importlib.import_module("kio.index")
    except ImportError:
        return None
    load = index.load_request_schema if kind == "request" else index.load_response_schema
    read = importlib.import_module("kio.serial").entity_reader(load(api_key, version))
    return lambda: read(body, 0)[0]


def kio_read_us(api_key: int, version: int, kind: str, body: bytes) -> float | None:
    read = kio_reader(api_key, version, kind, body)
    return None if read is None else cost_us(read)


def kio_write_us(api_key: int, version: int, kind: str, body: bytes) -> float | None:
    """Return the cost of encoding the content of `body` with kio; the bytes must be the same."""
    read = kio_reader(api_key, version, kind, body)
    if read is None:
        return None
    entity = read()
    write = importlib.import_module("kio.serial").entity_writer(type(entity))

    def written() -> bytes:
        buffer = io.BytesIO()
        write(buffer, entity)
        return buffer.getvalue()

    assert written() == body, "kio writes other bytes"
    return cost_us(written)


# -- rows --------------------------------------------------------------------------------------


def read_request(
    name: str,
    api_key: int,
    version: int,
    struct: dict[str, Any],
    by_hand: Callable[[memoryview, int], object] | None = None,
) -> Row:
    frame = memoryview(bytearray(encode_request(api_key, version, 1, "client", struct)))
    frame = frame[LENGTH_SIZE:]
    at = parse_request_header(frame).position
    return Row(
        name,
        cost_us(lambda: decode_request(api_key, version, frame, at)),
        None if by_hand is None else cost_us(lambda: by_hand(frame, at)),
        kio_read_us(api_key, version, "request", bytes(frame[at:])),
    )


def response_body(api_key: int, frame: bytes) -> bytes:
    header = LENGTH_SIZE + (4 if api_key == API_VERSIONS else 5)
    return frame[header:]


def write_response(
    name: str,
    api_key: int,
    version: int,
    struct: dict[str, Any],
    by_hand: Callable[[], object] | None = None,
) -> Row:
    frame = encode_response(api_key, version, 1, struct)
    return Row(
        name,
        cost_us(lambda: encode_response(api_key, version, 1, struct)),
        None if by_hand is None else cost_us(by_hand),
        kio_write_us(api_key, version, "response", response_body(api_key, frame)),
    )


def read_response(name: str, api_key: int, version: int, struct: dict[str, Any]) -> Row:
    frame = encode_response(api_key, version, 1, struct)
    return Row(
        name,
        cost_us(lambda: decode_response(api_key, version, frame[LENGTH_SIZE:])),
        None,
        kio_read_us(api_key, version, "response", response_body(api_key, frame)),
    )


def metadata(topics: int) -> dict[str, Any]:
    replicas = [1, 2, 3]
    brokers = [{"node_id": i, "host": "localhost", "port": 9091 + i} for i in replicas]
    partitions = [
        {
            "partition_index": index,
            "leader_id": 1 + index,
            "leader_epoch": 5,
            "replica_nodes": replicas,
            "isr_nodes": replicas,
            "offline_replicas": [],
        }
        for index in range(3)
    ]
    named = [
        {"name": f"topic-{i}", "topic_id": i.to_bytes(16), "partitions": partitions}
        for i in range(topics)
    ]
    return {"brokers": brokers, "cluster_id": "c", "controller_id": 1, "topics": named}


def produce_rows() -> list[Row]:
    rows = []
    for count, size in ((1, 200), (20, 200), (1, 1_000_000)):
        parts = [{"index": index, "records": bytes(size)} for index in range(count)]
        struct = {"acks": -1, "topic_data": [{"name": "orders", "partition_data": parts}]}
        name = f"Produce 9, {count} x {size} B, read"
        hand = lambda frame, at: decode_produce(9, frame, at, {})  # noqa: E731
        rows.append(read_request(name, PRODUCE, 9, struct, hand))
    for count in (1, 20):
        parts = [{"index": index, "records": b""} for index in range(count)]
        struct = {"topic_data": [{"name": "orders", "partition_data": parts}]}
        frame = encode_request(PRODUCE, 9, 1, "client", struct)[LENGTH_SIZE:]
        request, _ = decode_produce(9, frame, parse_request_header(frame).position, {})
        response = ProduceResponse(
            [
                ProducePartitionResponse(p.topic_partition, ErrorCode.NONE, 5, None, 0)
                for p in request.partitions
            ]
        )
        entries = [{"index": i, "base_offset": 5, "log_start_offset": 0} for i in range(count)]
        struct = {"responses": [{"name": "orders", "partition_responses": entries}]}
        assert encode_response(PRODUCE, 9, 1, struct) == encode_produce_response(
            1, request, response
        )
        rows.append(
            write_response(
                f"Produce 9, {count} partitions, write response",
                PRODUCE,
                9,
                struct,
                lambda request=request, response=response: encode_produce_response(
                    1, request, response
                ),  # type: ignore[misc]
            )
        )
    return rows


def fetch_rows() -> list[Row]:
    rows = []
    for count in (1, 20):
        request = [
            {"partition": i, "fetch_offset": 5, "partition_max_bytes": 1_000_000}
            for i in range(count)
        ]
        struct: dict[str, Any] = {"topics": [{"topic": "orders", "partitions": request}]}
        hand = lambda frame, at: decode_fetch(12, frame, at, {})  # noqa: E731
        rows.append(read_request(f"Fetch 12, {count} partitions, read", FETCH, 12, struct, hand))
        entries = [
            {
                "partition_index": index,
                "high_watermark": 9,
                "last_stable_offset": 9,
                "log_start_offset": 0,
                "aborted_transactions": None,
                "records": bytes(200),
            }
            for index in range(count)
        ]
        struct = {"session_id": 7, "responses": [{"topic": "orders", "partitions": entries}]}
        response = FetchResponse(
            ErrorCode.NONE,
            7,
            [
                FetchPartitionResponse(
                    TopicPartition("orders", i), None, ErrorCode.NONE, 9, 9, 0, None, bytes(200)
                )
                for i in range(count)
            ],
        )
        by_hand = b"".join(encode_fetch_response(12, 1, response))  # type: ignore[arg-type]
        assert by_hand == encode_response(FETCH, 12, 1, struct)
        rows.append(
            write_response(
                f"Fetch 12, {count} x 200 B, write response",
                FETCH,
                12,
                struct,
                lambda response=response: encode_fetch_response(12, 1, response),  # type: ignore[misc]
            )
        )
    return rows


def cold_rows() -> list[Row]:
    keys = [{"api_key": i, "min_version": 0, "max_version": 9} for i in range(20)]
    topics = [
        {"name": f"topic-{i}", "num_partitions": 3, "replication_factor": 3, "configs": []}
        for i in range(10)
    ]
    return [
        write_response("ApiVersions 3, write response", API_VERSIONS, 3, {"api_keys": keys}),
        read_request(
            "Metadata 12, one topic, read", METADATA, 12, {"topics": [{"name": "orders"}]}
        ),
        write_response("Metadata 12, 3 x 3, write response", METADATA, 12, metadata(3)),
        write_response("Metadata 12, 1000 x 3, write response", METADATA, 12, metadata(1000)),
        read_response("Metadata 12, 1000 x 3, read response", METADATA, 12, metadata(1000)),
        read_request("CreateTopics 7, 10 topics, read", CREATE_TOPICS, 7, {"topics": topics}),
    ]


# -- start-up ----------------------------------------------------------------------------------

OURS = """
import struct, time
began = time.process_time()
from tidelog.core.wire.codec import decode_request, encode_response
loaded = time.process_time()
encode_response(18, 3, 1, {})
decode_request(3, 12, b"\\0\\1\\0\\0", 0)
encode_response(3, 12, 1, {})
print(loaded - began, time.process_time() - loaded)
"""
THEIRS = """
import io, struct, time
began = time.process_time()
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
loaded = time.process_time()
entity_writer(load_response_schema(18, 3))
entity_reader(load_request_schema(3, 12))
entity_writer(load_response_schema(3, 12))
print(loaded - began, time.process_time() - loaded)
"""


def start_up_ms(script: str) -> tuple[float, float] | None:
    """Return the milliseconds to import the codec, and to prepare a client's first requests."""
    best = None
    cached = {name: value for name, value in os.environ.items() if name not in NO_BYTECODE}
    for _ in range(ROUNDS):
        run = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=cached
        )
        if run.returncode:
            return None
        imported, ready = (float(number) * 1000 for number in run.stdout.split())
        best = min(best or (imported, ready), (imported, ready), key=sum)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--format", choices=["table", "json"], default="table")
    arguments = parser.parse_args()
    rows = [*produce_rows(), *fetch_rows(), *cold_rows()]
    start_up = {"ours": start_up_ms(OURS), "kio": start_up_ms(THEIRS)}
    if arguments.format == "json":
        facts = {"python": platform.python_version(), "unit": "us CPU"}
        print(json.dumps({**facts, "rows": [r._asdict() for r in rows], "start_up_ms": start_up}))
        return
    print(f"{'us CPU for one message':44}{'tables':>10}{'by hand':>10}{'kio':>10}")
    for row in rows:
        cells = ("-" if us is None else f"{us:.1f}" for us in row[1:])
        print(f"{row.message:44}" + "".join(f"{cell:>10}" for cell in cells))
    for name, times in start_up.items():
        entries = (
            "not installed" if times is None else f"import {times[0]:.1f}, first use {times[1]:.1f}"
        )
        print(f"start-up, ms CPU, {name}: {entries}")


if __name__ == "__main__":
    main()
