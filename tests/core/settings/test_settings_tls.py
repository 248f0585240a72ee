"""The settings of TLS: which listeners use it, and what is refused."""

import pytest

from tidelog.core.settings.broker_settings import (
    Entry,
    InvalidSettings,
    Layer,
    resolve,
    settings_of,
)
from tidelog.core.settings.listeners import PLAINTEXT, SSL
from tidelog.core.settings.tls import listener_key, pem_lines

KEY = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "key.pem"}
NODE = {"node.id": "1"}
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nabc\ndef=\n-----END CERTIFICATE-----"


@pytest.mark.parametrize(
    ("texts", "protocols"),
    [
        ({}, [PLAINTEXT, PLAINTEXT]),
        ({"listeners": "SSL://localhost:1"}, [SSL, PLAINTEXT]),
        ({"listeners": "SSL://example.org:1"}, [SSL, SSL]),
        (
            {"listeners": "SSL://example.org:1", "security.inter.broker.protocol": "PLAINTEXT"},
            [SSL, PLAINTEXT],
        ),
        ({"security.inter.broker.protocol": "SSL"}, [PLAINTEXT, SSL]),
        ({"listeners": "SSL://:1", "inter.broker.listener.name": "SSL"}, [SSL, SSL]),
        (
            {
                "listeners": "IN://h:1,OUT://h:2",
                "inter.broker.listener.name": "IN",
                "listener.security.protocol.map": "in:ssl,out:plaintext",
            },
            [PLAINTEXT, SSL],
        ),
        (
            {"listeners": "A://h:1", "listener.security.protocol.map": "A:SSL"},
            [SSL, SSL],
        ),
    ],
)
def test_each_listener_has_a_protocol(texts: dict[str, str], protocols: list[str]) -> None:
    settings = settings_of({**NODE, **KEY, **texts})
    every = (*settings.listeners.clients, settings.internal_listener)
    assert [settings.protocol(one) for one in every] == protocols


def test_a_listener_may_have_its_own_key() -> None:
    settings = settings_of(
        {
            **NODE,
            **KEY,
            "listeners": "SSL://h:1,OUT://h:2",
            "listener.security.protocol.map": "OUT:SSL",
            "listener.name.out.ssl.keystore.location": "out.pem",
            "listener.name.out.ssl.enabled.protocols": "TLSv1.3",
        }
    )
    first, second = (settings.tls(one) for one in settings.listeners.clients)
    assert (first.keystore, second.keystore) == ("key.pem", "out.pem")
    assert (len(first.versions), second.versions) == (2, ("TLSv1.3",))


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({}, "the listener SSL uses SSL: set ssl.keystore.location"),
        (
            {"ssl.keystore.location": "/etc/kafka.keystore.jks"},
            "keytool -importkeystore -srckeystore /etc/kafka.keystore.jks -destkeystore"
            " /etc/kafka.keystore.p12 -deststoretype PKCS12 && openssl pkcs12 -in"
            " /etc/kafka.keystore.p12 -out /etc/kafka.keystore.pem -nodes`, and set"
            " ssl.keystore.type=PEM",
        ),
        (
            {**KEY, "ssl.truststore.location": "ca.p12", "ssl.truststore.type": "PKCS12"},
            "`openssl pkcs12 -in ca.p12 -out ca.pem -nodes -nokeys`",
        ),
        ({**KEY, "ssl.keystore.key": CERTIFICATE}, "not both"),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.key": CERTIFICATE},
            "ssl.keystore.certificate.chain must be set together",
        ),
        ({**KEY, "ssl.client.auth": "required"}, "needs ssl.truststore.location"),
        ({**KEY, "ssl.client.auth": "always"}, "must be one of none, requested, required"),
        ({**KEY, "ssl.enabled.protocols": "TLSv1.1"}, "may contain only TLSv1.2 and TLSv1.3"),
        ({**KEY, "ssl.enabled.protocols": ""}, "ssl.enabled.protocols must name a version"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(texts: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidSettings) as raised:
        settings_of({**NODE, "listeners": "SSL://localhost:9092", **texts})
    assert reason in str(raised.value)


def test_settings_without_a_listener_that_uses_them_cause_a_warning() -> None:
    entries = [Entry(name, text, "file") for name, text in {**NODE, **KEY}.items()]
    [warning] = resolve([Layer("file", entries)]).warnings
    assert warning.startswith("no listener uses SSL")
    assert "ssl.keystore.location" in warning


def test_secrets_are_not_shown() -> None:
    settings = settings_of(
        {
            **NODE,
            **KEY,
            "listeners": "SSL://localhost:1",
            "ssl.key.password": "hush",
        }
    )
    assert "hush" not in repr(settings.tls(settings.listener))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("listener.name.out.ssl.keystore.key", ("out", "ssl.keystore.key")),
        ("listener.name.out.ssl.unknown", None),
        ("listener.name.out.sasl.jaas.config", None),
        ("ssl.keystore.key", None),
    ],
)
def test_the_names_of_a_listeners_own_settings(name: str, found: tuple[str, str] | None) -> None:
    assert listener_key(name) == found


