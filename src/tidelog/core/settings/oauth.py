"""The values of the settings of SASL OAUTHBEARER: how brokers check tokens, and where clients and
brokers get theirs.

A broker reads them for all listeners, for one listener (`listener.name.NAME.sasl.…`), and for the
mechanism on it (`listener.name.NAME.oauthbearer.sasl.…`). A client reads those about its token.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tidelog.core.sasl.access_token import TokenRules, UnsecuredRules
from tidelog.core.settings.jaas import LoginModule
from tidelog.core.settings.oauth_keys import (
    AUDIENCE,
    CLIENT_ID,
    CLIENT_SECRET,
    HANDLER,
    ISSUER,
    KEYS_URL,
    REFRESH,
    RETRY,
    RETRY_MAX,
    SCOPE,
    SCOPE_CLAIM,
    SKEW,
    SUBJECT_CLAIM,
    TOKEN_URL,
    UNSECURED_HANDLER,
    URLENCODE,
)
from tidelog.core.settings.setting import Value, WrongValue, parse
from tidelog.core.settings.tls import TLS_KEYS, TlsSettings, read_tls

_LOOPBACK = r"localhost|\[::1\]|127(\.[0-9]{1,3}){3}"
_EXTENSION = "extension_"
_VALIDATOR = "unsecuredValidator"
_VALIDATOR_OPTIONS = (
    f"{_VALIDATOR}PrincipalClaimName",
    f"{_VALIDATOR}ScopeClaimName",
    f"{_VALIDATOR}RequiredScope",
    f"{_VALIDATOR}AllowableClockSkewMs",
)


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
    options = _options(module)
    unsecured = _unsecured(options) if get(HANDLER) == UNSECURED_HANDLER else None
    url = _text(get(KEYS_URL))
    if unsecured is None and not url:
        raise WrongValue(
            f"the listener {listener} allows OAUTHBEARER: set {KEYS_URL} to the keys of the"
            " identity provider, as https://… or file:///…"
        )
    if url:
        check_url(url, KEYS_URL)
    audiences = get(AUDIENCE)
    assert isinstance(audiences, tuple)
    rules = TokenRules(
        audiences,
        _text(get(ISSUER)) or None,
        _text(get(SUBJECT_CLAIM)),
        _text(get(SCOPE_CLAIM)),
        _number(get(SKEW)),
    )
    if not rules.subject_claim or not rules.scope_claim:
        raise WrongValue(f"{SUBJECT_CLAIM} and {SCOPE_CLAIM} must not be empty")
    return OauthSettings(
        url,
        _number(get(REFRESH)),
        _number(get(RETRY)),
        _number(get(RETRY_MAX)),
        rules,
        _tls(options),
        unsecured,
    )


def read_token_source(get: Callable[[str], Value], module: LoginModule | None) -> TokenSource:
    """Read where a client gets its token. Raises WrongValue."""
    from tidelog.core.sasl.oauthbearer import check_extension

    options = _options(module)
    url = _text(get(TOKEN_URL))
    if not url:
        raise WrongValue(
            f"OAUTHBEARER needs a token: set {TOKEN_URL} to the token endpoint of the identity"
            " provider (https://…) or to a file with a token (file:///…)"
        )
    check_url(url, TOKEN_URL)
    client_id = _text(get(CLIENT_ID)) or options.get("clientId", "")
    secret = _text(get(CLIENT_SECRET)) or options.get("clientSecret", "")
    if file_of(url) is None and not (client_id and secret):
        raise WrongValue(
            f"the token endpoint needs a client id and a secret: set {CLIENT_ID} and"
            f" {CLIENT_SECRET}, or clientId and clientSecret in sasl.jaas.config"
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
        _text(get(SCOPE)) or options.get("scope", ""),
        bool(get(URLENCODE)),
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


def _options(module: LoginModule | None) -> Mapping[str, str]:
    """Return the options of a login module. Raises WrongValue if one that protects is unknown: it
    would have no effect."""
    options = {} if module is None else module.options
    known = (*TLS_KEYS, *_VALIDATOR_OPTIONS)
    for name in options:
        if name.startswith(("ssl.", _VALIDATOR)) and name not in known:
            from difflib import get_close_matches

            near = get_close_matches(name, known, n=1, cutoff=0.8)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise WrongValue(f"the option {name} of sasl.jaas.config is unknown{hint}")
    return options


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
