"""A running broker's settings: replication, the cluster, the network, upkeep of its logs.

None of them can be changed while it runs.
"""

from tidelog.core.settings.setting import HIGH, INT_MAX, LOW, Setting

REPLICATION = (
    Setting(
        "unclean.recovery.strategy",
        "string",
        "balanced",
        "Which log leads when no replica is known to have every committed record: the longest of"
        " all that were in sync (balanced), the longest of those alive (aggressive), or what an"
        " administrator elects (none).",
        choices=("none", "balanced", "aggressive"),
        note="From KIP-966; no Kafka release has it. `unclean.leader.election.enable` means"
        " aggressive.",
    ),
    Setting(
        "unclean.recovery.timeout.ms",
        "long",
        30_000,
        "How long the controller waits for the logs of replicas that were in sync before it elects"
        " among those it knows.",
        "ms",
        0,
        note="From KIP-966, which proposes 300000.",
    ),
    Setting(
        "replica.fetch.backoff.ms",
        "int",
        1000,
        "How long a follower waits after a fetch that failed.",
        "ms",
        0,
    ),
    Setting(
        "replica.fetch.max.bytes",
        "int",
        2_097_152,
        "How much a follower asks for of one partition; a larger batch still comes through.",
        "bytes",
        0,
        note="Kafka's default is 1048576, one batch of a busy producer at a time.",
    ),
    Setting(
        "replica.fetch.min.bytes",
        "int",
        1,
        "A leader answers a follower as soon as it has so much.",
        "bytes",
        0,
        importance=HIGH,
    ),
    Setting(
        "replica.fetch.response.max.bytes",
        "int",
        10_485_760,
        "How much a follower asks for in one fetch.",
        "bytes",
        0,
    ),
    Setting(
        "replica.fetch.wait.max.ms",
        "int",
        500,
        "How long a leader lets a follower wait when there is nothing new. At most"
        " `replica.lag.time.max.ms`.",
        "ms",
        0,
        importance=HIGH,
    ),
    Setting(
        "replica.high.watermark.checkpoint.interval.ms",
        "long",
        5000,
        "How often the high watermarks are written.",
        "ms",
        1,
        importance=HIGH,
    ),
    Setting(
        "replica.lag.time.max.ms",
        "long",
        30_000,
        "A follower that has not caught up for so long leaves the in-sync replicas.",
        "ms",
        1,
        importance=HIGH,
    ),
    Setting(
        "replica.selector.class",
        "string",
        None,
        "Which replica a consumer reads from: the leader, or with the rack-aware one a follower"
        " in the consumer's own rack.",
        choices=(
            "org.apache.kafka.common.replica.LeaderSelector",
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        ),
        note="Kafka's two names; other classes can't be loaded.",
    ),
    Setting(
        "replica.socket.timeout.ms",
        "int",
        30_000,
        "How long a follower waits for an answer. At least `replica.fetch.wait.max.ms`.",
        "ms",
        1,
        importance=HIGH,
    ),
    Setting(
        "request.timeout.ms",
        "int",
        30_000,
        "How long a broker waits for another broker's answer.",
        "ms",
        1,
        importance=HIGH,
    ),
)

CLUSTER = (
    Setting(
        "auto.leader.rebalance.enable",
        "boolean",
        True,
        "Let the controller elect preferred leaders without a request.",
        importance=HIGH,
        note="After the whole cluster starts, a preferred replica is elected as soon as it is in"
        " sync; Kafka waits for the next check.",
    ),
    Setting(
        "broker.heartbeat.interval.ms",
        "int",
        2000,
        "How often a broker tells the controller that it lives. Well below"
        " `broker.session.timeout.ms`.",
        "ms",
        1,
    ),
    Setting(
        "broker.session.timeout.ms",
        "int",
        9000,
        "After so long without a heartbeat a broker counts as dead. A process that has ended is"
        " found at once, without this wait.",
        "ms",
        1000,
    ),
    Setting(
        "controlled.shutdown.enable",
        "boolean",
        True,
        "Hand over what a broker leads before it stops.",
    ),
    Setting(
        "leader.imbalance.check.interval.seconds",
        "long",
        300,
        "How often the controller elects preferred leaders.",
        "s",
        1,
        importance=HIGH,
    ),
)

