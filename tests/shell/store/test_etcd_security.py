"""TLS and authentication on a real etcd: certificates, passwords, roles, tokens that expire."""

import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from real_etcd import EtcdCluster, b64, running_etcd

from tidelog.shell.clock import boot_ms
from tidelog.shell.store.log_dir_lock import LockProof
from tidelog.shell.store.metadata_store_client import Renewed, SessionGrant
from tidelog.shell.store.open_store import store_at
from tidelog.shell.store.store_backend import BrokerSide, StoreAccess, StoreUnusable

PASSWORD = "a secret of the store"


def openssl(folder: Path, *words: str) -> None:
    try:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl in PATH, which makes the certificates")


def certificate(folder: Path, name: str, subject: str) -> None:
    """A key and a certificate for 127.0.0.1, for servers and clients."""
    extensions = "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n"
    (folder / f"{name}.ext").write_text(extensions)
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(
        folder, "req", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject
    )
    signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2")
    files = ("-in", f"{name}.csr", "-out", f"{name}.pem", "-extfile", f"{name}.ext")
    openssl(folder, "x509", "-req", *signing, *files)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    openssl(
        folder, "req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/O=test ca"
    )
    certificate(folder, "server", "/O=etcd")
    certificate(folder, "client", "/O=tidelog")
    certificate(folder, "named", "/CN=tidelog")
    (folder / "password").write_text(f"{PASSWORD}\n")
    (folder / "wrong").write_text("another\n")
    return folder


@pytest.fixture(scope="module")
def etcd(files: Path) -> Iterator[EtcdCluster]:
    tls = ssl.create_default_context(cafile=str(files / "ca.pem"))
    tls.load_cert_chain(files / "client.pem", files / "client.key")
    options = (
        *("--cert-file", str(files / "server.pem"), "--key-file", str(files / "server.key")),
        *("--client-cert-auth", "--trusted-ca-file", str(files / "ca.pem")),
        *("--auth-token-ttl", "2"),
    )
    with running_etcd(1, options=options, tls=tls) as etcd:
        node = etcd.nodes[0]
        allowed = {"key": b64("/allowed/"), "range_end": b64("/allowed0"), "permType": 2}
        for path, request in (
            ("user/add", {"name": "root", "password": "root's"}),
            ("role/add", {"name": "root"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("user/add", {"name": "tidelog", "password": PASSWORD}),
            ("role/add", {"name": "tidelog"}),
            ("role/grant", {"name": "tidelog", "perm": allowed}),
            ("user/grant", {"user": "tidelog", "role": "tidelog"}),
            ("enable", {}),
        ):
            node.post(f"/v3/auth/{path}", request)
        yield etcd


def access(files: Path, **changes: Any) -> StoreAccess:
    full = StoreAccess(
        user="tidelog",
        password_file=str(files / "password"),
        ca_file=str(files / "ca.pem"),
        certificate_file=str(files / "client.pem"),
        key_file=str(files / "client.key"),
    )
    return full._replace(**changes)


def test_a_broker_works_with_tls_and_a_user_and_renews_its_token(
    etcd: EtcdCluster, files: Path
) -> None:
    url = etcd.url("allowed/cluster")
    store = store_at(url, access(files))
    assert set(store.files) == {str(files / "password"), str(files / "client.key")}
    store.prepare(None)
    deliveries: SimpleQueue[Any] = SimpleQueue()
    reports: list[str] = []
    side = BrokerSide(LockProof(), boot_ms, deliveries.put, 9000, reports.append)
    opened = store.open(side)

    def answered(call: Any, *words: Any) -> Any:
        answers: list[Any] = []
        call(*words, answers.append)
        while not answers:
            deliveries.get(timeout=20)()
        return answers[0]

    grant = answered(opened.client.open_session, 9_000)
    assert isinstance(grant, SessionGrant)
    end = time.monotonic() + 4.5  # the token is valid for two seconds after its last use
    while time.monotonic() < end:
        time.sleep(2.2)
        assert isinstance(answered(opened.client.renew_session, grant.session), Renewed)
    snapshot = answered(opened.client.read, 0)
    assert [kv.key for kv in snapshot.kvs] == ["meta/cluster"]
    opened.client.close()
    while not deliveries.empty():
        deliveries.get()()
    assert not [text for text in reports if PASSWORD in text]


@pytest.mark.parametrize(
    ("changes", "prefix", "text"),
    [
        ({}, "elsewhere", "permission denied"),
        ({"password_file": "wrong"}, "allowed/a", "refuses user tidelog"),
        ({"password_file": ""}, "allowed/a", "needs a password"),
        ({"password_file": "missing"}, "allowed/a", "password.file .*: No such file"),
        ({"user": "", "password_file": ""}, "allowed/a", "denies access"),
        ({"certificate_file": "named.pem", "key_file": "named.key"}, "allowed/a", r"\(CN\)"),
        ({"ca_file": "client.key"}, "allowed/a", "can't use the TLS files"),
    ],
)
def test_what_is_wrong_is_said_at_the_start(
    etcd: EtcdCluster, files: Path, changes: dict[str, str], prefix: str, text: str
) -> None:
    named = {k: str(files / v) if "file" in k and v else v for k, v in changes.items()}
    with pytest.raises(StoreUnusable, match=text) as refused:
        store_at(etcd.url(prefix), access(files, **named)).prepare(None)
    assert PASSWORD not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_another_ca_is_refused(etcd: EtcdCluster, files: Path) -> None:
    """The system's certificates do not include the one of this test."""
    from tidelog.shell.store.etcd.address import parse_address
    from tidelog.shell.store.etcd.store_setup import StoreSetup

    address = parse_address(etcd.url("allowed/a"), access(files, ca_file=""))
    untrusted = pytest.raises(StoreUnusable, match="certificate verify failed")
    with untrusted, StoreSetup(address, 1.0) as setup:
        setup.prepare(None)
