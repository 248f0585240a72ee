"""Wrong epochs, and replicas that differ."""

import shutil

from damage_case import ANY, Expected, case, log
from mini_cluster import BATCHES, BROKERS, END, FOLDER, NOW, OWN, MiniCluster, batch_at

from tidelog.core.record.encoder import encode_batch
from tidelog.core.record.record import Record
from tidelog.core.storage import checkpoint, layout
from tidelog.core.types import TopicPartition

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
    """The last batch of epoch 0 has epoch 1, so epochs still rise."""
    at = cluster.batches()[9]
    cluster.flip(cluster.path(at), at.position + 15, 0)
    return [Expected("epoch-order", log(at.file), at.position, (at.base, at.last))]


@case()
def an_epoch_flips_to_the_next_one(cluster: MiniCluster) -> list[Expected]:
    """The last batch of epoch 0 has epoch 2, like the next batch: only other replicas show it."""
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
    """The leader was killed in epoch 2; the others continued from offset 125 in epoch 3."""
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
def a_replica_is_of_an_older_topic(cluster: MiniCluster) -> list[Expected]:
    cluster.write_anew(2, [batch_at(n, b"w", epoch=0) for n in range(BATCHES - 4)])
    path = cluster.folder(2) / layout.PARTITION_METADATA
    path.write_bytes(checkpoint.format_topic_metadata(bytes(16)))
    return [Expected("topic-id", log(layout.PARTITION_METADATA))]


def _twin(cluster: MiniCluster) -> None:
    """Add a partition on all brokers; on broker 2 its log replaces the right one."""
    cluster.write_anew(2, [_of_twin(n) for n in range(BATCHES // 2)])
    twin = TopicPartition("twin", 0)
    for broker in BROKERS:
        log_dir = cluster.root / f"broker-{broker}"
        shutil.copytree(cluster.folder(2), log_dir / str(twin))
        ends = {OWN: END, twin: BATCHES // 2 * 9}
        for file in (layout.RECOVERY_POINTS, layout.HIGH_WATERMARKS):
            (log_dir / file).write_bytes(checkpoint.format_offsets(ends))


def _of_twin(number: int) -> bytearray:
    """Return batches that begin at other offsets than those of the right log."""
    records = [Record(None, b"twin", NOW + number * 9 + i) for i in range(9)]
    return encode_batch(records, base_offset=number * 9, leader_epoch=0)


@case()
def a_replica_is_another_partition(cluster: MiniCluster) -> list[Expected]:
    _twin(cluster)
    return [Expected("replica-divergence", log(f"{0:020}.log"), 0, (0, END - 1))]


@case()
def a_replica_is_another_partition_after_a_crash(cluster: MiniCluster) -> list[Expected]:
    _twin(cluster)
    for broker in BROKERS:
        (cluster.root / f"broker-{broker}" / layout.CLEAN_SHUTDOWN).unlink()
    return [Expected("replica-divergence", log(f"{0:020}.log"), 0, (0, END - 1))]


@case()
def a_replica_has_no_topic_id(cluster: MiniCluster) -> list[Expected]:
    (cluster.folder(2) / layout.PARTITION_METADATA).unlink()
    return [Expected("partition-metadata", log(layout.PARTITION_METADATA))]


@case()
def an_empty_replica_has_no_topic_id(cluster: MiniCluster) -> list[Expected]:
    for broker in BROKERS:
        cluster.write_anew(broker, [])
        for file in (layout.RECOVERY_POINTS, layout.HIGH_WATERMARKS):
            cluster.offsets(broker, file, 0)
    (cluster.folder(2) / layout.PARTITION_METADATA).unlink()
    return [Expected("topic-id-missing", log(layout.PARTITION_METADATA))]


@case()
def a_partition_is_of_another_topic_than_its_neighbours(cluster: MiniCluster) -> list[Expected]:
    for broker in BROKERS:
        log_dir = cluster.root / f"broker-{broker}"
        for number in (1, 2):
            shutil.copytree(cluster.folder(broker), log_dir / f"own-{number}")
        ends = {TopicPartition("own", number): END for number in range(3)}
        for file in (layout.RECOVERY_POINTS, layout.HIGH_WATERMARKS):
            (log_dir / file).write_bytes(checkpoint.format_offsets(ends))
        path = cluster.folder(broker) / layout.PARTITION_METADATA
        path.write_bytes(checkpoint.format_topic_metadata(bytes(16)))
        (log_dir / layout.CLEAN_SHUTDOWN).unlink()
    return [
        Expected("topic-id", log(layout.PARTITION_METADATA), replica=f"broker-{broker}")
        for broker in BROKERS
    ]


@case()
def the_topic_id_is_garbage(cluster: MiniCluster) -> list[Expected]:
    (cluster.folder(2) / layout.PARTITION_METADATA).write_bytes(b"garbage")
    return [Expected("partition-metadata", log(layout.PARTITION_METADATA))]
