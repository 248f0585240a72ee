"""Every setting of a broker that Tidelog heeds, by what it is about.

Defaults are those of Kafka 4.x; a note says where not. A broker's defaults for topics are
made from the topics' own rows, so that the two never differ.
"""

from collections.abc import Iterator

from tidelog.core.settings.cleaner_keys import CLEANER
from tidelog.core.settings.group_keys import GROUPS
from tidelog.core.settings.running_keys import CLUSTER, NETWORK, REPLICATION, UPKEEP
from tidelog.core.settings.setting import CLUSTER_WIDE, HIGH, LOW, READ_ONLY, Setting
from tidelog.core.settings.topic_keys import SYNONYMS, TOPIC

UNIT_MS = {"ms": 1, "minutes": 60_000, "hours": 3_600_000}

_PLACE = (
    Setting(
        "node.id",
        "int",
        None,
        "The broker's number in the cluster. It must be set, here or as `broker.id`.",
        least=0,
        importance=HIGH,
        note="`tidelog up` numbers its brokers from 1.",
    ),
    Setting("broker.id", "int", None, "The older name of `node.id`.", least=0, importance=HIGH),
    Setting(
        "broker.rack",
        "string",
        None,
        "Where the broker stands: replicas of a partition are spread over racks, and consumers"
        " may read from their own.",
    ),
    Setting(
        "listeners",
        "list",
        ("PLAINTEXT://localhost:9092",),
        "Where clients connect, as NAME://host:port. Without a host on every address; port 0"
        " takes a free one.",
        importance=HIGH,
        note="Kafka listens on every address by default, Tidelog on this machine only. One"
        " listener for clients. Those of `controller.listener.names` are left out.",
    ),
    Setting(
        "advertised.listeners",
        "list",
        None,
        "Where clients are told to connect, if that differs from `listeners`.",
        importance=HIGH,
    ),
    Setting(
        "controller.listener.names",
        "list",
        (),
        "Names in `listeners` that are not for clients.",
        importance=HIGH,
        note="They are not opened: Tidelog's controller needs no listener of its own.",
    ),
    Setting(
        "listener.security.protocol.map",
        "list",
        (),
        "What each listener speaks, as NAME:PROTOCOL.",
        importance=LOW,
        note="PLAINTEXT only so far.",
    ),
    Setting(
        "log.dirs",
        "list",
        None,
        "The folder for the partitions' files.",
        importance=HIGH,
        note="One folder.",
    ),
    Setting(
        "log.dir",
        "string",
        None,
        "The same, if `log.dirs` is not set.",
        importance=HIGH,
        note="Default: tidelog-data/broker-<node.id> in the current folder.",
    ),
)

