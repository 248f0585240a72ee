"""`tidelog inspect` reads real files of Kafka and finds what is wrong with damaged ones."""

import errno
import gzip
import json
import os
import re
import stat
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from click.testing import CliRunner, Result
from real_cluster import LONG_SESSIONS, PATIENCE_S

from tidelog.apps.cli.main import cli
from tidelog.apps.log_files import segment_file
from tidelog.apps.log_files.read_only_file import ReadOnlyFile
from tidelog.apps.log_files.segment_file import SegmentFile
from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Header, Record
from tidelog.core.record.record_batch import CRC_FROM
from tidelog.shell.client.admin import create_topic
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.producer import Producer
from tidelog.shell.supervisor.cluster import LocalCluster

DATA = Path(__file__).parents[1] / "data" / "kafka-4.3.1"
DUMPS = sorted((DATA / "dumps").glob("*.txt"))
SEGMENT = "00000000000000000000.log"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["inspect", *map(str, arguments)])


def read(*arguments: str | Path) -> dict[str, Any]:
    found = run(*arguments, "--format", "json")
    document: dict[str, Any] = json.loads(found.stdout)
    assert document["holds"] is (found.exit_code == 0)
    return document


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of a Kafka broker that was stopped, and of one that was killed."""
    folder = tmp_path_factory.mktemp("kafka")
    for kind in ("clean", "crashed"):
        with tarfile.open(DATA / f"{kind}.tar.gz") as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(folder)
    return folder


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """A segment of three batches with two records each."""
    path = tmp_path / SEGMENT
    path.write_bytes(b"".join(batch(number * 2) for number in range(3)))
    return path


def batch(base_offset: int) -> bytes:
    records = [Record(b"k", f"v{base_offset + n}".encode(), 1000 + n) for n in range(2)]
    return bytes(encode_batch(records, base_offset=base_offset, leader_epoch=4))


# -- as Kafka's own tool says ----------------------------------------------------------------

FIELD = re.compile(r"(\w+): (\S+)")
OURS = {
    "baseOffset": "base_offset",
    "lastOffset": "last_offset",
    "count": "count",
    "baseSequence": "base_sequence",
    "lastSequence": "last_sequence",
    "producerId": "producer_id",
    "producerEpoch": "producer_epoch",
    "partitionLeaderEpoch": "leader_epoch",
    "isTransactional": "transactional",
    "isControl": "control",
    "position": "position",
    "size": "size",
    "compresscodec": "codec",
    "crc": "crc",
    "isvalid": "crc_ok",
    "CreateTime": "max_timestamp",
    "LogAppendTime": "max_timestamp",
}


def told_by_kafka(line: str) -> dict[str, object]:
    found = {}
    for key, text in FIELD.findall(line):
        if key in OURS:
            words: dict[str, object] = {"true": True, "false": False}
            number = int(text) if re.fullmatch(r"-?\d+", text) else text
            found[OURS[key]] = words.get(text, number)
    return found


@pytest.mark.parametrize(
    "dump", [path for path in DUMPS if ".log." in path.name], ids=lambda path: path.name
)
def test_batches_match_kafkas_dump(dump: Path, kafka: Path) -> None:
    partition = dump.name.partition(f".{SEGMENT}")[0]
    lines = dump.read_text().splitlines()
    wanted = [told_by_kafka(line) for line in lines if line.startswith("baseOffset:")]
    document = read("segment", kafka / "clean" / "broker-1" / partition / SEGMENT)
    seen = document["files"][0]["batches"]
    assert [
        {key: each[key] for key in want} for want, each in zip(wanted, seen, strict=True)
    ] == wanted


@pytest.mark.parametrize("topic", ["plain-0", "codec-gzip-0", "codec-zstd-0", "java-snappy-0"])
def test_records_match_the_produced_ones(topic: str, kafka: Path) -> None:
    manifest = json.loads(gzip.decompress((DATA / "manifest.json.gz").read_bytes()))
    wanted = {record["offset"] for record in manifest["partitions"][topic]["records"]}
    document = read("segment", kafka / "clean" / "broker-2" / topic, "--records")
    seen = {
        record["offset"]
        for file in document["files"]
        for each in file["batches"]
        for record in each["records"]
    }
    assert wanted <= seen


def test_index_files_match_kafkas_dump(kafka: Path) -> None:
    folder = kafka / "clean" / "broker-1"
    (times,) = read("segment", folder / "plain-0" / "00000000000000000000.timeindex")["files"]
    assert times["entries"] == [{"timestamp": 1700000298694, "offset": 97}]
    (aborted,) = read("segment", folder / "txn-0" / "00000000000000000000.txnindex")["files"]
    assert aborted["entries"][0] == {
        "producer_id": 2001,
        "first_offset": 7,
        "last_offset": 13,
        "last_stable_offset": 14,
    }
    assert len(aborted["entries"]) == 4
    (snapshot,) = read("segment", folder / "idem-0" / "00000000000000000120.snapshot")["files"]
    assert snapshot["entries"] == [
        {
            "producer_id": 2000,
            "producer_epoch": 0,
            "coordinator_epoch": -1,
            "current_txn_first_offset": None,
            "first_sequence": 100,
            "last_sequence": 119,
            "last_offset": 119,
            "last_timestamp": 1794751793038,
        }
    ]


def test_files_of_kafka_have_no_damage(kafka: Path) -> None:
    """Files of a killed broker are undamaged too: a kill loses no written data."""
    looked_at = 0
    for kind in ("clean", "crashed"):
        for path in sorted((kafka / kind / "broker-3").glob("*-*/0*")):
            if path.parent.name.startswith("__cluster_metadata"):
                continue
            found = run("segment", path)
            assert found.exit_code == 0, found.output
            looked_at += 1
    assert looked_at > 150


def test_inspect_changes_no_file(kafka: Path) -> None:
    folder = kafka / "crashed" / "broker-2"

    def everything() -> dict[str, tuple[int, int, int]]:
        stats = {str(path): path.stat() for path in folder.rglob("*")}
        return {name: (s.st_size, s.st_mtime_ns, s.st_ino) for name, s in stats.items()}

    before = everything()
    for path in sorted(folder.glob("plain-0/0*")):
        run("segment", path, *(["--records"] if path.suffix == ".log" else []))
    run("epochs", folder / "epochs-0")
    run("checkpoints", folder)
    assert everything() == before


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everything")
def test_read_only_file_is_read(segment: Path) -> None:
    segment.chmod(stat.S_IRUSR)
    assert run("segment", segment).exit_code == 0


# -- damage ----------------------------------------------------------------------------------


def problems(path: Path) -> list[tuple[int, str]]:
    document = read("segment", path)
    return [(each["position"], each["reason"]) for each in document["files"][0]["problems"]]


def damage(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def test_sound_segment_passes_the_check(segment: Path) -> None:
    document = read("segment", segment)
    assert document["files"][0]["problems"] == []
    assert [each["base_offset"] for each in document["files"][0]["batches"]] == [0, 2, 4]
    assert [each["leader_epoch"] for each in document["files"][0]["batches"]] == [4, 4, 4]


def test_flipped_bit_is_found_and_later_batches_are_read(segment: Path) -> None:
    size = len(batch(0))
    damage(segment, size + CRC_FROM + 45, b"\xff")
    document = read("segment", segment)
    (file,) = document["files"]
    assert file["problems"] == [{"position": size, "base_offset": 2, "reason": "checksum differs"}]
    assert [each["crc_ok"] for each in file["batches"]] == [True, False, True]
    found = run("segment", segment)
    assert found.exit_code == 1
    assert f"✗ byte {size}: checksum differs" in found.stdout


@pytest.mark.parametrize(
    ("at", "data", "reason"),
    [
        (16, b"\x01", "magic 1"),
        (8, pack(">i", 10), "batch of 22 bytes is smaller than its header"),
        (8, pack(">i", 2**31 - 20), "is larger than the maximum"),
        (8, pack(">i", 100_000), "batch of 100012 bytes"),
    ],
    ids=["magic", "too short", "absurd", "beyond the end"],
)
def test_invalid_bytes_end_the_reading(at: int, data: bytes, reason: str, segment: Path) -> None:
    size = len(batch(0))
    damage(segment, size + at, data)
    ((position, found),) = problems(segment)
    assert position == size
    assert reason in found
    assert len(read("segment", segment)["files"][0]["batches"]) == 1


@pytest.mark.parametrize("missing", [1, 30, 70])
def test_a_batch_that_is_cut_off_is_named(missing: int, segment: Path) -> None:
    size = len(batch(0))
    with segment.open("r+b") as file:
        file.truncate(3 * size - missing)
    ((position, _),) = problems(segment)
    assert position == 2 * size


def test_a_tail_of_zeros_is_named(segment: Path) -> None:
    with segment.open("ab") as file:
        file.write(bytes(5000))
    ((position, reason),) = problems(segment)
    assert position == 3 * len(batch(0))
    assert "5000 bytes of zeros" in reason


def test_offsets_that_go_back_are_named(tmp_path: Path) -> None:
    path = tmp_path / SEGMENT
    path.write_bytes(batch(0) + batch(4) + batch(2))
    assert problems(path) == [(2 * len(batch(0)), "offset 2 after 5")]
    early = tmp_path / "00000000000000000007.log"
    early.write_bytes(batch(4))
    assert problems(early) == [(0, "offset 4 after 6")]


def test_records_that_do_not_decode_are_named(tmp_path: Path) -> None:
    """The checksum is right, but the producer wrote invalid records."""
    path = tmp_path / SEGMENT
    path.write_bytes(encode_batch([Record(None, b"x")], attributes=0))
    content = bytearray(path.read_bytes())
    content[61] = 0x7F  # the first record's length
    content[17:21] = crc32c(memoryview(content)[CRC_FROM:]).to_bytes(4, "big")
    path.write_bytes(content)
    assert run("segment", path).exit_code == 0
    found = run("segment", path, "--records")
    assert found.exit_code == 1
    assert "✗ byte 0: records: " in found.stdout


def test_an_index_that_does_not_fit_its_segment_is_found(segment: Path) -> None:
    index = segment.with_suffix(".index")
    size = len(batch(0))
    index.write_bytes(pack(">iiii", 3, size, 5, 2 * size) + bytes(16))
    document = read("segment", index)
    assert document["files"][0]["entries"] == [
        {"offset": 3, "position": size},
        {"offset": 5, "position": 2 * size},
    ]
    assert document["files"][0]["note"] == "16 bytes reserved after the entries"
    index.write_bytes(pack(">iiii", 2, size, 5, 9 * size) + b"\1")
    found = [
        (each["position"], each["reason"])
        for each in read("segment", index)["files"][0]["problems"]
    ]
    assert found == [
        (16, "1 bytes are not a whole entry"),
        (0, "the batch there ends with offset 3, not 2"),
        (8, f"no batch at byte {9 * size} of the segment"),
    ]


@pytest.mark.parametrize("kind", ["timeindex", "txnindex", "snapshot"])
def test_a_damaged_small_file_is_named(kind: str, kafka: Path, tmp_path: Path) -> None:
    partition = {"timeindex": "plain-0", "txnindex": "txn-0", "snapshot": "txn-0"}[kind]
    source = next((kafka / "clean" / "broker-1" / partition).glob(f"*.{kind}"))
    path = tmp_path / source.name
    path.write_bytes(source.read_bytes()[:-1] + (b"" if kind == "txnindex" else b"\x99\x99"))
    assert problems(path)
    assert run("segment", path).exit_code == 1


# -- live files and long ones ------------------------------------------------------------------


def test_inspect_waits_for_a_batch_that_is_being_written(
    segment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = batch(6)
    with segment.open("ab") as file:
        file.write(whole[:70])

    def finish(_seconds: float) -> None:
        with segment.open("ab") as file:
            file.write(whole[70:] + batch(8))

    monkeypatch.setattr(time, "sleep", finish)
    with ReadOnlyFile(str(segment)) as live:
        seen = list(SegmentFile(live, 0).walk())
    assert [(each.batch and each.batch.base_offset, each.problems) for each in seen] == [
        (0, ()),
        (2, ()),
        (4, ()),
        (6, ()),
    ]


def test_file_truncated_while_it_is_read_ends_there(segment: Path) -> None:
    with ReadOnlyFile(str(segment)) as file:
        walk = SegmentFile(file, 0)
        os.truncate(segment, 0)
        assert list(walk.walk()) == []


def test_read_error_names_file_and_position(segment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(batch(0))
    pread = os.pread

    def failing(fd: int, length: int, position: int) -> bytes:
        if position >= 2 * size:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(fd, min(length, 2 * size - position), position)

    monkeypatch.setattr(os, "pread", failing)
    monkeypatch.setattr(segment_file, "_CHUNK", 2 * size)
    assert problems(segment) == [(2 * size, "input/output error")]


def test_segment_deleted_while_inspecting_is_skipped(
    segment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listdir = os.listdir

    def late(path: str) -> list[str]:
        return [*listdir(path), "00000000000000000099.log"]

    monkeypatch.setattr(os, "listdir", late)
    assert len(read("segment", segment.parent)["files"]) == 1


def test_file_without_permission_is_one_line(
    segment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", refuse)
    found = run("segment", segment, "--format", "json")
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr == f"tidelog: can't read {segment}: permission denied\n"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / SEGMENT
    value = os.urandom(500_000)
    with path.open("wb") as file:
        for offset in range(200):
            file.write(encode_batch([Record(None, value)], base_offset=offset))
    code = (
        "import sys\n"
        "from tidelog.apps.cli.main import cli\n"
        f"sys.argv = ['tidelog', 'inspect', 'segment', {str(path)!r}]\n"
        "try:\n    cli.main()\nexcept SystemExit as end:\n    assert end.code == 0, end.code\n"
        "status = open('/proc/self/status').read()\n"
        "print(status.split('VmHWM:')[1].split()[0], file=sys.stderr)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert path.stat().st_size > 100_000_000
    assert int(found.stderr) < 90_000  # KiB; the interpreter and click take half of it
    assert "✓ 200 batches" in found.stdout


def test_closed_output_pipe_is_not_an_error(tmp_path: Path) -> None:
    path = tmp_path / SEGMENT
    path.write_bytes(b"".join(batch(number * 2) for number in range(5000)))
    tool = [sys.executable, "-m", "tidelog", "inspect", "segment", str(path)]
    with subprocess.Popen(tool, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=PATIENCE_S) == 0


def test_files_of_a_running_broker() -> None:
    with (
        LocalCluster(brokers=1, settings=LONG_SESSIONS) as running,
        Cluster(running.bootstrap, timeout_s=PATIENCE_S) as cluster,
    ):
        create_topic(cluster, "orders", 1, 1)
        producer = Producer(cluster, timeout_s=PATIENCE_S)
        for number in range(20):
            producer.append("orders", 0, [Record(None, f"v{number}".encode(), 1)] * 3)
        folder = Path(running.log_dir(1))
        document = read("segment", folder / "orders-0", "--records")
        (file,) = document["files"]
        assert document["holds"] is True
        assert (file["batch_count"], file["record_count"], file["last_offset"]) == (20, 60, 59)
        assert file["batches"][7]["records"][0]["value"] == "v7"
        assert file["batches"][7]["base_sequence"] == 21
        epochs = read("epochs", folder / "orders-0")["epochs"]
        assert [each["start_offset"] for each in epochs] == [0]
        assert read("checkpoints", folder)["properties"]["node.id"] == "1"


# -- records for people ------------------------------------------------------------------------


def test_records_are_shown_as_text_or_bytes(tmp_path: Path) -> None:
    path = tmp_path / SEGMENT
    headers = (Header("trace", b"7"), Header("none", None))
    records = [
        Record(b"key", "wört\n".encode(), 1_700_000_000_123, headers),
        Record(None, b"\xff\x00", -1),
        Record(b"", b"x" * 1000),
    ]
    path.write_bytes(encode_batch(records))
    shown = run("segment", path, "--records").stdout.splitlines()
    assert shown[3] == (
        '    offset 0  2023-11-14 22:13:20.123Z  key "key"  value "wört\\n"  trace="7"  none=null'
    )
    assert shown[4] == "    offset 1  -1  key null  value b'\\xff\\x00'"
    assert shown[5].endswith("… (1000 bytes)")
    (file,) = read("segment", path, "--records")["files"]
    first, second, _ = file["batches"][0]["records"]
    assert first["headers"] == [["trace", "7"], ["none", None]]
    assert second["value"] == {"base64": "/wA="}


def test_markers_are_named(kafka: Path) -> None:
    found = run("segment", kafka / "clean" / "broker-1" / "txn-0" / SEGMENT, "--records").stdout
    assert "commit marker of coordinator epoch 0" in found
    assert "abort marker of coordinator epoch 0" in found


# -- epochs and checkpoints --------------------------------------------------------------------


def test_epochs_of_kafka(kafka: Path) -> None:
    document = read("epochs", kafka / "clean" / "broker-1" / "epochs-0")
    starts = [
        (each["epoch"], each["start_offset"], each["end_offset"]) for each in document["epochs"]
    ]
    assert starts[:2] == [(0, 0, 10), (1, 10, 20)]
    assert starts[-1] == (9, 60, None)
    shown = run("epochs", kafka / "clean" / "broker-1" / "epochs-0" / "leader-epoch-checkpoint")
    assert "✓ 7 epochs" in shown.stdout
    assert "log end" in shown.stdout


def test_broken_epochs_are_named_by_line(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n2\n1 0\n0 10\n")
    document = read("epochs", tmp_path)
    assert document["holds"] is False
    assert "line 4: epochs and offsets must rise" in document["problems"][0]


def test_checkpoints_of_kafka(kafka: Path) -> None:
    document = read("checkpoints", kafka / "clean" / "broker-1")
    assert document["properties"]["cluster.id"] == "Ziui243vSWuueiTnVlp47g"
    assert document["clean_shutdown"]["brokerEpoch"] == 927
    rows = {(row["topic"], row["partition"]): row for row in document["partitions"]}
    assert len(rows) == 25
    assert rows["trimmed", 0]["log_start"] == 60
    assert rows["compacted", 0]["cleaner"] == 150
    assert rows["epochs", 0]["high_watermark"] == 68
    killed = read("checkpoints", kafka / "crashed" / "broker-1")
    assert killed["clean_shutdown"] is None
    one = run("checkpoints", kafka / "clean" / "broker-1" / "replication-offset-checkpoint")
    assert "high watermark" in one.stdout
    assert "recovery point" not in one.stdout


def test_broken_checkpoint_is_named_and_others_are_shown(kafka: Path, tmp_path: Path) -> None:
    (tmp_path / "replication-offset-checkpoint").write_text("0\n3\norders 0 12\n")
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 5\n")
    document = read("checkpoints", tmp_path)
    assert document["holds"] is False
    assert document["problems"] == [
        f"{tmp_path}/replication-offset-checkpoint: has 1 entries, the count line says 3"
    ]
    assert document["partitions"] == [{"topic": "orders", "partition": 0, "log_start": 5}]


# -- bad paths ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("segment", "nowhere.log"), "file or folder 'nowhere.log' does not exist"),
        (("segment", "notes.txt"), "is not named like 00000000000000000000.log; give a .log"),
        (("segment", "empty"), "'empty' has no .log file"),
        (("epochs", "empty"), "give a partition's folder"),
        (("checkpoints", "empty"), "give a log directory"),
        (("checkpoints", "notes.txt"), "is not one of meta.properties"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_unusable_path_is_one_line(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("hello")
    found = run(*arguments)
    assert found.exit_code == 2
    assert message in found.stderr
    assert found.stderr.count("\n") == 1