NETWORK = (
    Setting(
        "connections.max.idle.ms",
        "long",
        600_000,
        "A connection without requests for so long is closed; -1 is never.",
        "ms",
        -1,
    ),
    Setting(
        "max.request.partition.size.limit",
        "int",
        2000,
        "How many partitions one answer to DescribeTopicPartitions holds; the next goes on there.",
        "partitions",
        1,
    ),
    Setting(
        "fetch.max.bytes",
        "int",
        57_671_680,
        "How much one fetch of a client can get.",
        "bytes",
        1024,
    ),
    Setting(
        "max.connection.creation.rate",
        "int",
        INT_MAX,
        "How many new connections a broker takes in a second; more have to wait.",
        "connections a second",
        0,
    ),
    Setting(
        "max.connections",
        "int",
        INT_MAX,
        "How many connections a broker has at most.",
        "connections",
        0,
    ),
    Setting(
        "max.connections.per.ip",
        "int",
        INT_MAX,
        "How many connections one address has at most.",
        "connections",
        0,
    ),
    Setting(
        "max.connections.per.ip.overrides",
        "string",
        "",
        "The same for some addresses or names of hosts, as 10.0.0.1:100,example.org:200.",
    ),
    Setting(
        "max.incremental.fetch.session.cache.slots",
        "int",
        1000,
        "How many fetch sessions a broker remembers.",
        "sessions",
        0,
    ),
    Setting(
        "queued.max.request.bytes",
        "long",
        268_435_456,
        "How much memory requests take that have not come to their end. While it is used up, large"
        " requests are read one at a time; -1 is no limit. At least `socket.request.max.bytes`.",
        "bytes",
        -1,
        note="Kafka's default is -1.",
    ),
    Setting(
        "socket.listen.backlog.size",
        "int",
        4096,
        "How many connections may wait to be taken; the system has its own limit besides.",
        "connections",
        1,
        note="Kafka's default is 50. Of many clients that come at once the rest would wait for a"
        " second, and some for more: that is how TCP tries again.",
    ),
    Setting(
        "socket.receive.buffer.bytes",
        "int",
        -1,
        "A connection's receive buffer; -1 leaves it to the system.",
        "bytes",
        -1,
        importance=HIGH,
        note="Kafka's default is 102400, which stops the system from choosing.",
    ),
    Setting(
        "socket.request.max.bytes",
        "int",
        104_857_600,
        "The largest request that is taken; a connection with a larger one is closed.",
        "bytes",
        1,
        importance=HIGH,
    ),
    Setting(
        "socket.send.buffer.bytes",
        "int",
        -1,
        "A connection's send buffer; -1 leaves it to the system.",
        "bytes",
        -1,
        importance=HIGH,
        note="Kafka's default is 102400, which stops the system from choosing.",
    ),
)


UPKEEP = (
    Setting(
        "log.flush.offset.checkpoint.interval.ms",
        "int",
        60_000,
        "How often the recovery points are written: up to them a log is known to be on disk.",
        "ms",
        0,
        importance=HIGH,
    ),
    Setting(
        "log.flush.scheduler.interval.ms",
        "long",
        1000,
        "How often `flush.ms` is looked at.",
        "ms",
        1,
        importance=HIGH,
        note="Kafka's default is never, so `flush.ms` alone does nothing there.",
    ),
    Setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        "int",
        60_000,
        "How often the log start offsets are written.",
        "ms",
        0,
        importance=HIGH,
    ),
    Setting(
        "log.retention.check.interval.ms",
        "long",
        300_000,
        "How often old segments are looked for.",
        "ms",
        1,
    ),
    Setting(
        "producer.id.expiration.check.interval.ms",
        "int",
        600_000,
        "How often producers that were silent too long are looked for.",
        "ms",
        1,
        importance=LOW,
    ),
    Setting(
        "producer.id.expiration.ms",
        "int",
        86_400_000,
        "After so long in silence an idempotent producer's sequence numbers are forgotten.",
        "ms",
        1,
        importance=LOW,
    ),
)
