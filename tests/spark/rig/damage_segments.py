"""Damage to a segment: its bytes, and the order of its batches."""

import os

from damage_case import ANY, Expected, case, log
from mini_cluster import END, MiniCluster

from tidelog.core.record.record_batch import CRC_AT

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


def _drop_indexes(cluster: MiniCluster, file: str) -> None:
    """Rebuild the indexes, so that only the log is wrong."""
    from tidelog.core.storage.segment.indexes import OffsetIndex

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
