"""The settings of TLS, for a broker's listeners and for clients, under Kafka's names.

A listener's own value, `listener.name.NAME.ssl.…`, takes precedence over `ssl.…`. Keys and
certificates are PEM, in files or in the settings themselves.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tidelog.core.settings.setting import HIGH, LOW, Setting, Value, WrongValue

PEM = "PEM"
_TYPES = ("PEM", "JKS", "PKCS12")
VERSIONS = ("TLSv1.2", "TLSv1.3")

TLS = (
    Setting(
        "ssl.keystore.type",
        "string",
        "JKS",
        "The format of `ssl.keystore.location`.",
        choices=_TYPES,
        note="Only PEM can be used.",
    ),
    Setting(
        "ssl.keystore.location",
        "string",
        None,
        "The file with the private key and its certificate chain. When it changes, new"
        " connections use the new certificate.",
        importance=HIGH,
    ),
    Setting(
        "ssl.keystore.key",
        "password",
        None,
        "The private key itself, instead of `ssl.keystore.location`.",
        importance=HIGH,
    ),
    Setting(
        "ssl.keystore.certificate.chain",
        "password",
        None,
        "The certificate chain itself, with `ssl.keystore.key`.",
        importance=HIGH,
    ),
    Setting(
        "ssl.key.password",
        "password",
        None,
        "The password of the private key.",
        importance=HIGH,
    ),
    Setting(
        "ssl.truststore.type",
        "string",
        "JKS",
        "The format of `ssl.truststore.location`.",
        choices=_TYPES,
        note="Only PEM can be used.",
    ),
    Setting(
        "ssl.truststore.location",
        "string",
        None,
        "The file with the certificates of the authorities that peers' certificates must be"
        " signed by.",
        importance=HIGH,
        note="Without it a client trusts the authorities of its operating system.",
    ),
    Setting(
        "ssl.truststore.certificates",
        "password",
        None,
        "These certificates themselves, instead of `ssl.truststore.location`.",
        importance=HIGH,
    ),
    Setting(
        "ssl.client.auth",
        "string",
        "none",
        "Whether clients must prove their identity by a certificate.",
        choices=("none", "requested", "required"),
    ),
    Setting(
        "ssl.enabled.protocols",
        "list",
        VERSIONS,
        "The allowed versions of TLS.",
        choices=VERSIONS,
    ),
    Setting(
        "ssl.cipher.suites",
        "list",
        (),
        "The allowed cipher suites, by their IANA names; empty: OpenSSL's choice.",
        importance=LOW,
        note="Suites of TLS 1.3 can't be restricted.",
    ),
    Setting(
        "ssl.endpoint.identification.algorithm",
        "string",
        "https",
        "Whether the certificate of a broker must name the host that the client connected to;"
        " empty: no.",
        choices=("https", ""),
        importance=LOW,
    ),
    Setting(
        "ssl.principal.mapping.rules",
        "string",
        "DEFAULT",
        "How the subject of a client's certificate becomes the name of its principal: the first of"
        " the rules `RULE:PATTERN/REPLACEMENT/` that fits; `DEFAULT` is the subject itself.",
        importance=LOW,
        note="Patterns are those of Python. `L` or `U` behind a rule: lower or upper case.",
    ),
)
TLS_KEYS: dict[str, Setting] = {row.name: row for row in TLS}
_OF_LISTENER = "listener.name."


class TlsSettings(NamedTuple):
    """Key, certificates and rules of one end of TLS connections. Texts are empty if not set."""

    keystore: str = ""
    key: str = ""
    chain: str = ""
    key_password: str = ""
    truststore: str = ""
    trusted: str = ""
    client_auth: str = "none"
    versions: tuple[str, ...] = VERSIONS
    ciphers: tuple[str, ...] = ()
    verify_host: bool = True
    principal_rules: str = "DEFAULT"

    @property
    def has_key(self) -> bool:
        return bool(self.keystore or self.key)

    @property
    def files(self) -> tuple[str, ...]:
        """The files that may be renewed while they are used."""
        return tuple(filter(None, (self.keystore, self.truststore)))

    def __repr__(self) -> str:
        return f"TlsSettings(keystore={self.keystore!r}, truststore={self.truststore!r})"


def listener_key(name: str) -> tuple[str, str] | None:
    """Split `listener.name.NAME.ssl.KEY` into NAME and `ssl.KEY`; None for another setting."""
    if not name.startswith(_OF_LISTENER):
        return None
    listener, dot, rest = name.removeprefix(_OF_LISTENER).partition(".ssl.")
    key = f"ssl.{rest}"
    return (listener, key) if dot and key in TLS_KEYS else None


def read_tls(get: Callable[[str], Value]) -> TlsSettings:
    """Read the settings of one listener or client. Raises WrongValue if they can't be used."""
    for problem in _problems(get):
        raise WrongValue(problem)
    protocols = get("ssl.enabled.protocols")
    ciphers = get("ssl.cipher.suites")
    assert isinstance(protocols, tuple)
    assert isinstance(ciphers, tuple)
    return TlsSettings(
        _text(get, "ssl.keystore.location"),
        pem_lines(_text(get, "ssl.keystore.key")),
        pem_lines(_text(get, "ssl.keystore.certificate.chain")),
        _text(get, "ssl.key.password"),
        _text(get, "ssl.truststore.location"),
        pem_lines(_text(get, "ssl.truststore.certificates")),
        _text(get, "ssl.client.auth"),
        protocols,
        ciphers,
        get("ssl.endpoint.identification.algorithm") == "https",
        str(get("ssl.principal.mapping.rules")),
    )


