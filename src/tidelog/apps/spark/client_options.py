"""Options that source and sink share: their names, how to parse them, and the client's settings.

Spark passes option names in lower case; messages spell them as the documentation does. Invariant:
an unknown name is rejected, so that a typing error is never ignored.

Options with the prefix `kafka.` have the names of Kafka's client settings. Settings that Spark's
connector rejects are rejected here too. Settings that are neither read here nor about security
(`security_options`) have no effect and are logged once. Invariant:
`ClientSettings` can be pickled, so that driver and tasks use the same settings.
"""

import logging
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import NamedTuple

from tidelog.apps.spark.security_options import NAMES as SECURITY_NAMES
from tidelog.apps.spark.security_options import security_options
from tidelog.core.settings.setting import WrongValue
from tidelog.shell.client.cluster import Cluster, parse_address
from tidelog.shell.client.security import NO_SECURITY, SecurityTexts

BOOTSTRAP = "kafka.bootstrap.servers"
BOOTSTRAP_SHORT = "bootstrapServers"
CLIENT_PREFIX = "kafka."

SOURCE_OPTIONS = (
    BOOTSTRAP_SHORT,
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "isolationLevel",
    "failOnDataLoss",
    "onDataLoss",
    "dataLossPath",
    "commitToGroup",
)
"""The options of the source, besides the `kafka.` settings of the client."""

WITHOUT_MEANING = (
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "useDeprecatedOffsetFetching",
)
"""Options of Spark's connector that are accepted and have no effect."""


class OptionError(ValueError):
    """An option is missing, unknown or invalid. The text is one line."""


def reject_unknown(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raise OptionError for the first name in `given` that is not in `known`, in any case.

    Names of client settings (`kafka.`) are accepted.
    """
    spelled = {name.lower(): name for name in known}
    for name in given:
        lower = name.lower()
        if lower in spelled or lower.startswith(CLIENT_PREFIX):
            continue
        near = get_close_matches(lower, spelled, n=2, cutoff=0.7)
        hint = (
            f"did you mean {' or '.join(spelled[each] for each in near)}?"
            if near
            else "docs/reference/spark-options.md lists all options"
        )
        raise OptionError(f"{what} has no option {name!r}; {hint}")


def text_of(options: Mapping[str, str], name: str) -> str | None:
    """Return an option's text without surrounding blanks; None if the option is not set."""
    found = options.get(name.lower())
    return None if found is None else found.strip()


def positive(options: Mapping[str, str], name: str) -> int | None:
    """Return an option that is a whole number above 0; None if not set. Raises OptionError."""
    text = text_of(options, name)
    if text is None:
        return None
    if not text.isdecimal() or not 0 < int(text) < 2**63:
        raise OptionError(f"{name} is {text!r}; give a whole number above 0")
    return int(text)


def truth(options: Mapping[str, str], name: str) -> bool | None:
    """Return an option that is true or false; None if it is not set. Raises OptionError."""
    text = text_of(options, name)
    if text is None:
        return None
    if text.lower() not in ("true", "false"):
        raise OptionError(f"{name} is {text!r}; give true or false")
    return text.lower() == "true"


def one_of(options: Mapping[str, str], name: str, choices: Iterable[str]) -> str | None:
    """Return an option that is one of `choices`; None if it is not set. Raises OptionError."""
    text = text_of(options, name)
    if text is None:
        return None
    found = [choice for choice in choices if choice == text.lower()]
    if not found:
        raise OptionError(f"{name} is {text!r}; give one of {', '.join(choices)}")
    return found[0]


LOG = logging.getLogger("tidelog.spark")
CLIENT_ID = "tidelog-spark"
METADATA_AGE_MS = 1000
FETCH_BYTES = 4 * 1024 * 1024

SET_BY_OPTIONS = {
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "use commitToGroup for progress in a group",
    "interceptor.classes": "interceptors are not supported",
    "key.deserializer": "keys are binary; use functions of DataFrames",
    "value.deserializer": "values are binary; use functions of DataFrames",
    "key.serializer": "keys are written as they are; use functions of DataFrames",
    "value.serializer": "values are written as they are; use functions of DataFrames",
}
"""Settings that are rejected, as in Spark's connector, and what to do instead."""


READ_HERE = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "request.timeout.ms",
        "default.api.timeout.ms",
        "metadata.max.age.ms",
        "max.partition.fetch.bytes",
        *SECURITY_NAMES,
    }
)
READ_BY_SINK = frozenset(
    {
        "acks",
        "compression.type",
        "linger.ms",
        "batch.size",
        "max.request.size",
        "delivery.timeout.ms",
        "enable.idempotence",
        "transaction.timeout.ms",
        "transactional.id",
    }
)
READ_BY_SOURCE = frozenset({"isolation.level"})


