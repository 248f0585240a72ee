"""Every kind of finding: whether it is damage, what it means, and what to do about it.

A notice is what a healthy cluster shows too, live or after a crash. The page
docs/reference/audit.md says the same.
"""

from typing import NamedTuple

DAMAGE, NOTICE = "damage", "notice"


class Kind(NamedTuple):
    """What is always true of findings of this kind."""

    severity: str
    meaning: str
    advice: str


COPY = "have it copied anew from a sound replica, as said at the end"
_REBUILD = "stop the broker, delete the file and restart: it is made again from the log"
_WRITTEN = "if the log ends as on other replicas, restart the broker: it is written anew"
_WAIT = "nothing: the broker puts it right when it runs"

KINDS: dict[str, Kind] = {
    # -- bytes of a segment
    "batch-checksum": Kind(DAMAGE, "A batch's bytes are not those its checksum was made of.", COPY),
    "batch-header": Kind(DAMAGE, "Bytes between batches are no batch.", COPY),
    "zero-hole": Kind(DAMAGE, "Zeros stand where batches should be.", COPY),
    "torn-batch": Kind(DAMAGE, "A segment ends inside a batch.", COPY),
    "old-format": Kind(
        DAMAGE,
        "Records of format 0 or 1, from before Kafka 0.11; they are not read.",
        "let a Kafka of that time convert the topic",
    ),
    "record-count": Kind(DAMAGE, "A batch's header and its records do not agree.", COPY),
    "unreadable": Kind(DAMAGE, "A file or folder can't be read.", "check its owner and the disk"),
    # -- order
    "offset-order": Kind(DAMAGE, "Batches stand where others should be.", COPY),
    "offset-gap": Kind(DAMAGE, "Offsets are missing, and no cleaner took them.", COPY),
    "after-stop": Kind(
        DAMAGE, "Batches stand behind where the log ended when its broker stopped.", COPY
    ),
    "segment-missing": Kind(DAMAGE, "A segment is gone, its indexes are not.", COPY),
    "segment-name": Kind(
        DAMAGE, "A segment's name is not its first offset.", "rename it and its indexes back"
    ),
    "epoch-order": Kind(DAMAGE, "A batch has a leader epoch that can't be there.", COPY),
    "sequence-gap": Kind(DAMAGE, "Batches of a producer are missing.", COPY),
    "sequence-repeat": Kind(DAMAGE, "A producer's batch was written twice.", "read the page"),
    # -- replicas
    "replica-divergence": Kind(DAMAGE, "Replicas differ below the high watermark.", COPY),
    "committed-lost": Kind(
        DAMAGE, "A replica ends below a high watermark that it knew itself.", COPY
    ),
    "topic-id": Kind(
        DAMAGE, "Replicas belong to different topics of one name.", "remove the stale folder"
    ),
    # -- files beside the log
    "epoch-checkpoint": Kind(DAMAGE, "leader-epoch-checkpoint does not fit the log.", _REBUILD),
    "offset-index": Kind(DAMAGE, "An offset index does not fit its segment.", _REBUILD),
    "time-index": Kind(DAMAGE, "A time index does not fit its segment.", _REBUILD),
    "index-missing": Kind(DAMAGE, "A segment has no index.", "restart the broker: it makes it"),
    "transaction-index": Kind(
        DAMAGE, "The index of aborted transactions does not fit its segment.", _REBUILD
    ),
    "producer-snapshot": Kind(DAMAGE, "A producer snapshot is damaged or missing.", _REBUILD),
    "partition-metadata": Kind(
        DAMAGE, "partition.metadata is damaged or missing.", "copy it from another replica"
    ),
    "meta-properties": Kind(DAMAGE, "meta.properties is damaged.", "write it anew"),
    "checkpoint-format": Kind(DAMAGE, "A checkpoint file is not in its form.", _REBUILD),
    "high-watermark": Kind(
        DAMAGE, "A checkpointed high watermark is beyond the log, or lost.", _WRITTEN
    ),
    "recovery-point": Kind(DAMAGE, "A recovery point is not the log's end.", _WRITTEN),
    "log-start": Kind(DAMAGE, "A checkpointed log start does not fit the log.", COPY),
    "cleaner-offset": Kind(DAMAGE, "A cleaner's checkpoint is beyond the log.", _REBUILD),
    # -- what healthy clusters show too
    "torn-tail": Kind(NOTICE, "The last batch is not whole: in flight, or torn by a crash.", _WAIT),
    "zero-tail": Kind(NOTICE, "Reserved or unwritten space behind the last batch.", _WAIT),
    "uncommitted-tail": Kind(
        NOTICE, "Records above the high watermark that not all replicas have.", _WAIT
    ),
    "stale-tail": Kind(
        NOTICE, "Records of an old epoch that a newer leader never had; they will be cut.", _WAIT
    ),
    "uncommitted-differs": Kind(NOTICE, "Replicas differ above the high watermark.", _WAIT),
    "lagging-replica": Kind(NOTICE, "A replica lacks records that are committed.", _WAIT),
    "epoch-behind": Kind(
        NOTICE, "leader-epoch-checkpoint knows epochs that a crash took from the log.", _WAIT
    ),
    "compacted-apart": Kind(NOTICE, "Replicas are compacted to different points.", _WAIT),
    "offset-jump": Kind(
        NOTICE, "Offsets are missing in a compacted log, above where its cleaner was.", _WAIT
    ),
    "index-sparse": Kind(
        NOTICE, "An offset index has fewer entries than on other replicas.", "nothing"
    ),
    "watermark-behind": Kind(
        NOTICE, "A checkpointed high watermark is below that of replicas with the same log.", _WAIT
    ),
    "sequence-restart": Kind(
        NOTICE, "A producer's numbers start anew after a long time: it was forgotten.", "nothing"
    ),
    "topic-id-missing": Kind(
        NOTICE,
        "A replica without records has no partition.metadata; others have.",
        "nothing: a broker writes it",
    ),
    "unknown-partition": Kind(NOTICE, "A checkpoint names a partition that has no folder.", _WAIT),
    "vanished": Kind(NOTICE, "A file was deleted while the audit ran.", "nothing"),
    "leftover": Kind(NOTICE, "Files that a deletion or a compaction left.", _WAIT),
    "foreign-file": Kind(NOTICE, "A file that belongs to no log.", "see who put it there"),
}
