"""TLS and authentication on a real etcd: certificates, passwords, roles, tokens that expire."""

import ssl
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from certificates import authority, certificate, openssl
from real_cluster import eventually, make_topic, read_values, said, send_all
from real_etcd import EtcdCluster, EtcdNode, b64, running_etcd

from tidelog.core.controller.metadata.metadata_store import Snapshot
from tidelog.shell.clock import boot_ms
from tidelog.shell.store.log_dir_lock import LockProof
from tidelog.shell.store.metadata_store_client import Renewed, SessionGrant
from tidelog.shell.store.open_store import store_at
from tidelog.shell.store.store_backend import BrokerSide, StoreAccess, StoreUnusable
from tidelog.shell.supervisor.cluster import LocalCluster

PASSWORD = "a secret of the store"
TOKEN_S, EXPIRY_S = 2, 1.2
"""The life of a token after its last use. etcd looks for expired tokens once a second."""
LOGINS = 'grpc_server_started_total{grpc_method="Authenticate"'
WATCHERS = "etcd_debugging_mvcc_watcher_total"
VALUES = [b"%d" % number for number in range(100)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    authority(folder)
    certificate(folder, "server", "/O=etcd")
    certificate(folder, "client", "/O=tidelog")
    certificate(folder, "named", "/CN=tidelog")
    (folder / "password").write_text(f"{PASSWORD}\n")
    (folder / "wrong").write_text("another\n")
    return folder


@contextmanager
def secured_etcd(files: Path, nodes: int, *options: str) -> Iterator[EtcdCluster]:
    """Run an etcd that wants certificates and a user, who is allowed to use /allowed/ only."""
    tls = ssl.create_default_context(cafile=str(files / "ca.pem"))
    tls.load_cert_chain(files / "client.pem", files / "client.key")
    options = (
        *("--cert-file", str(files / "server.pem"), "--key-file", str(files / "server.key")),
        *("--client-cert-auth", "--trusted-ca-file", str(files / "ca.pem")),
        *("--bcrypt-cost", "4"),  # a login at the default cost takes long on a busy machine
        *options,
    )
    with running_etcd(nodes, options=options, tls=tls) as etcd:
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


@pytest.fixture(scope="module")
def etcd(files: Path) -> Iterator[EtcdCluster]:
    with secured_etcd(files, 1, "--auth-token-ttl", str(TOKEN_S)) as etcd:
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


def logins(nodes: Iterable[EtcdNode]) -> int:
    """How often users have logged in."""
    return sum(node.metric(LOGINS) for node in nodes)


def test_a_client_logs_in_again_after_its_token_expired(etcd: EtcdCluster, files: Path) -> None:
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
            deliveries.get(timeout=120)()
        return answers[0]

    def granted() -> SessionGrant | None:
        answer = answered(opened.client.open_session, 60_000)
        return answer if isinstance(answer, SessionGrant) else None

    grant = eventually(granted, "a session")

    def is_renewed() -> bool:
        return isinstance(answered(opened.client.renew_session, grant.session), Renewed)

    def read() -> Snapshot | None:
        answer = answered(opened.client.read, 0)
        return answer if isinstance(answer, Snapshot) else None

    before = logins(etcd.nodes)
    for _ in range(2):
        time.sleep(TOKEN_S + EXPIRY_S)  # without a call, which would extend the token's life
        eventually(is_renewed, "a renewal")
        snapshot = eventually(read, "a snapshot")  # etcd checks no token at a renewal
        assert [kv.key for kv in snapshot.kvs] == ["meta/cluster"]
    assert logins(etcd.nodes) > before
    opened.client.close()
    while not deliveries.empty():
        deliveries.get()()
    assert not [text for text in reports if PASSWORD in text]


def await_topic(cluster: LocalCluster, topic: str) -> None:
    """Wait until every broker has received the metadata of a topic."""

    def is_everywhere() -> bool:
        return all(cluster.metadata(broker, [topic]).topics.get(topic) for broker in cluster.ids)

    eventually(is_everywhere, f"all brokers know {topic}")


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["simple", "jwt"])
def test_brokers_follow_an_etcd_with_tls_and_a_user(files: Path, kind: str) -> None:
    """Over the expiry of their tokens, and the death of the node that they watch.

    The life of a simple token ends on the nodes that are not used, that of a JWT ends on all.
    """
    options = ("--auth-token-ttl", str(TOKEN_S))
    if kind == "jwt":
        key, public = files / "jwt.key", files / "jwt.pub"
        openssl(files, "genpkey", "-algorithm", "RSA", "-out", str(key))
        openssl(files, "pkey", "-in", str(key), "-pubout", "-out", str(public))
        token = f"jwt,pub-key={public},priv-key={key},sign-method=RS256,ttl={TOKEN_S}s"
        options = ("--auth-token", token)
    own = access(files)
    settings = {
        "tidelog.metadata.store.user": own.user,
        "tidelog.metadata.store.password.file": own.password_file,
        "tidelog.metadata.store.ca.file": own.ca_file,
        "tidelog.metadata.store.certificate.file": own.certificate_file,
        "tidelog.metadata.store.key.file": own.key_file,
    }
    with (
        secured_etcd(files, 3, *options) as etcd,
        LocalCluster(store=etcd.url("allowed/brokers"), settings=settings) as cluster,
    ):
        assert etcd.url().startswith("etcds://")
        make_topic(cluster.bootstrap, "kept")
        send_all(cluster.bootstrap, "kept", VALUES, conf={"acks": "all"})
        began, before = time.monotonic(), logins(etcd.nodes)
        eventually(
            lambda: (
                time.monotonic() > began + TOKEN_S + EXPIRY_S
                and (kind == "simple" or logins(etcd.nodes) >= before + 2 * len(cluster.ids))
            ),
            "tokens expire",
        )
        make_topic(cluster.bootstrap, "made-with-a-new-token")
        await_topic(cluster, "made-with-a-new-token")
        watchers = {node.name: node.metric(WATCHERS) for node in etcd.nodes}
        watched = max(etcd.nodes, key=lambda node: watchers[node.name])
        assert watchers[watched.name] >= len(cluster.ids)
        others = [node for node in etcd.nodes if node is not watched]
        before = logins(others)
        watched.kill()
        make_topic(cluster.bootstrap, "made-after-the-death")
        await_topic(cluster, "made-after-the-death")
        eventually(
            lambda: sum(node.metric(WATCHERS) for node in others) >= len(cluster.ids),
            "all brokers watch another node",
        )
        eventually(lambda: logins(others) > before, "a login at another node")
        send_all(cluster.bootstrap, "kept", VALUES, conf={"acks": "all"})
        assert read_values(cluster.bootstrap, "kept") == VALUES * 2
        assert not any(PASSWORD in said(cluster, broker) for broker in cluster.ids)


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
    with untrusted, StoreSetup(address, 30.0) as setup:
        setup.prepare(None)
