"""The settings of transactions: of their coordinator and its topic, and of partition leaders."""

from tidelog.core.settings.setting import HIGH, LOW, Setting

TRANSACTIONS = (
    Setting(
        "transaction.max.timeout.ms",
        "int",
        900_000,
        "The longest `transaction.timeout.ms` that a producer may request. An open transaction"
        " delays read-committed consumers.",
        "ms",
        1,
        importance=HIGH,
    ),
    Setting(
        "transactional.id.expiration.ms",
        "int",
        604_800_000,
        "How long the state of a transactional id is kept after its last use.",
        "ms",
        1,
        importance=HIGH,
    ),
    Setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "int",
        10_000,
        "How often a broker aborts transactions that are open for longer than their producer's"
        " `transaction.timeout.ms`.",
        "ms",
        1,
        importance=LOW,
    ),
    Setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        "int",
        3_600_000,
        "How often a broker looks for expired transactional ids.",
        "ms",
        1,
        importance=LOW,
    ),
    Setting(
        "transaction.state.log.num.partitions",
        "int",
        50,
        "Partition count of `__transaction_state`. Set it before the first transactional producer"
        " connects.",
        "partitions",
        1,
        importance=HIGH,
    ),
    Setting(
        "transaction.state.log.replication.factor",
        "short",
        3,
        "Replication factor of `__transaction_state`. Transactional producers wait until this many"
        " brokers are registered.",
        "replicas",
        1,
        importance=HIGH,
        note="`tidelog up` sets the number of brokers, at most 3.",
    ),
    Setting(
        "transaction.state.log.min.isr",
        "int",
        2,
        "The `min.insync.replicas` of `__transaction_state`.",
        "replicas",
        1,
        importance=HIGH,
        note="`tidelog up` sets 1 if there are fewer than two brokers.",
    ),
    Setting(
        "transaction.state.log.segment.bytes",
        "int",
        104_857_600,
        "Segment size of `__transaction_state`. Small segments are compacted sooner.",
        "bytes",
        1,
        importance=HIGH,
    ),
)

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
        "For how long a leader repeats this request before it refuses the batch.",
        "ms",
        0,
    ),
)
