"""Data folders of a real Kafka 4.3.1 cluster open, recover and are written as Kafka does.

Where our files may differ from Kafka's, and why (none of it shows in these folders but the
first): a segment that was closed and written to again has one more entry in its time index,
made at the close, than a rebuild from the log gives; Kafka keeps it until the segment is
recovered. Stray producer snapshots (not at the start of a segment, not the newest) are
removed when a log is opened, as in Kafka.
"""

import gzip
import json
import tarfile
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tidelog.core.record.record_batch import batches
from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.log_directory import LogDirectory
from tidelog.core.types import EpochEntry, TopicPartition
from tidelog.lab.memory_disk import MemoryDisk
from tidelog.shell.os_disk import OsDisk

DATA = Path(__file__).parents[1] / "data" / "kafka-4.3.1"
BROKERS = (1, 2, 3)
MANIFEST: dict[str, Any] = json.loads(gzip.decompress((DATA / "manifest.json.gz").read_bytes()))[
    "partitions"
]
CONFIG = LogConfig(index_interval_bytes=512)
"""The cluster ran with `index.interval.bytes` 512."""
EPOCHS_0 = TopicPartition("epochs", 0)


def unpack(kind: str) -> dict[int, MemoryDisk]:
    """Unpack the three folders of an archive; the first pass creates directories."""
    disks = {broker: MemoryDisk() for broker in BROKERS}
    with tarfile.open(DATA / f"{kind}.tar.gz") as archive:
        for member in archive:
            _, _, inside = member.name.partition("/")
            folder, _, path = inside.partition("/")
            if not path:
                continue
            disk = disks[int(folder.removeprefix("broker-"))]
            if member.isdir():
                disk.make_dir(path)
            else:
                file = archive.extractfile(member)
                assert file is not None
                disk.files[path] = bytearray(file.read())
    return disks


CLEAN = unpack("clean")
CRASHED = unpack("crashed")


@pytest.fixture
def clean(request: pytest.FixtureRequest) -> MemoryDisk:
    return deepcopy(CLEAN[request.param])


@pytest.fixture
def crashed(request: pytest.FixtureRequest) -> MemoryDisk:
    return deepcopy(CRASHED[request.param])


each_clean = pytest.mark.parametrize("clean", BROKERS, indirect=True)
each_crashed = pytest.mark.parametrize("crashed", BROKERS, indirect=True)


def open_folder(disk: MemoryDisk) -> LogDirectory:
    return LogDirectory.open(disk, 0, lambda _: CONFIG)


def state(directory: LogDirectory, partition: TopicPartition) -> tuple[object, ...]:
    log = directory.logs[partition]
    return (
        log.log_start_offset,
        log.log_end_offset,
        directory.high_watermarks[partition],
        log.epochs.entries,
        log.producers.end_offset,
        log.topic_id,
    )


def offsets_read(log: Log) -> list[int]:
    """Return the offsets of all records, read as a consumer does."""
    found: list[int] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read_bytes(log.read(offset, 4096))
        for batch in batches(data):
            found += range(batch.base_offset, batch.next_offset)
            offset = batch.next_offset
    return [offset for offset in found if offset >= log.log_start_offset]


@each_clean
def test_clean_folder_opens_without_warnings(clean: MemoryDisk) -> None:
    before = deepcopy(clean.files)
    directory = open_folder(clean)
    assert directory.clean
    assert directory.broker_epoch > 0
    assert directory.properties is not None
    assert directory.properties.values["cluster.id"] == "Ziui243vSWuueiTnVlp47g"
    assert directory.warnings == []
    assert [report.scanned_bytes for report in directory.reports.values()] == [0] * 25
    assert [report.cuts for report in directory.reports.values()] == [[]] * 25
    logs_before = {path: data for path, data in before.items() if path.endswith(".log")}
    assert logs_before.items() <= clean.files.items()


@each_clean
def test_clean_folder_matches_the_manifest(clean: MemoryDisk) -> None:
    directory = open_folder(clean)
    for name, expected in MANIFEST.items():
        topic, _, number = name.rpartition("-")
        partition = TopicPartition(topic, int(number))
        log = directory.logs[partition]
        assert log.log_start_offset == expected["log_start_offset"], name
        assert directory.high_watermarks[partition] == expected["high_watermark"], name
        wanted = {record["offset"] for record in expected["records"]}
        assert wanted <= set(offsets_read(log)), name


@each_crashed
def test_killed_folder_recovers_to_what_kafka_recovered(
    crashed: MemoryDisk, request: pytest.FixtureRequest
) -> None:
    broker = request.node.callspec.params["crashed"]
    recovered = open_folder(crashed)
    kafkas = open_folder(deepcopy(CLEAN[broker]))
    assert not recovered.clean
    assert recovered.logs.keys() == kafkas.logs.keys()
    for partition in kafkas.logs.keys() - {EPOCHS_0}:
        assert state(recovered, partition) == state(kafkas, partition), partition


@pytest.mark.parametrize(
    ("broker", "log_end_offset"), [(1, 61), (2, 61), (3, 68)], ids=lambda value: str(value)
)
def test_records_above_the_high_watermark_survive_recovery(
    broker: int, log_end_offset: int
) -> None:
    """Broker 3 led `epochs-0` and had seven records that no follower had fetched.

    Recovery keeps them: the leader epoch decides whether they stay, not the high watermark.
    """
    directory = open_folder(deepcopy(CRASHED[broker]))
    log = directory.logs[EPOCHS_0]
    assert log.log_end_offset == log_end_offset
    assert directory.high_watermarks[EPOCHS_0] == 61
    starts = [(0, 0), (1, 10), (2, 20), (3, 30), (4, 40), (5, 50), (9, 60)]
    assert log.epochs.entries == [EpochEntry(*start) for start in starts]


