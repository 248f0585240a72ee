"""Kafka's security settings of a client, as librdkafka's settings."""

from collections.abc import Iterator, Mapping

from tidelog.core.sasl.mechanism import OAUTHBEARER
from tidelog.core.settings.jaas import parse_jaas
from tidelog.core.settings.setting import WrongValue
from tidelog.core.settings.tls import pem_lines

_SAME = ("security.protocol", "sasl.username", "sasl.password", "ssl.key.password")
_UNKNOWN = ("ssl.cipher.suites", "ssl.enabled.protocols")
"""librdkafka has no setting of the same meaning. A wider choice would be a weaker connection."""


def librdkafka_security(texts: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's settings. Invariant: `texts` were accepted by `read_security`.

    Raises WrongValue for a setting that librdkafka can't have.
    """
    for name in _UNKNOWN:
        if texts.get(name):
            raise WrongValue(f"{name} can't be used with librdkafka; use --client own")
    if _mechanism(texts) == OAUTHBEARER:  # librdkafka names the sources of tokens differently
        raise WrongValue(f"{OAUTHBEARER} can't be used with librdkafka; use --client own")
    return dict(_settings(texts))


def _mechanism(texts: Mapping[str, str]) -> str:
    return (texts.get("sasl.mechanism") or texts.get("sasl.mechanisms") or "").strip()


def _settings(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name in _SAME:
        if texts.get(name):
            yield name, texts[name].strip()
    if _mechanism(texts):
        yield "sasl.mechanism", _mechanism(texts)
    if texts.get("sasl.jaas.config"):
        module = parse_jaas(texts["sasl.jaas.config"])
        yield from {"sasl.username": module.user, "sasl.password": module.password}.items()
    if texts.get("ssl.truststore.location"):
        yield "ssl.ca.location", texts["ssl.truststore.location"].strip()
    if texts.get("ssl.truststore.certificates"):
        yield "ssl.ca.pem", pem_lines(texts["ssl.truststore.certificates"])
    if texts.get("ssl.keystore.location"):  # one file has the key and its certificates
        yield "ssl.key.location", texts["ssl.keystore.location"].strip()
        yield "ssl.certificate.location", texts["ssl.keystore.location"].strip()
    if texts.get("ssl.keystore.key"):
        yield "ssl.key.pem", pem_lines(texts["ssl.keystore.key"])
        yield "ssl.certificate.pem", pem_lines(texts["ssl.keystore.certificate.chain"])
    algorithm = texts.get("ssl.endpoint.identification.algorithm")
    if algorithm is not None:
        yield "ssl.endpoint.identification.algorithm", algorithm.strip() or "none"
