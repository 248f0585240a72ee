"""The CPU time to convert record batches to Arrow and back, on one core and without Spark.

Estimate: memory is copied at about 10 GB/s, so a record of 100 bytes takes at least 10 ns for each
copy. A checked varint takes about 1 ns in machine code, and a record has six. A checksum takes 0.1
ns a byte. So an uncompressed record takes 30 to 50 ns, and at most twice that with the socket.
Compressed records take as long as their codec. The JVM then needs 400 to 600 ns for a row.

    make bench-decode                    all rows, about two minutes
    make bench-decode ROWS=fetch         rows whose name contains that

Figures are CPU time of this process, the best of several rounds, because other work on the machine
only adds to it. `fetch` rows read from a real broker over a socket, without counting its CPU.
"""

import argparse
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidelog.apps.spark.columns import arrow_schema
from tidelog.apps.spark.decoding.batch_headers import check_checksums, scan_headers, select
from tidelog.apps.spark.decoding.decoder import new_decoder
from tidelog.apps.spark.encoding.encoder import BatchEncoder, Rows, partitions_of_keys
from tidelog.apps.spark.source.range_reader import RangeToRead, read_range
from tidelog.apps.spark.worker import NUMBA, PYTHON
from tidelog.core.record.compression import Codec
from tidelog.shell.client.admin import create_topic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import produce
from tidelog.shell.supervisor.cluster import LocalCluster

ROUNDS = 7
CHUNK_BYTES = 4 * 1024 * 1024
BATCH_BYTES = 128 * 1024
FETCHED_BYTES = 200 * 1024 * 1024
WORDS = tuple(f"{word}{n} " for n in range(16) for word in ("order", "paid", "sent", "late"))


class Measured(NamedTuple):
    """The result of a round."""

    records: int
    data_bytes: int
    cpu_s: float


def rows_of(size: int) -> Rows:
    """Return about a chunk of rows with 10-byte keys and values of text."""
    draw = random.Random(size)
    count = CHUNK_BYTES // size
    values = ["".join(draw.choices(WORDS, k=size // 5 + 1))[:size] for _ in range(count)]
    keys = [f"{number:010d}" for number in range(count)]
    times = 1_700_000_000_000 + np.arange(count, dtype=np.int64)
    return Rows(pa.array(keys).view(pa.binary()), pa.array(values).view(pa.binary()), None, times)


def encoded(rows: Rows, codec: Codec, engine: str = NUMBA, targets: int = 1) -> list[bytes]:
    encoder = BatchEncoder(-1, -1, {}, codec=codec, batch_bytes=BATCH_BYTES, engine=engine)
    where = np.zeros(len(rows.value), np.int32)
    if targets > 1:
        where = partitions_of_keys(rows.key, targets, engine)
    return [batch.data for batch in (*encoder.append(rows, where), *encoder.finish())]


def as_log(batches: list[bytes]) -> bytes:
    """Join the batches, with increasing offsets."""
    data, offset = bytearray(), 0
    for batch in batches:
        data += offset.to_bytes(8) + batch[8:]
        offset += int.from_bytes(batch[57:61])
    return bytes(data)


def best(work: Callable[[], int]) -> tuple[int, float]:
    work()
    found = []
    for _ in range(ROUNDS):
        began = time.process_time()
        records = work()
        found.append((time.process_time() - began, records))
    spent, records = min(found)
    return records, spent


def decode_row(size: int, codec: Codec, engine: str) -> Measured:
    data = as_log(encoded(rows_of(size), codec))
    decoder = new_decoder(arrow_schema(), "orders", 0, engine=engine)

    def work() -> int:
        count = 0
        for _ in range(4):
            headers = scan_headers(data)
            check_checksums(data, headers)
            count += sum(b.num_rows for b in decoder.decode(select(data, headers, 0, 2**62)))
        return count + sum(batch.num_rows for batch in decoder.flush())

    records, spent = best(work)
    return Measured(records, 4 * len(data), spent)


def encode_row(size: int, codec: Codec, engine: str) -> Measured:
    rows = rows_of(size)
    data_bytes = sum(len(batch) for batch in encoded(rows, codec))
    count, spent = best(lambda: len(encoded(rows, codec, engine, targets=6)) * 0 + len(rows.value))
    return Measured(count, data_bytes, spent)


def fetch_row(cluster: LocalCluster, size: int, codec: Codec) -> Measured:
    topic = f"b{size}-{codec.name.lower()}"
    batches = encoded(rows_of(size), codec)
    with Cluster(cluster.bootstrap) as client:
        create_topic(client, topic, 1, 1)
        leader = client.broker(client.leader(topic, 0).leader)
        known = client.topic(topic)
        end = data_bytes = 0
        while data_bytes < FETCHED_BYTES:
            for batch in batches:
                response = produce(leader, known, 0, batch, 1)
                assert not response.error, response
                end = response.base_offset + int.from_bytes(batch[57:61])
                data_bytes += len(batch)
        wanted = RangeToRead(topic, known.id, 0, 0, end, 0)
        records, spent = best(
            lambda: sum(batch.num_rows for batch in read_range(client, wanted, arrow_schema()))
        )
        assert records == end
        return Measured(records, data_bytes, spent)


def jobs(cluster: Callable[[], LocalCluster]) -> Iterator[tuple[str, Callable[[], Measured]]]:
    """Yield the name and the work of each row."""
    for size in (100, 1000):
        for codec in Codec:
            name = f"{size} B, {codec.name.lower()}"
            yield f"decode {name}", lambda s=size, c=codec: decode_row(s, c, NUMBA)
        yield f"decode {size} B, without numba", lambda s=size: decode_row(s, Codec.NONE, PYTHON)
        for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
            name = f"fetch and decode {size} B, {codec.name.lower()}"
            yield name, lambda s=size, c=codec: fetch_row(cluster(), s, c)
        for codec in Codec:
            name = f"{size} B, {codec.name.lower()}"
            yield f"encode {name}, 6 targets", lambda s=size, c=codec: encode_row(s, c, NUMBA)
        yield f"encode {size} B, without numba", lambda s=size: encode_row(s, Codec.NONE, PYTHON)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        started: list[Any] = []

        def cluster() -> LocalCluster:
            if not started:
                started.append(stack.enter_context(LocalCluster(brokers=1)))
            return started[0]

        print(f"{'':38} {'Mrec/s':>8} {'ns/rec':>8} {'MB/s':>8}")
        for name, work in jobs(cluster):
            if arguments.rows in name:
                found = work()
                rate = found.records / found.cpu_s / 1e6
                megabytes = found.data_bytes / found.cpu_s / 1e6
                print(f"{name:38} {rate:8.1f} {1000 / rate:8.0f} {megabytes:8.0f}", flush=True)


if __name__ == "__main__":
    main()
