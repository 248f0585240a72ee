"""What DescribeConfigs shows; compared with responses of Kafka 4.3.1."""

from tidelog.core.settings.broker_keys import BROKER
from tidelog.core.settings.broker_settings import settings_of
from tidelog.core.settings.described import (
    Described,
    Synonym,
    describe_broker,
    describe_cluster,
    describe_topic,
)
from tidelog.core.settings.ignored_keys import IGNORED
from tidelog.core.settings.topic_keys import TOPIC

STATIC = settings_of(
    {"node.id": "1", "log.index.interval.bytes": "512", "log.retention.hours": "24"}
)


def one(described: list[Described]) -> Described:
    (only,) = described
    return only


def topic(name: str, own: dict[str, str], cluster: dict[str, str]) -> Described:
    return one(describe_topic(own, cluster, STATIC, [name]))


def test_topics_own_value_takes_precedence() -> None:
    found = topic("min.insync.replicas", {"min.insync.replicas": "2"}, {"min.insync.replicas": "3"})
    assert found == Described(
        "min.insync.replicas",
        "2",
        3,
        1,
        False,
        False,
        (
            Synonym("min.insync.replicas", "2", 1),
            Synonym("min.insync.replicas", "3", 3),
            Synonym("min.insync.replicas", "1", 5),
        ),
        f"{TOPIC['min.insync.replicas'].doc} {TOPIC['min.insync.replicas'].note}",
    )


def test_brokers_file_is_a_synonym_of_a_topic_setting() -> None:
    found = topic("index.interval.bytes", {}, {})
    assert (found.value, found.source, found.is_default) == ("512", 4, False)
    assert found.synonyms == (
        Synonym("log.index.interval.bytes", "512", 4),
        Synonym("log.index.interval.bytes", "4096", 5),
    )


def test_hours_are_a_synonym_of_milliseconds() -> None:
    found = topic("retention.ms", {}, {})
    assert (found.value, found.source) == ("86400000", 4)
    assert found.synonyms == (
        Synonym("log.retention.hours", "24", 4),
        Synonym("log.retention.hours", "168", 5),
    )
    found = topic("retention.ms", {}, {"log.retention.ms": "7"})
    assert (found.value, found.source) == ("7", 3)


def test_setting_of_one_broker_takes_precedence_over_all_brokers() -> None:
    cluster, broker = {"log.retention.ms": "7"}, {"log.retention.ms": "8"}
    found = one(describe_topic({}, cluster, STATIC, ["retention.ms"], broker))
    assert (found.value, found.source) == ("8", 2)
    found = one(describe_broker(STATIC, broker, cluster, ["log.retention.ms"]))
    assert (found.value, found.source) == ("8", 2)
    assert found.synonyms == (
        Synonym("log.retention.ms", "8", 2),
        Synonym("log.retention.ms", "7", 3),
        Synonym("log.retention.hours", "24", 4),
        Synonym("log.retention.hours", "168", 5),
    )
    found = one(describe_broker(STATIC, {}, {}, ["log.retention.ms"]))
    assert (found.value, found.source, found.synonyms) == (None, 5, ())


def test_default_value_is_marked_as_default() -> None:
    found = topic("cleanup.policy", {}, {})
    assert (found.value, found.type, found.source, found.is_default) == ("delete", 7, 5, True)
    assert found.synonyms == (Synonym("log.cleanup.policy", "delete", 5),)


def test_setting_without_effect_is_shown_as_such() -> None:
    found = topic("remote.storage.enable", {}, {})
    assert (found.value, found.source, found.synonyms) == ("false", 5, ())
    assert found.documentation.endswith("Stored, but without effect so far.")
    found = topic("delete.retention.ms", {"delete.retention.ms": "7"}, {})
    assert (found.value, found.source) == ("7", 1)


def test_all_settings_are_shown_unless_names_are_given() -> None:
    assert [found.name for found in describe_topic({}, {}, STATIC)] == list(TOPIC)
    shown = [found.name for found in describe_broker(STATIC, {}, {})]
    assert shown == [*BROKER, *IGNORED]
    assert len(shown) >= 340, "as many as Kafka 4.3 shows"
    assert describe_topic({}, {}, STATIC, []) == []
    assert describe_topic({}, {}, STATIC, ["unheard.of"]) == []


def test_a_brokers_settings() -> None:
    found = one(describe_broker(STATIC, {}, {}, ["node.id"]))
    assert (found.value, found.type, found.source, found.read_only) == ("1", 3, 4, True)
    found = one(describe_broker(STATIC, {}, {}, ["broker.rack"]))
    assert (found.value, found.source, found.synonyms) == (None, 5, ())
    found = one(describe_broker(STATIC, {}, {}, ["listeners"]))
    assert (found.value, found.type) == ("PLAINTEXT://localhost:9092", 7)
    assert not one(describe_broker(STATIC, {}, {}, ["log.segment.bytes"])).read_only


def test_for_all_brokers_only_what_was_changed_is_shown() -> None:
    assert describe_cluster({}) == []
    found = one(describe_cluster({"log.retention.ms": "7"}))
    assert (found.name, found.value, found.source) == ("log.retention.ms", "7", 3)
    assert describe_cluster({"log.retention.ms": "7"}, ["num.partitions"]) == []


def test_a_setting_that_is_ignored_is_shown_as_kafka_shows_it() -> None:
    settings = settings_of({"node.id": "1", "num.io.threads": "16"})
    names = ["num.io.threads", "num.network.threads", "ssl.keystore.password", "process.roles"]
    found = {one.name: one for one in describe_broker(settings, {}, {}, names)}
    threads = found["num.io.threads"]
    assert (threads.value, threads.source, threads.type, threads.read_only) == ("16", 4, 3, False)
    assert threads.synonyms == (
        Synonym("num.io.threads", "16", 4),
        Synonym("num.io.threads", "8", 5),
    )
    assert threads.documentation == "Stored, but without effect so far."
    assert (found["num.network.threads"].value, found["num.network.threads"].source) == ("3", 5)
    assert found["ssl.keystore.password"].sensitive
    assert found["ssl.keystore.password"].type == 9
    assert found["process.roles"].value == ""


def test_a_sensitive_value_is_not_shown() -> None:
    own = {"ssl.truststore.password": "hush"}
    [found] = describe_broker(STATIC, own, {}, ["ssl.truststore.password"])
    assert (found.value, found.source) == (None, 2)
    assert "hush" not in str(found)


def test_topic_settings_have_the_synonyms_that_kafka_lists() -> None:
    for name in ("compression.gzip.level", "compression.lz4.level", "compression.zstd.level"):
        found = topic(name, {}, {})
        assert found.synonyms == (Synonym(name, found.value, 5),)
    for name in ("local.retention.bytes", "local.retention.ms"):
        assert topic(name, {}, {}).synonyms == (Synonym(f"log.{name}", "-2", 5),)
    assert topic("flush.ms", {}, {}).synonyms == ()
    assert topic("flush.ms", {}, {}).value == str(2**63 - 1)
    assert topic("preallocate", {}, {}).value == "false"
