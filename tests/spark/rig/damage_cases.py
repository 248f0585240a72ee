"""Ways to damage a log directory, each with what an audit must say: that, and nothing else.

A case breaks broker 2 of a small cluster, unless it says otherwise. What is expected is the kind,
the replica, the file and, where they matter, the byte and the offsets.
"""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mini_cluster import (
    BATCHES,
    END,
    FOLDER,
    RECORDS,
    MiniCluster,
    batch_at,
    transactions,
)

from tidelog.apps.audit.report.findings import Finding
from tidelog.core.record.record_batch import CRC_AT
from tidelog.core.storage import checkpoint, layout

ANY = None


class Expected(NamedTuple):
    kind: str
    file: str
    position: int | None = ANY
    offsets: tuple[int, int] | None = ANY
    replica: str = "broker-2"


def matches(found: Sequence[Finding], expected: Sequence[Expected]) -> bool:
    """Whether exactly that was found; replicas are named by the last part of their path."""
    return len(found) == len(expected) and all(map(_fits, found, expected))


def _fits(found: Finding, expected: Expected) -> bool:
    return (
        (found.kind, found.file, found.replica.rpartition("/")[2])
        == (expected.kind, expected.file, expected.replica)
        and expected.position in (ANY, found.position)
        and expected.offsets in (ANY, (found.first_offset, found.last_offset))
    )


Break = Callable[[MiniCluster], list[Expected]]


class Case(NamedTuple):
    name: str
    do: Break
    made: Callable[[], list[bytearray]] | None = None


CASES: list[Case] = []


def case(made: Callable[[], list[bytearray]] | None = None) -> Callable[[Break], Break]:
    def register(function: Break) -> Break:
        CASES.append(Case(function.__name__, function, made))
        return function

    return register


def log(file: str) -> str:
    return f"{FOLDER}/{file}"


# -- bytes of a segment


