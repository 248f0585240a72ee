"""Read the metadata that brokers' log directories contain, without changing them.

A log's end is where its last sound batch ends: what recovery would find too.
"""

import json
import os
from typing import NamedTuple

from tidelog.core.controller.metadata.metadata_copy import decode_copy
from tidelog.core.controller.metadata.rebuilding import FoundBroker, FoundLog
from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.checkpoint import CheckpointError, MetaProperties
from tidelog.core.storage.disk import Disk, DiskError, read_file
from tidelog.core.storage.log_directory import METADATA_TOPIC
from tidelog.core.storage.segment.batch_scan import InvalidBatch, whole_batches
from tidelog.core.types import Offset, TopicPartition
from tidelog.shell.os_disk import OsDisk
from tidelog.shell.store.cluster_file import StoreUnusable


class FoundDirectory(NamedTuple):
    """One log directory that was read."""

    path: str
    cluster_id: str
    broker: FoundBroker
    remarks: tuple[str, ...]


def read_directories(paths: list[str]) -> list[FoundDirectory]:
    """All of them; they must be of one cluster and of different brokers. Raises StoreUnusable."""
    found = [_read(path) for path in paths]
    clusters = sorted({one.cluster_id for one in found})
    if len(clusters) != 1:
        raise StoreUnusable(
            f"the log directories belong to {len(clusters)} clusters ({', '.join(clusters)});"
            " name those of one cluster"
        )
    brokers = [one.broker.broker for one in found]
    if len(set(brokers)) < len(brokers):
        raise StoreUnusable(
            "two of the log directories belong to the same broker; name one of them"
        )
    return found


def _read(path: str) -> FoundDirectory:
    disk = OsDisk(path)
    try:
        properties = checkpoint.read_properties(disk)
        if properties is None:
            raise StoreUnusable(f"{path} has no {layout.META_PROPERTIES}: not a log directory")
        return _read_known(path, disk, properties)
    except (CheckpointError, DiskError, KeyError, ValueError) as error:
        raise StoreUnusable(f"{path} can't be read: {error}") from error
    finally:
        disk.close()


def _read_known(path: str, disk: Disk, properties: MetaProperties) -> FoundDirectory:
    broker = int(properties.values["node.id"])
    revision = checkpoint.read_revision(disk)
    remarks = []
    if revision is None:
        remarks.append(f"broker {broker}: {layout.METADATA_REVISION} is damaged and not used")
    seen = revision.seen if revision is not None else None
    marks, warnings = checkpoint.read_offsets(disk, layout.HIGH_WATERMARKS)
    remarks += [f"broker {broker}: {warning}" for warning in warnings]
    logs = []
    for name in disk.list_dir(""):
        partition = layout.parse_dir(name)
        if partition is None or partition.topic == METADATA_TOPIC or not disk.is_dir(name):
            continue
        log = _log(disk, name, partition, marks.get(partition, 0))
        if log is None:
            remarks.append(f"broker {broker}: {name} has no topic id; left out")
        else:
            logs.append(log)
    copy = decode_copy(read_file(disk, layout.METADATA_COPY) or b"")
    found = FoundBroker(broker, seen, _clean_epoch(disk), copy, tuple(logs))
    return FoundDirectory(path, properties.values["cluster.id"], found, tuple(remarks))


def _clean_epoch(disk: Disk) -> int | None:
    data = read_file(disk, layout.CLEAN_SHUTDOWN)
    try:
        return None if data is None else int(json.loads(data)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return None


def _log(disk: Disk, name: str, partition: TopicPartition, mark: Offset) -> FoundLog | None:
    metadata = read_file(disk, f"{name}/{layout.PARTITION_METADATA}")
    if metadata is None:
        return None
    topic_id = checkpoint.parse_topic_metadata(name, metadata)
    epochs = checkpoint.read_epochs(disk, f"{name}/{layout.LEADER_EPOCHS}") or []
    epoch = max([entry.epoch for entry in epochs], default=-1)
    end, batch_epoch, producer_id = _tail(disk, name)
    return FoundLog(partition, topic_id, max(epoch, batch_epoch), end, mark, producer_id)


def _tail(disk: Disk, folder: str) -> tuple[Offset, int, int]:
    """Log end, last leader epoch and highest producer id, from the last segment with batches."""
    names = [layout.parse_file(name) for name in disk.list_dir(folder)]
    bases = sorted(
        (n.base_offset for n in names if n is not None and n.kind == layout.LOG and not n.suffix),
        reverse=True,
    )
    end, epoch, producer_id = (bases[0] if bases else 0), -1, -1
    for base in bases:
        path = f"{folder}/{layout.file_name(base, layout.LOG)}"
        found = False
        try:
            for batch in whole_batches(disk, path, 0, disk.size(path), check_crc=True):
                found = True
                end, epoch = batch.last_offset + 1, batch.leader_epoch
                producer_id = max(producer_id, batch.producer_id)
        except InvalidBatch:
            pass  # a torn end: recovery cuts it off
        if found:
            break
    return end, epoch, producer_id


def log_directories(store: str) -> list[str]:
    """The log directories beside a store in a cluster's data folder."""
    folder = os.path.dirname(os.path.abspath(store))
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise StoreUnusable(f"can't read {folder}: {error.strerror}") from error
    paths = [os.path.join(folder, name) for name in names if name.startswith("broker-")]
    return [p for p in paths if os.path.isfile(os.path.join(p, layout.META_PROPERTIES))]
