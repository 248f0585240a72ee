"""Three data folders on disk with one small topic, written by the broker's own code."""

import shutil
from pathlib import Path
from typing import NamedTuple

from tidelog.core.record.control import ControlType
from tidelog.core.record.encoder import Producer, encode_batch, encode_marker
from tidelog.core.record.record import Record
from tidelog.core.record.record_batch import TRANSACTIONAL, batches, parse
from tidelog.core.storage import checkpoint, layout
from tidelog.core.storage.log_config import LogConfig
from tidelog.core.storage.recovery import open_log
from tidelog.core.types import TopicPartition
from tidelog.shell.os_disk import OsDisk

OWN = TopicPartition("own", 0)
FOLDER = "own-0"
BROKERS = (1, 2, 3)
RECORDS = 5
BATCHES = 40
END = RECORDS * BATCHES
HIGH_WATERMARK = END
EPOCHS = ((0, 0), (2, 50), (3, 125))
CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=300, reserve_steps=False)
NOW = 1_700_000_000_000
PRODUCER = 7
TOPIC_ID = bytes(range(16))


def epoch_at(offset: int) -> int:
    return max(epoch for epoch, start in EPOCHS if start <= offset)


def batch_at(number: int, value: bytes = b"v", **fields: int) -> bytearray:
    """Return the batch with that number; `fields` replaces header fields."""
    base = fields.get("base_offset", number * RECORDS)
    records = [
        Record(b"k%d" % (base + i), value * 20 + b"%d" % i, NOW + base + i) for i in range(RECORDS)
    ]
    sequence = fields.get("sequence", number * RECORDS)
    return encode_batch(
        records,
        producer=Producer(
            fields.get("producer", PRODUCER), fields.get("producer_epoch", 0), sequence
        ),
        base_offset=base,
        leader_epoch=fields.get("epoch", epoch_at(base)),
    )


class Written(NamedTuple):
    """A batch on disk."""

    file: str
    position: int
    size: int
    base: int
    last: int


class MiniCluster:
    """The folders, and ways to damage them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, broker: int) -> Path:
        return self.root / f"broker-{broker}" / FOLDER

    def segments(self, broker: int) -> list[Path]:
        return sorted(self.folder(broker).glob("*.log"))

    def batches(self, broker: int = 2) -> list[Written]:
        return [
            Written(path.name, batch.position, batch.size, batch.base_offset, batch.last_offset)
            for path in self.segments(broker)
            for batch in batches(path.read_bytes())
        ]

    def path(self, written: Written, broker: int = 2) -> Path:
        return self.folder(broker) / written.file

    def write(self, path: Path, position: int, data: bytes) -> None:
        with open(path, "r+b") as file:
            file.seek(position)
            file.write(data)

    def flip(self, path: Path, position: int, bit: int = 0) -> None:
        data = path.read_bytes()
        self.write(path, position, bytes([data[position] ^ (1 << bit)]))

    def crash(self, *brokers: int, recovery_point: int = 0) -> None:
        """Make the folders look as if the brokers had been killed."""
        for broker in brokers or BROKERS:
            (self.root / f"broker-{broker}" / layout.CLEAN_SHUTDOWN).unlink()
            self.offsets(broker, layout.RECOVERY_POINTS, recovery_point)

    def offsets(self, broker: int, file: str, offset: int) -> None:
        path = self.root / f"broker-{broker}" / file
        path.write_bytes(checkpoint.format_offsets({OWN: offset}))

    def epochs(self, broker: int, *lines: tuple[int, int]) -> None:
        rows = [str(len(lines)), *(f"{epoch} {start}" for epoch, start in lines)]
        (self.folder(broker) / layout.LEADER_EPOCHS).write_text("0\n" + "\n".join(rows) + "\n")

    def write_anew(self, broker: int, made: list[bytearray]) -> None:
        """Rewrite the log with these batches."""
        shutil.rmtree(self.folder(broker))
        write_log(self.root / f"broker-{broker}", made)


def write_log(log_dir: Path, made: list[bytearray]) -> None:
    disk = OsDisk(str(log_dir))
    log, _ = open_log(disk, OWN, CONFIG, NOW, clean=True)
    for data in made:
        batch = parse(data)
        if log.epochs.latest is None or batch.leader_epoch > log.epochs.latest:
            log.epochs.assign(batch.leader_epoch, batch.base_offset)
        log.append([batch], NOW)
    log.write_epochs()
    log.close()
    checkpoint.write_topic_metadata(disk, f"{FOLDER}/{layout.PARTITION_METADATA}", TOPIC_ID)
    disk.close()


def make_mini_cluster(root: Path, made: list[bytearray] | None = None) -> MiniCluster:
    """Create a cluster that was stopped cleanly; every replica has all records."""
    for broker in BROKERS:
        log_dir = root / f"broker-{broker}"
        log_dir.mkdir(parents=True)
        write_log(log_dir, made or [batch_at(number) for number in range(BATCHES)])
        end = parse(made[-1]).next_offset if made else END
        for file in (layout.RECOVERY_POINTS, layout.HIGH_WATERMARKS):
            (log_dir / file).write_bytes(checkpoint.format_offsets({OWN: end}))
        (log_dir / layout.LOG_STARTS).write_bytes(checkpoint.format_offsets({}))
        (log_dir / layout.META_PROPERTIES).write_text(
            f"version=1\ncluster.id=mini\nnode.id={broker}\n"
        )
        (log_dir / layout.CLEAN_SHUTDOWN).write_text('{"version":0,"brokerEpoch":1}')
    return MiniCluster(root)


def transactions() -> list[bytearray]:
    """Two transactions of one producer: the first is aborted, the second committed."""
    made = []
    offset = 0
    sequence = 0
    for kind in (ControlType.ABORT, ControlType.COMMIT):
        for _ in range(3):
            records = [Record(b"k", b"v", NOW + offset + i) for i in range(2)]
            made.append(
                encode_batch(
                    records,
                    attributes=TRANSACTIONAL,
                    producer=Producer(9, 0, sequence),
                    base_offset=offset,
                    leader_epoch=0,
                )
            )
            offset += 2
            sequence += 2
        marker = encode_marker(kind, Producer(9, 0), 0, NOW + offset)
        batch = parse(marker)
        batch.assign(offset, 0)
        made.append(marker)
        offset += 1
    return made
