"""Layers of settings: precedence, refused values, and reporting all problems at once."""

import pytest

from tidelog.core.settings.broker_settings import (
    Entry,
    InvalidSettings,
    Layer,
    Source,
    resolve,
    settings_of,
)

NODE = {"node.id": "1"}


def layer(kind: str, **texts: str) -> Layer:
    names = {name.replace("_", "."): text for name, text in texts.items()}
    return Layer(kind, [Entry(name, text, f"{kind}:{name}") for name, text in names.items()])


def problems(**texts: str) -> dict[str, str]:
    with pytest.raises(InvalidSettings) as raised:
        resolve([layer("file", **{"node_id": "1", **texts})])
    return {problem.name: problem.reason for problem in raised.value.problems}


def test_the_last_layer_wins_and_is_the_source() -> None:
    settings = resolve(
        [
            layer("tidelog up", node_id="1", num_partitions="2", min_insync_replicas="2"),
            layer("file", num_partitions="3", broker_rack="a"),
            layer("command line", num_partitions="4"),
        ]
    ).settings
    assert settings.get("num.partitions") == 4
    assert settings.source("num.partitions") == Source(
        "command line", "command line:num.partitions"
    )
    assert settings.source("broker.rack").kind == "file"
    assert settings.source("min.insync.replicas").kind == "tidelog up"
    assert settings.source("log.dirs") == Source("default")
    assert settings.get("default.replication.factor") == 1
    assert settings.overrides() == {
        "broker.rack": "a",
        "min.insync.replicas": "2",
        "node.id": "1",
        "num.partitions": "4",
    }


def test_invalid_value_in_a_lower_layer_does_not_matter() -> None:
    layers = [layer("file", node_id="one"), layer("command line", node_id="1")]
    assert resolve(layers).settings.node_id == 1


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(InvalidSettings) as raised:
        resolve([layer("file", num_partitions="0", log_dirs="a,b,a/", delete_topic_enable="no")])
    assert str(raised.value).splitlines() == [
        "file:num.partitions: num.partitions=0: must be at least 1 (partitions)",
        "file:delete.topic.enable: delete.topic.enable=no: must be true or false",
        "settings: node.id: every broker needs its own id; set node.id",
        "file:log.dirs: log.dirs=a,b,a/: a is named twice; name each log directory once",
    ]


def test_an_unknown_name_in_a_program_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        settings_of(NODE).get("num.partition")


def test_unknown_keys_warn() -> None:
    texts = {"num_io_threads": "8", "ssl_provider": "x", "log_retension_ms": "1"}
    warnings = resolve([layer("file", node_id="1", colour="blue", **texts)]).warnings
    assert warnings == [
        "settings of Kafka without effect in Tidelog: num.io.threads, ssl.provider",
        "file:colour: unknown setting colour",
        "file:log.retension.ms: unknown setting log.retension.ms; did you mean log.retention.ms?",
    ]


PROTECTING = {
    "principal.builder.class": "com.example.Builder",
    "create.topic.policy.class.name": "com.example.Policy",
    "delegation.token.secret.key": "hush",
    "sasl.oauthbearer.jwt.validator.class": "com.example.Strict",
    "sasl.oauthbearer.expected.issuers": "https://issuer.example",
}


@pytest.mark.parametrize("name", PROTECTING)
def test_a_setting_that_protects_kafka_is_refused(name: str) -> None:
    """A broker that ignored it would be open to every client, contrary to its file."""
    with pytest.raises(InvalidSettings) as raised:
        settings_of({"node.id": "1", name: PROTECTING[name]})
    [problem] = raised.value.problems
    assert problem.name == name
    assert ", and the broker would run unprotected" in problem.reason


def test_a_secret_is_not_repeated() -> None:
    with pytest.raises(InvalidSettings) as raised:
        settings_of(
            {
                "node.id": "1",
                "delegation.token.secret.key": "hush",
                "listener.name.out.oauthbearer.sasl.jaas.config": "hush",
            }
        )
    assert len(raised.value.problems) == 2
    assert "hush" not in str(raised.value)


def test_security_setting_at_its_default_is_allowed() -> None:
    nothing = {
        "security.inter.broker.protocol": "PLAINTEXT",
        "sasl.enabled.mechanisms": "",
        "ssl.client.auth": "none",
        "connections.max.reauth.ms": "0",
        "ssl.endpoint.identification.algorithm": "",
        "sasl.kerberos.service.name": "kafka",
        "sasl.oauthbearer.expected.audiences": "",
        "sasl.oauthbearer.jwt.validator.class": "org.apache.kafka.common.security.oauthbearer"
        ".DefaultJwtValidator",
    }
    assert settings_of({"node.id": "1", **nothing}).node_id == 1


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_encrypted_controllers_need_encrypted_brokers(protocol: str) -> None:
    """Tidelog's controllers use the connections between brokers."""
    texts = {
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:{protocol}",
    }
    with pytest.raises(InvalidSettings, match=f"CONTROLLER uses {protocol}"):
        settings_of({"node.id": "1", **texts})


