"""Damage for which the first explanation is the wrong one."""

import shutil

from damage_by_writers import cleaned, without
from damage_case import ANY, Expected, case, log
from mini_cluster import BATCHES, BROKERS, END, FOLDER, RECORDS, MiniCluster, batch_at

from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.record_batch import CRC_AT, CRC_FROM
from tidelog.core.storage import layout


def _cut_out(cluster: MiniCluster, number: int, broker: int = 2) -> None:
    """Remove a batch and leave the indexes unchanged."""
    at = cluster.batches(broker)[number]
    path = cluster.path(at, broker)
    data = path.read_bytes()
    path.write_bytes(data[: at.position] + data[at.position + at.size :])


def _sealed(cluster: MiniCluster, number: int, place: int, value: bytes, broker: int = 2) -> None:
    """Change bytes of a batch and correct its checksum."""
    at = cluster.batches(broker)[number]
    path = cluster.path(at, broker)
    data = bytearray(path.read_bytes()[at.position : at.position + at.size])
    data[place : place + len(value)] = value
    data[CRC_AT:CRC_FROM] = crc32c(data[CRC_FROM:]).to_bytes(4)
    cluster.write(path, at.position, bytes(data))


def _copied(cluster: MiniCluster, source: int, target: int) -> None:
    """Copy a segment and its indexes to another name."""
    for kind in (layout.LOG, layout.OFFSET_INDEX, layout.TIME_INDEX):
        folder = cluster.folder(2)
        shutil.copy(folder / f"{source:020}{kind}", folder / f"{target:020}{kind}")


# -- segments and their names


@case()
def the_first_batch_of_a_log_is_gone(cluster: MiniCluster) -> list[Expected]:
    cluster.write_anew(2, [batch_at(0)])
    for broker in BROKERS:
        cluster.write_anew(broker, [batch_at(n) for n in range(5)])
        for file in (layout.RECOVERY_POINTS, layout.HIGH_WATERMARKS):
            cluster.offsets(broker, file, 25)
    _cut_out(cluster, 0)
    return [Expected("offset-gap", log(f"{0:020}.log"), 0, (0, 4))]


@case()
def a_segment_is_copied_to_the_end(cluster: MiniCluster) -> list[Expected]:
    _copied(cluster, 65, END)
    return [Expected("offset-order", log(f"{END:020}.log"), 0, (65, 129))]


@case()
def two_segments_are_swapped(cluster: MiniCluster) -> list[Expected]:
    one, two = cluster.segments(2)[1:3]
    data = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(data)
    return [
        Expected("segment-name", log(one.name), 0, (130, 194)),
        Expected("segment-name", log(two.name), 0, (65, 129)),
    ]


# -- where cleaners were


@case(lambda: without(*range(6)))
def a_copied_replica_has_no_cleaner_checkpoint(cluster: MiniCluster) -> list[Expected]:
    first = cluster.segments(1)[0]
    for broker in BROKERS:
        for path in list(cluster.folder(broker).glob(f"{first.stem}.*")):
            path.rename(path.with_name(f"{0:020}{path.suffix}"))
    cleaned(cluster, 1, 3)
    return []


