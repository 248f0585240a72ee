"""The options with which Spark jobs encrypt connections and authenticate, without Spark."""

import pickle
from pathlib import Path

import pytest

from tidelog.apps.spark.client_options import OptionError, client_settings
from tidelog.apps.spark.security_options import NAMES, REDACTED, redacted, security_names
from tidelog.apps.spark.sink.write_options import write_options
from tidelog.apps.spark.source.source_options import batch_options

BROKERS = {"kafka.bootstrap.servers": "h:1"}
JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required"
    ' username="alice" password="of alice";'
)
LOGIN = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": JAAS,
}


def test_source_and_sink_protect_their_connections() -> None:
    source = batch_options({**BROKERS, **LOGIN, "subscribe": "t"}).client
    sink = write_options({**BROKERS, **LOGIN, "topic": "t"}).client
    for settings in (source, sink):
        with settings.cluster() as cluster:
            assert cluster.security is not None
            assert cluster.security.context is not None
            assert cluster.security.new_login is not None
    with client_settings(BROKERS).cluster() as cluster:
        assert cluster.security is None


def test_executors_get_the_settings_of_the_driver() -> None:
    settings = client_settings({**BROKERS, **LOGIN})
    sent = pickle.loads(pickle.dumps(settings))
    assert sent == settings
    assert hash(sent) == hash(settings)
    with sent.cluster() as cluster:
        assert cluster.security is not None
        assert cluster.security.has_credentials


def test_settings_show_no_secret() -> None:
    settings = client_settings({**BROKERS, **LOGIN})
    assert "of alice" not in repr(settings)
    assert "sasl.jaas.config" in repr(settings)
    options = write_options({**BROKERS, **LOGIN, "topic": "t"})
    assert "of alice" not in repr(options)


def test_access_tokens_are_supported() -> None:
    secret = {"kafka.sasl.oauthbearer.client.credentials.client.secret": "of spark"}
    token = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.token.endpoint.url": "https://identity.example/token",
        "kafka.sasl.oauthbearer.client.credentials.client.id": "spark",
        **secret,
    }
    settings = client_settings({**BROKERS, **token})
    assert "of spark" not in repr(settings)
    assert redacted(secret) == dict.fromkeys(secret, REDACTED)
    with settings.cluster() as cluster:
        assert cluster.security is not None
        assert cluster.security.has_credentials


def test_errors_show_no_secret() -> None:
    wrong = {**BROKERS, **LOGIN, "kafka.sasl.jaas.config": JAAS.removesuffix(";")}
    with pytest.raises(OptionError) as refused:
        client_settings(wrong)
    assert "kafka.sasl.jaas.config must have one login module that ends with" in str(refused.value)
    assert "of alice" not in str(refused.value)


def test_librdkafkas_names_of_user_and_password_work() -> None:
    names = {
        "kafka.security.protocol": "sasl_plaintext",
        "kafka.sasl.mechanisms": "PLAIN",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": "of alice",
    }
    with client_settings({**BROKERS, **names}).cluster() as cluster:
        assert cluster.security is not None
        assert cluster.security.context is None


def test_a_file_that_is_missing_on_an_executor_is_one_line(tmp_path: Path) -> None:
    certificates = tmp_path / "ca.pem"
    settings = client_settings({**BROKERS, "kafka.security.protocol": "SSL"})
    moved = dict(settings.security.texts) | {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates),
    }
    security = settings.security._replace(texts=tuple(sorted(moved.items())))
    with pytest.raises(
        OptionError, match=r"can't use .*/ca\.pem \(ssl\.truststore\.location\): No"
    ):
        settings._replace(security=security).cluster()


@pytest.mark.parametrize("name", ["kafka.sasl_mechanism", "kafka.tls.ca", "kafka.jaas.config"])
def test_unknown_names_that_look_like_security_are_rejected(name: str) -> None:
    with pytest.raises(OptionError, match=r"is not supported; remove it"):
        client_settings({**BROKERS, "kafka.security.protocol": "SSL", name: "x"})


def test_secrets_are_not_shown() -> None:
    given = {"Kafka.SASL.jaas.config": JAAS, "kafka.ssl.keystore.key": "K", "topic": "t"}
    shown = {"Kafka.SASL.jaas.config": REDACTED, "kafka.ssl.keystore.key": REDACTED, "topic": "t"}
    assert redacted(given) == shown
    assert security_names(given) == ["Kafka.SASL.jaas.config", "kafka.ssl.keystore.key"]


def test_every_name_is_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "spark-options.md").read_text()
    missing = [name for name in NAMES if f"`kafka.{name}`" not in page]
    assert missing == []
