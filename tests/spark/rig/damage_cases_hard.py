"""More damage, where the first explanation that comes to mind is the wrong one."""

import shutil

from damage_cases import ANY, CASES, Expected, case, cleaned, log, without
from mini_cluster import BROKERS, END, FOLDER, RECORDS, MiniCluster, batch_at

from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.record_batch import CRC_AT, CRC_FROM
from tidelog.core.storage import layout

__all__ = ["CASES"]


def _cut_out(cluster: MiniCluster, number: int, broker: int = 2) -> None:
    """A batch is gone, indexes are left as they were."""
    at = cluster.batches(broker)[number]
    path = cluster.path(at, broker)
    data = path.read_bytes()
    path.write_bytes(data[: at.position] + data[at.position + at.size :])


def _sealed(cluster: MiniCluster, number: int, place: int, value: bytes, broker: int = 2) -> None:
    """Other bytes in a batch, and a checksum that fits them."""
    at = cluster.batches(broker)[number]
    path = cluster.path(at, broker)
    data = bytearray(path.read_bytes()[at.position : at.position + at.size])
    data[place : place + len(value)] = value
    data[CRC_AT:CRC_FROM] = crc32c(data[CRC_FROM:]).to_bytes(4)
    cluster.write(path, at.position, bytes(data))


def _copied(cluster: MiniCluster, source: int, target: int) -> None:
    """A segment and its indexes once more, under another name."""
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
    return [
        Expected("compacted-apart", f"{FOLDER}/", ANY, (15, 24)),
        Expected("compacted-apart", f"{FOLDER}/", ANY, (100, 109)),
    ]
