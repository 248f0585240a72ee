"""DescribeConfigs and IncrementalAlterConfigs: settings shown and changed while brokers run."""

from typing import Any

import pytest
from api_cluster import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
    ApiCluster,
)

from tidelog.core.controller.events import AlterConfigReceived
from tidelog.core.errors import ErrorCode

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC_CONFIG, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT = 1, 2, 3, 4, 5


@pytest.fixture
def cluster() -> ApiCluster:
    cluster = ApiCluster(brokers=(1, 2)).start_all()
    cluster.create("orders", configs={"retention.ms": "1000"})
    return cluster


def describe(
    cluster: ApiCluster,
    kind: int,
    name: str,
    *names: str,
    broker: int = 1,
    version: int = 4,
    synonyms: bool = True,
    documented: bool = False,
) -> Any:
    """Return the settings of the only result, by name."""
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": names or None}
    asked = {
        "resources": [resource],
        "include_synonyms": synonyms,
        "include_documentation": documented,
    }
    [result] = cluster.request(broker, DESCRIBE_CONFIGS, asked, version)["results"]
    assert (result["resource_type"], result["resource_name"]) == (kind, name)
    result["configs"] = {config["name"]: config for config in result["configs"]}
    return result


def alter(
    cluster: ApiCluster,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    broker: int = 1,
    validate_only: bool = False,
) -> ErrorCode:
    resource = {
        "resource_type": kind,
        "resource_name": name,
        "configs": [
            {"name": key, "config_operation": operation, "value": value}
            for key, operation, value in changes
        ],
    }
    asked = {"resources": [resource], "validate_only": validate_only}
    [result] = cluster.request(broker, INCREMENTAL_ALTER_CONFIGS, asked)["responses"]
    assert (result["resource_type"], result["resource_name"]) == (kind, name)
    assert bool(result["error_message"]) == (result["error_code"] != ErrorCode.NONE)
    cluster.settle()
    return ErrorCode(result["error_code"])


def value_of(cluster: ApiCluster, key: str, kind: int = TOPIC, name: str = "orders") -> Any:
    config = describe(cluster, kind, name, key)["configs"].get(key)
    return None if config is None else (config["value"], config["config_source"])


# -- DescribeConfigs -----------------------------------------------------------------------


def test_describe_a_topic(cluster: ApiCluster) -> None:
    cluster.texts["log.retention.hours"] = "2"
    result = describe(cluster, TOPIC, "orders")
    assert result["error_code"] == ErrorCode.NONE
    retention = result["configs"]["retention.ms"]
    assert retention["value"] == "1000"
    assert retention["config_source"] == TOPIC_CONFIG
    assert retention["config_type"] == 5
    assert retention["read_only"] is False
    assert retention["documentation"] is None
    behind = [(s["name"], s["value"], s["source"]) for s in retention["synonyms"]]
    assert behind[0] == ("retention.ms", "1000", TOPIC_CONFIG)
    assert ("log.retention.hours", "2", STATIC) in behind
    assert result["configs"]["cleanup.policy"]["config_type"] == 7
    assert result["configs"]["preallocate"]["config_type"] == 1
    assert result["configs"]["segment.bytes"]["config_source"] == DEFAULT


def test_describe_only_requested_names(cluster: ApiCluster) -> None:
    result = describe(
        cluster, TOPIC, "orders", "retention.ms", "nonsense", synonyms=False, documented=True
    )
    assert list(result["configs"]) == ["retention.ms"]
    assert result["configs"]["retention.ms"]["synonyms"] == []
    assert result["configs"]["retention.ms"]["documentation"]


def test_empty_list_of_names_means_all_names(cluster: ApiCluster) -> None:
    resource = {"resource_type": TOPIC, "resource_name": "orders", "configuration_keys": []}
    asked = {"resources": [resource], "include_synonyms": False}
    [result] = cluster.request(1, DESCRIBE_CONFIGS, asked)["results"]
    assert len(result["configs"]) == len(describe(cluster, TOPIC, "orders")["configs"])