@each_crashed
def test_killed_folder_recovers_whatever_the_topics_settings_are(crashed: MemoryDisk) -> None:
    known = open_folder(deepcopy(crashed))
    unknown = LogDirectory.open(crashed, 0)
    assert {p: state(unknown, p) for p in unknown.logs} == {p: state(known, p) for p in known.logs}


@each_crashed
def test_opening_a_recovered_folder_again_changes_nothing(crashed: MemoryDisk) -> None:
    open_folder(crashed)
    before = deepcopy(crashed.files)
    again = open_folder(crashed)
    assert crashed.files == before
    assert [report.lines() for report in again.reports.values() if report.lines()] == []


EPOCH_FILE = "epochs-0/leader-epoch-checkpoint"
EPOCHS_OF_3 = checkpoint.parse_epochs(EPOCH_FILE, bytes(CRASHED[3].files[EPOCH_FILE]))


@pytest.mark.parametrize("number", range(len(EPOCHS_OF_3)))
@pytest.mark.parametrize("damage", ["line lost", "old copy", "young half", "epoch", "start"])
def test_no_record_is_lost_with_lines_of_the_epoch_file(damage: str, number: int) -> None:
    """Kafka reads epochs that the file lacks from the log, and truncates nothing."""
    entries = EPOCHS_OF_3.copy()
    epoch, start = entries[number]
    if damage == "line lost":
        del entries[number]
    elif damage == "old copy":
        del entries[number:]
    elif damage == "young half":
        del entries[:number]
    elif damage == "epoch":
        entries[number] = EpochEntry(epoch + 1, start)
    else:
        entries[number] = EpochEntry(epoch, start + 4)
    disk = deepcopy(CRASHED[3])
    disk.files[EPOCH_FILE] = bytearray(checkpoint.format_epochs(entries))
    assert open_folder(disk).logs[EPOCHS_0].log_end_offset == 68


@each_clean
def test_indexes_rebuilt_from_the_log_are_kafkas_byte_for_byte(clean: MemoryDisk) -> None:
    before = deepcopy(clean.files)
    for log in open_folder(clean).logs.values():
        for segment in log.segments:
            segment.rebuild_indexes()
            for kind in (layout.OFFSET_INDEX, layout.TIME_INDEX):
                assert clean.files[segment.file(kind)] == before[segment.file(kind)]


@each_crashed
def test_recovered_files_are_kafkas_byte_for_byte(
    crashed: MemoryDisk, request: pytest.FixtureRequest
) -> None:
    """Compares log, indexes, aborted transactions and producer snapshots; `epochs-0` grew since."""
    kafkas = CLEAN[request.node.callspec.params["crashed"]].files
    directory = open_folder(crashed)
    compared = 0
    for partition, log in directory.logs.items():
        if partition == EPOCHS_0:
            continue
        paths = [segment.file(kind) for segment in log.segments for kind in layout.SEGMENT_KINDS]
        end = layout.file_name(log.log_end_offset, layout.SNAPSHOT)
        for path in [*paths, f"{log.directory}/{end}"]:
            assert crashed.files.get(path) == kafkas.get(path), path
            compared += path in kafkas
    assert compared > 100


@each_crashed
def test_recovered_folder_stopped_cleanly_opens_cleanly(crashed: MemoryDisk) -> None:
    first = open_folder(crashed)
    states = {partition: state(first, partition) for partition in first.logs}
    first.close(first.high_watermarks, broker_epoch=7)
    second = open_folder(crashed)
    assert (second.clean, second.broker_epoch) == (True, 7)
    assert {partition: state(second, partition) for partition in second.logs} == states


@pytest.mark.parametrize("disks", [CLEAN, CRASHED], ids=["clean", "crashed"])
@pytest.mark.parametrize("broker", BROKERS)
def test_checkpoints_are_written_as_they_were_read(
    disks: dict[int, MemoryDisk], broker: int
) -> None:
    files = disks[broker].files
    rewritten = 0
    for path, stored in files.items():
        data = bytes(stored)
        name = path.rpartition("/")[2]
        if name == layout.LEADER_EPOCHS and data:
            written = checkpoint.format_epochs(checkpoint.parse_epochs(path, data))
        elif name == layout.PARTITION_METADATA:
            written = checkpoint.format_topic_metadata(checkpoint.parse_topic_metadata(path, data))
        elif path.endswith("-offset-checkpoint"):
            written = checkpoint.format_offsets(checkpoint.parse_offsets(path, data))
        elif path == layout.META_PROPERTIES:
            written = checkpoint.parse_properties(path, data).format()
        else:
            continue
        assert written == data, path
        rewritten += 1
    assert rewritten > 50


@each_clean
def test_mark_of_a_clean_stop_is_written_as_kafka_writes_it(clean: MemoryDisk) -> None:
    mark = bytes(clean.files[layout.CLEAN_SHUTDOWN])
    epoch = checkpoint.remove_clean_shutdown(clean)
    assert epoch is not None
    assert not clean.exists(layout.CLEAN_SHUTDOWN)
    checkpoint.write_clean_shutdown(clean, epoch)
    assert clean.files[layout.CLEAN_SHUTDOWN] == mark


def test_killed_folder_recovers_on_a_real_file_system(tmp_path: Path) -> None:
    memory = deepcopy(CRASHED[3])
    for path, data in memory.files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    disk = OsDisk(str(tmp_path), max_open_files=8)
    real = LogDirectory.open(disk, 0, lambda _: CONFIG)
    expected = open_folder(memory)
    assert {p: state(real, p) for p in real.logs} == {p: state(expected, p) for p in expected.logs}
    disk.close()
    on_disk = {
        str(path.relative_to(tmp_path)): path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    assert on_disk == memory.files
