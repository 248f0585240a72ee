"""Damage at the end of a log, which looks similar to a crash or a lag."""

import os

from damage_by_writers import cleaned, without
from damage_case import ANY, Expected, case, log
from mini_cluster import BATCHES, BROKERS, END, FOLDER, RECORDS, MiniCluster, batch_at

from tidelog.core.storage import layout


def _two_in_the_last_segment() -> list[bytearray]:
    return [batch_at(n) for n in range(BATCHES + 3)]


@case(_two_in_the_last_segment)
def the_last_batch_is_zeros(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[-1]
    cluster.write(cluster.path(at), at.position, bytes(at.size))
    return [Expected("zero-hole", log(at.file), at.position, (at.base, at.last))]


@case(_two_in_the_last_segment)
def the_last_batch_says_that_it_has_no_records(cluster: MiniCluster) -> list[Expected]:
    cluster.crash(recovery_point=END + 2 * RECORDS)
    at = cluster.batches()[-1]
    cluster.write(cluster.path(at), at.position + 57, bytes(4))
    return [Expected("batch-checksum", log(at.file), at.position, (at.base, at.last))]


@case(_two_in_the_last_segment)
def a_few_bytes_are_left_of_the_last_batch(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[-1]
    os.truncate(cluster.path(at), at.position + 5)
    return [Expected("torn-batch", log(at.file), at.position, (at.base, at.last))]


@case(_two_in_the_last_segment)
def all_replicas_lost_the_last_batch(cluster: MiniCluster) -> list[Expected]:
    cluster.crash()
    at = cluster.batches()[-1]
    for broker in BROKERS:
        os.truncate(cluster.path(at, broker), at.position)
    return [
        Expected("committed-lost", log(at.file), at.position, (at.base, at.last), f"broker-{n}")
        for n in BROKERS
    ]


@case(_two_in_the_last_segment)
def indexes_tell_of_a_lost_batch(cluster: MiniCluster) -> list[Expected]:
    cluster.crash()
    for broker in BROKERS:
        for name in (layout.HIGH_WATERMARKS, layout.RECOVERY_POINTS):
            (cluster.root / f"broker-{broker}" / name).unlink()
    at = cluster.batches()[-1]
    os.truncate(cluster.path(at), at.position)
    return [Expected("committed-lost", log(at.file), at.position, (at.base, at.last))]


@case(lambda: without(3, 4))
def a_segment_of_a_compacted_log_is_empty(cluster: MiniCluster) -> list[Expected]:
    cleaned(cluster, 1, 2, 3, upto=140)
    path = cluster.segments(2)[1]
    path.write_bytes(b"")
    first, after = (int(each.stem) for each in cluster.segments(1)[1:3])
    return [Expected("offset-gap", log(path.name), 0, (first, after - 1))]


@case(_two_in_the_last_segment)
def the_last_batch_above_the_high_watermark_has_another_offset(
    cluster: MiniCluster,
) -> list[Expected]:
    cluster.crash()
    at = cluster.batches()[-1]
    for broker in BROKERS:
        cluster.offsets(broker, layout.HIGH_WATERMARKS, at.base)
    cluster.flip(cluster.path(at), at.position + 4, 7)
    return [
        Expected("offset-order", log(at.file), at.position, (at.base, at.last)),
        Expected("uncommitted-tail", log(at.file), ANY, (at.base, at.last), "broker-1"),
        Expected("uncommitted-tail", log(at.file), ANY, (at.base, at.last), "broker-3"),
    ]


@case()
def two_batches_have_other_offsets(cluster: MiniCluster) -> list[Expected]:
    found = []
    for at in cluster.batches()[15:17]:
        cluster.flip(cluster.path(at), at.position + 4, at.base % 7)
        found.append(Expected("offset-order", log(at.file), at.position, (at.base, at.last)))
    return found


@case()
def a_snapshot_is_of_an_offset_beyond_the_end(cluster: MiniCluster) -> list[Expected]:
    newest = max(cluster.folder(2).glob("*.snapshot"))
    beyond = newest.rename(newest.with_name(f"{END + 99:020}.snapshot"))
    return [Expected("producer-snapshot", log(beyond.name))]


@case(lambda: [batch_at(n, sequence=n * RECORDS + 7 * (n == 22)) for n in range(BATCHES)])
def one_batch_of_a_producer_has_another_number(cluster: MiniCluster) -> list[Expected]:
    at = cluster.batches()[22]
    return [Expected("sequence-gap", log(at.file), at.position, (at.base, at.last), "broker-1")]


@case()
def a_folder_is_about_to_be_removed(cluster: MiniCluster) -> list[Expected]:
    name = f"{FOLDER}.{'0123456789abcdef' * 2}-delete"
    cluster.folder(2).rename(cluster.root / "broker-2" / name)
    return [
        Expected("leftover", name),
        Expected("unknown-partition", layout.HIGH_WATERMARKS),
    ]


def _appended(cluster: MiniCluster) -> int:
    path = cluster.segments(2)[-1]
    size = path.stat().st_size
    cluster.write(path, size, bytes(batch_at(BATCHES, sequence=0)))
    return size


@case()
def a_batch_was_appended_after_an_orderly_stop(cluster: MiniCluster) -> list[Expected]:
    at = _appended(cluster)
    file = cluster.segments(2)[-1].name
    return [Expected("after-stop", log(file), at, (END, END + RECORDS - 1))]


@case()
def all_high_watermarks_are_low_after_an_orderly_stop(cluster: MiniCluster) -> list[Expected]:
    for broker in BROKERS:
        cluster.offsets(broker, layout.HIGH_WATERMARKS, 50)
    return [
        Expected("watermark-behind", layout.HIGH_WATERMARKS, ANY, (50, END), f"broker-{broker}")
        for broker in BROKERS
    ]


@case(_two_in_the_last_segment)
def the_last_two_batches_are_swapped(cluster: MiniCluster) -> list[Expected]:
    one, two = cluster.batches()[-2:]
    path = cluster.path(one)
    data = path.read_bytes()
    cluster.write(path, one.position, data[two.position :] + data[one.position : two.position])
    cluster.crash()
    for broker in BROKERS:
        cluster.offsets(broker, layout.HIGH_WATERMARKS, END)
    at = one.position + two.size
    return [Expected("offset-order", log(one.file), at, (one.base, one.last))]