class ClientSettings(NamedTuple):
    """The settings of a client."""

    bootstrap: str
    client_id: str = CLIENT_ID
    timeout_s: float = 10.0
    """The time limit of one request."""
    patience_s: float = 60.0
    """How long a request is retried while there is no leader or no broker."""
    metadata_age_s: float = METADATA_AGE_MS / 1000
    """How old the driver's metadata may be."""
    fetch_bytes: int = FETCH_BYTES
    security: SecurityTexts = NO_SECURITY

    def cluster(self) -> Cluster:
        """Create a client; the caller closes it. Raises OptionError: a file can't be read here."""
        try:
            security = self.security.security()
        except WrongValue as error:
            raise _wrong_security(error) from None
        return Cluster(self.bootstrap, self.client_id, self.timeout_s, security)


def client_settings(
    options: Mapping[str, str], also: frozenset[str] = READ_BY_SINK
) -> ClientSettings:
    """Return the client's settings from options with lower-case names. Raises OptionError.

    `also` are the settings that the caller reads itself; others are logged as having no effect.
    """
    given = {
        name.removeprefix(CLIENT_PREFIX): text.strip()
        for name, text in options.items()
        if name.startswith(CLIENT_PREFIX)
    }
    _reject_unsupported(given)
    found = ClientSettings(
        bootstrap=_bootstrap(options),
        client_id=given.get("client.id") or CLIENT_ID,
        timeout_s=_number(given, "request.timeout.ms", 10_000) / 1000,
        patience_s=_number(given, "default.api.timeout.ms", 60_000) / 1000,
        metadata_age_s=_number(given, "metadata.max.age.ms", METADATA_AGE_MS, least=0) / 1000,
        fetch_bytes=_number(given, "max.partition.fetch.bytes", FETCH_BYTES),
        security=_security(given),
    )
    unused = sorted(given.keys() - READ_HERE - also)
    if unused:
        names = ", ".join(CLIENT_PREFIX + name for name in unused)
        LOG.warning("these settings have no effect on tidelog's client: %s", names)
    return found


def _reject_unsupported(given: Mapping[str, str]) -> None:
    for name in given:
        if name in SET_BY_OPTIONS:
            raise OptionError(f"{CLIENT_PREFIX}{name} can't be set; {SET_BY_OPTIONS[name]}")


def _security(given: Mapping[str, str]) -> SecurityTexts:
    try:
        return security_options(given)
    except WrongValue as error:
        raise _wrong_security(error) from None


def _wrong_security(error: WrongValue) -> OptionError:
    text = str(error)
    named = text.startswith(("security.", "sasl.", "ssl."))
    return OptionError(f"{CLIENT_PREFIX if named else 'kafka.* settings: '}{text}")


def _bootstrap(options: Mapping[str, str]) -> str:
    long, short = text_of(options, BOOTSTRAP), text_of(options, BOOTSTRAP_SHORT)
    if long and short and long != short:
        raise OptionError(f"{BOOTSTRAP} and {BOOTSTRAP_SHORT} differ; give one of them")
    found = long or short
    if not found:
        raise OptionError(
            f"{BOOTSTRAP} is missing; give the addresses of brokers: host:port,host:port"
        )
    try:
        for text in found.split(","):
            if text.strip():
                parse_address(text)
    except ValueError as error:
        raise OptionError(f"{BOOTSTRAP}: {error}") from None
    return found


def _number(given: Mapping[str, str], name: str, default: int, least: int = 1) -> int:
    text = given.get(name)
    if text is None:
        return default
    if not text.isdecimal() or not least <= int(text) < 2**31:
        raise OptionError(
            f"{CLIENT_PREFIX}{name} is {text!r}; give a whole number of at least {least}"
        )
    return int(text)
