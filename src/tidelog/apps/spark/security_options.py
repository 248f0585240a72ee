"""The options with which a Spark job encrypts its connections and authenticates.

They are Kafka's client settings with the prefix `kafka.`: `security.protocol`, `sasl.…`, `ssl.…`.
Driver and executors read them from the options themselves, so each has the same ones.
"""

from collections.abc import Mapping

from tidelog.core.settings.listeners import PLAINTEXT
from tidelog.core.settings.oauth_keys import CLIENT_KEYS as OAUTH_CLIENT_KEYS
from tidelog.core.settings.setting import WrongValue
from tidelog.core.settings.tls import TLS_KEYS
from tidelog.shell.client.security import (
    JAAS,
    PASSWORD,
    PROTOCOL,
    SASL_NAMES,
    SecurityTexts,
)

_OF_BROKERS = ("ssl.client.auth", "ssl.principal.mapping.rules")
NAMES = (
    PROTOCOL,
    *SASL_NAMES,
    *OAUTH_CLIENT_KEYS,
    *(name for name in TLS_KEYS if name not in _OF_BROKERS),
)
REDACTED = "*********(redacted)"
"""The text that Spark itself shows instead of a secret."""
SECRET_NAMES = "jaas|password|secret|keystore[.]key|certificate"
"""Names of options whose values plans and logs must not show, for
`spark.sql.redaction.options.regex`. Spark by itself knows `password`, not the inline keys."""
_PREFIX = "kafka."
_OF_SECURITY = ("sasl", "ssl", "tls", "jaas", "security")
_ROWS = (*TLS_KEYS.values(), *OAUTH_CLIENT_KEYS.values())
_SECRETS = frozenset({JAAS, PASSWORD, *(row.name for row in _ROWS if row.type == "password")})


def security_options(settings: Mapping[str, str]) -> SecurityTexts:
    """Select the security settings from a client's settings. Raises WrongValue.

    A setting that looks like one and is unknown is rejected: if it were ignored, a connection could
    be less protected than its user believes.
    """
    found = {}
    for name, text in settings.items():
        if name in NAMES:
            found[name] = text
        elif any(word in name for word in _OF_SECURITY):
            raise WrongValue(f"{name} is not supported; remove it")
    if found and PROTOCOL not in found:
        names = ", ".join(sorted(found))
        raise WrongValue(
            f"{PROTOCOL} is missing, so {names} would have no effect; set it to SSL,"
            f" SASL_SSL or SASL_PLAINTEXT (or to {PLAINTEXT})"
        )
    options = SecurityTexts(tuple(sorted(found.items())))
    options.security()
    return options


def spark_options(texts: Mapping[str, str]) -> dict[str, str]:
    """Return client settings, as in a file of `--command-config`, as options of the format."""
    return {_PREFIX + name: text for name, text in texts.items()}


def security_names(options: Mapping[str, str]) -> list[str]:
    """Return the names of the options that are about security, as they are written."""
    return [name for name in options if name.lower().removeprefix(_PREFIX) in NAMES]


def redacted(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options without the values of secrets, to show them."""
    return {
        name: REDACTED if name.lower().removeprefix(_PREFIX) in _SECRETS else text
        for name, text in options.items()
    }
