"""The settings of SASL OAUTHBEARER under Kafka's names: how brokers check tokens, and where clients
and brokers get theirs.

A broker reads them for all listeners, for one listener (`listener.name.NAME.sasl.…`), and for the
mechanism on it (`listener.name.NAME.oauthbearer.sasl.…`). A client reads those about its token.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tidelog.core.sasl.access_token import TokenRules, UnsecuredRules
from tidelog.core.settings.jaas import LoginModule
from tidelog.core.settings.setting import HIGH, LOW, Setting, Value, WrongValue, parse
from tidelog.core.settings.tls import TLS_KEYS, TlsSettings, read_tls

KEYS_URL = "sasl.oauthbearer.jwks.endpoint.url"
_REFRESH = "sasl.oauthbearer.jwks.endpoint.refresh.ms"
_RETRY = "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"
_RETRY_MAX = "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"
_AUDIENCE = "sasl.oauthbearer.expected.audience"
_ISSUER = "sasl.oauthbearer.expected.issuer"
_SUBJECT_CLAIM = "sasl.oauthbearer.sub.claim.name"
_SCOPE_CLAIM = "sasl.oauthbearer.scope.claim.name"
_SKEW = "sasl.oauthbearer.clock.skew.seconds"
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
_CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
_CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"
_SCOPE = "sasl.oauthbearer.scope"
_URLENCODE = "sasl.oauthbearer.header.urlencode"
HANDLER = "sasl.server.callback.handler.class"
LOGIN_HANDLER = "sasl.login.callback.handler.class"

_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
_UNSECURED = f"{_PACKAGE}internals.unsecured."
SIGNED_HANDLER = f"{_PACKAGE}OAuthBearerValidatorCallbackHandler"
UNSECURED_HANDLER = f"{_UNSECURED}OAuthBearerUnsecuredValidatorCallbackHandler"
_HANDLERS = (
    SIGNED_HANDLER,
    f"{_PACKAGE}secured.OAuthBearerValidatorCallbackHandler",
    UNSECURED_HANDLER,
)
_LOGIN_HANDLERS = (
    f"{_PACKAGE}OAuthBearerLoginCallbackHandler",
    f"{_PACKAGE}secured.OAuthBearerLoginCallbackHandler",
)
_LOOPBACK = r"localhost|\[::1\]|127(\.[0-9]{1,3}){3}"
_EXTENSION = "extension_"
_VALIDATOR = "unsecuredValidator"

TOKEN_ROWS = (
    Setting(
        TOKEN_URL,
        "string",
        None,
        "Where a broker gets its access token for other brokers: the token endpoint of an identity"
        " provider (https://), or a file with the token (file://), which is read again before the"
        " token expires.",
    ),
    Setting(
        _CLIENT_ID,
        "string",
        None,
        "The client id for the token endpoint. The option `clientId` of `sasl.jaas.config` is the"
        " same.",
    ),
    Setting(
        _CLIENT_SECRET,
        "password",
        None,
        "The secret for the token endpoint. The option `clientSecret` of `sasl.jaas.config` is the"
        " same.",
    ),
    Setting(
        _SCOPE,
        "string",
        None,
        "The scope that is requested from the token endpoint. The option `scope` of"
        " `sasl.jaas.config` is the same.",
        importance=LOW,
    ),
)
"""The settings about the own token; clients read them too."""
HEADER_ROW = Setting(
    _URLENCODE,
    "boolean",
    False,
    "Encode client id and secret as URLs do before they are sent to the token endpoint.",
    importance=LOW,
)
OAUTH = (
    Setting(
        KEYS_URL,
        "string",
        None,
        "The keys (JWKS) by which tokens of OAUTHBEARER are checked: an https:// address of the"
        " identity provider, or a file:// one. http:// is allowed for this machine only.",
        importance=HIGH,
        note="Kafka requires its system property `org.apache.kafka.sasl.oauthbearer.allowed.urls`.",
    ),
    Setting(
        _REFRESH, "long", 3_600_000, "How often the keys are read again.", "ms", 1, importance=LOW
    ),
    Setting(
        _RETRY,
        "long",
        100,
        "How long to wait before reading the keys again after a failure; doubled each time.",
        "ms",
        1,
        importance=LOW,
    ),
    Setting(
        _RETRY_MAX,
        "long",
        10_000,
        "The longest wait after a failure. A token with an unknown key makes the broker read the"
        " keys again at most this often.",
        "ms",
        1,
        importance=LOW,
    ),
    Setting(
        _AUDIENCE,
        "list",
        (),
        "The allowed audiences: a token must have one of them in its claim `aud`. Empty: tokens"
        " with an audience are refused, as in Kafka.",
        importance=LOW,
    ),
    Setting(
        _ISSUER,
        "string",
        None,
        "The issuer that tokens must have in their claim `iss`. Empty: any.",
        importance=LOW,
    ),
    Setting(_SUBJECT_CLAIM, "string", "sub", "The claim that names the user.", importance=LOW),
    Setting(_SCOPE_CLAIM, "string", "scope", "The claim that has the scopes.", importance=LOW),
    Setting(
        _SKEW,
        "int",
        30,
        "How much the clocks of the broker and of the identity provider may differ.",
        "s",
        0,
        importance=LOW,
    ),
    *TOKEN_ROWS,
)
PREFIXED_ROWS = (
    Setting(HANDLER, "class", None, "How tokens are checked.", choices=_HANDLERS),
    Setting(LOGIN_HANDLER, "class", None, "How a token is got.", choices=_LOGIN_HANDLERS),
    HEADER_ROW,
)
"""Settings that brokers have with the prefix of OAUTHBEARER only. Two name classes of Kafka, which
stand for what a broker does without plug-ins."""
OAUTH_KEYS: dict[str, Setting] = {row.name: row for row in OAUTH}
CLIENT_KEYS: dict[str, Setting] = {row.name: row for row in (*TOKEN_ROWS, *PREFIXED_ROWS[1:])}
"""The settings that clients read."""


class OauthSettings(NamedTuple):
    """How a listener checks the tokens of OAUTHBEARER."""

    keys_url: str
    refresh_ms: int
    retry_ms: int
    retry_max_ms: int
    rules: TokenRules
    tls: TlsSettings
    """Of the connection to the identity provider."""
    unsecured: UnsecuredRules | None = None
    """The rules for tokens without signature, if the listener accepts these only."""


class TokenSource(NamedTuple):
    """Where a client gets its access token."""

    url: str
    client_id: str
    client_secret: str
    scope: str
    urlencode: bool
    extensions: tuple[tuple[str, str], ...]
    tls: TlsSettings

    def __repr__(self) -> str:
        return f"TokenSource({self.url!r}, {self.client_id!r})"


def read_oauth(
    listener: str, get: Callable[[str], Value], module: LoginModule | None
) -> OauthSettings:
    """Read how a listener checks tokens. Raises WrongValue."""
    options = {} if module is None else module.options
    unsecured = _unsecured(options) if get(HANDLER) == UNSECURED_HANDLER else None
    url = _text(get(KEYS_URL))
    if unsecured is None and not url:
        raise WrongValue(
            f"the listener {listener} allows OAUTHBEARER: set {KEYS_URL} to the keys of the"
            " identity provider, as https://… or file:///…"
        )
    if url:
        check_url(url, KEYS_URL)
    audiences = get(_AUDIENCE)
    assert isinstance(audiences, tuple)
    rules = TokenRules(
        audiences,
        _text(get(_ISSUER)) or None,
        _text(get(_SUBJECT_CLAIM)),
        _text(get(_SCOPE_CLAIM)),
        _number(get(_SKEW)),
    )
    if not rules.subject_claim or not rules.scope_claim:
        raise WrongValue(f"{_SUBJECT_CLAIM} and {_SCOPE_CLAIM} must not be empty")
    return OauthSettings(
        url,
        _number(get(_REFRESH)),
        _number(get(_RETRY)),
        _number(get(_RETRY_MAX)),
        rules,
        _tls(options),
        unsecured,
    )


def read_token_source(get: Callable[[str], Value], module: LoginModule | None) -> TokenSource:
    """Read where a client gets its token. Raises WrongValue."""
    from tidelog.core.sasl.oauthbearer import check_extension

    options = {} if module is None else module.options
    url = _text(get(TOKEN_URL))
    if not url:
        raise WrongValue(
            f"OAUTHBEARER needs a token: set {TOKEN_URL} to the token endpoint of the identity"
            " provider (https://…) or to a file with a token (file:///…)"
        )
    check_url(url, TOKEN_URL)
    client_id = _text(get(_CLIENT_ID)) or options.get("clientId", "")
    secret = _text(get(_CLIENT_SECRET)) or options.get("clientSecret", "")
    if file_of(url) is None and not (client_id and secret):
        raise WrongValue(
            f"the token endpoint needs a client id and a secret: set {_CLIENT_ID} and"
            f" {_CLIENT_SECRET}, or clientId and clientSecret in sasl.jaas.config"
        )
    extensions = {
        name.removeprefix(_EXTENSION): value
        for name, value in options.items()
        if name.startswith(_EXTENSION)
    }
    for name, value in extensions.items():
        if (problem := check_extension(name, value)) is not None:
            raise WrongValue(f"the option {_EXTENSION}{name} of sasl.jaas.config {problem}")
    return TokenSource(
        url,
        client_id,
        secret,
        _text(get(_SCOPE)) or options.get("scope", ""),
        bool(get(_URLENCODE)),
        tuple(extensions.items()),
        _tls(options),
    )


def check_url(url: str, setting: str) -> None:
    """Raise WrongValue if keys or tokens can't be read from this address safely."""
    from re import fullmatch

    scheme, separator, rest = url.partition(":")
    if scheme == "file" and separator:
        if not (file_of(url) or "").startswith("/"):
            raise WrongValue(f"{setting}={url} must have an absolute path: file:///PATH")
        return
    host = rest.removeprefix("//").partition("/")[0]
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    if scheme not in ("http", "https") or not rest.startswith("//") or not name or "@" in host:
        raise WrongValue(f"{setting}={url} must be https://HOST/… or file:///PATH")
    if scheme == "http" and not fullmatch(_LOOPBACK, name):
        raise WrongValue(
            f"{setting}={url} must use https: who can change what is sent could log in as any user"
        )