def _problems(get: Callable[[str], Value]) -> Iterator[str]:
    for kind, inline in (("keystore", "key"), ("truststore", "certificates")):
        location, text = f"ssl.{kind}.location", f"ssl.{kind}.{inline}"
        used = get(location) or get(text)
        if used and get(f"ssl.{kind}.type") != PEM:
            yield _convert(kind, str(get(f"ssl.{kind}.type")), str(get(location) or "STORE"))
        if get(location) and get(text):
            yield f"set either {location} or {text}, not both"
    if bool(get("ssl.keystore.key")) != bool(get("ssl.keystore.certificate.chain")):
        yield "ssl.keystore.key and ssl.keystore.certificate.chain must be set together"
    rules = str(get("ssl.principal.mapping.rules"))
    if rules != "DEFAULT":
        from tidelog.core.authorization.ssl_names import InvalidRules, SslPrincipalNames

        try:
            SslPrincipalNames(rules)
        except InvalidRules as invalid:
            yield f"ssl.principal.mapping.rules: {invalid}"
    if get("ssl.enabled.protocols") == ():
        yield "ssl.enabled.protocols must name a version"
    if get("ssl.client.auth") != "none" and not (
        get("ssl.truststore.location") or get("ssl.truststore.certificates")
    ):
        yield (
            f"ssl.client.auth={get('ssl.client.auth')} needs ssl.truststore.location: the"
            " authorities that sign the certificates of clients"
        )


def _convert(kind: str, store_type: str, path: str) -> str:
    """Return the error for a JKS or PKCS12 store, with the commands that convert it."""
    stem = path.rpartition(".")[0] or path
    commands = []
    if store_type != "PKCS12":
        commands.append(
            f"keytool -importkeystore -srckeystore {path} -destkeystore {stem}.p12"
            " -deststoretype PKCS12"
        )
        path = f"{stem}.p12"
    only = " -nokeys" if kind == "truststore" else ""
    commands.append(f"openssl pkcs12 -in {path} -out {stem}.pem -nodes{only}")
    return (
        f"{store_type} is not supported, only {PEM}: convert the {kind} with"
        f" `{' && '.join(commands)}`, and set ssl.{kind}.type={PEM} and the new file"
    )


def pem_lines(text: str) -> str:
    r"""Restore the line breaks of PEM that was written in one line, with blanks or `\n`."""
    text = text.replace("\\n", "\n").strip()
    if "\n" in text:
        return text
    import re

    blocks = re.findall(r"(-----BEGIN ([^-]+)-----)(.*?)(-----END \2-----)", text)
    lines = ["\n".join([begin, *body.split(), end]) for begin, _, body, end in blocks]
    return "\n".join(lines) or text


def _text(get: Callable[[str], Value], name: str) -> str:
    return str(get(name) or "")
