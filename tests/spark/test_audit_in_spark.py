"""The audit and `format("tidelog-log")` on Spark: golden folders, and all damage in one run."""

import gzip
import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from damage_case import matches
from damage_cases import CASES
from mini_cluster import make_mini_cluster

from tidelog.apps.audit.run import audit
from tidelog.core.storage import layout

pytestmark = pytest.mark.spark

DATA = Path(__file__).parents[1] / "data" / "kafka-4.3.1"
MANIFEST: dict[str, Any] = json.loads(gzip.decompress((DATA / "manifest.json.gz").read_bytes()))[
    "partitions"
]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("golden")
    for kind in ("clean", "crashed"):
        with tarfile.open(DATA / f"{kind}.tar.gz") as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(root)
    return root


def test_golden_folders_pass(spark: Any, golden: Path) -> None:
    clean = audit(spark, [str(golden / "clean")], deep=True)
    assert [(each.kind, each.replica) for each in clean.findings] == [("leftover", "broker-3")]
    crashed = audit(spark, [str(golden / "crashed")], deep=True)
    assert [each[:5] + each[6:8] for each in crashed.findings] == [
        ("uncommitted-tail", "broker-3", "epochs", 0, f"epochs-0/{0:020}.log", 61, 67)
    ]
    assert crashed.holds
    rows = {(row.topic, row.partition): row.replicas for row in clean.partitions}
    assert {tp: len(replicas) for tp, replicas in rows.items()} == dict.fromkeys(rows, 3)
    for name, wanted in MANIFEST.items():
        topic, _, partition = name.rpartition("-")
        for state in rows[topic, int(partition)]:
            assert state.log_start == wanted["log_start_offset"]
            assert state.log_end == state.high_watermark == wanted["high_watermark"]


def shown(data: bytes | None) -> object:
    """Format bytes as the manifest does: as text, or as a digest if long or not ASCII."""
    if data is None:
        return None
    if len(data) <= 200 and data.isascii():
        return data.decode()
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def test_rows_are_the_manifest(spark: Any, golden: Path) -> None:
    read = spark.read.format("tidelog-log").option("level", "record")
    everything = read.load(str(golden / "clean")).where("not is_control")
    committed = read.option("isolationLevel", "read_committed").load(str(golden / "clean"))
    for rows, leaves_out_aborted in ((everything, False), (committed, True)):
        found: dict[tuple[str, str], list[object]] = {}
        for row in rows.where("topic not like '\\\\_\\\\_%'").collect():
            place = (row.replica, f"{row.topic}-{row.partition}")
            found.setdefault(place, []).append(
                {
                    "offset": row.offset,
                    "leader_epoch": row.leader_epoch,
                    "timestamp_type": ("CreateTime", "LogAppendTime")[row.timestampType],
                    "timestamp": round(row.timestamp.timestamp() * 1000),
                    "key": shown(row.key),
                    "value": shown(row.value),
                    "headers": [[each.key, shown(each.value)] for each in row.headers or []],
                }
            )
        assert len(found) == 3 * len(MANIFEST)
        for (_, name), records in found.items():
            aborted = MANIFEST[name]["aborted_offsets"] if leaves_out_aborted else []
            wanted = [r for r in MANIFEST[name]["records"] if r["offset"] not in aborted]
            assert records == wanted, name


def test_all_damage_in_one_run(spark: Any, tmp_path: Path) -> None:
    """Each case is a separate cluster; all are checked in one audit."""
    expected = {}
    for case in CASES:
        cluster = make_mini_cluster(tmp_path / case.name, case.made() if case.made else None)
        for path in (tmp_path / case.name).glob(f"*/{layout.META_PROPERTIES}"):
            path.write_text(path.read_text().replace("cluster.id=mini", f"cluster.id={case.name}"))
        expected[case.name] = case.do(cluster)
    report = audit(spark, [str(tmp_path)])
    assert not report.holds
    for name, wanted in expected.items():
        found = [each for each in report.findings if each.replica.startswith(f"{name}/")]
        assert matches(found, wanted), (name, found, wanted)
    assert len(report.findings) == sum(map(len, expected.values()))
    assert len(report.partitions) >= len(CASES)


def test_small_levels_and_splits(spark: Any, tmp_path: Path) -> None:
    cluster = make_mini_cluster(tmp_path / "c")

    def read() -> Any:
        return spark.read.format("tidelog-log")

    partition = str(cluster.folder(2))
    batches = read().option("level", "batch").option("splitBytes", 500).load(partition)
    assert batches.rdd.getNumPartitions() > 10
    rows = batches.orderBy("base_offset").collect()
    assert [(row.segment, row.position, row.size) for row in rows] == [
        (each.file, each.position, each.size) for each in cluster.batches()
    ]
    assert all(row.crc_ok and row.replica == "broker-2" for row in rows)
    counts = {
        level: read().option("level", level).load(partition).count()
        for level in ("file", "index", "epoch", "snapshot", "checkpoint", "transaction")
    }
    names = {path.name for path in cluster.folder(2).iterdir()}
    assert counts["file"] == len(names)
    assert counts["epoch"] == 3
    assert counts["index"] > 20
    assert counts["snapshot"] == len([name for name in names if name.endswith(".snapshot")])
    assert counts["checkpoint"] == 2
    assert counts["transaction"] == 0
    several = json.dumps([partition, str(cluster.folder(3) / f"{65:020}.log")])
    both = read().option("paths", several).option("level", "batch")
    assert both.load().count() == 40 + 13
    with pytest.raises(Exception, match="no column 'nonsense'"):
        read().option("level", "epoch").schema("nonsense int").load(partition).count()
    with pytest.raises(Exception, match="level must be one of"):
        read().option("level", "nonsense").load(partition).count()
    cluster.flip(cluster.segments(2)[0], 120)
    with pytest.raises(Exception, match=r"checksum is wrong.*onDamage"):
        read().option("level", "record").load(partition).count()
    skipping = read().option("level", "record").option("onDamage", "skip").load(partition)
    assert skipping.count() == 195
