"""The tables of settings compared with the documentation of Kafka 4.3.1."""

from pathlib import Path
from typing import NamedTuple

import pytest

from tidelog.core.settings.broker_keys import BROKER
from tidelog.core.settings.ignored_keys import IGNORED
from tidelog.core.settings.setting import READ_ONLY, spell
from tidelog.core.settings.tls import TLS_KEYS
from tidelog.core.settings.topic_keys import TOPIC

DATA = Path(__file__).parents[2] / "data" / "kafka-4.3.1" / "settings.tsv"


class Row(NamedTuple):
    resource: str
    name: str
    type: str
    default: str
    change: str


ROWS = [
    Row(*line.split("\t")) for line in DATA.read_text().splitlines() if not line.startswith("#")
]
KAFKA = {
    kind: {row.name: row for row in ROWS if row.resource == kind} for kind in ("broker", "topic")
}

OTHER_DEFAULT = {
    "broker.heartbeat.interval.ms": "a machine that can only send is fenced sooner",
    "listeners": "this machine only",
    "broker.id": "-1 is Kafka's way to say none",
    "listener.security.protocol.map": "a listener that is not in it has the protocol of its name",
    "log.flush.scheduler.interval.ms": "so that flush.ms holds",
    "queued.max.request.bytes": "memory is bounded unless somebody wants it otherwise",
    "replica.fetch.max.bytes": "more than one batch of a busy producer at a time",
    "sasl.server.max.receive.size": "no Kerberos tickets",
    "socket.listen.backlog.size": "many clients may come at once",
    "socket.receive.buffer.bytes": "the system chooses",
    "socket.send.buffer.bytes": "the system chooses",
}
OTHER_TYPE = {"listener.security.protocol.map", "log.dir"}
NOT_DYNAMIC_HERE = {
    "listener.security.protocol.map",
    "listeners",
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "producer.id.expiration.ms",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "sasl.mechanism.inter.broker.protocol",
    "transaction.partition.verification.enable",
    *TLS_KEYS,
} - {"ssl.principal.mapping.rules"}
NOT_SHOWN_BY_KAFKA = {
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "producer.id.expiration.check.interval.ms",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}


OF_THE_AUTHORIZER = {"allow.everyone.if.no.acl.found", "super.users"}
"""Settings of Kafka's StandardAuthorizer, which the documentation of brokers does not list."""
PROPOSED_IN_KIP_966 = {"unclean.recovery.strategy", "unclean.recovery.timeout.ms"}


def test_every_name_of_kafkas_is_known() -> None:
    assert set(KAFKA["topic"]) == set(TOPIC)
    assert set(KAFKA["broker"]) <= {*BROKER, *IGNORED}
    assert set(IGNORED) <= set(KAFKA["broker"])


def test_every_name_is_kafkas_or_marked_as_our_own() -> None:
    own = {name for name in BROKER if not name.startswith("tidelog.")} - set(KAFKA["broker"])
    assert own == NOT_SHOWN_BY_KAFKA | PROPOSED_IN_KIP_966 | OF_THE_AUTHORIZER


OURS = {"broker": {**BROKER, **IGNORED}, "topic": TOPIC}
SHARED = [row for row in ROWS if row.name in OURS[row.resource]]


@pytest.mark.parametrize("row", SHARED, ids=lambda row: f"{row.resource}:{row.name}")
def test_types_and_defaults_are_kafkas(row: Row) -> None:
    setting = OURS[row.resource][row.name]
    assert (setting.type != row.type) == (row.name in OTHER_TYPE)
    if row.default != "?":
        default = "null" if setting.default is None else spell(setting.default)
        assert (default != row.default) == (row.name in OTHER_DEFAULT)
    ours = "read-only" if setting.dynamic == READ_ONLY else "dynamic"
    assert (ours != row.change) == (row.name in NOT_DYNAMIC_HERE)
