"""Every record, snapshot and index of a real Kafka 4.3.1 cluster is decoded as by Kafka."""

import gzip
import hashlib
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tidelog.core.lineage.producer_state import ProducerState
from tidelog.core.lineage.transaction_index import aborted_transactions, decode_transactions
from tidelog.core.record.compression import Codec
from tidelog.core.record.control import ControlType, TransactionMarker
from tidelog.core.record.decoder import LogRecord, decode, read_committed
from tidelog.core.record.encoder import Producer, encode_batch
from tidelog.core.record.record_batch import CODEC_MASK, LOG_APPEND_TIME, RecordBatch, batches

DATA = Path(__file__).parents[1] / "data" / "kafka-4.3.1"
BROKERS = ("broker-1", "broker-2", "broker-3")
MANIFEST: dict[str, Any] = json.loads(gzip.decompress((DATA / "manifest.json.gz").read_bytes()))[
    "partitions"
]
DUMPS = sorted((DATA / "dumps").iterdir())


def dumps(kind: str) -> list[Path]:
    return [path for path in DUMPS if path.name.endswith(f".{kind}.txt")]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory, "clean")


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory, "crashed")


def unpack(tmp_path_factory: pytest.TempPathFactory, name: str) -> Path:
    folder = tmp_path_factory.mktemp(name)
    with tarfile.open(DATA / f"{name}.tar.gz") as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # 3.11.4 and newer
        tar.extractall(folder)
    return folder / name


def log_batches(partition: Path) -> list[RecordBatch]:
    found = []
    for segment in sorted(partition.glob("*.log")):
        data = bytearray(segment.read_bytes())
        of_segment = list(batches(data))
        assert sum(batch.size for batch in of_segment) == len(data)
        found += of_segment
    return found


def spelled(value: bytes | None) -> object:
    """Format bytes as the manifest does: as text if printable, otherwise as a digest."""
    if value is None:
        return None
    if len(value) > 1000 or not value.isascii():
        return {"sha256": hashlib.sha256(value).hexdigest(), "bytes": len(value)}
    return value.decode()


def as_in_manifest(record: LogRecord) -> dict[str, object]:
    return {
        "offset": record.offset,
        "leader_epoch": record.leader_epoch,
        "timestamp_type": record.timestamp_type.value,
        "timestamp": record.timestamp,
        "key": spelled(record.key),
        "value": spelled(record.value),
        "headers": [[header.key, spelled(header.value)] for header in record.headers],
    }


@pytest.mark.parametrize("broker", BROKERS)
@pytest.mark.parametrize("partition", MANIFEST)
def test_records_equal_what_a_client_read(clean: Path, partition: str, broker: str) -> None:
    expected = MANIFEST[partition]
    found = log_batches(clean / broker / partition)
    assert all(batch.crc_ok() for batch in found)
    assert found[-1].next_offset == expected["high_watermark"]
    records = [
        as_in_manifest(record)
        for batch in found
        for record in decode(batch)
        if record.control is None and record.offset >= expected["log_start_offset"]
    ]
    assert records == expected["records"]


@pytest.mark.parametrize("broker", BROKERS)
@pytest.mark.parametrize("partition", MANIFEST)
def test_aborted_records_are_left_out(clean: Path, partition: str, broker: str) -> None:
    folder = clean / broker / partition
    found = log_batches(folder)
    entries = [
        entry
        for file in sorted(folder.glob("*.txnindex"))
        for entry in decode_transactions(file.read_bytes())
    ]
    aborted = aborted_transactions(entries, 0, found[-1].next_offset)
    committed = read_committed(found, [entry[:2] for entry in aborted])
    visible = {record.offset for batch in committed for record in decode(batch)}
    data = {record.offset for batch in found if not batch.is_control for record in decode(batch)}
    assert sorted(data - visible) == MANIFEST[partition]["aborted_offsets"]


def every_log(folder: Path) -> list[Path]:
    return sorted(folder.glob("broker-*/*/*.log"))


@pytest.mark.parametrize("cluster", ["clean", "crashed"])
def test_every_batch_on_disk_is_sound(cluster: str, request: pytest.FixtureRequest) -> None:
    count = 0
    for log in every_log(request.getfixturevalue(cluster)):
        data = bytearray(log.read_bytes())
        for batch in batches(data):
            assert batch.crc_ok()
            assert len(decode(batch)) == batch.count
            count += 1
    assert count > 1000


def test_replaying_a_log_gives_its_snapshot_and_transaction_index(clean: Path) -> None:
    """The state after a replay equals the one that Kafka wrote when it stopped."""
    compared = 0
    for folder in sorted(clean.glob("broker-*/*-[0-9]")):
        state = ProducerState()
        aborted = [entry for batch in log_batches(folder) if (entry := state.update(batch))]
        snapshots = sorted(folder.glob("*.snapshot"))
        if not snapshots or int(snapshots[-1].stem) != state.end_offset:
            continue
        compared += 1
        assert state.encode_snapshot() == snapshots[-1].read_bytes()
        index = b"".join(file.read_bytes() for file in sorted(folder.glob("*.txnindex")))
        assert b"".join(entry.encode() for entry in aborted) == index
    assert compared > 60