def test_protocols_of_missing_listeners_do_not_matter() -> None:
    texts = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL"}
    assert settings_of({"node.id": "1", **texts}).listener.name == "PLAINTEXT"


def test_single_unknown_key_warns() -> None:
    assert len(resolve([layer("file", node_id="1", colour="blue")]).warnings) == 1


def test_min_isr_above_the_replication_factor_warns() -> None:
    layers = [layer("file", node_id="1", default_replication_factor="2", min_insync_replicas="3")]
    assert "min.insync.replicas is 3" in resolve(layers).warnings[0]


def test_node_id_and_its_older_name() -> None:
    assert settings_of({"broker.id": "0"}).node_id == 0
    assert settings_of({"broker.id": "3", "node.id": "3"}).node_id == 3
    assert problems(broker_id="3") == {
        "node.id": "node.id is 1 and broker.id is 3; set one of them"
    }


def test_log_dir() -> None:
    assert settings_of(NODE).log_dir == "tidelog-data/broker-1"
    assert settings_of({**NODE, "log.dir": "/a"}).log_dir == "/a"
    assert settings_of({**NODE, "log.dir": "/a", "log.dirs": "/b"}).log_dir == "/b"
    several = settings_of({**NODE, "log.dirs": "/b, /c"})
    assert (several.log_dir, several.log_dirs) == ("/b", ["/b", "/c"])


@pytest.mark.parametrize(
    ("log_dir", "store"),
    [
        ("tidelog-data/broker-1", "sqlite:tidelog-data/cluster.db"),
        ("/data/broker-1/", "sqlite:/data/cluster.db"),
        ("logs", "sqlite:cluster.db"),
    ],
)
def test_default_store_is_next_to_the_log_dir(log_dir: str, store: str) -> None:
    assert settings_of({**NODE, "log.dirs": log_dir}).metadata_store == store


def test_configured_metadata_store() -> None:
    named = {**NODE, "tidelog.metadata.store": "sqlite:/a/b.db"}
    assert settings_of(named).metadata_store == "sqlite:/a/b.db"
    for wrong in ("/a/b.db", "sqlite:", "zookeeper:1", "etcd:h1:2379/p"):
        assert problems(tidelog_metadata_store=wrong) == {
            "tidelog.metadata.store": "must be sqlite:PATH or etcd://HOST:PORT,HOST:PORT/PREFIX"
        }
    for url in ("etcd://h1:2379,h2:2379/p", "etcds://user@h1:2379/p"):
        assert settings_of({**named, "tidelog.metadata.store": url}).metadata_store == url


@pytest.mark.parametrize(
    ("texts", "milliseconds"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "5"}, 5),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "", "log.retention.minutes": "1"}, 60_000),
    ],
)
def test_times_with_several_names(texts: dict[str, str], milliseconds: int) -> None:
    assert settings_of({**NODE, **texts}).topic_default("retention.ms") == milliseconds


def test_topic_defaults() -> None:
    settings = settings_of({**NODE, "message.max.bytes": "7", "log.roll.jitter.hours": "1"})
    assert settings.topic_default("max.message.bytes") == 7
    assert settings.topic_default("segment.jitter.ms") == 3_600_000
    assert settings.topic_default("segment.ms") == 604_800_000
    assert settings.topic_default("delete.retention.ms") == 86_400_000


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        ({"broker_heartbeat_interval_ms": "8100"}, "broker.heartbeat.interval.ms"),
        ({"broker_session_timeout_ms": "1000"}, "broker.session.timeout.ms"),
        ({"replica_lag_time_max_ms": "499"}, "replica.lag.time.max.ms"),
        ({"replica_socket_timeout_ms": "499"}, "replica.socket.timeout.ms"),
        ({"replica_fetch_wait_max_ms": "30001"}, "replica.fetch.wait.max.ms"),
        ({"tidelog_internal_listener": ":0"}, "tidelog.internal.listener"),
        ({"tidelog_internal_listener": "localhost"}, "tidelog.internal.listener"),
        ({"listeners": "CONTROLLER://:1", "controller_listener_names": "controller"}, "listeners"),
        ({"advertised_listeners": "PLAINTEXT://:9092"}, "advertised.listeners"),
        ({"replica_selector_class": "org.example.Mine"}, "replica.selector.class"),
    ],
)
def test_contradicting_settings_are_refused(texts: dict[str, str], names: str) -> None:
    assert list(problems(**texts)) == [names]


def test_one_wrong_value_is_one_problem() -> None:
    """Rules that need an unreadable value are not checked."""
    assert list(problems(replica_lag_time_max_ms="soon", log_dirs="a,,b")) == [
        "replica.lag.time.max.ms",
        "log.dirs",
    ]


def test_faster_heartbeats_for_a_shorter_session() -> None:
    short = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
    assert settings_of({**NODE, **short}).get("broker.session.timeout.ms") == 2000
