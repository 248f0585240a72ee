"""Administration through kafka-python, aiokafka and librdkafka.

Every call works against real brokers, or fails at once with an error that names the missing
feature.
"""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import ScramMechanism, UserScramCredentialDeletion
from real_cluster import PATIENCE_S, admin_client, eventually, make_topic

from tidelog.shell.supervisor.cluster import LocalCluster

SCRIPT_S = 600
"""A script waits up to PATIENCE_S for each of several conditions."""
AT_ONCE_S = 45.0
"""Below the 60 s after which librdkafka gives up a request."""
DYNAMIC_TOPIC = 1


def run(script: str, *arguments: str) -> None:
    """Run a client script in its own process; fail with its error output if it fails."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name(script)), *arguments],
        capture_output=True,
        text=True,
        timeout=SCRIPT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("part", ["topics", "replicas", "settings", "what_is_not_there"])
def test_kafka_python(calm: LocalCluster, name: str, part: str) -> None:
    log_dirs = [calm.log_dir(broker) for broker in calm.ids]
    if part in ("replicas", "settings"):
        make_topic(calm.bootstrap, name, replicas=3)  # all brokers know it
    run("kafka_python_admin.py", part, calm.bootstrap, name, *log_dirs)


def test_aiokafka(calm: LocalCluster, name: str) -> None:
    run("aiokafka_admin.py", calm.bootstrap, name)


# -- librdkafka ------------------------------------------------------------------------------


def error_of(future: Any) -> KafkaError:
    began = time.monotonic()
    with pytest.raises(KafkaException) as caught:
        future.result(PATIENCE_S)
    assert time.monotonic() - began < AT_ONCE_S
    error = caught.value.args[0]
    assert isinstance(error, KafkaError)
    return error


def test_librdkafka_describes_topics(calm: LocalCluster, name: str) -> None:
    make_topic(calm.bootstrap, name, partitions=2, replicas=3)
    admin = admin_client(calm.bootstrap)
    found = admin.describe_topics(TopicCollection([name, "nowhere"]))
    assert len(found[name].result(PATIENCE_S).partitions) == 2
    assert error_of(found["nowhere"]).code() == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated:DeprecationWarning")
def test_librdkafka_replaces_settings(calm: LocalCluster, name: str) -> None:
    make_topic(calm.bootstrap, name, configs={"segment.ms": "70000"})
    admin = admin_client(calm.bootstrap)
    whole = ConfigResource(ResourceType.TOPIC, name, set_config={"retention.ms": "9000"})
    admin.alter_configs([whole])[whole].result(PATIENCE_S)
    asked = ConfigResource(ResourceType.TOPIC, name)

    def own() -> dict[str, str]:
        found = admin.describe_configs([asked])[asked].result(PATIENCE_S)
        return {key: e.value for key, e in found.items() if e.source == DYNAMIC_TOPIC}

    eventually(lambda: own() == {"retention.ms": "9000"}, "nothing else")


def test_librdkafka_gets_errors_for_missing_features(calm: LocalCluster) -> None:
    admin = admin_client(calm.bootstrap)
    acl = AclBinding(
        ResourceType.TOPIC,
        "t",
        ResourcePatternType.LITERAL,
        "User:u",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    refused = error_of(admin.create_acls([acl])[acl])
    assert refused.code() == KafkaError.SECURITY_DISABLED
    assert "no access control" in refused.str()
    group = ConfigResource(ResourceType.GROUP, "g")
    refused = error_of(admin.describe_configs([group])[group])
    assert refused.code() == KafkaError.INVALID_REQUEST
    assert "groups" in refused.str()
    deletion = UserScramCredentialDeletion("u", ScramMechanism.SCRAM_SHA_256)
    refused = error_of(admin.alter_user_scram_credentials([deletion])["u"])
    assert refused.code() == KafkaError.RESOURCE_NOT_FOUND


def test_a_client_that_authenticates_gets_an_error_at_once(calm: LocalCluster) -> None:
    errors: list[KafkaError] = []
    conf = {
        "bootstrap.servers": calm.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "p",
        "log_level": 0,
        "error_cb": errors.append,
    }
    client = Producer(conf)
    began = time.monotonic()
    while not errors and time.monotonic() - began < AT_ONCE_S:
        client.poll(0.1)
    assert errors
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "SASL" in errors[0].str()