@pytest.mark.parametrize(
    "text",
    [
        CERTIFICATE,
        "-----BEGIN CERTIFICATE----- abc def= -----END CERTIFICATE-----",
        CERTIFICATE.replace("\n", "\\n"),
    ],
)
def test_pem_in_one_line_is_accepted(text: str) -> None:
    assert pem_lines(text) == CERTIFICATE


def test_a_chain_in_one_line_is_accepted() -> None:
    line = CERTIFICATE.replace("\n", " ")
    assert pem_lines(f"{line} {line}") == f"{CERTIFICATE}\n{CERTIFICATE}"


# -- metrics -------------------------------------------------------------------------------

METRICS = {**NODE, "tidelog.metrics.listener": "0.0.0.0:1"}
OVER_TLS = {**METRICS, "tidelog.metrics.security.protocol": "SSL"}
OWN_KEY = {f"listener.name.metrics.{name}": text for name, text in KEY.items()}


def warnings(texts: dict[str, str]) -> str:
    entries = [Entry(name, text, name) for name, text in texts.items()]
    return "\n".join(resolve([Layer("test", entries)]).warnings)


def test_metrics_have_own_keys_or_those_of_all_listeners() -> None:
    for texts in ({**OVER_TLS, **OWN_KEY}, {**OVER_TLS, **KEY}):
        settings = settings_of(texts)
        assert settings.metrics_use_tls
        assert settings.metrics_listener is not None
        assert settings.tls(settings.metrics_listener).keystore == "key.pem"
        assert "no listener uses SSL" not in warnings(texts)
    assert not settings_of(METRICS).metrics_use_tls
    assert not settings_of({**NODE, "tidelog.metrics.security.protocol": "SSL"}).metrics_use_tls


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (OVER_TLS, "the metrics use SSL: set listener.name.metrics.ssl.keystore.location"),
        ({**OVER_TLS, "tidelog.metrics.security.protocol": "SASL_SSL"}, "must be one of"),
        ({**METRICS, **OWN_KEY}, "listener.name.metrics.ssl.keystore"),
    ],
)
def test_metrics_without_a_key_are_refused(texts: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidSettings, match=reason):
        settings_of(texts)


@pytest.mark.parametrize(
    ("texts", "warning"),
    [
        (METRICS, "other machines can read the metrics at 0.0.0.0"),
        (
            {**METRICS, "tidelog.metrics.credentials.file": "f"},
            "other machines can read the password of the metrics",
        ),
        ({**OVER_TLS, **OWN_KEY}, "every machine that reaches 0.0.0.0 gets the metrics"),
        ({**OVER_TLS, **OWN_KEY, "tidelog.metrics.credentials.file": "f"}, None),
        (
            {
                **OVER_TLS,
                **OWN_KEY,
                "listener.name.metrics.ssl.client.auth": "required",
                "listener.name.metrics.ssl.truststore.type": "PEM",
                "listener.name.metrics.ssl.truststore.location": "ca.pem",
            },
            None,
        ),
        ({**METRICS, "tidelog.metrics.listener": "127.0.0.1:1"}, None),
        ({**METRICS, "tidelog.metrics.listener": "[::1]:1"}, None),
    ],
)
def test_metrics_for_other_machines_are_warned_about(
    texts: dict[str, str], warning: str | None
) -> None:
    found = warnings(texts)
    if warning is None:
        assert "metrics" not in found
    else:
        assert warning in found
