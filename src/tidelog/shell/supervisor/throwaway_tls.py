"""The certificates of `tidelog up --tls`, in the folder `tls` of the data folder.

    ca.pem             an authority that signed one certificate; clients trust it
    broker.pem         the brokers' private key and their certificate
    client.properties  the settings of a client, for --command-config and Kafka's tools

openssl makes them. The authority's private key is deleted at once: nobody can sign a second
certificate that clients would trust.

Invariant: the folder is complete or absent; only its owner can read it.
"""

import os
from typing import TYPE_CHECKING

from tidelog.shell.supervisor.data_folder import TLS, Refusal

if TYPE_CHECKING:
    import ssl

AUTHORITY, BROKER, CLIENT = "ca.pem", "broker.pem", "client.properties"
DAYS = 3650
HOSTS = "DNS:localhost,IP:127.0.0.1,IP:::1"
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def is_made(data: str) -> bool:
    """Whether the cluster of this data folder uses TLS."""
    return os.path.isdir(os.path.join(data, TLS))


def path(data: str, name: str) -> str:
    """Return the path of one of the files."""
    return os.path.join(data, TLS, name)


def client_context(data: str) -> "ssl.SSLContext | None":
    """Return the context of a client that trusts the authority; None if there is none."""
    if not is_made(data):
        return None
    import ssl

    return ssl.create_default_context(cafile=path(data, AUTHORITY))


def broker_settings(data: str) -> list[str]:
    """Return the settings of a broker that uses the certificate."""
    return [
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={path(data, BROKER)}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={path(data, AUTHORITY)}",
    ]


def check_openssl() -> None:
    """Raise Refusal without the program openssl."""
    from shutil import which

    if which("openssl") is None:
        raise Refusal(
            "--tls needs the program openssl to make certificates: install the package openssl"
        )


def make(data: str) -> None:
    """Make the certificates. Raises Refusal."""
    from shutil import rmtree

    draft = os.path.join(data, f"{TLS}.new")
    rmtree(draft, ignore_errors=True)
    os.mkdir(draft, 0o700)
    _make_authority(draft)
    _make_certificate(draft)
    _write(
        draft,
        CLIENT,
        "security.protocol=SSL\n"
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={path(data, AUTHORITY)}\n",
    )
    for name in os.listdir(draft):
        if name not in (AUTHORITY, BROKER, CLIENT):
            os.unlink(os.path.join(draft, name))
    os.rename(draft, os.path.join(data, TLS))


def _make_authority(folder: str) -> None:
    subject = ("-subj", "/CN=throwaway authority of tidelog up")
    files = ("-keyout", "ca.key", "-out", AUTHORITY)
    _openssl(folder, "req", "-x509", *_KEY, "-days", str(DAYS), *subject, *files)


def _make_certificate(folder: str) -> None:
    request = ("-keyout", "broker.key", "-out", "broker.csr")
    _openssl(folder, "req", *_KEY, "-subj", "/CN=tidelog up", *request)
    _write(
        folder, "broker.ext", f"subjectAltName={HOSTS}\nextendedKeyUsage=serverAuth,clientAuth\n"
    )
    authority = ("-CA", AUTHORITY, "-CAkey", "ca.key", "-CAcreateserial")
    files = ("-in", "broker.csr", "-extfile", "broker.ext", "-out", "broker.crt")
    _openssl(folder, "x509", "-req", *authority, "-days", str(DAYS), *files)
    parts = []
    for name in ("broker.key", "broker.crt"):
        with open(os.path.join(folder, name), encoding="ascii") as file:
            parts.append(file.read())
    _write(folder, BROKER, "".join(parts))


def _write(folder: str, name: str, text: str) -> None:
    descriptor = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def _openssl(folder: str, *words: str) -> None:
    import subprocess

    done = subprocess.run(
        ["openssl", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        why = done.stderr.strip().splitlines()
        raise Refusal(f"openssl {words[0]} failed: {why[-1] if why else done.returncode}")
