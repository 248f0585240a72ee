"""Certificates for tests, made by the program `openssl`."""

import subprocess
from pathlib import Path

import pytest

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
NAMES = "subjectAltName=IP:127.0.0.1,DNS:localhost"


def openssl(folder: Path, *words: str) -> None:
    try:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl in PATH, which makes the certificates")


def authority(folder: Path, name: str = "ca") -> None:
    """Make NAME.key and NAME.pem of a certificate authority."""
    files = ("-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/O=test {name}")
    openssl(folder, "req", "-x509", *CURVE, "-nodes", "-days", "2", *files)


def certificate(
    folder: Path,
    name: str,
    subject: str,
    signer: str = "ca",
    names: str = NAMES,
    days: int = 2,
    password: str = "",
) -> Path:
    """Make NAME.key and NAME.pem, for servers and clients; return a file with both."""
    (folder / f"{name}.ext").write_text(f"{names}\nextendedKeyUsage=serverAuth,clientAuth\n")
    key = ("-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject)
    protection = ("-passout", f"pass:{password}") if password else ("-nodes",)
    openssl(folder, "req", *CURVE, *protection, *key)
    signing = ("-CA", f"{signer}.pem", "-CAkey", f"{signer}.key", "-CAcreateserial")
    files = ("-in", f"{name}.csr", "-out", f"{name}.pem", "-extfile", f"{name}.ext")
    openssl(folder, "x509", "-req", *signing, "-days", str(days), *files)
    store = folder / f"{name}.store.pem"
    parts = [(folder / f"{name}{end}").read_text() for end in (".key", ".pem")]
    store.write_text("".join([*parts, (folder / f"{signer}.pem").read_text()]))
    return store
