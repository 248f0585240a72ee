"""The settings of SASL for a broker's listeners, under Kafka's names.

Values for one listener, and for one mechanism on it, take precedence: `listener.name.NAME.sasl.…`
and `listener.name.NAME.MECHANISM.sasl.…`, with mechanisms in lower case.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from tidelog.core.sasl.mechanism import MECHANISMS, OAUTHBEARER, PLAIN
from tidelog.core.settings.jaas import LoginModule, check_module, module_of, parse_jaas
from tidelog.core.settings.oauth_keys import OAUTH, OAUTH_KEYS, PREFIXED_ROWS
from tidelog.core.settings.setting import HIGH, LOW, Setting, Value, WrongValue

if TYPE_CHECKING:
    from tidelog.core.settings.oauth import OauthSettings, TokenSource

ENABLED = "sasl.enabled.mechanisms"
BETWEEN_BROKERS = "sasl.mechanism.inter.broker.protocol"
JAAS = "sasl.jaas.config"
REAUTHENTICATE = "connections.max.reauth.ms"
DELAY = "connection.failed.authentication.delay.ms"
RECEIVE_SIZE = "sasl.server.max.receive.size"
_KERBEROS = "GSSAPI"

SASL = (
    Setting(
        ENABLED,
        "list",
        (_KERBEROS,),
        "The mechanisms by which clients of SASL_PLAINTEXT and SASL_SSL listeners may authenticate:"
        f" {', '.join(MECHANISMS)}.",
        importance=HIGH,
        note="Kafka's default, Kerberos, is not supported, so SASL listeners need this setting.",
    ),
    Setting(
        BETWEEN_BROKERS,
        "string",
        _KERBEROS,
        "The mechanism by which brokers authenticate to each other, if their listener uses SASL."
        " They prove the cluster's secret in any case.",
    ),
    Setting(
        JAAS,
        "password",
        None,
        "The login module of a mechanism: with PLAIN the passwords of clients, each as"
        ' `user_NAME="PASSWORD"`; `username` and `password` of this broker towards others.',
        importance=HIGH,
        note="Kafka's brokers read it only with the prefix `listener.name.NAME.MECHANISM.`.",
    ),
    Setting(
        REAUTHENTICATE,
        "long",
        0,
        "How long an authentication is valid. Clients authenticate again on the same connection"
        " before that; other connections are closed. 0: no limit.",
        "ms",
        0,
    ),
    Setting(
        DELAY,
        "int",
        100,
        "How long the response to a failed authentication is delayed. The connection is closed"
        " after it.",
        "ms",
        0,
        importance=LOW,
    ),
    Setting(
        RECEIVE_SIZE,
        "int",
        65_536,
        "The size of the largest request of an authentication, the first one of a connection or a"
        " later one.",
        "bytes",
        1024,
        note="Kafka's default is 524288, for Kerberos tickets.",
    ),
    *OAUTH,
)
_PREFIXED = tuple(row.name for row in PREFIXED_ROWS)
SASL_KEYS: dict[str, Setting] = {row.name: row for row in (*SASL, *PREFIXED_ROWS)}
_OF_LISTENER = (ENABLED, JAAS, REAUTHENTICATE, RECEIVE_SIZE, *OAUTH_KEYS, *_PREFIXED)
_OF_MECHANISM = (JAAS, REAUTHENTICATE)
_OF_OAUTHBEARER = (*_OF_MECHANISM, *OAUTH_KEYS, *_PREFIXED)
_ONLY_OF_A_MECHANISM = (JAAS, *_PREFIXED)
_LISTENER = "listener.name."


class SaslSettings(NamedTuple):
    """How the clients of one listener authenticate."""

    mechanisms: tuple[str, ...]
    modules: Mapping[str, LoginModule]
    """By mechanism; SCRAM needs one only to connect to other brokers."""
    max_reauth_ms: Mapping[str, int]
    """By mechanism; 0: an authentication is valid as long as its connection."""
    failure_delay_ms: int
    frame_max: int
    oauth: "OauthSettings | None" = None
    """How tokens are checked, if clients may authenticate by OAUTHBEARER."""

    def __repr__(self) -> str:
        return f"SaslSettings(mechanisms={self.mechanisms!r})"


def sasl_listener_key(name: str) -> str | None:
    """Return KEY for `listener.name.NAME.KEY` and `listener.name.NAME.MECHANISM.KEY`; None for
    another setting."""
    parts = split_sasl_key(name)
    return None if parts is None else parts[2]


def split_sasl_key(name: str) -> tuple[str, str, str] | None:
    """Split `listener.name.NAME.MECHANISM.KEY` into its parts, in the case that was given. The
    mechanism is empty in `listener.name.NAME.KEY`; None for another setting."""
    if not name.startswith(_LISTENER):
        return None
    rest = name.removeprefix(_LISTENER)
    for key in _OF_LISTENER:
        listener = rest.removesuffix(f".{key}")
        if listener == rest or not listener:
            continue
        first, _, mechanism = listener.rpartition(".")
        if first and mechanism.upper() in MECHANISMS:
            is_oauth = mechanism.upper() == OAUTHBEARER
            known = _OF_OAUTHBEARER if is_oauth else _OF_MECHANISM
            return (first, mechanism, key) if key in known else None
        return None if key in _ONLY_OF_A_MECHANISM else (listener, "", key)
    return None


def read_sasl(
    listener: str, get: Callable[[str], Value], given: Mapping[str, Value]
) -> SaslSettings:
    """Read the settings of one listener. Raises WrongValue if they can't be used.

    `get` returns the value of a setting, or its default; `given` has those of listeners and of
    their mechanisms, of which an empty one takes precedence too.
    """
    prefix = f"{_LISTENER}{listener.lower()}."
    value = _lookup(listener, get, given)
    mechanisms = value(ENABLED)
    assert isinstance(mechanisms, tuple)
    if not mechanisms:
        raise WrongValue(f"the listener {listener} uses SASL: set {ENABLED}")
    for mechanism in mechanisms:
        check_mechanism(mechanism, ENABLED)
    modules: dict[str, LoginModule] = {}
    for mechanism in mechanisms:
        own = f"{prefix}{mechanism.lower()}.{JAAS}"
        module = _module(own, given.get(own), mechanism) or _common_module(get(JAAS), mechanism)
        if module is not None:
            modules[mechanism] = module
        elif mechanism == PLAIN:
            raise WrongValue(
                f"the listener {listener} allows PLAIN: set {own} to"
                f' `{module_of(PLAIN)} required user_NAME="PASSWORD";`'
            )
    oauth = None
    if OAUTHBEARER in mechanisms:
        from tidelog.core.settings.oauth import read_oauth

        oauth = read_oauth(listener, lambda key: value(key, OAUTHBEARER), modules.get(OAUTHBEARER))
    return SaslSettings(
        mechanisms,
        modules,
        {mechanism: _number(value(REAUTHENTICATE, mechanism)) for mechanism in mechanisms},
        _number(get(DELAY)),
        _number(value(RECEIVE_SIZE)),
        oauth,
    )


def read_own_token(
    listener: str,
    get: Callable[[str], Value],
    given: Mapping[str, Value],
    module: LoginModule | None,
) -> "TokenSource":
    """Read where a broker gets its token for this listener of other brokers. Raises WrongValue."""
    from tidelog.core.settings.oauth import read_token_source

    value = _lookup(listener, get, given)
    return read_token_source(lambda key: value(key, OAUTHBEARER), module)


def _lookup(
    listener: str, get: Callable[[str], Value], given: Mapping[str, Value]
) -> Callable[..., Value]:
    """Return the function that finds the value of a setting: that of the mechanism on the
    listener, else of the listener, else of all."""
    prefix = f"{_LISTENER}{listener.lower()}."

    def value(key: str, mechanism: str = "") -> Value:
        for name in (f"{prefix}{mechanism.lower()}.{key}", f"{prefix}{key}"):
            if name in given:
                return given[name]
        return None if key in _PREFIXED else get(key)

    return value


def check_mechanism(mechanism: str, setting: str) -> None:
    """Raise WrongValue if a mechanism is not supported."""
    if mechanism == _KERBEROS:
        raise WrongValue(
            f"{setting}={mechanism} (Kerberos) is not supported; use {', '.join(MECHANISMS)}"
        )
    if mechanism not in MECHANISMS:
        raise WrongValue(f"{setting}={mechanism} is not supported; use {', '.join(MECHANISMS)}")


def _module(name: str, text: Value, mechanism: str) -> LoginModule | None:
    if not text:
        return None
    try:
        module = parse_jaas(str(text))
        check_module(module, mechanism)
    except WrongValue as wrong:
        raise WrongValue(f"{name} {wrong}") from None
    return module


def _common_module(text: Value, mechanism: str) -> LoginModule | None:
    """The module of the setting for all listeners, if it is one of this mechanism."""
    if not text:
        return None
    try:
        module = parse_jaas(str(text))
    except WrongValue as wrong:
        raise WrongValue(f"{JAAS} {wrong}") from None
    return module if module.name == module_of(mechanism) else None


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value
