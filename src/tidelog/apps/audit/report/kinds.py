"""All kinds of findings: whether each is damage, what it means, and what to do about it.

A healthy cluster can have notices too, while it runs or after a crash. The page
docs/reference/audit.md describes the same kinds.
"""

from typing import NamedTuple

DAMAGE, NOTICE = "damage", "notice"


class Kind(NamedTuple):
    """The properties that all findings of one kind share."""

    severity: str
    meaning: str
    advice: str


COPY = "copy this replica again from an undamaged one, as described at the end"
_REBUILD = "stop the broker, delete the file and restart: the broker rebuilds it from the log"
_WRITTEN = "if the log end equals that of other replicas, restart the broker: it rewrites it"
_WAIT = "nothing: the broker repairs it when it runs"

KINDS: dict[str, Kind] = {
    # -- bytes of a segment
    "batch-checksum": Kind(DAMAGE, "A batch does not match its checksum.", COPY),
    "batch-header": Kind(DAMAGE, "Bytes between batches are not a valid batch.", COPY),
    "zero-hole": Kind(DAMAGE, "A segment has zeros where batches should be.", COPY),
    "torn-batch": Kind(DAMAGE, "A segment ends inside a batch.", COPY),
    "old-format": Kind(
        DAMAGE,
        "Records of format 0 or 1, from before Kafka 0.11; they are not read.",
        "convert the topic with a Kafka version that reads this format",
    ),
    "record-count": Kind(DAMAGE, "A batch's header and its records do not agree.", COPY),
    "unreadable": Kind(DAMAGE, "A file or folder can't be read.", "check its owner and the disk"),
    # -- order
    "offset-order": Kind(DAMAGE, "Batches are at the wrong place in the log.", COPY),
    "offset-gap": Kind(DAMAGE, "Offsets are missing, and compaction did not remove them.", COPY),
    "after-stop": Kind(
        DAMAGE,
        "The log has batches after its end at the clean stop of its broker.",
        COPY,
    ),
    "segment-missing": Kind(DAMAGE, "A segment is missing, but its indexes exist.", COPY),
    "segment-name": Kind(
        DAMAGE, "A segment's name is not its first offset.", "rename it and its indexes back"
    ),
    "epoch-order": Kind(DAMAGE, "A batch has an impossible leader epoch.", COPY),
    "sequence-gap": Kind(DAMAGE, "Batches of a producer are missing.", COPY),
    "sequence-repeat": Kind(
        DAMAGE, "A producer's batch was written twice.", "find out which producer sent it twice"
    ),
    # -- replicas
    "replica-divergence": Kind(DAMAGE, "Replicas differ below the high watermark.", COPY),
    "committed-lost": Kind(
        DAMAGE, "A replica ends below its own checkpointed high watermark.", COPY
    ),
    "topic-id": Kind(
        DAMAGE, "Replicas belong to different topics with the same name.", "remove the stale folder"
    ),
    # -- files beside the log
    "epoch-checkpoint": Kind(DAMAGE, "leader-epoch-checkpoint does not match the log.", _REBUILD),
    "offset-index": Kind(DAMAGE, "An offset index does not match its segment.", _REBUILD),
    "time-index": Kind(DAMAGE, "A time index does not match its segment.", _REBUILD),
    "index-missing": Kind(
        DAMAGE, "A segment has no index.", "restart the broker: it creates the index"
    ),
    "transaction-index": Kind(
        DAMAGE, "The index of aborted transactions does not match its segment.", _REBUILD
    ),
    "producer-snapshot": Kind(DAMAGE, "A producer snapshot is damaged or missing.", _REBUILD),
    "partition-metadata": Kind(
        DAMAGE, "partition.metadata is damaged or missing.", "copy it from another replica"
    ),
    "meta-properties": Kind(
        DAMAGE,
        "meta.properties is damaged.",
        "restore the file, or write it again with the right ids",
    ),
    "checkpoint-format": Kind(DAMAGE, "A checkpoint file has an invalid format.", _REBUILD),
    "high-watermark": Kind(
        DAMAGE, "A checkpointed high watermark is beyond the log end, or missing.", _WRITTEN
    ),
    "recovery-point": Kind(DAMAGE, "A recovery point differs from the log end.", _WRITTEN),
    "log-start": Kind(DAMAGE, "A checkpointed log start does not match the log.", COPY),
    "cleaner-offset": Kind(DAMAGE, "A cleaner's checkpoint is beyond the log end.", _REBUILD),
    # -- notices: healthy clusters have them too
    "torn-tail": Kind(
        NOTICE, "The last batch is incomplete: being written, or cut off by a crash.", _WAIT
    ),
    "zero-tail": Kind(NOTICE, "Preallocated or unwritten space after the last batch.", _WAIT),
    "uncommitted-tail": Kind(
        NOTICE, "Records above the high watermark that not all replicas have.", _WAIT
    ),
    "stale-tail": Kind(
        NOTICE,
        "Records of an old epoch that a newer leader never had; they will be truncated.",
        _WAIT,
    ),
    "uncommitted-differs": Kind(NOTICE, "Replicas differ above the high watermark.", _WAIT),
    "lagging-replica": Kind(NOTICE, "A replica lacks records that are committed.", _WAIT),
    "epoch-behind": Kind(
        NOTICE,
        "leader-epoch-checkpoint has epochs whose records a crash removed from the log.",
        _WAIT,
    ),
    "compacted-apart": Kind(NOTICE, "Replicas are compacted to different points.", _WAIT),
    "offset-jump": Kind(
        NOTICE, "Offsets are missing in a compacted log, above the cleaner's checkpoint.", _WAIT
    ),
    "index-sparse": Kind(
        NOTICE, "An offset index has fewer entries than on other replicas.", "nothing"
    ),
    "watermark-behind": Kind(
        NOTICE, "A checkpointed high watermark is below that of replicas with the same log.", _WAIT
    ),
    "sequence-restart": Kind(
        NOTICE,
        "A producer's sequence numbers restart after a long pause: its state had expired.",
        "nothing",
    ),
    "topic-id-missing": Kind(
        NOTICE,
        "A replica without records has no partition.metadata; other replicas have one.",
        "nothing: a broker writes it",
    ),
    "unknown-partition": Kind(NOTICE, "A checkpoint names a partition that has no folder.", _WAIT),
    "vanished": Kind(NOTICE, "A file was deleted while the audit ran.", "nothing"),
    "leftover": Kind(NOTICE, "Files left over from a deletion or a compaction.", _WAIT),
    "foreign-file": Kind(
        NOTICE, "A file that does not belong to a log.", "find out which program created it"
    ),
}