def test_repeated_resource_is_described_once(cluster: ApiCluster) -> None:
    def asked(name: str, *keys: str) -> dict[str, Any]:
        return {"resource_type": BROKER, "resource_name": name, "configuration_keys": [*keys]}

    request = {"include_synonyms": True, "include_documentation": True}
    many = {**request, "resources": [asked("1")] * 1000}
    [found] = cluster.request(1, DESCRIBE_CONFIGS, many)["results"]
    [alone] = cluster.request(1, DESCRIBE_CONFIGS, {**many, "resources": [asked("1")]})["results"]
    assert found == alone
    two = [asked("1", "log.dirs"), asked("1", "node.id")]
    [found] = cluster.request(1, DESCRIBE_CONFIGS, {**request, "resources": two})["results"]
    assert {each["name"] for each in found["configs"]} == {"log.dirs", "node.id"}
    all_and_one = [asked("1", "log.dirs"), asked("1")]
    [found] = cluster.request(1, DESCRIBE_CONFIGS, {**request, "resources": all_and_one})["results"]
    assert found == alone
    other_spellings = [asked("01"), asked("0000000001"), asked("00000000012")]
    refused = cluster.request(1, DESCRIBE_CONFIGS, {**request, "resources": other_spellings})
    assert {each["error_code"] for each in refused["results"]} == {ErrorCode.INVALID_REQUEST}


def test_describe_a_broker(cluster: ApiCluster) -> None:
    cluster.texts["log.segment.bytes"] = "2000000"
    result = describe(cluster, BROKER, "2", broker=2)
    segment = result["configs"]["log.segment.bytes"]
    assert (segment["value"], segment["config_source"]) == ("2000000", STATIC)
    assert [s["source"] for s in segment["synonyms"]] == [STATIC, DEFAULT]
    assert segment["read_only"] is False
    assert result["configs"]["node.id"]["value"] == "2"
    assert result["configs"]["node.id"]["read_only"] is True


