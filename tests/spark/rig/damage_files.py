"""Damage to checkpoints, indexes and snapshots."""

import os
import shutil

from damage_case import ANY, Expected, case, log
from mini_cluster import BROKERS, END, NOW, MiniCluster, transactions

from tidelog.core.lineage.producer_state import ProducerState
from tidelog.core.record.control import ControlType
from tidelog.core.record.encoder import Producer, encode_batch, encode_marker
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import TRANSACTIONAL, parse
from tidelog.core.storage import layout

# -- checkpoints


@case()
def a_high_watermark_is_beyond_the_end(cluster: MiniCluster) -> list[Expected]:
    cluster.offsets(2, layout.HIGH_WATERMARKS, END + 50)
    return [Expected("high-watermark", layout.HIGH_WATERMARKS, ANY, (END, END + 50))]


@case()
def a_recovery_point_is_beyond_the_end(cluster: MiniCluster) -> list[Expected]:
    cluster.offsets(2, layout.RECOVERY_POINTS, END + 50)
    return [Expected("recovery-point", layout.RECOVERY_POINTS, ANY, (END, END + 50))]


@case()
def a_log_start_is_beyond_the_end(cluster: MiniCluster) -> list[Expected]:
    cluster.offsets(2, layout.LOG_STARTS, END + 50)
    return [Expected("log-start", layout.LOG_STARTS, ANY, (END, END + 50))]


@case()
def a_log_start_is_where_no_record_was_deleted(cluster: MiniCluster) -> list[Expected]:
    cluster.offsets(2, layout.LOG_STARTS, 30)
    return [Expected("log-start", layout.LOG_STARTS, ANY, (0, 30))]


def _deleted(cluster: MiniCluster) -> None:
    for broker in BROKERS:
        cluster.offsets(broker, layout.LOG_STARTS, 30)
        cluster.epochs(broker, (0, 30), (2, 50), (3, 125))


@case()
def a_log_start_is_lost(cluster: MiniCluster) -> list[Expected]:
    _deleted(cluster)
    (cluster.root / "broker-2" / layout.LOG_STARTS).write_text("0\n0\n")
    return [Expected("log-start", layout.LOG_STARTS, ANY, (0, 29))]


@case()
def all_log_starts_are_lost_by_a_crash_before(cluster: MiniCluster) -> list[Expected]:
    _deleted(cluster)
    for broker in BROKERS:
        (cluster.root / f"broker-{broker}" / layout.LOG_STARTS).write_text("0\n0\n")
    return []


@case()
def a_recovery_point_is_short_after_an_orderly_stop(cluster: MiniCluster) -> list[Expected]:
    cluster.offsets(2, layout.RECOVERY_POINTS, 50)
    return [Expected("recovery-point", layout.RECOVERY_POINTS, ANY, (50, END))]


@case()
def checkpoints_are_of_an_older_time(cluster: MiniCluster) -> list[Expected]:
    for file in (layout.RECOVERY_POINTS, layout.HIGH_WATERMARKS):
        cluster.offsets(2, file, 50)
    return [
        Expected("recovery-point", layout.RECOVERY_POINTS, ANY, (50, END)),
        Expected("watermark-behind", layout.HIGH_WATERMARKS, ANY, (50, END)),
    ]


@case()
def a_high_watermark_is_low(cluster: MiniCluster) -> list[Expected]:
    cluster.offsets(2, layout.HIGH_WATERMARKS, 50)
    return [Expected("watermark-behind", layout.HIGH_WATERMARKS, ANY, (50, END))]


@case()
def a_checkpoint_is_below_zero(cluster: MiniCluster) -> list[Expected]:
    cluster.offsets(2, layout.HIGH_WATERMARKS, -5)
    return [Expected("checkpoint-format", layout.HIGH_WATERMARKS)]


@case()
def a_checkpoint_is_gone(cluster: MiniCluster) -> list[Expected]:
    (cluster.root / "broker-2" / layout.RECOVERY_POINTS).unlink()
    return [Expected("recovery-point", layout.RECOVERY_POINTS)]