def file_of(url: str) -> str | None:
    """Return the path of a file:// address; None for another one."""
    if not url.startswith("file:"):
        return None
    from urllib.parse import unquote

    path = url.removeprefix("file:")
    if path.startswith("//"):
        host, slash, rest = path.removeprefix("//").partition("/")
        path = slash + rest if host in ("", "localhost") else ""
    return unquote(path)


def _unsecured(options: Mapping[str, str]) -> UnsecuredRules:
    def option(name: str, default: str) -> str:
        return options.get(f"{_VALIDATOR}{name}", "").strip() or default

    name = "AllowableClockSkewMs"
    skew = option(name, "0")
    if not (skew.isascii() and skew.isdigit() and len(skew) < 10):
        raise WrongValue(
            f"the option {_VALIDATOR}{name} of sasl.jaas.config must be a whole number"
        )
    return UnsecuredRules(
        option("PrincipalClaimName", "sub"),
        option("ScopeClaimName", "scope"),
        tuple(option("RequiredScope", "").split()),
        int(skew),
    )


def _tls(options: Mapping[str, str]) -> TlsSettings:
    """Read the options `ssl.…` of a login module, as Kafka does for its identity provider."""

    def get(name: str) -> Value:
        row = TLS_KEYS[name]
        return parse(row, options[name]) if name in options else row.default

    return read_tls(get)


def _text(value: Value) -> str:
    return "" if value is None else str(value).strip()


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value
