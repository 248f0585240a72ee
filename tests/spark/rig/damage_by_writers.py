"""Effects that only producers and cleaners have: gaps, repeats, compaction; some are not damage."""

import os

from damage_case import ANY, Expected, case, log
from mini_cluster import BATCHES, END, FOLDER, RECORDS, MiniCluster, batch_at

from tidelog.core.record.crc32c import crc32c
from tidelog.core.record.record_batch import CRC_AT, CRC_FROM
from tidelog.core.storage import layout

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
def a_compacted_replica_lost_a_segment(cluster: MiniCluster) -> list[Expected]:
    cleaned(cluster, 1, 2, 3, upto=140)
    gone, after = cluster.segments(2)[1:3]
    for path in cluster.folder(2).glob(f"{gone.stem}.*"):
        path.unlink()
    offsets = (int(gone.stem), int(after.stem) - 1)
    return [Expected("replica-divergence", f"{FOLDER}/", ANY, offsets)]


def _thinned() -> list[bytearray]:
    """Two batches of the second segment have fewer records than offsets."""
    made = without(3, 4, 21)
    for number in (17, 18):
        made[number][57:61] = (RECORDS - 1).to_bytes(4)
        made[number][CRC_AT:CRC_FROM] = crc32c(made[number][CRC_FROM:]).to_bytes(4)
    return made


@case(_thinned)
def cleaners_went_on_after_their_checkpoint(cluster: MiniCluster) -> list[Expected]:
    cleaned(cluster, 1, 2, 3, upto=20)
    return []


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
