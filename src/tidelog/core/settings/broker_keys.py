"""All settings of a broker that have an effect, in the sections of the reference page.

Defaults are those of Kafka 4.x; a note says where they differ. A broker's defaults for topics are
derived from the rows of topic settings, so that the two never differ.
"""

from collections.abc import Iterator

from tidelog.core.settings.authorization import AUTHORIZATION
from tidelog.core.settings.group_keys import GROUPS
from tidelog.core.settings.sasl import SASL, SASL_KEYS, sasl_listener_key
from tidelog.core.settings.setting import CLUSTER_WIDE, HIGH, INT_MAX, LOW, READ_ONLY, Setting
from tidelog.core.settings.tls import TLS, TLS_KEYS, listener_key
from tidelog.core.settings.topic_keys import SYNONYMS, TOPIC
from tidelog.core.settings.transaction_keys import TRANSACTIONS, VERIFICATION

UNIT_MS = {"ms": 1, "minutes": 60_000, "hours": 3_600_000}

_PLACE = (
    Setting(
        "node.id",
        "int",
        None,
        "The broker's id in the cluster. It must be set, here or as `broker.id`.",
        least=0,
        importance=HIGH,
        note="`tidelog up` numbers its brokers from 1.",
    ),
    Setting("broker.id", "int", None, "The older name of `node.id`.", least=0, importance=HIGH),
    Setting(
        "broker.rack",
        "string",
        None,
        "The broker's rack: replicas of a partition are spread over racks, and consumers may"
        " read from replicas in their own rack.",
    ),
    Setting(
        "listeners",
        "list",
        ("PLAINTEXT://localhost:9092",),
        "The addresses for clients, as NAME://host:port. No host: all addresses of the machine;"
        " port 0: a free port. A client gets the brokers' addresses on the listener that it"
        " connected to.",
        importance=HIGH,
        note="Kafka listens on all addresses by default, Tidelog on this machine only. Listeners in"
        " `controller.listener.names` are ignored.",
    ),
    Setting(
        "advertised.listeners",
        "list",
        None,
        "The address that clients connect to, for each listener, if it is not that of"
        " `listeners`. A listener on 0.0.0.0 or [::] needs it.",
        importance=HIGH,
        note="It must name every listener; in Kafka one that is missing can't be used.",
    ),
    Setting(
        "inter.broker.listener.name",
        "string",
        None,
        "The listener in `listeners` for other brokers. Without it, and if `listeners` has only"
        " this one, brokers use `tidelog.internal.listener`.",
        note="Clients can't use this listener. It can't be combined with"
        " `security.inter.broker.protocol`.",
    ),
    Setting(
        "security.inter.broker.protocol",
        "string",
        "PLAINTEXT",
        "The protocol of `tidelog.internal.listener`: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
        note="In Kafka it names the listener for brokers; Tidelog's brokers have their own.",
    ),
    Setting(
        "controller.listener.names",
        "list",
        (),
        "Names in `listeners` that are not for clients.",
        importance=HIGH,
        note="They are not opened: Tidelog's controller needs no listener.",
    ),
    Setting(
        "listener.security.protocol.map",
        "list",
        (),
        "The protocol of each listener, as NAME:PROTOCOL.",
        importance=LOW,
        note="A listener with the name of a protocol uses that one.",
    ),
    Setting(
        "log.dirs",
        "list",
        None,
        "The directories for the files of partitions, usually one for each disk. A new partition"
        " is stored in the directory with the fewest.",
        importance=HIGH,
    ),
    Setting(
        "log.dir",
        "string",
        None,
        "The directory for the files of partitions, if `log.dirs` is not set.",
        importance=HIGH,
        note="Default: tidelog-data/broker-<node.id> in the current directory.",
    ),
)

