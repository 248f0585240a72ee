"""The speed of the audit, compared with reading the files and computing checksums alone.

Estimate: CRC-32C is computed at about 10 GB/s, and the page cache is read as fast. With batches of
60 kB, a megabyte has 17 batches, and each costs a few µs of Python. So the scan should reach about
half the speed of plain reading, and Spark's own jobs add seconds, not minutes. The bound is
300 MB/s per core, including Spark after its start.

Writes `--records` records of 100 bytes to three replicas (10 million: 3.6 GB). Then it measures, in
one run: plain reading with checksums, the scan in one process, and the audit on Spark, twice.
"""

import argparse
import json
import os
import resource
import shutil
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tidelog.apps.audit.run import audit
from tidelog.apps.audit.scan.stretch_scan import scan_stretch
from tidelog.apps.audit.source.planning import Planned, plan
from tidelog.apps.spark.session import spark_session
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import parse
from tidelog.core.storage import checkpoint, layout
from tidelog.core.types import EpochEntry, TopicPartition

BATCH_RECORDS = 500
SEGMENT_BYTES = 256 * 1024 * 1024
PIECE_BYTES = 4 * 1024 * 1024
PARTITIONS = 3
NOW = 1_700_000_000_000
ROUNDS = 3


def write_replicas(root: Path, records: int) -> None:
    """Write three log directories with the same partitions, as brokers leave them after a stop."""
    template = encode_batch(
        [Record(b"key-%06d" % n, os.urandom(100), NOW) for n in range(BATCH_RECORDS)],
        leader_epoch=0,
    )
    first = root / "broker-1"
    partitions = [TopicPartition("load", number) for number in range(PARTITIONS)]
    end = records // PARTITIONS // BATCH_RECORDS * BATCH_RECORDS
    for partition in partitions:
        write_log(first / str(partition), template, end)
    for file in (layout.HIGH_WATERMARKS, layout.RECOVERY_POINTS):
        (first / file).write_bytes(checkpoint.format_offsets(dict.fromkeys(partitions, end)))
    (first / layout.CLEAN_SHUTDOWN).touch()
    for broker in (2, 3):
        shutil.copytree(first, root / f"broker-{broker}")


def write_log(folder: Path, template: bytearray, end: int) -> None:
    folder.mkdir(parents=True)
    batch, offset = parse(template), 0
    while offset < end:
        stem = str(folder / f"{offset:020}")
        base, position, index = offset, 0, bytearray()
        with open(stem + layout.LOG, "wb") as file:
            while offset < end and position < SEGMENT_BYTES:
                batch.assign(offset, 0)
                file.write(template)
                if position:
                    index += struct.pack(">ii", batch.last_offset - base, position)
                position += len(template)
                offset = batch.next_offset
        Path(stem + layout.OFFSET_INDEX).write_bytes(index)
        entry = struct.pack(">qi", NOW, BATCH_RECORDS - 1)
        Path(stem + layout.TIME_INDEX).write_bytes(entry)
    epochs = checkpoint.format_epochs([EpochEntry(0, 0)])
    (folder / layout.LEADER_EPOCHS).write_bytes(epochs)


def read_and_sum(paths: list[str]) -> None:
    buffer = memoryview(bytearray(PIECE_BYTES))
    for path in paths:
        with open(path, "rb", 0) as file:
            while size := file.readinto(buffer):
                crc32c(buffer[:size])


@contextmanager
def temporary_folder() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="tidelog-audit-"))
    try:
        yield root
    finally:
        shutil.rmtree(root)


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def best(work: Callable[[], object], size: int) -> float:
    """Return MB per second of CPU, the best round; other work on the machine only adds CPU."""
    times = []
    for _ in range(ROUNDS):
        began = cpu_seconds()
        work()
        times.append(cpu_seconds() - began)
    return size / min(times) / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--format", choices=["text", "json"], default="text")
    arguments = parser.parse_args()
    with temporary_folder() as root:
        write_replicas(root, arguments.records)
        stretches = [unit.stretch for unit in plan(Planned((str(root),))) if unit.stretch]
        paths = sorted({stretch.path for stretch in stretches})
        size = sum(os.path.getsize(path) for path in paths)
        found: dict[str, float] = {"megabytes": size / 1e6}
        found["plain MB/s per core"] = best(lambda: read_and_sum(paths), size)
        found["scan MB/s per core"] = best(lambda: [scan_stretch(each) for each in stretches], size)
        spark = spark_session("bench", f"local[{arguments.cores}]")
        for run in ("first", "second"):
            report = audit(spark, [str(root)])
            assert report.holds
            assert not report.findings
            found[f"audit, {run} run: seconds"] = report.seconds
            found[f"audit, {run} run: MB/s per core"] = (
                size / 1e6 / report.seconds / arguments.cores
            )
        spark.stop()
    if arguments.format == "json":
        json.dump(found, sys.stdout, indent=2)
        print()
    else:
        for name, value in found.items():
            print(f"{name:32}{value:12,.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
