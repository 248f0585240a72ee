"""A store is opened by its URL; a broker's death is proved by a separate protocol."""

import time
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue

import pytest

from tidelog.shell.clock import boot_ms
from tidelog.shell.store import cluster_file
from tidelog.shell.store.etcd import store_admin
from tidelog.shell.store.log_dir_lock import LockProof, LogDirLock
from tidelog.shell.store.metadata_store_client import SessionGrant
from tidelog.shell.store.open_store import store_at
from tidelog.shell.store.proof_of_death import NO_LIFE_SIGN, LifeSign, ProofOfDeath
from tidelog.shell.store.store_backend import (
    IDENTITY_KEY,
    BrokerSide,
    OpenedStore,
    StoreAccess,
    StoreError,
    StoreMissing,
    new_identity,
)


@pytest.mark.parametrize("prefix", ["sqlite:", "sqlite://"])
def test_a_file_is_created_and_found_again(tmp_path: Path, prefix: str) -> None:
    store = store_at(f"{prefix}{tmp_path}/cluster.db")
    identity = store.prepare(None)
    assert (tmp_path / "cluster.db").exists()
    assert [str(Path(path)) for path in store.files] == [str(tmp_path / "cluster.db")]
    assert cluster_file.prepare(str(tmp_path / "cluster.db")) == identity


def test_a_missing_store_of_a_known_cluster_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreMissing):
        store_at(f"sqlite:{tmp_path}/cluster.db").prepare("a-cluster")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("etcds:h1:2379", "names no node"),
        ("etcd://h1:2379,h2:2379/prefix", "h1:2379 is on another machine"),
        ("etcd://127.0.0.1:2379,h2:2379/prefix", "h2:2379 is on another machine"),
        ("etcds://user:secret@h1:2379", "a password must not be in the URL"),
        ("etcds://h1:port", "'h1:port' is not HOST:PORT"),
        ("memory:", "is not a store URL"),
        ("memory:m", "in the simulator only"),
        ("zookeeper:1", "zookeeper: is unknown"),
        ("/a/cluster.db", "is not a store URL"),
        ("sqlite:", "is not a store URL"),
    ],
)
def test_other_urls_are_refused_with_the_reason(url: str, why: str) -> None:
    with pytest.raises(StoreError) as refused:
        store_at(url)
    assert why in str(refused.value)
    assert "tidelog.metadata.store" in str(refused.value)
    assert "secret" not in str(refused.value)
    assert url.startswith("etcd") or "use sqlite:PATH or etcd://" in str(refused.value)


def test_the_secret_is_not_sent_to_another_machine_without_tls() -> None:
    """`tidelog broker` too refuses to read it from there, and `tidelog store` to write it."""
    plain, url = StoreAccess(allow_plaintext=True), "etcd://192.0.2.1:2379/p"
    with pytest.raises(StoreError, match=r"tidelog\.cluster\.secret\.file"):
        store_at(url, plain).prepare(None)
    with pytest.raises(StoreError, match="is not encrypted"):
        store_admin.replace(url, {IDENTITY_KEY: new_identity()}, 1, plain)


class SaidDead:
    """A proof that is not a lock."""

    def __init__(self, own: str) -> None:
        self._own = LifeSign(own, "1")
        self.dead: set[str] = set()

    def own(self) -> LifeSign:
        return self._own

    def is_dead(self, sign: LifeSign) -> bool:
        return sign.place in self.dead


class Broker:
    """A broker's access to the store; the test is its main thread."""

    def __init__(self, url: str, proof: ProofOfDeath) -> None:
        self._deliveries: SimpleQueue[object] = SimpleQueue()
        side = BrokerSide(proof, boot_ms, self._deliveries.put, 9000, lambda _text: None)
        self.store: OpenedStore = store_at(url).open(side)

    def close(self) -> None:
        self.store.client.close()

    def answer(self, answers: list[object]) -> object:
        give_up = time.monotonic() + 120
        while not answers:
            assert time.monotonic() < give_up
            delivered = self._deliveries.get(timeout=120)
            assert callable(delivered)
            delivered()
        return answers.pop()

    def open_session(self) -> int:
        answers: list[object] = []
        self.store.client.open_session(60_000, answers.append)
        grant = self.answer(answers)
        assert isinstance(grant, SessionGrant)
        return grant.session

    def is_alive(self, session: int) -> bool:
        answers: list[object] = []
        self.store.client.renew_session(session, answers.append)
        return "Renewed" in type(self.answer(answers)).__name__

    def probe(self) -> None:
        answers: list[object] = []
        self.store.deaths.probe_deaths(answers.append)
        self.answer(answers)


def test_a_session_ends_on_any_proof_of_death(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/cluster.db"
    store_at(url).prepare(None)
    proof = SaidDead("here")
    with closing(Broker(url, proof)) as watching, closing(Broker(url, SaidDead("there"))) as other:
        session = other.open_session()
        watching.probe()
        assert other.is_alive(session)
        proof.dead.add("there")
        watching.probe()
        assert not other.is_alive(session)


def test_without_a_life_sign_nothing_is_proved(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/cluster.db"
    store_at(url).prepare(None)
    proof = SaidDead("here")
    proof.dead.add("")
    with closing(Broker(url, proof)) as watching, closing(Broker(url, LockProof())) as other:
        session = other.open_session()
        watching.probe()
        assert other.is_alive(session)


def test_a_free_lock_is_a_proof_and_an_own_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    mine, other = LogDirLock.acquire(str(tmp_path / "1")), LogDirLock.acquire(str(tmp_path / "2"))
    proof, others = LockProof(mine.path), LockProof(other.path)
    sign = others.own()
    assert not proof.is_dead(sign)
    other.release()
    assert proof.is_dead(sign)
    assert not proof.is_dead(sign._replace(identity="1:1")), "another file"
    mine.release()
    assert not proof.is_dead(proof.own())
    assert not proof.is_dead(NO_LIFE_SIGN)
