"""The settings of partition leaders for transactions."""

from tidelog.core.settings.setting import LOW, Setting

VERIFICATION = (
    Setting(
        "transaction.partition.verification.enable",
        "boolean",
        True,
        "Whether leaders ask the transaction coordinator before a transaction of version 0 or 1"
        " begins on a partition. Version 2 always does.",
        importance=LOW,
        note="Kafka can change it while the broker runs.",
    ),
    Setting(
        "add.partitions.to.txn.retry.backoff.ms",
        "int",
        20,
        "After this time a leader asks the transaction coordinator again, if the previous"
        " transaction is not complete.",
        "ms",
        1,
    ),
    Setting(
        "add.partitions.to.txn.retry.backoff.max.ms",
        "int",
        100,
        "For how long a leader repeats this before it refuses the batch.",
        "ms",
        0,
    ),
)