_OWN = (
    Setting(
        "tidelog.metadata.store",
        "string",
        None,
        "Where the cluster keeps its metadata, as sqlite:PATH. The brokers of one cluster name"
        " the same file. Default: cluster.db beside the log folder.",
        importance=HIGH,
    ),
    Setting(
        "tidelog.internal.listener",
        "string",
        "127.0.0.1:0",
        "Where other brokers connect, as host:port.",
    ),
    Setting(
        "tidelog.metrics.listener",
        "string",
        None,
        "Where Prometheus asks for `/metrics`, as host:port; port 0 takes a free one. Empty:"
        " nowhere. There is no password: keep it on this machine or behind a firewall.",
        note="`tidelog up` sets 127.0.0.1:0. A port that is set there is the first broker's, the"
        " others follow.",
    ),
    Setting(
        "tidelog.log.format",
        "string",
        "text",
        "How a broker's log is written: lines for people, or a JSON object on each line.",
        choices=("text", "json"),
        importance=LOW,
    ),
    Setting(
        "tidelog.controlled.shutdown.timeout.ms",
        "long",
        300_000,
        "How long a broker that stops waits for others to take over what it leads.",
        "ms",
        0,
    ),
    Setting(
        "tidelog.scrub.max.bytes.per.second",
        "long",
        8_388_608,
        "How much of its segments a broker reads each second to check their checksums; 0: never.",
        "bytes",
        0,
    ),
    Setting(
        "tidelog.scrub.interval.ms",
        "long",
        604_800_000,
        "How long after a pass over all segments the next one begins.",
        "ms",
        1000,
    ),
    Setting(
        "tidelog.high.watermark.linger.ms",
        "int",
        5,
        "How long a leader puts off telling a follower of a new high watermark: the next"
        " records tell it as well.",
        "ms",
        0,
    ),
    Setting(
        "tidelog.produced.records.check",
        "boolean",
        False,
        "Decompress every produced batch and check each record, as Kafka does. If false, a batch is"
        " refused only if its header or framing shows that no client can decompress it.",
        note="A batch of a hundred records then takes 0.15 ms more.",
        importance=LOW,
    ),
    Setting(
        "tidelog.partitions.at.once",
        "int",
        16,
        "How many logs are made, dropped or given another leader before requests are served"
        " again. More make a topic of thousands sooner, and let others wait for longer.",
        "",
        1,
    ),
    Setting(
        "tidelog.clock.hold.ms",
        "long",
        86_400_000,
        "How long the machine's clock must run without a jump of more than a minute to be trusted."
        " Until then records, producer ids and offsets age by the earlier of the clock and the last"
        " confirmed time.",
        "ms",
        0,
        note="0 trusts every clock, as Kafka does.",
    ),
    Setting(
        "tidelog.busy.poll.us",
        "int",
        100,
        "How long a broker that has served a small request looks for the next one before it sleeps,"
        " while that pays: a sleeping core wakes late. 0 is not at all.",
        "us",
        0,
        1_000_000,
        importance=LOW,
    ),
    Setting(
        "tidelog.request.receive.timeout.ms",
        "int",
        60_000,
        "A request that has begun must have come to its end after so long, else its connection is"
        " closed; -1 is never.",
        "ms",
        -1,
    ),
    Setting(
        "tidelog.max.in.flight.requests.per.connection",
        "int",
        128,
        "How many requests of one connection are worked on; the next one is read when the first is"
        " answered.",
        "requests",
        1,
    ),
    Setting(
        "tidelog.queued.max.response.bytes",
        "long",
        268_435_456,
        "How much memory answers take that clients have asked for and do not read. Past it the"
        " connection with the most of them is closed; -1 is no limit.",
        "bytes",
        -1,
    ),
    Setting(
        "tidelog.fault.switches",
        "boolean",
        False,
        "Let the internal listener take orders to fail on purpose, for `tidelog verify`.",
        importance=LOW,
    ),
)

_TOPICS = (
    Setting(
        "auto.create.topics.enable",
        "boolean",
        True,
        "Make a topic when a client asks for one that is not there.",
        importance=HIGH,
    ),
    Setting(
        "default.replication.factor",
        "int",
        1,
        "How many replicas a partition gets when nobody says.",
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
        "How many partitions a topic gets when nobody says.",
        "partitions",
        1,
    ),
)


def _throttle(name: str, what: str) -> Setting:
    return Setting(
        name,
        "long",
        None,
        f"How fast {what} may go, set by Kafka's reassignment tool.",
        "bytes a second",
        0,
        dynamic=CLUSTER_WIDE,
        heeded=False,
    )


_THROTTLES = (
    _throttle("follower.replication.throttled.rate", "following of throttled replicas"),
    _throttle("leader.replication.throttled.rate", "leading of throttled replicas"),
    _throttle("replica.alter.log.dirs.io.max.bytes.per.second", "moving between folders"),
)


def unit_of(name: str) -> str:
    """The unit at the end of a time's name: one time may have several names."""
    return name.rpartition(".")[2]


_NO_DEFAULT = ("log.flush.interval.ms",)
"""Kafka shows none for the broker; the topic's is never."""


def _topic_defaults() -> Iterator[Setting]:
    """Of several names for one time the last holds Kafka's default; the first is dynamic."""
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
    "Who and where": _PLACE,
    "Topics": _TOPICS,
    "Defaults for topics": tuple(sorted(_topic_defaults())),
    "Replication": REPLICATION,
    "Cluster": CLUSTER,
    "Consumer groups": GROUPS,
    "Network": NETWORK,
    "Upkeep of logs": (*UPKEEP, *CLEANER),
    "Tidelog's own": _OWN,
    "Kept without effect": _THROTTLES,
}

BROKER: dict[str, Setting] = {row.name: row for rows in SECTIONS.values() for row in rows}


def broker_setting(name: str) -> Setting | None:
    """A setting of the table, or one of Kafka's that is kept without effect."""
    found = BROKER.get(name)
    if found is None:
        from tidelog.core.settings.ignored_keys import IGNORED

        found = IGNORED.get(name)
    return found
