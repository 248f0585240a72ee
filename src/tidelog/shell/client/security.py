"""How a client protects its connections and authenticates: `security.protocol` and the settings of
TLS and SASL.

The names are those of Kafka's clients, as in the file of `--command-config`; `sasl.username` and
`sasl.password` are librdkafka's.
"""

import os
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from tidelog.core.sasl.mechanism import OAUTHBEARER
from tidelog.core.settings.listeners import PLAINTEXT, PROTOCOLS, uses_sasl, uses_tls
from tidelog.core.settings.oauth_keys import CLIENT_KEYS as OAUTH_CLIENT_KEYS
from tidelog.core.settings.oauth_keys import LOGIN_HANDLER
from tidelog.core.settings.setting import Value, WrongValue, parse
from tidelog.core.settings.tls import TLS_KEYS, read_tls

if TYPE_CHECKING:
    from ssl import SSLContext

    from tidelog.core.api.sasl_login import SaslLogin
    from tidelog.core.settings.jaas import LoginModule

PROTOCOL = "security.protocol"
MECHANISM = "sasl.mechanism"
_MECHANISMS = (MECHANISM, "sasl.mechanisms")
"""The second name is librdkafka's."""
JAAS, USER, PASSWORD = "sasl.jaas.config", "sasl.username", "sasl.password"
SASL_NAMES = (*_MECHANISMS, JAAS, USER, PASSWORD)
_KEYS = ("ssl.keystore.location", "ssl.keystore.key")
_OTHERS = ("sasl.", "ssl.")
"""Settings that would weaken or change the protection if they were ignored."""
_IGNORED = ("sasl.login.refresh.", "sasl.login.retry.")
"""When Kafka's clients fetch a token again: Tidelog's have no such choice."""


class ClientSecurity(NamedTuple):
    """Protects the connections of one client."""

    context: "Callable[[], SSLContext] | None" = None
    """The context of TLS; None without TLS."""
    new_login: "Callable[[str, str], SaslLogin] | None" = None
    """Makes the login of one connection, from its client id and the address that it connected to,
    as `host:port`; None without SASL."""
    has_credentials: bool = False
    """Whether brokers know by these settings who the client is."""

    def protect(self, sock: socket.socket, host: str) -> socket.socket:
        """Begin TLS on a connected socket. Raises OSError, with the reason as its text."""
        if self.context is None:
            return sock
        import ssl

        from tidelog.shell.net.tls_transport import reason
        from tidelog.shell.net.transport import TransportFailed

        try:
            return self.context().wrap_socket(sock, server_hostname=host)
        except ssl.SSLError as error:
            raise TransportFailed(reason(error)) from None


class SecurityTexts(NamedTuple):
    """The security settings of a client as texts, to send them to other processes.

    Invariant: `repr` shows no value, since such texts are written to logs.
    """

    texts: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"SecurityTexts({', '.join(name for name, _ in self.texts)})"

    def security(self) -> ClientSecurity | None:
        """Read the files and settings; None: plaintext. Raises WrongValue."""
        return read_security(dict(self.texts))


NO_SECURITY = SecurityTexts()


def read_security_texts(path: str) -> dict[str, str]:
    """Return the security settings in a properties file. Raises OSError, WrongValue,
    UnicodeDecodeError."""
    from tidelog.shell.settings_sources import parse_properties

    with open(path, encoding="utf-8") as file:
        texts = {name: text for _, name, text in parse_properties(file.read())}
    return {name: text for name, text in texts.items() if name.startswith((PROTOCOL, *_OTHERS))}


def read_security_file(path: str) -> ClientSecurity | None:
    """Read a properties file; None: connections are not protected. Raises WrongValue, OSError,
    UnicodeDecodeError."""
    return read_security(read_security_texts(path))


def read_security(texts: Mapping[str, str]) -> ClientSecurity | None:
    """Read the settings of a client; None: connections are not protected. Raises WrongValue."""
    protocol = texts.get(PROTOCOL, PLAINTEXT).strip().upper()
    if protocol not in PROTOCOLS:
        raise WrongValue(f"{PROTOCOL}={protocol} must be one of {', '.join(PROTOCOLS)}")
    for name in texts:
        known = name in TLS_KEYS or name in SASL_NAMES or name in OAUTH_CLIENT_KEYS
        if name.startswith(_OTHERS) and not known and not name.startswith(_IGNORED):
            raise WrongValue(f"{name} is not supported; remove it")
    if protocol == PLAINTEXT:
        return None
    context = _context(texts) if uses_tls(protocol) else None
    login = _login(texts) if uses_sasl(protocol) else None
    has_certificate = any(texts.get(name) for name in _KEYS)
    return ClientSecurity(context, login, login is not None or has_certificate)


def _context(texts: Mapping[str, str]) -> "Callable[[], SSLContext]":
    from tidelog.shell.net.tls_context import client_context

    def get(name: str) -> Value:
        row = TLS_KEYS[name]
        try:
            return parse(row, texts[name]) if name in texts else row.default
        except WrongValue as wrong:
            raise WrongValue(f"{name} {wrong}") from None

    context = client_context(read_tls(get))
    return lambda: context


def _login(texts: Mapping[str, str]) -> "Callable[[str, str], SaslLogin]":
    from tidelog.core.api.sasl_login import SaslLogin, sasl_client
    from tidelog.core.settings.jaas import check_module, parse_jaas
    from tidelog.core.settings.sasl import check_mechanism

    mechanism = next((texts[name].strip() for name in _MECHANISMS if texts.get(name)), "GSSAPI")
    check_mechanism(mechanism, MECHANISM)
    user, password = texts.get(USER, ""), texts.get(PASSWORD, "")
    module = None
    if texts.get(JAAS):
        try:
            module = parse_jaas(texts[JAAS])
            check_module(module, mechanism)
        except WrongValue as wrong:
            raise WrongValue(f"{JAAS} {wrong}") from None
        user, password = module.user, module.password
    if mechanism == OAUTHBEARER:
        return _token_login(texts, module)
    if not user or not password:
        raise WrongValue(
            f"{mechanism} needs a user and a password: set them in {JAAS}, or set {USER} and"
            f" {PASSWORD}"
        )

    def new_login(client_id: str, _address: str) -> "SaslLogin":
        return SaslLogin(mechanism, sasl_client(mechanism, user, password, os.urandom), client_id)

    return new_login


def _token_login(
    texts: Mapping[str, str], module: "LoginModule | None"
) -> "Callable[[str, str], SaslLogin]":
    """Return the logins by access tokens; the first one fetches a token."""
    from tidelog.core.api.sasl_rules import token_login
    from tidelog.core.settings.oauth import read_token_source
    from tidelog.shell.oauth.own_token import ClientToken

    def get(name: str) -> Value:
        row = OAUTH_CLIENT_KEYS[name]
        try:
            return parse(row, texts[name]) if name in texts else row.default
        except WrongValue as wrong:
            raise WrongValue(f"{name} {wrong}") from None

    source = read_token_source(get, module)
    if LOGIN_HANDLER in texts:
        get(LOGIN_HANDLER)  # raises WrongValue unless it is Kafka's own
    token = ClientToken(source)
    extensions = dict(source.extensions)
    return lambda client_id, _address: token_login(token.get(), extensions, client_id)