@case()
def a_checkpoint_is_garbage(cluster: MiniCluster) -> list[Expected]:
    (cluster.root / "broker-2" / layout.HIGH_WATERMARKS).write_bytes(os.urandom(40) + b"\xff")
    return [Expected("checkpoint-format", layout.HIGH_WATERMARKS)]


@case()
def a_checkpoint_counts_wrong(cluster: MiniCluster) -> list[Expected]:
    (cluster.root / "broker-2" / layout.RECOVERY_POINTS).write_text(f"0\n2\nown 0 {END}\n")
    return [Expected("checkpoint-format", layout.RECOVERY_POINTS)]


@case()
def a_checkpoint_is_of_version_one(cluster: MiniCluster) -> list[Expected]:
    (cluster.root / "broker-2" / layout.LOG_STARTS).write_text("1\n0\n")
    return [Expected("checkpoint-format", layout.LOG_STARTS)]


@case()
def a_checkpoint_has_a_line_twice(cluster: MiniCluster) -> list[Expected]:
    text = f"0\n2\nown 0 {END}\nown 0 {END}\n"
    (cluster.root / "broker-2" / layout.HIGH_WATERMARKS).write_text(text)
    return [Expected("checkpoint-format", layout.HIGH_WATERMARKS)]


@case()
def a_checkpoint_names_a_stranger(cluster: MiniCluster) -> list[Expected]:
    text = f"0\n2\nown 0 {END}\nother 3 7\n"
    (cluster.root / "broker-2" / layout.HIGH_WATERMARKS).write_text(text)
    return [Expected("unknown-partition", layout.HIGH_WATERMARKS)]


@case()
def meta_properties_is_garbage(cluster: MiniCluster) -> list[Expected]:
    (cluster.root / "broker-2" / layout.META_PROPERTIES).write_bytes(b"what is this\n")
    return [Expected("meta-properties", layout.META_PROPERTIES)]


@case()
def meta_properties_is_that_of_another_broker(cluster: MiniCluster) -> list[Expected]:
    one, two = (cluster.root / f"broker-{n}" / layout.META_PROPERTIES for n in (1, 2))
    two.write_bytes(one.read_bytes())
    return [Expected("meta-properties", layout.META_PROPERTIES)]


@case()
def meta_properties_has_no_node(cluster: MiniCluster) -> list[Expected]:
    path = cluster.root / "broker-2" / layout.META_PROPERTIES
    path.write_text(path.read_text().replace("node.id=2\n", ""))
    return [Expected("meta-properties", layout.META_PROPERTIES)]


@case()
def a_broker_has_two_log_directories(cluster: MiniCluster) -> list[Expected]:
    second = cluster.root / "broker-2-b"
    shutil.copytree(cluster.root / "broker-2", second, ignore=shutil.ignore_patterns("own-*"))
    for file in (layout.RECOVERY_POINTS, layout.HIGH_WATERMARKS):
        (second / file).write_text("0\n0\n")
    return []


# -- files beside


@case()
def an_index_does_not_rise(cluster: MiniCluster) -> list[Expected]:
    path = cluster.folder(2) / "00000000000000000065.index"
    data = path.read_bytes()
    path.write_bytes(data[8:16] + data[:8] + data[16:])
    return [Expected("offset-index", log(path.name), 8)]


@case()
def an_index_points_beyond_the_segment(cluster: MiniCluster) -> list[Expected]:
    path = cluster.folder(2) / "00000000000000000065.index"
    data = path.read_bytes()
    path.write_bytes(data[:-4] + (1 << 20).to_bytes(4))
    return [Expected("offset-index", log(path.name), len(data) - 8)]


@case()
def an_index_points_into_a_batch(cluster: MiniCluster) -> list[Expected]:
    path = cluster.folder(2) / "00000000000000000065.index"
    cluster.flip(path, 15, 1)
    return [Expected("offset-index", log(path.name), 8)]


