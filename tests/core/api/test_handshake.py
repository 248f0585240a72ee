"""The handshake between brokers: both prove the secret, and no proof can be reused."""

import hashlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.api.handshake import (
    NONCE_BYTES,
    ConnectingHandshake,
    HandshakeFailed,
    ListeningHandshake,
    Member,
    hmac_sha256,
)

SECRET = "5ec2e7" * 10
ADDRESS = "127.0.0.1:19093"
FIRST, SECOND = Member("cluster-1", 1, SECRET), Member("cluster-1", 2, SECRET)


def nonce(number: int) -> bytes:
    return number.to_bytes(NONCE_BYTES, "big")


def connecting(
    member: Member = FIRST, to: int = 2, *, address: str = ADDRESS, nonce: bytes = nonce(1)
) -> ConnectingHandshake:
    return ConnectingHandshake(member, to, address, nonce)


def listening(
    member: Member = SECOND, *, address: str = ADDRESS, nonce: bytes = nonce(2)
) -> ListeningHandshake:
    return ListeningHandshake(member, address, nonce)


def changed(document: bytes, **fields: Any) -> bytes:
    return json.dumps({**json.loads(document), **fields}).encode()


@given(st.binary(max_size=200), st.binary(max_size=300))
def test_the_mac_is_that_of_the_standard_library(key: bytes, message: bytes) -> None:
    assert hmac_sha256(key, message) == hmac.digest(key, message, hashlib.sha256)


def test_brokers_that_know_the_secret_prove_it_to_each_other() -> None:
    first, second = connecting(), listening()
    messages = [first.hello()]
    messages.append(second.challenge(messages[0]))
    messages.append(first.prove(messages[1]))
    assert second.accept(messages[2]) == 1
    assert not any(SECRET.encode() in message for message in messages)
    assert SECRET not in repr(FIRST)


def test_a_listener_without_the_secret_is_not_proved() -> None:
    first = connecting()
    impostor = listening(SECOND._replace(secret="guess"))
    with pytest.raises(HandshakeFailed, match="does not know the cluster's secret"):
        first.prove(impostor.challenge(first.hello()))


def test_a_connecting_broker_without_the_secret_is_not_proved() -> None:
    impostor, second = connecting(FIRST._replace(secret="guess")), listening()
    challenge = second.challenge(impostor.hello())
    with pytest.raises(HandshakeFailed):
        impostor.prove(challenge)
    guess = hmac.digest(b"guess", challenge, hashlib.sha256)
    with pytest.raises(HandshakeFailed, match="does not know the cluster's secret"):
        second.accept(json.dumps({"proof": guess.hex()}).encode())


def test_a_listeners_proof_reflected_to_it_proves_nothing() -> None:
    """A process without the secret connects, and sends the received proof back."""
    second = listening()
    challenge = second.challenge(connecting().hello())
    with pytest.raises(HandshakeFailed):
        second.accept(challenge)


def test_a_connecting_brokers_own_nonce_reflected_to_it_proves_nothing() -> None:
    """A process on a dead broker's port connects back, to get its own challenge answered."""
    first = connecting()
    hello = json.loads(first.hello())
    at_first = listening(FIRST, address="127.0.0.1:19092", nonce=nonce(3))
    relayed = changed(first.hello(), **{"from": 2, "to": 1, "address": "127.0.0.1:19092"})
    challenge = at_first.challenge(relayed)
    with pytest.raises(HandshakeFailed):
        first.prove(challenge)
    with pytest.raises(HandshakeFailed):
        first.prove(changed(challenge, nonce=hello["nonce"]))


def test_messages_of_another_connection_prove_nothing() -> None:
    first, second = connecting(), listening()
    challenge = second.challenge(first.hello())
    proof = first.prove(challenge)
    assert second.accept(proof) == 1
    # The same broker connects again, to a process that has recorded the first connection.
    with pytest.raises(HandshakeFailed):
        connecting(nonce=nonce(7)).prove(challenge)
    # The recording process connects to the same broker.
    again = listening(nonce=nonce(8))
    again.challenge(first.hello())
    with pytest.raises(HandshakeFailed):
        again.accept(proof)


@pytest.mark.parametrize(
    ("real", "field"),
    [
        (listening(Member("cluster-2", 2, SECRET)), "cluster"),
        (listening(Member("cluster-1", 3, SECRET)), "to"),
        (listening(address="127.0.0.1:29093"), "address"),
    ],
    ids=["another cluster", "another broker", "the broker at its new address"],
)
def test_a_relayed_handshake_is_refused(real: ListeningHandshake, field: str) -> None:
    """A process on a dead broker's port relays the messages to a live broker."""
    with pytest.raises(HandshakeFailed, match=f"another broker: its {field} is not"):
        real.challenge(connecting().hello())


@pytest.mark.parametrize(
    ("member", "address", "fields"),
    [
        (Member("cluster-2", 2, SECRET), ADDRESS, {"cluster": "cluster-2"}),
        (Member("cluster-1", 3, SECRET), ADDRESS, {"to": 3}),
        (SECOND, "127.0.0.1:29093", {"address": "127.0.0.1:29093"}),
        (SECOND, ADDRESS, {"from": 3}),
        (SECOND, ADDRESS, {"nonce": "77" * NONCE_BYTES}),
    ],
    ids=["cluster", "listening broker", "address", "connecting broker", "nonce"],
)
def test_a_hello_changed_on_its_way_proves_nothing(
    member: Member, address: str, fields: dict[str, Any]
) -> None:
    """The relay rewrites the Hello for a live broker, but the proof covers every field."""
    first = connecting()
    challenge = listening(member, address=address).challenge(changed(first.hello(), **fields))
    with pytest.raises(HandshakeFailed, match="does not know the cluster's secret"):
        first.prove(challenge)


def test_a_proof_before_the_hello_is_refused() -> None:
    with pytest.raises(HandshakeFailed, match="before Hello"):
        listening().accept(b"{}")


def test_a_second_hello_is_refused() -> None:
    """Otherwise one nonce of the listener would cover several transcripts."""
    second = listening()
    second.challenge(connecting().hello())
    with pytest.raises(HandshakeFailed, match="second Hello"):
        second.challenge(connecting(nonce=nonce(9)).hello())


@pytest.mark.parametrize("sender", [-1, 2**31, True, "1", None, 1.0])
def test_a_hello_names_a_broker(sender: object) -> None:
    with pytest.raises(HandshakeFailed, match="valid broker id"):
        listening().challenge(changed(connecting().hello(), **{"from": sender}))


@pytest.mark.parametrize("value", [None, "", "00", "zz" * 32, "00" * 33, 7, "\ud800" * 64, [0]])
@pytest.mark.parametrize("field", ["nonce", "proof"])
def test_malformed_fields_are_refused(field: str, value: object) -> None:
    first, second = connecting(), listening()
    challenge = second.challenge(first.hello())
    with pytest.raises(HandshakeFailed, match=f"without a valid {field}"):
        first.prove(changed(challenge, **{field: value}))
    target = listening().challenge if field == "nonce" else second.accept
    with pytest.raises(HandshakeFailed, match=f"without a valid {field}"):
        target(changed(first.hello(), **{field: value}))


@given(st.binary(max_size=5000))
def test_any_bytes_end_in_a_refusal(document: bytes) -> None:
    for take in (connecting().prove, listening().challenge):
        with pytest.raises(HandshakeFailed):
            take(document)
