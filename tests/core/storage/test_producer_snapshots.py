"""Snapshots of producer state, and the window of five batches around them."""

import pytest
from storage_kit import SMALL, batch, names, new_log, reopen

from tidelog.core.lineage.producer_state import ProducerState
from tidelog.core.record.control import ControlType
from tidelog.core.record.encoder import Producer, encode_marker
from tidelog.core.record.record_batch import TRANSACTIONAL, parse
from tidelog.core.storage import producer_snapshots
from tidelog.core.storage.disk import DiskError
from tidelog.core.storage.log import Log
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.producer_snapshots import ProducerSnapshots, refill_windows
from tidelog.lab.memory_disk import MemoryDisk

LARGE = LogConfig()


def produce(log: Log, producer: Producer, count: int = 1, attributes: int = 0) -> None:
    for n in range(count):
        made = producer._replace(sequence=producer.sequence + n)
        log.append([batch(log.log_end_offset, producer=made, attributes=attributes)], 0)


def sequences(log: Log, producer_id: int) -> list[int]:
    return [one.last_sequence for one in log.producers.producers[producer_id].batches]


def restart(log: Log, disk: MemoryDisk, config: LogConfig = LARGE) -> Log:
    log.close()
    return reopen(disk, config, clean=True)[0]


def test_the_window_is_filled_from_the_end_of_the_log() -> None:
    disk = MemoryDisk()
    log = new_log(disk, LARGE)
    produce(log, Producer(1, 0, 0), 9)
    produce(log, Producer(2, 0, 0), 2)
    again = restart(log, disk)
    assert sequences(again, 1) == [4, 5, 6, 7, 8]
    assert sequences(again, 2) == [0, 1]


def test_batches_of_an_older_producer_epoch_do_not_count() -> None:
    disk = MemoryDisk()
    log = new_log(disk, LARGE)
    produce(log, Producer(1, 0, 0), 3)
    produce(log, Producer(1, 1, 0), 2)
    again = restart(log, disk)
    assert sequences(again, 1) == [0, 1]
    assert again.producers.producers[1].epoch == 1


def test_a_producer_with_only_a_marker_in_the_log() -> None:
    disk = MemoryDisk()
    log = new_log(disk, LARGE)
    produce(log, Producer(1, 0, 0), 1, TRANSACTIONAL)
    marker = parse(encode_marker(ControlType.COMMIT, Producer(1, 1), 0, 5))
    marker.assign(log.log_end_offset, 0)
    log.append([marker], 0)
    assert sequences(log, 1) == []
    assert sequences(restart(log, disk), 1) == []


def test_producers_outside_the_window_keep_their_last_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer_snapshots, "WINDOW_BYTES", 200)
    disk = MemoryDisk()
    log = new_log(disk)
    produce(log, Producer(1, 0, 0), 3)
    produce(log, Producer(2, 0, 0), 20)
    again = restart(log, disk, SMALL)
    assert sequences(again, 1) == [2]
    assert sequences(again, 2)[-3:] == [17, 18, 19]


def test_an_expired_producer_is_not_restored_with_its_window() -> None:
    disk = MemoryDisk()
    log = new_log(disk, LARGE)
    produce(log, Producer(1, 0, 0), 3)
    produce(log, Producer(2, 0, 0), 3)
    del log.producers.producers[1]
    refill_windows(disk, log.producers, log.segments)
    assert log.producers.producers.keys() == {2}


def test_state_with_another_last_batch_is_not_changed() -> None:
    disk = MemoryDisk()
    log = new_log(disk, LARGE)
    produce(log, Producer(1, 0, 0), 3)
    other = log.producers.copy()
    del other.producers[1].batches[1:]
    refill_windows(disk, other, log.segments)
    assert [one.last_sequence for one in other.producers[1].batches] == [0]


def test_damaged_log_during_a_replay_is_an_error() -> None:
    disk = MemoryDisk()
    log = new_log(disk, LARGE)
    produce(log, Producer(1, 0, 0), 3)
    disk.files[log.segments.active.path][16] = 9
    with pytest.raises(DiskError, match="magic 9 at byte 0"):
        ProducerSnapshots(disk, "orders-0").rebuild(ProducerState(), log.segments)


def test_missing_snapshot_is_skipped() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    produce(log, Producer(1, 0, 0), 8)
    snapshots = ProducerSnapshots(disk, "orders-0", [7])
    disk.delete(f"orders-0/{7:020d}.snapshot")
    state = ProducerState()
    snapshots.rebuild(state, log.segments)
    assert state.producers[1].last_sequence == 7


def test_stray_snapshots_are_deleted_when_a_log_is_opened() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    for count in (9, 2, 2):
        produce(log, Producer(1, 0, log.log_end_offset), count)
        log = restart(log, disk, SMALL)
    assert [name[:20] for name in names(disk) if name.endswith(".snapshot")] == [
        f"{offset:020d}" for offset in (7, 13)
    ]