_REPLICATION = (
    Setting(
        "unclean.recovery.strategy",
        "string",
        "balanced",
        "Which log leads if no replica is known to have all committed records: the longest of"
        " the replicas that were in sync (balanced), the longest of the live replicas"
        " (aggressive), or an administrator's choice (none).",
        choices=("none", "balanced", "aggressive"),
        note="From KIP-966; no Kafka release has it. `unclean.leader.election.enable` means"
        " aggressive.",
    ),
    Setting(
        "unclean.recovery.timeout.ms",
        "long",
        30_000,
        "How long the controller waits for reports from replicas that were in sync before it"
        " elects among the logs that it knows.",
        "ms",
        0,
        note="From KIP-966, which proposes 300000.",
    ),
    Setting(
        "replica.fetch.backoff.ms",
        "int",
        1000,
        "How long a follower waits after a failed fetch.",
        "ms",
        0,
    ),
    Setting(
        "replica.fetch.max.bytes",
        "int",
        2_097_152,
        "How many bytes a follower requests of one partition. A larger batch is still sent.",
        "bytes",
        0,
        note="Kafka's default is 1048576, one batch of a busy producer.",
    ),
    Setting(
        "replica.fetch.min.bytes",
        "int",
        1,
        "The leader responds to a follower as soon as it has this many bytes.",
        "bytes",
        0,
        importance=HIGH,
    ),
    Setting(
        "replica.fetch.response.max.bytes",
        "int",
        10_485_760,
        "How many bytes a follower requests in one fetch.",
        "bytes",
        0,
    ),
    Setting(
        "replica.fetch.wait.max.ms",
        "int",
        500,
        "How long a leader holds a follower's fetch if there are no new records. At most"
        " `replica.lag.time.max.ms`.",
        "ms",
        0,
        importance=HIGH,
    ),
    Setting(
        "replica.high.watermark.checkpoint.interval.ms",
        "long",
        5000,
        "How often the high watermarks are written to disk.",
        "ms",
        1,
        importance=HIGH,
    ),
    Setting(
        "replica.lag.time.max.ms",
        "long",
        30_000,
        "A follower that has not caught up for this long is removed from the in-sync replicas.",
        "ms",
        1,
        importance=HIGH,
    ),
    Setting(
        "replica.selector.class",
        "string",
        None,
        "Which replica a consumer reads from: the leader, or with `RackAwareReplicaSelector` a"
        " follower in the consumer's rack.",
        choices=(
            "org.apache.kafka.common.replica.LeaderSelector",
            "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        ),
        note="Only Kafka's two classes; others cannot be loaded.",
    ),
    Setting(
        "replica.socket.timeout.ms",
        "int",
        30_000,
        "How long a follower waits for a response. At least `replica.fetch.wait.max.ms`.",
        "ms",
        1,
        importance=HIGH,
    ),
    Setting(
        "request.timeout.ms",
        "int",
        30_000,
        "How long a broker waits for another broker's response.",
        "ms",
        1,
        importance=HIGH,
    ),
)

_CLUSTER = (
    Setting(
        "auto.leader.rebalance.enable",
        "boolean",
        True,
        "Whether the controller elects preferred leaders by itself.",
        importance=HIGH,
        note="After the whole cluster starts, a preferred replica is elected as soon as it is in"
        " sync; Kafka waits for the next check.",
    ),
    Setting(
        "broker.heartbeat.interval.ms",
        "int",
        500,
        "How often a broker sends a heartbeat; must be well below `broker.session.timeout.ms`.",
        "ms",
        1,
        note="Kafka's default is 2000.",
    ),
    Setting(
        "broker.session.timeout.ms",
        "int",
        9000,
        "A broker without a heartbeat for this long counts as dead. The end of a broker's"
        " process is detected at once, without this wait.",
        "ms",
        1000,
    ),
    Setting(
        "controlled.shutdown.enable",
        "boolean",
        True,
        "Whether a broker hands over its leaderships before it stops.",
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

_NETWORK = (
    Setting(
        "connections.max.idle.ms",
        "long",
        600_000,
        "A connection without requests for this long is closed; -1: never.",
        "ms",
        -1,
    ),
    Setting(
        "max.request.partition.size.limit",
        "int",
        2000,
        "The largest number of partitions in one response to DescribeTopicPartitions. The"
        " client requests the rest page by page.",
        "partitions",
        1,
    ),
    Setting(
        "fetch.max.bytes",
        "int",
        57_671_680,
        "The largest number of bytes in the response to a client's fetch.",
        "bytes",
        1024,
    ),
    Setting(
        "max.connection.creation.rate",
        "int",
        INT_MAX,
        "How many new connections a broker accepts per second; more have to wait."
        " `listener.name.NAME.max.connection.creation.rate` limits one listener.",
        "connections a second",
        0,
    ),
    Setting(
        "quota.window.num",
        "int",
        11,
        "How many samples the rates of clients are averaged over.",
        "samples",
        1,
        importance=LOW,
    ),
    Setting(
        "quota.window.size.seconds",
        "int",
        1,
        "The time of one sample. No client waits longer than this for `request_percentage` or"
        " `connection_creation_rate`.",
        "s",
        1,
        importance=LOW,
    ),
    Setting(
        "controller.quota.window.num",
        "int",
        11,
        "How many samples of `controller_mutation_rate` a client may use at once.",
        "samples",
        1,
        importance=LOW,
    ),
    Setting(
        "controller.quota.window.size.seconds",
        "int",
        1,
        "The time of one sample of `controller_mutation_rate`.",
        "s",
        1,
        importance=LOW,
    ),
    Setting(
        "max.connections",
        "int",
        INT_MAX,
        "The largest number of connections of a broker.",
        "connections",
        0,
    ),
    Setting(
        "max.connections.per.ip",
        "int",
        INT_MAX,
        "The largest number of connections from one address.",
        "connections",
        0,
    ),
    Setting(
        "max.connections.per.ip.overrides",
        "string",
        "",
        "The largest number of connections from some addresses or host names, as"
        " 10.0.0.1:100,example.org:200.",
    ),
    Setting(
        "max.incremental.fetch.session.cache.slots",
        "int",
        1000,
        "The largest number of fetch sessions of a broker.",
        "sessions",
        0,
    ),
    Setting(
        "queued.max.request.bytes",
        "long",
        268_435_456,
        "Memory for requests that are not fully received. While it is used up, large requests"
        " are read one at a time; -1: no limit. At least `socket.request.max.bytes`.",
        "bytes",
        -1,
        note="Kafka's default is -1.",
    ),
    Setting(
        "socket.listen.backlog.size",
        "int",
        4096,
        "How many connections may wait to be accepted. The operating system has its own limit too.",
        "connections",
        1,
        note="Kafka's default is 50. If many clients connect at once, the rest would wait for a"
        " second or more until TCP retries.",
    ),
    Setting(
        "socket.receive.buffer.bytes",
        "int",
        -1,
        "The receive buffer of a connection; -1: the operating system chooses.",
        "bytes",
        -1,
        importance=HIGH,
        note="Kafka's default is 102400, which disables the system's automatic sizing.",
    ),
    Setting(
        "socket.request.max.bytes",
        "int",
        104_857_600,
        "The largest request that is accepted. A connection with a larger request is closed.",
        "bytes",
        1,
        importance=HIGH,
    ),
    Setting(
        "socket.send.buffer.bytes",
        "int",
        -1,
        "The send buffer of a connection; -1: the operating system chooses.",
        "bytes",
        -1,
        importance=HIGH,
        note="Kafka's default is 102400, which disables the system's automatic sizing.",
    ),
)


_UPKEEP = (
    Setting(
        "log.flush.offset.checkpoint.interval.ms",
        "int",
        60_000,
        "How often the recovery points are written to disk. Up to its recovery point, a log is"
        " known to be on disk.",
        "ms",
        0,
        importance=HIGH,
    ),
    Setting(
        "log.flush.scheduler.interval.ms",
        "long",
        1000,
        "How often `flush.ms` is checked.",
        "ms",
        1,
        importance=HIGH,
        note="Kafka's default is never, so `flush.ms` alone has no effect there.",
    ),
    Setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        "int",
        60_000,
        "How often the log start offsets are written to disk.",
        "ms",
        0,
        importance=HIGH,
    ),
    Setting(
        "log.retention.check.interval.ms",
        "long",
        300_000,
        "How often a broker looks for segments to delete.",
        "ms",
        1,
    ),
    Setting(
        "producer.id.expiration.check.interval.ms",
        "int",
        600_000,
        "How often a broker looks for expired producer ids.",
        "ms",
        1,
        importance=LOW,
    ),
    Setting(
        "producer.id.expiration.ms",
        "int",
        86_400_000,
        "After this long without a batch, the sequence numbers of an idempotent producer are"
        " deleted.",
        "ms",
        1,
        importance=LOW,
    ),
)

_UNLIMITED = 1.7976931348623157e308

_CLEANER = (
    Setting(
        "log.cleaner.backoff.ms",
        "long",
        15_000,
        "How long the cleaner waits if no log needs cleaning.",
        "ms",
        1,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.cleaner.dedupe.buffer.size",
        "long",
        134_217_728,
        "Memory for the keys of all logs that are being cleaned. A key takes 24 bytes, and a"
        " quarter stays free; a log with more keys is cleaned in several rounds.",
        "bytes",
        1_048_576,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.cleaner.enable",
        "boolean",
        True,
        "Whether logs are compacted. If false, compacted topics grow without limit,"
        " `__consumer_offsets` among them.",
    ),
    Setting(
        "log.cleaner.io.max.bytes.per.second",
        "double",
        _UNLIMITED,
        "How many bytes per second the cleaner reads and writes at most.",
        "bytes a second",
        1024,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "log.cleaner.threads",
        "int",
        1,
        "How many logs are cleaned at the same time.",
        "logs",
        1,
        64,
        dynamic=CLUSTER_WIDE,
        note="Each cleaning is a separate process of low priority.",
    ),
)

_OWN = (
    Setting(
        "tidelog.metadata.store",
        "string",
        None,
        "The metadata store of all brokers of a cluster: sqlite:PATH on one machine, or"
        " etcd://HOST:PORT,HOST:PORT/PREFIX, with TLS etcds://HOST:PORT/PREFIX. Default: cluster.db"
        " beside the log directory.",
        importance=HIGH,
    ),
    Setting(
        "tidelog.metadata.store.user",
        "string",
        None,
        "The user of etcd, if etcd has authentication on. A user in the URL takes precedence.",
    ),
    Setting(
        "tidelog.metadata.store.password.file",
        "string",
        None,
        "The file with the password of etcd's user in its first line.",
    ),
    Setting(
        "tidelog.metadata.store.ca.file",
        "string",
        None,
        "The file with the certificates that etcd's certificate must be signed by. Default: those"
        " of the system.",
    ),
    Setting(
        "tidelog.metadata.store.certificate.file",
        "string",
        None,
        "The client certificate for etcd. If etcd has authentication on, it must have no common"
        " name (CN).",
    ),
    Setting(
        "tidelog.metadata.store.key.file",
        "string",
        None,
        "The private key of the client certificate, unless it is in the same file.",
    ),
    Setting(
        "tidelog.metadata.store.allow.plaintext",
        "boolean",
        False,
        "Whether etcd on another machine may be used without TLS.",
    ),
    Setting(
        "tidelog.cluster.secret.file",
        "string",
        None,
        "The file with the cluster's secret, for all brokers. Default: the store contains it.",
    ),
    Setting(
        "tidelog.internal.listener",
        "string",
        None,
        "The address for other brokers, as host:port. Default: a free port on the host of the first"
        " client listener. If the host is 0.0.0.0, other brokers get the first client listener's"
        " advertised host.",
        note="`inter.broker.listener.name` replaces it.",
    ),
    Setting(
        "tidelog.metrics.listener",
        "string",
        None,
        "The address for Prometheus (`/metrics`), as host:port; port 0: a free port; empty: no"
        " metrics. Other machines should reach it only with TLS and credentials.",
        note="`tidelog up` sets 127.0.0.1:0. A port that is set there is the first broker's; the"
        " others use the following ports.",
    ),
    Setting(
        "tidelog.metrics.security.protocol",
        "string",
        "PLAINTEXT",
        "Whether the metrics listener uses TLS (SSL), with the settings"
        " `listener.name.metrics.ssl.…`, else `ssl.…`.",
        choices=("PLAINTEXT", "SSL"),
    ),
    Setting(
        "tidelog.metrics.credentials.file",
        "string",
        None,
        "The file with the credentials for the metrics, in one line: `user:password` (HTTP Basic)"
        " or a token (Bearer). `/healthz` needs none. Default: no credentials.",
    ),
    Setting(
        "tidelog.log.format",
        "string",
        "text",
        "The format of a broker's log: lines of text, or one JSON object per line.",
        choices=("text", "json"),
        importance=LOW,
    ),
    Setting(
        "tidelog.controlled.shutdown.timeout.ms",
        "long",
        300_000,
        "How long a stopping broker waits for other brokers to take over its leaderships.",
        "ms",
        0,
    ),
    Setting(
        "tidelog.scrub.max.bytes.per.second",
        "long",
        8_388_608,
        "How many bytes of its segments a broker reads per second to verify their checksums;"
        " 0: none.",
        "bytes",
        0,
    ),
    Setting(
        "tidelog.scrub.interval.ms",
        "long",
        604_800_000,
        "How long after a pass over all segments the next pass starts.",
        "ms",
        1000,
    ),
    Setting(
        "tidelog.high.watermark.linger.ms",
        "int",
        5,
        "How long a leader delays a response that only carries a new high watermark to a"
        " follower. New records carry it too.",
        "ms",
        0,
    ),
    Setting(
        "tidelog.produced.records.check",
        "boolean",
        False,
        "Decompress every produced batch and check each record, as Kafka does. If false, a batch is"
        " refused only if its header or framing shows that no client can decompress it.",
        note="A batch of a hundred records then takes 0.15 ms longer.",
        importance=LOW,
    ),
    Setting(
        "tidelog.partitions.at.once",
        "int",
        16,
        "How many logs are created, deleted or given another leader before requests are served"
        " again. More create a topic of thousands of partitions sooner, but delay other"
        " requests longer.",
        "",
        1,
    ),
    Setting(
        "tidelog.clock.hold.ms",
        "long",
        86_400_000,
        "How long the machine's clock must run without a jump of more than a minute to be"
        " trusted. Until then, the age of records, producer ids and offsets is computed from"
        " the earlier of the clock and the last confirmed time.",
        "ms",
        0,
        note="0 trusts every clock, as Kafka does.",
    ),
    Setting(
        "tidelog.busy.poll.us",
        "int",
        100,
        "How long a broker that has served a small request polls for the next one before it"
        " sleeps, while this is worth it: a sleeping core wakes up late. 0: not at all.",
        "us",
        0,
        1_000_000,
        importance=LOW,
    ),
    Setting(
        "tidelog.request.receive.timeout.ms",
        "int",
        60_000,
        "How long a client may take to send one request. After that its connection is closed;"
        " -1: no limit.",
        "ms",
        -1,
    ),
    Setting(
        "tidelog.max.in.flight.requests.per.connection",
        "int",
        128,
        "How many requests of one connection may be in progress. The next request is read when"
        " the first one is answered.",
        "requests",
        1,
    ),
    Setting(
        "tidelog.queued.max.response.bytes",
        "long",
        268_435_456,
        "Memory for responses that clients do not read. Beyond it, the connection with the"
        " most unread bytes is closed; -1: no limit.",
        "bytes",
        -1,
    ),
    Setting(
        "tidelog.loss.topic.enable", "boolean", True, "Whether brokers write losses to a topic."
    ),
    Setting(
        "tidelog.fault.switches",
        "boolean",
        False,
        "Whether the internal listener accepts requests to inject faults, for `tidelog verify`.",
        importance=LOW,
    ),
)

_TOPICS = (
    Setting(
        "auto.create.topics.enable",
        "boolean",
        True,
        "Whether a topic is created when a client requests metadata of a missing one.",
        importance=HIGH,
    ),
    Setting(
        "default.replication.factor",
        "int",
        1,
        "The replication factor of topics that are created without one.",
        "replicas",
        1,
        32_767,
        note="`tidelog up` sets 3.",
    ),
    Setting(
        "delete.topic.enable",
        "boolean",
        True,
        "Whether topics can be deleted.",
        importance=HIGH,
    ),
    Setting(
        "num.partitions",
        "int",
        1,
        "The partition count of topics that are created without one.",
        "partitions",
        1,
    ),
)


_THROTTLES = (
    Setting(
        "follower.replication.throttled.rate",
        "long",
        None,
        "The largest rate at which replicas in `follower.replication.throttled.replicas` fetch"
        " while they are not in sync.",
        "bytes a second",
        0,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "leader.replication.throttled.rate",
        "long",
        None,
        "The largest rate at which leaders in `leader.replication.throttled.replicas` send records"
        " to replicas that are not in sync.",
        "bytes a second",
        0,
        dynamic=CLUSTER_WIDE,
    ),
    Setting(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "long",
        None,
        "The largest rate at which this broker copies logs that move between its log directories.",
        "bytes a second",
        0,
        dynamic=CLUSTER_WIDE,
    ),
)


def unit_of(name: str) -> str:
    """The unit at the end of a setting's name (`log.retention.hours`)."""
    return name.rpartition(".")[2]


_NO_DEFAULT = ("log.flush.interval.ms",)
"""Broker settings that Kafka shows without a default; the topic's default is never."""


def _topic_defaults() -> Iterator[Setting]:
    """The broker settings behind topic settings. Of several names for one time, the last has
    Kafka's default; the first can be changed at run time."""
    for topic, names in SYNONYMS.items():
        row = TOPIC[topic]
        for name in names:
            made = row._replace(name=name, dynamic=CLUSTER_WIDE if name == names[0] else READ_ONLY)
            if len(names) > 1:
                factor = UNIT_MS[unit_of(name)]
                made = made._replace(
                    type="long" if factor == 1 else "int",
                    unit=unit_of(name),
                    default=row.default // factor  # type: ignore[operator]
                    if name == names[-1]
                    else None,
                )
            yield made._replace(default=None) if name in _NO_DEFAULT else made


SECTIONS: dict[str, tuple[Setting, ...]] = {
    "Identity and addresses": _PLACE,
    "Topics": _TOPICS,
    "Defaults for topics": tuple(sorted(_topic_defaults())),
    "Replication": (*_REPLICATION, *_THROTTLES),
    "Cluster": _CLUSTER,
    "Consumer groups": GROUPS,
    "Transactions": (*TRANSACTIONS, *VERIFICATION),
    "Network": _NETWORK,
    "TLS": TLS,
    "Authorisation": AUTHORIZATION,
    "SASL": SASL,
    "Log maintenance": (*_UPKEEP, *_CLEANER),
    "Tidelog's own": _OWN,
}

BROKER: dict[str, Setting] = {row.name: row for rows in SECTIONS.values() for row in rows}


CONNECTION_RATE = "max.connection.creation.rate"
_OF_LISTENER = "listener.name."


def connection_rate_listener(name: str) -> str | None:
    """Return NAME of `listener.name.NAME.max.connection.creation.rate`; None for another name."""
    if not name.startswith(_OF_LISTENER):
        return None
    rest = name.removeprefix(_OF_LISTENER)
    listener = rest.removesuffix(f".{CONNECTION_RATE}")
    return listener if listener and listener != rest else None


def broker_setting(name: str) -> Setting | None:
    """A row of this table, also for one listener (`listener.name.NAME.ssl.…`), or one of Kafka's
    settings without effect; None if unknown."""
    found = BROKER.get(name)
    if found is None and (of_listener := listener_key(name)) is not None:
        return TLS_KEYS[of_listener[1]]._replace(name=name)
    if found is None and (key := sasl_listener_key(name)) is not None:
        return SASL_KEYS[key]._replace(name=name)
    if found is None and connection_rate_listener(name) is not None:
        return BROKER[CONNECTION_RATE]._replace(name=name)
    if found is None:
        from tidelog.core.settings.ignored_keys import IGNORED

        found = IGNORED.get(name)
    return found