@pytest.mark.parametrize("cluster", ["clean", "crashed"])
def test_every_snapshot_encodes_as_it_was(cluster: str, request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(cluster)
    producers = 0
    for file in sorted(folder.glob("broker-*/*/*.snapshot")):
        state = ProducerState()
        state.load_snapshot(file.read_bytes(), int(file.stem))
        assert state.encode_snapshot() == file.read_bytes()
        producers += len(state.producers)
    assert producers >= 3 * len(BROKERS)


def fields(line: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+): (\S+)", line))


@pytest.mark.parametrize("dump", dumps("snapshot"), ids=lambda path: path.stem)
def test_snapshot_reads_as_kafka_dumps_it(clean: Path, dump: Path) -> None:
    partition, offset, _ = dump.stem.split(".")
    state = ProducerState()
    file = clean / "broker-1" / partition / f"{offset}.snapshot"
    state.load_snapshot(file.read_bytes(), int(offset))
    lines = dump.read_text().splitlines()[1:]
    assert len(lines) == len(state.producers)
    for line, (producer_id, entry) in zip(lines, state.producers.items(), strict=True):
        last = entry.batches[-1]
        assert fields(line) == {
            "producerId": str(producer_id),
            "producerEpoch": str(entry.epoch),
            "coordinatorEpoch": str(entry.coordinator_epoch),
            "currentTxnFirstOffset": "OptionalLong.empty",
            "lastTimestamp": str(entry.last_timestamp),
            "firstSequence": str(last.first_sequence),
            "lastSequence": str(last.last_sequence),
            "lastOffset": str(last.last_offset),
            "offsetDelta": str(last.offset_delta),
            "timestamp": str(last.timestamp),
        }
        assert producer_id not in state.open_transactions


@pytest.mark.parametrize("dump", dumps("txnindex"), ids=lambda path: path.stem)
def test_transaction_index_reads_as_kafka_dumps_it(clean: Path, dump: Path) -> None:
    partition, offset, _ = dump.stem.split(".")
    file = clean / "broker-1" / partition / f"{offset}.txnindex"
    entries = decode_transactions(file.read_bytes())
    assert b"".join(entry.encode() for entry in entries) == file.read_bytes()
    assert [fields(line) for line in dump.read_text().splitlines()[1:]] == [
        {
            "version": "0",
            "producerId": str(entry.producer_id),
            "firstOffset": str(entry.first_offset),
            "lastOffset": str(entry.last_offset),
            "lastStableOffset": str(entry.last_stable_offset),
        }
        for entry in entries
    ]


def dumped_batch(batch: RecordBatch) -> dict[str, str]:
    time = "LogAppendTime" if batch.is_log_append_time else "CreateTime"
    return {
        "baseOffset": str(batch.base_offset),
        "lastOffset": str(batch.last_offset),
        "count": str(batch.count),
        "baseSequence": str(batch.base_sequence),
        "lastSequence": str(batch.last_sequence),
        "producerId": str(batch.producer_id),
        "producerEpoch": str(batch.producer_epoch),
        "partitionLeaderEpoch": str(batch.leader_epoch),
        "isTransactional": str(batch.is_transactional).lower(),
        "isControl": str(batch.is_control).lower(),
        "deleteHorizonMs": "OptionalLong.empty" if not batch.has_delete_horizon else "set",
        "position": str(batch.position),
        time: str(batch.max_timestamp),
        "size": str(batch.size),
        "magic": "2",
        "compresscodec": Codec(batch.codec).name.lower(),
        "crc": str(batch.crc),
        "isvalid": str(batch.crc_ok()).lower(),
    }


def dumped_record(record: LogRecord) -> dict[str, str]:
    found = {
        "offset": str(record.offset),
        record.timestamp_type.value: str(record.timestamp),
        "keySize": str(-1 if record.key is None else len(record.key)),
        "valueSize": str(-1 if record.value is None else len(record.value)),
        "headerKeys": f"[{','.join(header.key for header in record.headers)}]",
    }
    if isinstance(record.control, TransactionMarker):
        found["endTxnMarker"] = ControlType(record.control.type).name
        found["coordinatorEpoch"] = str(record.control.coordinator_epoch)
    return found


@pytest.mark.parametrize("dump", dumps("log"), ids=lambda path: path.stem)
def test_log_reads_as_kafka_dumps_it(clean: Path, dump: Path) -> None:
    partition, offset, _ = dump.stem.split(".")
    data = bytearray((clean / "broker-1" / partition / f"{offset}.log").read_bytes())
    found = list(batches(data))
    lines = dump.read_text().splitlines()[2:]
    headers = [fields(line) for line in lines if line.startswith("baseOffset: ")]
    assert headers == [dumped_batch(batch) for batch in found]
    dumped = [fields(line) for line in lines if line.startswith("| offset: ")]
    if dumped:
        ours = [dumped_record(record) for batch in found for record in decode(batch)]
        assert len(ours) == len(dumped)
        for mine, theirs in zip(ours, dumped, strict=True):
            assert mine.items() <= theirs.items()


def test_our_encoder_writes_what_the_clients_wrote(clean: Path) -> None:
    """Decoding and encoding gives the same bytes, or the same records if bytes can't be equal.

    A codec or LogAppendTime may change the bytes.
    """
    same_bytes = 0
    for log in every_log(clean):
        data = bytearray(log.read_bytes())
        for batch in batches(data):
            records = decode(batch)
            encoded = encode_batch(
                records,
                attributes=batch.attributes & ~LOG_APPEND_TIME,
                producer=Producer(batch.producer_id, batch.producer_epoch, batch.base_sequence),
                base_offset=batch.base_offset,
                leader_epoch=batch.leader_epoch,
                offset_deltas=[record.offset - batch.base_offset for record in records],
            )
            (again,) = batches(encoded)
            if batch.attributes & (CODEC_MASK | LOG_APPEND_TIME):
                if batch.is_log_append_time:
                    again.stamp_log_append_time(batch.max_timestamp)
                assert again.crc_ok()
                assert decode(again) == records
            else:
                assert encoded == bytes(batch.view()), log
                same_bytes += 1
    assert same_bytes > 1000