@case()
def an_index_names_another_offset(cluster: MiniCluster) -> list[Expected]:
    path = cluster.folder(2) / "00000000000000000065.index"
    cluster.flip(path, 11, 0)
    return [Expected("offset-index", log(path.name), 8)]


@case()
def an_index_is_cut_in_an_entry(cluster: MiniCluster) -> list[Expected]:
    path = cluster.folder(2) / "00000000000000000065.index"
    size = path.stat().st_size
    os.truncate(path, size - 3)
    return [Expected("offset-index", log(path.name), size - 8)]


@case()
def an_index_is_empty(cluster: MiniCluster) -> list[Expected]:
    path = cluster.folder(2) / "00000000000000000065.index"
    path.write_bytes(b"")
    return [Expected("offset-index", log(path.name), 0)]


@case()
def an_index_lost_its_end(cluster: MiniCluster) -> list[Expected]:
    path = cluster.folder(2) / "00000000000000000065.index"
    os.truncate(path, 8)
    return [Expected("offset-index", log(path.name))]


@case()
def an_index_lacks_one_entry(cluster: MiniCluster) -> list[Expected]:
    """An index without one entry is not damage: a restarted broker may write such an index."""
    path = cluster.folder(2) / "00000000000000000065.index"
    data = path.read_bytes()
    path.write_bytes(data[:16] + data[24:])
    return []


@case()
def an_index_of_a_closed_segment_ends_in_zeros(cluster: MiniCluster) -> list[Expected]:
    path = cluster.folder(2) / "00000000000000000065.index"
    size = path.stat().st_size
    os.truncate(path, size + 80)
    return [Expected("offset-index", log(path.name), size)]


@case()
def an_index_can_not_be_read(cluster: MiniCluster) -> list[Expected]:
    path = cluster.folder(2) / "00000000000000000065.index"
    path.unlink()
    path.mkdir()
    return [Expected("unreadable", log(path.name))]


@case()
def a_segment_can_not_be_read(cluster: MiniCluster) -> list[Expected]:
    path = cluster.folder(2) / "00000000000000000065.log"
    path.unlink()
    path.mkdir()
    return [Expected("unreadable", log(path.name), ANY, (65, 129))]


@case()
def an_index_is_gone(cluster: MiniCluster) -> list[Expected]:
    (cluster.folder(2) / "00000000000000000065.index").unlink()
    return [Expected("index-missing", log("00000000000000000065.index"))]


@case()
def a_time_index_is_gone(cluster: MiniCluster) -> list[Expected]:
    (cluster.folder(2) / "00000000000000000130.timeindex").unlink()
    return [Expected("index-missing", log("00000000000000000130.timeindex"))]


@case()
def a_time_index_is_garbage(cluster: MiniCluster) -> list[Expected]:
    path = cluster.folder(2) / "00000000000000000065.timeindex"
    path.write_bytes(os.urandom(48))
    return [Expected("time-index", log(path.name))]


@case()
def a_time_index_has_another_time(cluster: MiniCluster) -> list[Expected]:
    path = cluster.folder(2) / "00000000000000000065.timeindex"
    cluster.flip(path, 12 + 7, 0)
    return [Expected("time-index", log(path.name), 12)]


@case()
def a_time_index_is_empty(cluster: MiniCluster) -> list[Expected]:
    path = cluster.folder(2) / "00000000000000000065.timeindex"
    path.write_bytes(b"")
    return [Expected("time-index", log(path.name))]


@case()
def a_time_index_lost_its_end(cluster: MiniCluster) -> list[Expected]:
    path = cluster.folder(2) / "00000000000000000065.timeindex"
    os.truncate(path, path.stat().st_size - 12)
    return [Expected("time-index", log(path.name))]


@case()
def a_snapshot_is_damaged(cluster: MiniCluster) -> list[Expected]:
    path = cluster.folder(2) / "00000000000000000065.snapshot"
    cluster.flip(path, 20)
    return [Expected("producer-snapshot", log(path.name))]


@case()
def the_newest_snapshot_is_gone(cluster: MiniCluster) -> list[Expected]:
    newest = max(cluster.folder(2).glob("*.snapshot"))
    newest.unlink()
    return [Expected("producer-snapshot", log(newest.name))]


