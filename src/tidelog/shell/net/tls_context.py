"""OpenSSL's contexts for the settings of TLS, renewed when their files change.

A certificate is renewed by replacing its file. The files are checked at intervals, and a context
is made of new ones; open connections keep theirs. If new files can't be used, the old context
stays and the reason is reported: a broker must not stop because a file is incomplete.
"""

import os
import ssl
import tempfile
from collections.abc import Callable, Iterable
from typing import TypeAlias

from tidelog.core.settings.setting import WrongValue
from tidelog.core.settings.tls import TlsSettings

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_SPELLINGS = (
    ("_WITH_", "-"),
    ("AES_", "AES"),
    ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    ("_CBC_SHA", "_SHA"),
    ("_", "-"),
)
"""Replacements that turn IANA's name of a cipher suite into OpenSSL's."""

_Stamp: TypeAlias = tuple[tuple[int, int, int], ...]


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Make the context of a listener. Raises WrongValue."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    if settings.client_auth != "none":
        _trust(context, settings)
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Make the context of a client. Raises WrongValue."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
    context.check_hostname = settings.verify_host
    _trust(context, settings)
    return context


class RenewedContext:
    """A context that is renewed when its files change. Call it to get the context of a new
    connection."""

    def __init__(
        self,
        settings: TlsSettings,
        make: Callable[[TlsSettings], ssl.SSLContext],
        report: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._make = make
        self._report = report
        self._stamp = _stamp(settings.files)
        self._context = make(settings)

    def __call__(self) -> ssl.SSLContext:
        return self._context

    def renew(self) -> None:
        """Use the files as they are now, if they changed."""
        stamp = _stamp(self._settings.files)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._context = self._make(self._settings)
        except WrongValue as wrong:
            self._report(f"the old certificates stay in use: {wrong}")
        else:
            self._report(f"new connections use the renewed {', '.join(self._settings.files)}")


def _context(protocol: int, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    versions = sorted(_VERSIONS[name] for name in settings.versions)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    context.options |= ssl.OP_NO_RENEGOTIATION
    if settings.ciphers:
        _restrict_ciphers(context, settings)
    if settings.has_key:
        _load_key(context, settings)
    return context


def _restrict_ciphers(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Allow only these suites of TLS 1.2. Those of 1.3 have no key exchange in their names."""
    older = [name for name in settings.ciphers if "_WITH_" in name]
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        if "TLSv1.3" not in settings.versions:
            raise WrongValue("ssl.cipher.suites has only suites of TLS 1.3, which is not enabled")
        return
    if len(older) == len(settings.ciphers):
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    for name in older:
        try:
            context.set_ciphers(openssl_name(name))
        except ssl.SSLError:
            raise WrongValue(f"ssl.cipher.suites: OpenSSL has no suite {name}") from None
    context.set_ciphers(":".join(map(openssl_name, older)))


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a cipher suite of TLS 1.2."""
    name = suite.removeprefix("TLS_").removeprefix("RSA_WITH_")
    for iana, openssl in _SPELLINGS:
        name = name.replace(iana, openssl)
    return name


def _load_key(context: ssl.SSLContext, settings: TlsSettings) -> None:
    password = settings.key_password
    source = settings.keystore or "ssl.keystore.key"
    path = settings.keystore
    try:
        if not path:
            path = _private_file(f"{settings.key}\n{settings.chain}\n")
        # A callback: without one OpenSSL would ask at the terminal.
        context.load_cert_chain(path, password=lambda: password)
    except (OSError, ValueError) as error:  # also ssl.SSLError
        raise WrongValue(_unusable(source, "ssl.keystore.location", error)) from None
    finally:
        if path and not settings.keystore:
            os.unlink(path)


def _private_file(text: str) -> str:
    """Write a key to a file that only this user can read: OpenSSL takes keys from files."""
    fd, path = tempfile.mkstemp(prefix="tidelog-", suffix=".pem")
    with os.fdopen(fd, "w") as file:
        file.write(text)
    return path


def _trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    source = settings.truststore or "ssl.truststore.certificates"
    try:
        if settings.truststore:
            context.load_verify_locations(settings.truststore)
        elif settings.trusted:
            context.load_verify_locations(cadata=settings.trusted)
        else:
            context.load_default_certs()
    except (OSError, ValueError) as error:
        raise WrongValue(_unusable(source, "ssl.truststore.location", error)) from None


def _unusable(source: str, setting: str, error: Exception) -> str:
    """Return the error for a key or certificate file that can't be used."""
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        hint = {
            "NO_START_LINE": "it has no PEM certificate or key",
            "PEM_LIB": "it has no valid PEM key and certificate",
            "KEY_VALUES_MISMATCH": "its key does not belong to its first certificate",
            "BAD_DECRYPT": "ssl.key.password is wrong",
            "BAD_PASSWORD_READ": "its key is encrypted: set ssl.key.password",
            "NO_CERTIFICATE_OR_CRL_FOUND": "it has no PEM certificate",
        }.get(reason, reason)
    else:
        hint = getattr(error, "strerror", None) or str(error)
    return f"can't use {source} ({setting}): {hint}"


def _stamp(files: Iterable[str]) -> _Stamp:
    """Return values that change when one of the files is replaced or written."""
    stamps = []
    for path in files:
        try:
            found = os.stat(path)
        except OSError:
            stamps.append((0, 0, 0))
        else:
            stamps.append((found.st_ino, found.st_mtime_ns, found.st_size))
    return tuple(stamps)