def test_default_broker_resource_shows_only_changed_settings(cluster: ApiCluster) -> None:
    assert describe(cluster, BROKER, "")["configs"] == {}
    assert alter(cluster, BROKER, "", ("log.retention.ms", SET, "5000")) is ErrorCode.NONE
    assert set(describe(cluster, BROKER, "", broker=2)["configs"]) == {"log.retention.ms"}
    assert value_of(cluster, "log.retention.ms", BROKER, "1") == ("5000", DYNAMIC_DEFAULT)


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "no where", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (BROKER, "²", ErrorCode.INVALID_REQUEST),
        (LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "m", ErrorCode.INVALID_REQUEST),
        (GROUP, "g", ErrorCode.INVALID_REQUEST),
        (99, "g", ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_resources_are_not_described(
    cluster: ApiCluster, kind: int, name: str, error: ErrorCode
) -> None:
    result = describe(cluster, kind, name)
    assert result["error_code"] == error
    assert result["error_message"]
    assert result["configs"] == {}


# -- IncrementalAlterConfigs ---------------------------------------------------------------


def test_set_and_unset(cluster: ApiCluster) -> None:
    changes = (("retention.ms", SET, " 2000 "), ("segment.bytes", SET, "3000000"))
    assert alter(cluster, TOPIC, "orders", *changes, broker=2) is ErrorCode.NONE
    assert value_of(cluster, "retention.ms") == ("2000", TOPIC_CONFIG)
    assert value_of(cluster, "segment.bytes") == ("3000000", TOPIC_CONFIG)
    assert alter(cluster, TOPIC, "orders", ("retention.ms", DELETE, None)) is ErrorCode.NONE
    assert value_of(cluster, "retention.ms") == ("604800000", DEFAULT)
    assert value_of(cluster, "segment.bytes") == ("3000000", TOPIC_CONFIG)


def test_append_to_and_subtract_from_list_settings(cluster: ApiCluster) -> None:
    def policy(operation: int, text: str) -> Any:
        assert (
            alter(cluster, TOPIC, "orders", ("cleanup.policy", operation, text)) is ErrorCode.NONE
        )
        return value_of(cluster, "cleanup.policy")

    assert policy(APPEND, "compact") == ("delete,compact", TOPIC_CONFIG), "from the default"
    assert policy(APPEND, "compact") == ("delete,compact", TOPIC_CONFIG)
    assert policy(SUBTRACT, "delete") == ("compact", TOPIC_CONFIG)
    assert policy(SUBTRACT, "compact,delete") == ("", TOPIC_CONFIG), "then nothing is removed"
    assert policy(APPEND, "delete") == ("delete", TOPIC_CONFIG), "not from the default"


def test_a_change_reaches_the_logs(cluster: ApiCluster) -> None:
    leader = cluster.nodes[1].image.partition("orders", 0)
    assert leader is not None
    assert leader.leader is not None
    name = next(iter(cluster.nodes[leader.leader].replicas))
    alter(cluster, TOPIC, "orders", ("retention.ms", SET, "77"))
    assert cluster.replica(leader.leader, name).log.config.retention_ms == 77
    alter(cluster, TOPIC, "orders", ("retention.ms", DELETE, None))
    alter(cluster, BROKER, "", ("log.retention.ms", SET, "88"))
    assert cluster.replica(leader.leader, name).log.config.retention_ms == 88


def test_validate_only_changes_nothing(cluster: ApiCluster) -> None:
    change = ("retention.ms", SET, "2000")
    assert alter(cluster, TOPIC, "orders", change, validate_only=True) is ErrorCode.NONE
    assert value_of(cluster, "retention.ms") == ("1000", TOPIC_CONFIG)


def test_alter_one_broker(cluster: ApiCluster) -> None:
    assert alter(cluster, BROKER, "2", ("log.retention.ms", SET, "9"), broker=2) is ErrorCode.NONE
    config = describe(cluster, BROKER, "2", "log.retention.ms", broker=2)["configs"]
    assert config["log.retention.ms"]["config_source"] == DYNAMIC_BROKER
    assert value_of(cluster, "log.retention.ms", BROKER, "1") != ("9", DYNAMIC_BROKER)


def test_deleting_unset_throttles_succeeds(cluster: ApiCluster) -> None:
    throttles = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
    changes = [(name, DELETE, None) for name in throttles]
    assert alter(cluster, BROKER, "1", *changes) is ErrorCode.NONE


def test_deleting_an_unset_setting_changes_nothing(cluster: ApiCluster) -> None:
    revision = cluster.store.revision
    for key in ("some.plugin.setting", "node.id"):
        assert alter(cluster, BROKER, "", (key, DELETE, None)) is ErrorCode.NONE
    assert cluster.store.revision == revision, "nothing was written"


@pytest.mark.parametrize(
    ("kind", "name", "change", "error"),
    [
        (TOPIC, "nowhere", ("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "no where", ("retention.ms", SET, "1"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "orders", ("no.such.thing", SET, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "orders", ("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "orders", ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, "orders", ("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "orders", ("cleanup.policy", APPEND, "shred"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "orders", ("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "", ("node.id", SET, "7"), ErrorCode.INVALID_REQUEST),
        (BROKER, "", ("no.such.thing", SET, "7"), ErrorCode.INVALID_REQUEST),
        (BROKER, "", ("log.retention.ms", SET, "soon"), ErrorCode.INVALID_REQUEST),
        (BROKER, "2", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("min.insync.replicas", SET, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "", ("retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (GROUP, "g", ("x", SET, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_changes_are_refused(
    cluster: ApiCluster,
    kind: int,
    name: str,
    change: tuple[str, int, str | None],
    error: ErrorCode,
) -> None:
    before = dict(cluster.nodes[1].image.configs)
    assert alter(cluster, kind, name, change) is error
    assert cluster.nodes[1].image.configs == before


def test_duplicate_change_is_refused(cluster: ApiCluster) -> None:
    change = ("retention.ms", SET, "5")
    assert alter(cluster, TOPIC, "orders", change, change) is ErrorCode.INVALID_REQUEST
    configs = [{"name": "retention.ms", "config_operation": SET, "value": "5"}]
    resource = {"resource_type": TOPIC, "resource_name": "orders", "configs": configs}
    asked = {"resources": [resource, resource], "validate_only": False}
    [result] = cluster.request(1, INCREMENTAL_ALTER_CONFIGS, asked)["responses"]
    assert result["error_code"] == ErrorCode.INVALID_REQUEST
    assert value_of(cluster, "retention.ms") == ("1000", TOPIC_CONFIG)


def test_each_resource_succeeds_or_fails_separately(cluster: ApiCluster) -> None:
    configs = [{"name": "retention.ms", "config_operation": SET, "value": "5"}]
    resources = [
        {"resource_type": TOPIC, "resource_name": name, "configs": configs}
        for name in ("orders", "nowhere")
    ]
    asked = {"resources": resources, "validate_only": False}
    results = cluster.request(2, INCREMENTAL_ALTER_CONFIGS, asked)["responses"]
    assert [ErrorCode(result["error_code"]) for result in results] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_concurrent_appends_to_a_list_are_all_applied(cluster: ApiCluster) -> None:
    key = "follower.replication.throttled.replicas"

    def appended(broker: int, text: str) -> int:
        change = AlterConfigReceived(0, "orders", {}, appended={key: text})
        return cluster.ask(broker, change)

    asked = [appended(1, "0:1"), appended(2, "0:2"), appended(1, "0:1")]
    cluster.run_until(lambda: all(number in cluster.answers for number in asked))
    assert [cluster.answers[number].error for number in asked] == [ErrorCode.NONE] * 3
    cluster.settle()
    value, _ = value_of(cluster, key)
    assert sorted(value.split(",")) == ["0:1", "0:2"]


def test_change_without_effect_writes_nothing(cluster: ApiCluster) -> None:
    assert alter(cluster, TOPIC, "orders") is ErrorCode.NONE
    assert alter(cluster, TOPIC, "nowhere") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    revision = cluster.store.revision
    assert alter(cluster, TOPIC, "orders", ("retention.ms", SET, "1000")) is ErrorCode.NONE
    assert cluster.store.revision == revision, "it was so already"


# -- AlterConfigs --------------------------------------------------------------------------


def replace(
    cluster: ApiCluster,
    kind: int,
    name: str,
    configs: dict[str, str | None],
    *,
    broker: int = 1,
    validate_only: bool = False,
) -> ErrorCode:
    listed = [{"name": key, "value": value} for key, value in configs.items()]
    resource = {"resource_type": kind, "resource_name": name, "configs": listed}
    asked = {"resources": [resource], "validate_only": validate_only}
    [result] = cluster.request(broker, ALTER_CONFIGS, asked)["responses"]
    assert bool(result["error_message"]) == (result["error_code"] != ErrorCode.NONE)
    cluster.settle()
    return ErrorCode(result["error_code"])


def test_alter_configs_replaces_all_settings_of_a_topic(cluster: ApiCluster) -> None:
    alter(cluster, TOPIC, "orders", ("segment.ms", SET, "70"), ("retention.ms", SET, "80"))
    wanted: dict[str, str | None] = {"retention.ms": "90", "segment.bytes": "3000000"}
    assert replace(cluster, TOPIC, "orders", wanted, validate_only=True) is ErrorCode.NONE
    assert value_of(cluster, "segment.ms") == ("70", TOPIC_CONFIG)
    assert replace(cluster, TOPIC, "orders", wanted, broker=2) is ErrorCode.NONE
    assert value_of(cluster, "retention.ms") == ("90", TOPIC_CONFIG)
    assert value_of(cluster, "segment.bytes") == ("3000000", TOPIC_CONFIG)
    assert value_of(cluster, "segment.ms") == ("604800000", DEFAULT), "not named: unset"
    assert replace(cluster, TOPIC, "orders", {}) is ErrorCode.NONE
    assert value_of(cluster, "retention.ms") == ("604800000", DEFAULT)


def test_alter_configs_replaces_all_settings_of_brokers(cluster: ApiCluster) -> None:
    alter(cluster, BROKER, "", ("log.retention.ms", SET, "70"))
    assert replace(cluster, BROKER, "", {"log.segment.bytes": "3000000"}) is ErrorCode.NONE
    found = describe(cluster, BROKER, "")["configs"]
    assert {name: config["value"] for name, config in found.items()} == {
        "log.segment.bytes": "3000000"
    }
    assert replace(cluster, BROKER, "1", {"log.retention.ms": "5"}) is ErrorCode.NONE
    assert value_of(cluster, "log.retention.ms", BROKER, "1") == ("5", DYNAMIC_BROKER)


@pytest.mark.parametrize(
    ("kind", "name", "configs", "error"),
    [
        (TOPIC, "nowhere", {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "orders", {"retention.ms": None}, ErrorCode.INVALID_REQUEST),
        (TOPIC, "orders", {"retention.ms": "soon"}, ErrorCode.INVALID_CONFIG),
        (BROKER, "", {"node.id": "7"}, ErrorCode.INVALID_REQUEST),
        (BROKER, "2", {}, ErrorCode.INVALID_REQUEST),
        (LOGGER, "1", {"root": "DEBUG"}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_replacements_are_refused(
    cluster: ApiCluster, kind: int, name: str, configs: dict[str, str | None], error: ErrorCode
) -> None:
    assert replace(cluster, kind, name, configs) is error
    assert value_of(cluster, "retention.ms") == ("1000", TOPIC_CONFIG)


# -- ListConfigResources -------------------------------------------------------------------


def resources(cluster: ApiCluster, *kinds: int, version: int = 1) -> Any:
    asked = {"resource_types": list(kinds)}
    answer = cluster.request(1, LIST_CONFIG_RESOURCES, asked, version)
    found = [(r.get("resource_type"), r["resource_name"]) for r in answer["config_resources"]]
    return ErrorCode(answer["error_code"]), sorted(found)


def test_resources_with_settings_are_listed(cluster: ApiCluster) -> None:
    everything = [(TOPIC, "orders"), (BROKER, "1"), (BROKER, "2")]
    assert resources(cluster) == (ErrorCode.NONE, everything)
    assert resources(cluster, TOPIC, GROUP) == (ErrorCode.NONE, [(TOPIC, "orders")])
    assert resources(cluster, CLIENT_METRICS) == (ErrorCode.NONE, [])
    assert resources(cluster, version=0) == (ErrorCode.NONE, []), "client metrics only"
    assert resources(cluster, 3) == (ErrorCode.UNSUPPORTED_VERSION, [])


def test_settings_of_kafka_without_effect_are_kept_and_shown() -> None:
    """librdkafka's tests change these settings and expect to read them back."""
    cluster = ApiCluster(brokers=(1,)).start_all()
    wanted = {
        "num.io.threads": "9",
        "num.network.threads": "4",
        "background.threads": "12",
        "sasl.kerberos.min.time.before.relogin": "58000",
    }

    def alter(name: str, value: str) -> dict[str, Any]:
        change = {"name": name, "config_operation": 0, "value": value}
        resource = {"resource_type": 4, "resource_name": "1", "configs": [change]}
        request = {"resources": [resource], "validate_only": False}
        [answer] = cluster.request(1, INCREMENTAL_ALTER_CONFIGS, request)["responses"]
        return dict(answer)

    for name, value in wanted.items():
        assert alter(name, value)["error_code"] == ErrorCode.NONE
    assert alter("num.io.threads", "many")["error_code"] == ErrorCode.INVALID_REQUEST
    assert alter("process.roles", "broker")["error_code"] == ErrorCode.INVALID_REQUEST
    refused = alter("sasl.enabled.mechanisms", "PLAIN")
    assert refused["error_code"] == ErrorCode.INVALID_REQUEST
    assert "cannot be changed at run time" in refused["error_message"]
    cluster.settle()
    asked = {"resource_type": 4, "resource_name": "1", "configuration_keys": list(wanted)}
    request = {"resources": [asked], "include_synonyms": True, "include_documentation": False}
    [result] = cluster.request(1, DESCRIBE_CONFIGS, request)["results"]
    shown = {config["name"]: config for config in result["configs"]}
    assert {name: config["value"] for name, config in shown.items()} == wanted
    assert {config["config_source"] for config in shown.values()} == {2}
    assert shown["num.io.threads"]["synonyms"] == [
        {"name": "num.io.threads", "value": "9", "source": 2},
        {"name": "num.io.threads", "value": "8", "source": 5},
    ]