@case()
def a_bit_of_a_record_flips(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[5]
    cluster.flip(cluster.path(at), at.position + 120)
    return [Expected("batch-checksum", log(at.file), at.position, (at.base, at.last))]


@case()
def a_bit_of_a_checksum_flips(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[17]
    cluster.flip(cluster.path(at), at.position + CRC_AT)
    return [Expected("batch-checksum", log(at.file), at.position, (at.base, at.last))]


@case()
def a_bit_of_the_last_offset_delta_flips(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[8]
    cluster.flip(cluster.path(at), at.position + 23, 4)
    return [Expected("batch-checksum", log(at.file), at.position, (at.base, at.last))]


@case()
def a_bit_of_the_producer_id_flips(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[9]
    cluster.flip(cluster.path(at), at.position + 50, 2)
    return [Expected("batch-checksum", log(at.file), at.position, (at.base, at.last))]


@case()
def the_last_batch_of_a_segment_is_damaged(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[12]
    cluster.flip(cluster.path(at), at.position + at.size - 3, 6)
    return [Expected("batch-checksum", log(at.file), at.position, (at.base, at.last))]


@case()
def the_very_last_batch_is_damaged(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[-1]
    cluster.flip(cluster.path(at), at.position + at.size - 3, 6)
    return [Expected("batch-checksum", log(at.file), at.position, (at.base, at.last))]


@case()
def the_magic_flips(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[6]
    cluster.flip(cluster.path(at), at.position + 16, 3)
    return [Expected("batch-header", log(at.file), at.position, (at.base, at.last))]


@case()
def a_length_grows(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[6]
    cluster.flip(cluster.path(at), at.position + 11, 4)
    return [Expected("batch-header", log(at.file), at.position, (at.base, at.last))]


@case()
def a_length_shrinks(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[20]
    cluster.flip(cluster.path(at), at.position + 11, 7)
    return [Expected("batch-header", log(at.file), at.position, (at.base, at.last))]


@case()
def a_length_is_huge(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[6]
    cluster.flip(cluster.path(at), at.position + 8, 5)
    return [Expected("batch-header", log(at.file), at.position, (at.base, at.last))]


@case()
def the_first_batch_of_a_log_is_garbage(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[0]
    cluster.write(cluster.path(at), 0, os.urandom(at.size))
    return [Expected("batch-header", log(at.file), 0, (at.base, at.last))]


@case()
def a_middle_segment_is_cut_in_a_batch(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[24]
    os.truncate(cluster.path(at), at.position + 100)
    return [Expected("torn-batch", log(at.file), at.position, (at.base, 129))]


@case()
def a_middle_segment_is_cut_between_batches(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[24]
    os.truncate(cluster.path(at), at.position)
    return [Expected("offset-gap", log("00000000000000000130.log"), 0, (at.base, 129))]


@case()
def the_last_segment_is_cut_after_a_clean_stop(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[-1]
    os.truncate(cluster.path(at), 100)
    return [Expected("torn-batch", log(at.file), 0, (at.base, at.last))]


@case()
def the_last_segment_is_cut_between_batches(cluster: MiniCluster) -> list[Expected]:
    last, before = cluster.batches()[-1], cluster.batches()[-2]
    for path in cluster.folder(2).glob(f"{last.file[:20]}.*"):
        path.unlink()
    at = cluster.batches()[-1]
    assert at == before
    os.truncate(cluster.path(at), at.position)
    return [Expected("committed-lost", log(at.file), at.position, (at.base, END - 1))]


@case()
def zeros_follow_the_last_batch_after_a_clean_stop(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[-1]
    with open(cluster.path(at), "ab") as file:
        file.write(bytes(4096))
    return [Expected("zero-hole", log(at.file), at.size, (END, END))]


@case()
def a_hole_of_zeros(cluster: MiniCluster) -> list[Expected]:
    first, last = cluster.batches()[15], cluster.batches()[17]
    size = last.position + last.size - first.position
    cluster.write(cluster.path(first), first.position, bytes(size))
    return [Expected("zero-hole", log(first.file), first.position, (first.base, last.last))]


@case()
def zeros_from_inside_a_batch(cluster: MiniCluster) -> list[Expected]:
    first, last = cluster.batches()[15], cluster.batches()[17]
    size = last.position + last.size - first.position - 100
    cluster.write(cluster.path(first), first.position + 100, bytes(size))
    return [Expected("batch-header", log(first.file), first.position, (first.base, last.last))]


@case()
def records_of_format_one(cluster: MiniCluster) -> list[Expected]:
    from zlib import crc32

    body = (
        bytes([1, 0]) + bytes(8) + (-1).to_bytes(4, "big", signed=True) + (3).to_bytes(4) + b"abc"
    )
    message = crc32(body).to_bytes(4) + body
    old = (0).to_bytes(8) + len(message).to_bytes(4) + message
    path = cluster.segments(2)[0]
    path.write_bytes(old * 5)
    for kind in ("index", "timeindex"):
        path.with_suffix(f".{kind}").write_bytes(b"")
    return [Expected("old-format", log(path.name), 0)]


# -- order


@case()
def an_offset_flips_upwards(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[7]
    cluster.flip(cluster.path(at), at.position + 5, 1)
    return [Expected("offset-order", log(at.file), at.position, (at.base, at.last))]


@case()
def an_offset_flips_downwards(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[30]
    cluster.flip(cluster.path(at), at.position + 7, 7)
    return [Expected("offset-order", log(at.file), at.position, (at.base, at.last))]


@case()
def a_batch_stands_twice(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[4]
    path = cluster.path(at)
    data = path.read_bytes()
    end = at.position + at.size
    path.write_bytes(data[:end] + data[at.position : end] + data[end:])
    _drop_indexes(cluster, path.name)
    return [Expected("offset-order", log(at.file), end, (at.base, at.last))]


@case()
def two_batches_are_swapped(cluster: MiniCluster) -> list[Expected]:
    one, two = cluster.batches()[3], cluster.batches()[4]
    path = cluster.path(one)
    data = path.read_bytes()
    a = data[one.position : one.position + one.size]
    b = data[two.position : two.position + two.size]
    cluster.write(path, one.position, b + a)
    _drop_indexes(cluster, path.name)
    return [Expected("offset-order", log(one.file), ANY, ANY)]


@case()
def a_batch_is_gone(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[4]
    path = cluster.path(at)
    data = path.read_bytes()
    path.write_bytes(data[: at.position] + data[at.position + at.size :])
    _drop_indexes(cluster, path.name)
    return [Expected("offset-gap", log(at.file), at.position, (at.base, at.last))]


@case()
def a_segment_is_gone(cluster: MiniCluster) -> list[Expected]:
    for path in cluster.folder(2).glob("00000000000000000065.*"):
        path.unlink()
    return [Expected("offset-gap", log("00000000000000000130.log"), 0, (65, 129))]


@case()
def a_segment_is_gone_and_its_indexes_are_not(cluster: MiniCluster) -> list[Expected]:
    (cluster.folder(2) / "00000000000000000065.log").unlink()
    return [Expected("segment-missing", log("00000000000000000065.log"), ANY, (65, 129))]


@case()
def the_only_batch_of_a_segment_has_another_offset(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[-1]
    cluster.flip(cluster.path(at), at.position + 7, 2)
    return [Expected("offset-order", log(at.file), at.position, (at.base, at.last))]


@case()
def the_first_batch_of_a_log_has_another_offset(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[0]
    cluster.flip(cluster.path(at), at.position + 2, 5)
    return [Expected("offset-order", log(at.file), at.position, (at.base, at.last))]


@case()
def a_segment_is_renamed(cluster: MiniCluster) -> list[Expected]:
    for path in cluster.folder(2).glob("00000000000000000065.*"):
        if not path.name.endswith("snapshot"):
            path.rename(path.with_name(path.name.replace("065", "150")))
    return [Expected("segment-name", log("00000000000000000150.log"), 0, (65, 129))]


@case()
def a_segment_is_renamed_a_little(cluster: MiniCluster) -> list[Expected]:
    for path in cluster.folder(2).glob("00000000000000000130.*"):
        if not path.name.endswith("snapshot"):
            path.rename(path.with_name(path.name.replace("130", "131")))
    return [Expected("segment-name", log("00000000000000000131.log"), 0, (130, 194))]


# -- epochs


@case()
def an_epoch_flips_in_the_middle(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[15]
    cluster.flip(cluster.path(at), at.position + 15, 3)
    return [Expected("epoch-order", log(at.file), at.position, (at.base, at.last))]


@case()
def an_epoch_flips_at_the_end(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[-1]
    cluster.flip(cluster.path(at), at.position + 15, 3)
    return [Expected("epoch-order", log(at.file), at.position, (at.base, at.last))]


@case()
def an_epoch_flips_at_a_border(cluster: MiniCluster) -> list[Expected]:
    """The last batch of epoch 0 says 1: rising all the same."""
    at = cluster.batches()[9]
    cluster.flip(cluster.path(at), at.position + 15, 0)
    return [Expected("epoch-order", log(at.file), at.position, (at.base, at.last))]


@case()
def an_epoch_flips_to_the_next_one(cluster: MiniCluster) -> list[Expected]:
    """The last batch of epoch 0 says 2, as the one behind it: only others know better."""
    at = cluster.batches()[9]
    cluster.flip(cluster.path(at), at.position + 15, 1)
    return [Expected("epoch-order", log(at.file), at.position, (at.base, at.last))]


@case()
def the_epoch_file_is_gone(cluster: MiniCluster) -> list[Expected]:
    (cluster.folder(2) / layout.LEADER_EPOCHS).unlink()
    return [Expected("epoch-checkpoint", log(layout.LEADER_EPOCHS))]


@case()
def the_epoch_file_is_empty(cluster: MiniCluster) -> list[Expected]:
    (cluster.folder(2) / layout.LEADER_EPOCHS).write_bytes(b"")
    return [Expected("epoch-checkpoint", log(layout.LEADER_EPOCHS))]


@case()
def the_epoch_file_is_garbage(cluster: MiniCluster) -> list[Expected]:
    (cluster.folder(2) / layout.LEADER_EPOCHS).write_bytes(b"\x00\xff\xfe")
    return [Expected("epoch-checkpoint", log(layout.LEADER_EPOCHS))]


@case()
def the_epoch_file_lost_an_entry(cluster: MiniCluster) -> list[Expected]:
    cluster.epochs(2, (0, 0), (3, 125))
    return [Expected("epoch-checkpoint", log(layout.LEADER_EPOCHS))]


@case()
def the_epoch_file_has_another_start(cluster: MiniCluster) -> list[Expected]:
    cluster.epochs(2, (0, 0), (2, 55), (3, 125))
    return [Expected("epoch-checkpoint", log(layout.LEADER_EPOCHS))]


@case()
def the_epoch_file_has_an_epoch_too_many(cluster: MiniCluster) -> list[Expected]:
    cluster.epochs(2, (0, 0), (1, 20), (2, 50), (3, 125))
    return [Expected("epoch-checkpoint", log(layout.LEADER_EPOCHS))]


@case()
def the_epoch_file_knows_epochs_beyond_the_end(cluster: MiniCluster) -> list[Expected]:
    cluster.epochs(2, (0, 0), (2, 50), (3, 125), (4, END + 10))
    return [Expected("epoch-checkpoint", log(layout.LEADER_EPOCHS))]


@case()
def the_epoch_file_counts_wrong(cluster: MiniCluster) -> list[Expected]:
    path = cluster.folder(2) / layout.LEADER_EPOCHS
    path.write_text("0\n5\n0 0\n2 50\n3 125\n")
    return [Expected("epoch-checkpoint", log(layout.LEADER_EPOCHS))]


# -- replicas


@case()
def a_replica_has_other_records(cluster: MiniCluster) -> list[Expected]:
    made = [batch_at(n, b"w" if 20 <= n < 22 else b"v") for n in range(BATCHES)]
    cluster.write_anew(2, made)
    at = cluster.batches()[20]
    return [Expected("replica-divergence", log(at.file), at.position, (100, 109))]


@case()
def a_replica_has_a_forked_epoch(cluster: MiniCluster) -> list[Expected]:
    made = [batch_at(n, b"f" if n >= 30 else b"v", **_epoch(n)) for n in range(BATCHES)]
    cluster.write_anew(2, made)
    at = cluster.batches()[30]
    return [Expected("replica-divergence", log(at.file), ANY, (150, END - 1))]


def _epoch(number: int) -> dict[str, int]:
    return {"epoch": 9} if number >= 30 else {}


@case()
def a_replica_lags(cluster: MiniCluster) -> list[Expected]:
    cluster.write_anew(2, [batch_at(n) for n in range(25)])
    for file in (layout.RECOVERY_POINTS, layout.HIGH_WATERMARKS):
        cluster.offsets(2, file, 125)
    return [Expected("lagging-replica", f"{FOLDER}/", ANY, (125, END - 1))]


@case()
def an_old_leader_kept_what_was_never_committed(cluster: MiniCluster) -> list[Expected]:
    """Killed in epoch 2; others went on from offset 125 with epoch 3."""
    made = [batch_at(n, b"o" if n >= 25 else b"v", **_old(n)) for n in range(28)]
    cluster.write_anew(2, made)
    cluster.crash(2)
    cluster.offsets(2, layout.HIGH_WATERMARKS, 125)
    at = cluster.batches()[25]
    return [Expected("stale-tail", log(at.file), ANY, (125, 139))]


def _old(number: int) -> dict[str, int]:
    return {"epoch": 2} if number >= 25 else {}


@case()
def a_replica_is_of_another_topic(cluster: MiniCluster) -> list[Expected]:
    path = cluster.folder(2) / layout.PARTITION_METADATA
    path.write_bytes(checkpoint.format_topic_metadata(bytes(16)))
    return [Expected("topic-id", log(layout.PARTITION_METADATA))]


@case()
def a_replica_has_no_topic_id(cluster: MiniCluster) -> list[Expected]:
    (cluster.folder(2) / layout.PARTITION_METADATA).unlink()
    return [Expected("topic-id-missing", log(layout.PARTITION_METADATA))]


@case()
def the_topic_id_is_garbage(cluster: MiniCluster) -> list[Expected]:
    (cluster.folder(2) / layout.PARTITION_METADATA).write_bytes(b"garbage")
    return [Expected("partition-metadata", log(layout.PARTITION_METADATA))]


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


# -- producers


def _gap() -> list[bytearray]:
    return [batch_at(n, sequence=n * RECORDS + (5 if n >= 22 else 0)) for n in range(BATCHES)]


@case(_gap)
def a_producer_skipped_numbers(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[22]
    return [
        Expected("sequence-gap", log(at.file), at.position, (at.base, at.last), replica="broker-1")
    ]


def _repeat() -> list[bytearray]:
    return [batch_at(n, sequence=(n - (n >= 22)) * RECORDS) for n in range(BATCHES)]


@case(_repeat)
def a_producer_wrote_twice(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[22]
    return [
        Expected(
            "sequence-repeat", log(at.file), at.position, (at.base, at.last), replica="broker-1"
        )
    ]


def _wrap() -> list[bytearray]:
    first = 2**31 - 22 * RECORDS
    return [batch_at(n, sequence=(first + n * RECORDS) % 2**31) for n in range(BATCHES)]


@case(_wrap)
def numbers_wrap(cluster: MiniCluster) -> list[Expected]:
    return []


def _new_epoch() -> list[bytearray]:
    return [
        batch_at(n, producer_epoch=int(n >= 22), sequence=(n - 22 * (n >= 22)) * RECORDS)
        for n in range(BATCHES)
    ]


@case(_new_epoch)
def a_producer_begins_anew_in_a_new_epoch(cluster: MiniCluster) -> list[Expected]:
    return []


# -- compaction


def cleaned(cluster: MiniCluster, *brokers: int, upto: int = 65) -> None:
    for broker in brokers:
        cluster.offsets(broker, layout.CLEANER_OFFSETS, upto)


def without(*gone: int) -> list[bytearray]:
    return [batch_at(n) for n in range(BATCHES) if n not in gone]


@case(lambda: without(3, 4, 8))
def a_compacted_log_has_gaps(cluster: MiniCluster) -> list[Expected]:
    cleaned(cluster, 1, 2, 3)
    return []


@case()
def a_replica_is_compacted_further(cluster: MiniCluster) -> list[Expected]:
    cluster.write_anew(2, without(3, 4))
    cleaned(cluster, 2)
    return [Expected("compacted-apart", f"{FOLDER}/", ANY, (15, 24))]


@case(lambda: without(3, 4))
def a_compacted_replica_has_other_records(cluster: MiniCluster) -> list[Expected]:
    made = [batch_at(n, b"w" if n == 6 else b"v") for n in range(BATCHES) if n not in (3, 4)]
    cluster.write_anew(2, made)
    cleaned(cluster, 1, 2, 3)
    at = next(each for each in cluster.batches() if each.base == 30)
    return [Expected("replica-divergence", log(at.file), at.position, (30, 34))]


@case(lambda: without(3, 4))
def a_compacted_replica_lost_what_no_cleaner_saw(cluster: MiniCluster) -> list[Expected]:
    cluster.write_anew(2, without(3, 4, 30))
    cleaned(cluster, 1, 2, 3)
    at = next(each for each in cluster.batches() if each.base == 155)
    return [Expected("offset-gap", log(at.file), at.position, (150, 154))]


@case(lambda: without(3, 4, 30))
def a_compacted_log_has_a_gap_where_no_cleaner_was(cluster: MiniCluster) -> list[Expected]:
    cleaned(cluster, 1, 2, 3)
    at = next(each for each in cluster.batches() if each.base == 155)
    return [
        Expected("offset-jump", log(at.file), at.position, (150, 154), f"broker-{broker}")
        for broker in (1, 2, 3)
    ]


# -- what is no damage


@case()
def nothing(cluster: MiniCluster) -> list[Expected]:
    return []


@case()
def a_crash_tore_the_last_batch(cluster: MiniCluster) -> list[Expected]:
    cluster.crash()
    with open(cluster.segments(2)[-1], "ab") as file:
        file.write(batch_at(BATCHES)[:90])
    at = cluster.batches()[-1]
    return [Expected("torn-tail", log(at.file), at.size, (END, END))]


@case()
def a_crash_left_zeros_behind_the_last_batch(cluster: MiniCluster) -> list[Expected]:
    cluster.crash()
    with open(cluster.segments(2)[-1], "ab") as file:
        file.write(bytes(8192))
    at = cluster.batches(1)[-1]
    return [Expected("zero-tail", log(at.file), at.size, (END, END))]


@case()
def a_crash_left_indexes_preallocated(cluster: MiniCluster) -> list[Expected]:
    cluster.crash()
    for broker in (1, 2, 3):
        segment = cluster.segments(broker)[-1]
        for kind in (".index", ".timeindex"):
            os.truncate(segment.with_suffix(kind), 9984)
    return []


@case()
def a_leader_has_more_than_its_followers(cluster: MiniCluster) -> list[Expected]:
    cluster.write_anew(2, [batch_at(n) for n in range(BATCHES + 3)])
    cluster.crash()
    at = cluster.batches()[-1]
    return [Expected("uncommitted-tail", log(at.file), ANY, (END, END + 14))]


@case()
def files_wait_for_removal(cluster: MiniCluster) -> list[Expected]:
    folder = cluster.folder(2)
    for name in ("00000000000000000007.log.deleted", "00000000000000000009.log.cleaned"):
        (folder / name).write_bytes(b"x")
    return [Expected("leftover", log("00000000000000000007.log.deleted"))]


@case()
def a_stranger_in_the_folder(cluster: MiniCluster) -> list[Expected]:
    (cluster.folder(2) / "notes.txt").write_text("hello")
    return [Expected("foreign-file", log("notes.txt"))]


@case()
def retention_was_here_on_one_replica(cluster: MiniCluster) -> list[Expected]:
    for path in cluster.folder(2).glob("00000000000000000000.*"):
        path.unlink()
    cluster.epochs(2, (2, 65), (3, 125))
    cluster.offsets(2, layout.LOG_STARTS, 65)
    return []


@case()
def records_were_deleted_up_to_the_middle_of_a_segment(cluster: MiniCluster) -> list[Expected]:
    for broker in (1, 2, 3):
        cluster.offsets(broker, layout.LOG_STARTS, 30)
        cluster.epochs(broker, (0, 30), (2, 50), (3, 125))
    return []


@case()
def a_folder_is_empty(cluster: MiniCluster) -> list[Expected]:
    for broker in (1, 2, 3):
        (cluster.root / f"broker-{broker}" / "fresh-0").mkdir()
    return []


def _drop_indexes(cluster: MiniCluster, file: str) -> None:
    """Make them again, so that only the log is wrong."""
    from tidelog.core.storage.segment.offset_index import OffsetIndex

    path = cluster.folder(2) / file
    data = path.read_bytes()
    index = b""
    position = since = 0
    base = int(file[:20])
    while position < len(data):
        size = int.from_bytes(data[position + 8 : position + 12]) + 12
        last = int.from_bytes(data[position : position + 8]) + 4
        if since > 300 and (not index or last - base > int.from_bytes(index[-8:-4])):
            index += OffsetIndex.entry.pack(last - base, position)
            since = 0
        since += size
        position += size
    path.with_suffix(".index").write_bytes(index)