@case()
def one_thinned_batch_is_no_cleaner(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[22]
    _sealed(cluster, 22, 57, (RECORDS - 1).to_bytes(4))
    return [Expected("replica-divergence", log(at.file), at.position, (at.base, at.last))]


@case(lambda: without(3, 4))
def the_last_offset_of_a_compacted_log_flips(cluster: MiniCluster) -> list[Expected]:
    cleaned(cluster, 1, 2, 3)
    cluster.crash()
    at = cluster.batches()[-1]
    cluster.flip(cluster.path(at), at.position + 5, 1)
    return [Expected("offset-order", log(at.file), at.position, (at.base, at.last))]


@case()
def cleaners_were_killed_at_work(cluster: MiniCluster) -> list[Expected]:
    cluster.write_anew(2, without(3, 4, 20, 21))
    cleaned(cluster, 1, 2, 3, upto=40)
    cluster.crash()
    return [Expected("compacted-apart", f"{FOLDER}/", ANY, (15, 109))]


@case()
def a_cleaner_checkpoint_is_beyond_the_end(cluster: MiniCluster) -> list[Expected]:
    cleaned(cluster, 2, upto=END + 50)
    return [Expected("cleaner-offset", layout.CLEANER_OFFSETS, ANY, (END, END + 50))]


# -- what is missing, by other evidence


@case()
def the_first_segment_is_gone(cluster: MiniCluster) -> list[Expected]:
    for path in cluster.folder(2).glob(f"{0:020}.*"):
        path.unlink()
    return [Expected("offset-gap", log(f"{65:020}.log"), 0, (0, 64))]


@case()
def two_segments_are_gone_and_their_indexes_are_not(cluster: MiniCluster) -> list[Expected]:
    for first in (65, 130):
        (cluster.folder(2) / f"{first:020}.log").unlink()
    return [
        Expected("segment-missing", log(f"{65:020}.log"), ANY, (65, 129)),
        Expected("segment-missing", log(f"{130:020}.log"), ANY, (130, 194)),
    ]


@case()
def a_segment_is_that_of_another_partition(cluster: MiniCluster) -> list[Expected]:
    one, two = cluster.segments(2)[:2]
    two.write_bytes(one.read_bytes()[: cluster.batches()[10].position])
    return [Expected("offset-order", log(two.name), 0, (65, 129))]


@case()
def a_segment_is_a_link_to_nothing(cluster: MiniCluster) -> list[Expected]:
    path = cluster.segments(2)[1]
    path.unlink()
    path.symlink_to("nowhere")
    return [Expected("unreadable", log(path.name), ANY, (65, 129))]


def _empty(cluster: MiniCluster, first: int) -> str:
    for kind in (layout.LOG, layout.OFFSET_INDEX, layout.TIME_INDEX):
        (cluster.folder(2) / f"{first:020}{kind}").write_bytes(b"")
    return log(f"{first:020}{layout.LOG}")


@case()
def an_empty_segment_begins_beyond_the_end(cluster: MiniCluster) -> list[Expected]:
    return [Expected("offset-gap", _empty(cluster, END + 50), 0, (END, END + 49))]


@case()
def an_empty_segment_begins_within_another(cluster: MiniCluster) -> list[Expected]:
    return [Expected("segment-name", _empty(cluster, 100), 0, (100, 100))]


@case()
def an_empty_segment_begins_at_the_end(cluster: MiniCluster) -> list[Expected]:
    _empty(cluster, END)
    return []


@case()
def a_folder_is_gone_that_checkpoints_tell_of(cluster: MiniCluster) -> list[Expected]:
    shutil.rmtree(cluster.folder(2))
    return [Expected("committed-lost", f"{FOLDER}/", ANY, (0, END - 1))]


@case()
def a_replica_lost_a_batch_and_has_others_beside(cluster: MiniCluster) -> list[Expected]:
    _sealed(cluster, 24, 80, b"other")
    _cut_out(cluster, 25)
    at = cluster.batches()[24]
    return [
        Expected("replica-divergence", log(at.file), at.position, (at.base, at.last)),
        Expected("offset-gap", log(f"{130:020}.log"), 0, (125, 129)),
    ]


# -- whose replica it is


@case()
def a_replica_without_meta_properties_differs(cluster: MiniCluster) -> list[Expected]:
    _sealed(cluster, 24, 80, b"other")
    (cluster.root / "broker-2" / layout.META_PROPERTIES).unlink()
    at = cluster.batches()[24]
    return [
        Expected("meta-properties", layout.META_PROPERTIES),
        Expected("replica-divergence", log(at.file), at.position, (at.base, at.last)),
    ]


@case()
def a_replica_is_of_another_cluster(cluster: MiniCluster) -> list[Expected]:
    _sealed(cluster, 24, 80, b"other")
    path = cluster.root / "broker-2" / layout.META_PROPERTIES
    path.write_text("version=1\ncluster.id=another\nnode.id=2\n")
    at = cluster.batches()[24]
    return [
        Expected("meta-properties", layout.META_PROPERTIES),
        Expected("replica-divergence", log(at.file), at.position, (at.base, at.last)),
    ]


# -- epochs and checkpoints


@case()
def the_epoch_file_lost_its_first_entry(cluster: MiniCluster) -> list[Expected]:
    cluster.epochs(2, (2, 50), (3, 125))
    return [Expected("epoch-checkpoint", log(layout.LEADER_EPOCHS), ANY, (0, 49))]


@case(lambda: [batch_at(n, epoch=1) if n == 9 else batch_at(n) for n in range(BATCHES)])
def the_epoch_file_lost_the_entry_of_one_batch(cluster: MiniCluster) -> list[Expected]:
    cluster.epochs(2, (0, 0), (2, 50), (3, 125))
    return [Expected("epoch-checkpoint", log(layout.LEADER_EPOCHS), ANY, (45, 49))]


@case()
def many_batches_have_a_wrong_epoch(cluster: MiniCluster) -> list[Expected]:
    for at in cluster.batches()[5:24]:
        cluster.write(cluster.path(at), at.position + 12, (9).to_bytes(4))
    at = cluster.batches()[5]
    return [Expected("epoch-order", log(at.file), at.position, (at.base, 119))]


@case()
def a_log_start_is_above_the_high_watermark(cluster: MiniCluster) -> list[Expected]:
    cluster.offsets(2, layout.HIGH_WATERMARKS, 100)
    cluster.offsets(2, layout.LOG_STARTS, 110)
    return [
        Expected("log-start", layout.LOG_STARTS, ANY, (100, 110)),
        Expected("watermark-behind", layout.HIGH_WATERMARKS, ANY, (100, END)),
    ]


# -- headers that can't be right, with checksums that fit


@case()
def a_base_offset_is_as_large_as_can_be(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[17]
    cluster.write(cluster.path(at), at.position, (2**63 - 1).to_bytes(8))
    return [Expected("offset-order", log(at.file), at.position, (at.base, at.last))]


def _last_delta(cluster: MiniCluster, delta: int) -> list[Expected]:
    at = cluster.batches()[17]
    _sealed(cluster, 17, 23, delta.to_bytes(4, signed=True))
    return [Expected("record-count", log(at.file), at.position, (at.base, at.last))]


@case()
def a_batch_reaches_into_the_next(cluster: MiniCluster) -> list[Expected]:
    return _last_delta(cluster, RECORDS + 2)


@case()
def a_batch_reaches_beyond_everything(cluster: MiniCluster) -> list[Expected]:
    return _last_delta(cluster, 2**31 - 1)


@case()
def a_batch_has_fewer_offsets_than_records(cluster: MiniCluster) -> list[Expected]:
    return _last_delta(cluster, RECORDS - 2)


@case()
def a_batch_ends_before_it_begins(cluster: MiniCluster) -> list[Expected]:
    return _last_delta(cluster, -5)


@case()
def a_batch_counts_too_many_records(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[17]
    _sealed(cluster, 17, 57, (2**31 - 1).to_bytes(4))
    return [Expected("record-count", log(at.file), at.position, (at.base, at.last))]


@case()
def a_batch_is_of_another_time(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[17]
    _sealed(cluster, 17, 35, (2_000_000_000_000).to_bytes(8))
    return [Expected("replica-divergence", log(at.file), at.position, (at.base, at.last))]


@case()
def a_batch_has_another_number(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[17]
    _sealed(cluster, 17, 53, (17 * RECORDS + 7).to_bytes(4))
    return [Expected("replica-divergence", log(at.file), at.position, (at.base, at.last))]


@case()
def an_offset_and_the_records_behind_it_flip(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[7]
    for place in (5, 90):
        cluster.flip(cluster.path(at), at.position + place, 1)
    return [Expected("batch-checksum", log(at.file), at.position, (at.base, at.last))]