def _snapshot(cluster: MiniCluster, number: int) -> list[Expected]:
    """Return a snapshot with another last sequence number and a correct checksum."""
    newest = max(cluster.folder(2).glob("*.snapshot"))
    state = ProducerState()
    state.load_snapshot(newest.read_bytes(), END)
    (entry,) = state.producers.values()
    entry.batches[-1] = entry.batches[-1]._replace(last_offset=number, last_sequence=number)
    newest.write_bytes(state.encode_snapshot())
    return [Expected("producer-snapshot", log(newest.name))]


@case()
def a_snapshot_says_something_else(cluster: MiniCluster) -> list[Expected]:
    return _snapshot(cluster, END - 6)


@case()
def a_snapshot_knows_what_came_later(cluster: MiniCluster) -> list[Expected]:
    return _snapshot(cluster, END + 6)


@case(transactions)
def a_transaction_index_is_garbage(cluster: MiniCluster) -> list[Expected]:
    path = cluster.folder(2) / "00000000000000000000.txnindex"
    path.write_bytes(os.urandom(34))
    return [Expected("transaction-index", log(path.name))]


@case(transactions)
def a_transaction_index_names_no_marker(cluster: MiniCluster) -> list[Expected]:
    path = cluster.folder(2) / "00000000000000000000.txnindex"
    cluster.flip(path, 25, 3)
    return [Expected("transaction-index", log(path.name))]


@case(transactions)
def a_transaction_index_lost_its_entry(cluster: MiniCluster) -> list[Expected]:
    path = cluster.folder(2) / "00000000000000000000.txnindex"
    path.write_bytes(b"")
    return [Expected("transaction-index", log(path.name), ANY, (0, 6))]


def _long_transactions() -> list[bytearray]:
    """Producer 9 aborts twice, over several segments; producer 8 has a transaction open."""
    made: list[bytearray] = []

    def write(producer: int, *sequences: int) -> None:
        for sequence in sequences:
            base = parse(made[-1]).next_offset if made else 0
            records = [Record(b"k", b"v" * 200, NOW + base + i) for i in range(2)]
            numbers = Producer(producer, 0, sequence)
            made.append(
                encode_batch(
                    records,
                    attributes=TRANSACTIONAL,
                    producer=numbers,
                    base_offset=base,
                    leader_epoch=0,
                )
            )

    def end(producer: int, kind: ControlType) -> None:
        base = parse(made[-1]).next_offset
        marker = encode_marker(kind, Producer(producer, 0), 0, NOW + base)
        parse(marker).assign(base, 0)
        made.append(marker)

    write(8, 0)
    write(9, *range(0, 24, 2))
    end(9, ControlType.ABORT)
    write(9, *range(24, 34, 2))
    end(8, ControlType.COMMIT)
    write(9, *range(34, 44, 2))
    end(9, ControlType.ABORT)
    return made


@case(_long_transactions)
def transactions_go_over_several_segments(cluster: MiniCluster) -> list[Expected]:
    return []


@case(_long_transactions)
def a_transaction_index_has_another_begin(cluster: MiniCluster) -> list[Expected]:
    path = cluster.folder(2) / f"{24:020}.txnindex"
    cluster.write(path, 10, (4).to_bytes(8))
    return [Expected("transaction-index", log(path.name), 0, (4, 26))]


@case(_long_transactions)
def a_transaction_index_has_another_stable_offset(cluster: MiniCluster) -> list[Expected]:
    path = cluster.folder(2) / f"{24:020}.txnindex"
    cluster.write(path, 26, (27).to_bytes(8))
    return [Expected("transaction-index", log(path.name), 0, (2, 26))]


@case(_long_transactions)
def retention_took_the_begin_of_transactions(cluster: MiniCluster) -> list[Expected]:
    for broker in BROKERS:
        for first in (0, 12):
            for path in cluster.folder(broker).glob(f"{first:020}.*"):
                path.unlink()
        cluster.epochs(broker, (0, 24))
    return []
