"""Apache Kafka's `DumpLogSegments` reads logs that our cleaner compacted.

The test writes the logs. They contain everything that a compaction can leave: gaps, batches
without records, delete horizons, rewritten batches of every codec, markers, merged segments.
"""

import re
import subprocess
from pathlib import Path

import pytest
from cleaning_kit import COMPACT, close_segment, compact, put, put_marker
from client_programs import TOOL_S
from storage_kit import new_log
from test_java_tools import java

from tidelog.core.record.compression import Codec
from tidelog.core.record.control import ControlType
from tidelog.core.record.encoder import Producer
from tidelog.core.record.record_batch import TRANSACTIONAL
from tidelog.core.slotted import replace
from tidelog.core.storage.log import Log
from tidelog.shell.os_disk import OsDisk

pytestmark = pytest.mark.slow
__all__ = ["java"]


def compacted(disk: OsDisk) -> Log:
    log = new_log(disk, replace(COMPACT, segment_bytes=4000, index_interval_bytes=300))
    for number in range(60):
        codec = Codec(number % 5)
        put(log, *((f"k{n}", f"{number}") for n in range(number % 7 + 1)), attributes=codec)
    writer = Producer(5, 0, 0)
    put(log, ("a", "1"), producer=writer)
    put(log, ("b", "taken back"), attributes=TRANSACTIONAL, producer=Producer(6, 0, 0))
    put_marker(log, ControlType.ABORT, Producer(6, 0, 0))
    put(log, ("a", None), ("c", "1"))
    put(log, ("a", "1"))
    put(log, ("d", None), ("e", "1"), attributes=Codec.ZSTD)
    close_segment(log)
    first_dirty = compact(disk, log).end_offset
    for number in range(60):
        put(log, (f"k{number % 9}", "newer"))
    close_segment(log)
    compact(disk, log, first_dirty)
    log.flush()
    log.close()
    return log


def test_kafkas_tool_reads_what_a_cleaning_leaves(tmp_path: Path, java: list[str]) -> None:
    def dump(*options: str) -> str:
        done = subprocess.run(
            [*java, "org.apache.kafka.tools.DumpLogSegments", *options],
            capture_output=True,
            text=True,
            timeout=TOOL_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    disk = OsDisk(str(tmp_path))
    log = compacted(disk)
    disk.close()
    folder = tmp_path / "orders-0"
    logs = sorted(folder.glob("*.log"))
    assert len(logs) < 6
    told = dump("--deep-iteration", "--print-data-log", "--files", ",".join(map(str, logs)))
    found = re.findall(r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* isvalid: (\w+)", told)
    assert {valid for *_, valid in found} == {"true"}
    assert any(count == "0" for _, _, count, _ in found), "batches without records"
    assert "deleteHorizonMs: OptionalLong[6000]" in told
    assert int(found[-1][1]) + 1 == log.log_end_offset
    newest = re.findall(r"offset: (\d+) .* key: (\S+) (?:payload: (\S+))?", told)
    values = {key: value for _, key, value in newest}
    assert values["a"] == "1"
    assert values["c"] == values["e"] == "1"
    assert all(values[f"k{number}"] == "newer" for number in range(9))
    for kind in ("index", "timeindex"):
        indexes = [index for index in sorted(folder.glob(f"*.{kind}")) if index.stat().st_size]
        assert indexes
        listed = ("--files", ",".join(map(str, indexes)))
        assert dump("--index-sanity-check", *listed).count("passed sanity check") == len(indexes)
        assert dump("--verify-index-only", *listed).splitlines() == [
            f"Dumping {index}" for index in indexes
        ]
    (aborted,) = folder.glob("*.txnindex")
    assert "producerId: 6 firstOffset" in dump("--files", str(aborted))
