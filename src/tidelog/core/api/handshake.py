"""The handshake between two brokers: each proves that it knows the cluster's secret.

    connecting broker                                listening broker
    Hello  {cluster, from, to, address, nonce}  ->
                                                <-   Challenge {nonce, proof}
    Proof  {proof}                              ->

A proof is HMAC-SHA256 under the secret, over the prover's role and every field of the Hello and
the Challenge. The listener proves itself first: the connecting broker sends no request to a peer
that has not.

Invariants:
- No message contains the secret, or anything from which it can be computed.
- A proof is valid on one connection (both nonces are new), in one direction (the role), between
  two brokers of one cluster, at one address. So a proof can be neither replayed nor reflected,
  and a process that listens on a dead broker's port cannot relay the handshake to the broker's
  new port.

The shell supplies the nonces and carries the messages (shell/net/peer_link.py on the connecting
side, internal_dispatch.py on the listening one). The handshake protects nothing that follows it:
without TLS between brokers, the network must be trusted not to alter or show requests.
"""

import json
from _operator import _compare_digest as compare_digest
from typing import Any, NamedTuple

from tidelog.core.types import BrokerId

try:  # hashlib would load OpenSSL: 4 MB of memory in each broker
    from _sha2 import sha256  # type: ignore[import-not-found]
except ImportError:  # before Python 3.12
    from _sha256 import sha256  # type: ignore[import-not-found]

NONCE_BYTES = 32
MESSAGE_MAX = 4096
"""The largest message of the handshake, in bytes."""
_BLOCK_BYTES = 64
_PROTOCOL = b"tidelog broker handshake 1"
_LISTENER, _CONNECTOR = b"listener", b"connector"
_BROKER_ID_MAX = 2**31 - 1


class HandshakeFailed(Exception):
    """The peer did not prove that it is a broker of this cluster. Its text is one line."""


class Member(NamedTuple):
    """A broker of the cluster, and the secret that only the cluster's brokers know."""

    cluster_id: str
    broker: BrokerId
    secret: str

    def __repr__(self) -> str:
        return f"Member({self.cluster_id!r}, {self.broker})"


class _Transcript(NamedTuple):
    """The fields that both brokers know after Hello and Challenge."""

    cluster_id: str
    connector: BrokerId
    listener: BrokerId
    address: str
    connector_nonce: bytes
    listener_nonce: bytes

    def proof(self, secret: str, role: bytes) -> bytes:
        fields = (
            _PROTOCOL,
            role,
            self.cluster_id.encode(),
            str(self.connector).encode(),
            str(self.listener).encode(),
            self.address.encode(),
            self.connector_nonce,
            self.listener_nonce,
        )
        # Each field has its length in front, so that different fields never give the same bytes.
        message = b"".join(len(field).to_bytes(4, "big") + field for field in fields)
        return hmac_sha256(secret.encode(), message)


class ConnectingHandshake:
    """The side that opens the connection: Hello, then Proof."""

    def __init__(self, member: Member, listener: BrokerId, address: str, nonce: bytes) -> None:
        """`address` is where the listener is registered; `nonce` must never have been used."""
        self._member = member
        self._listener = listener
        self._address = address
        self._nonce = nonce

    def hello(self) -> bytes:
        return _encode(
            {
                "cluster": self._member.cluster_id,
                "from": self._member.broker,
                "to": self._listener,
                "address": self._address,
                "nonce": self._nonce.hex(),
            }
        )

    def prove(self, challenge: bytes | memoryview) -> bytes:
        """Check the listener's proof and return ours. Raises HandshakeFailed."""
        fields = _decode(challenge)
        member = self._member
        transcript = _Transcript(
            member.cluster_id,
            member.broker,
            self._listener,
            self._address,
            self._nonce,
            _hex_field(fields, "nonce"),
        )
        expected = transcript.proof(member.secret, _LISTENER)
        if not compare_digest(_hex_field(fields, "proof"), expected):
            raise HandshakeFailed("wrong proof: the peer does not know the cluster's secret")
        return _encode({"proof": transcript.proof(member.secret, _CONNECTOR).hex()})


class ListeningHandshake:
    """The side that accepts the connection: Challenge, then the verdict."""

    def __init__(self, member: Member, address: str, nonce: bytes) -> None:
        """`address` is where this broker is registered; `nonce` must never have been used."""
        self._member = member
        self._address = address
        self._nonce = nonce
        self._transcript: _Transcript | None = None

    def challenge(self, hello: bytes | memoryview) -> bytes:
        """Return the Challenge to a Hello. Raises HandshakeFailed."""
        if self._transcript is not None:
            raise HandshakeFailed("second Hello on one connection")
        fields = _decode(hello)
        member = self._member
        connector = fields.get("from")
        if type(connector) is not int or not 0 <= connector <= _BROKER_ID_MAX:
            raise HandshakeFailed("Hello without a valid broker id")
        for name, own in (
            ("cluster", member.cluster_id),
            ("to", member.broker),
            ("address", self._address),
        ):
            if fields.get(name) != own:
                raise HandshakeFailed(f"the Hello is for another broker: its {name} is not {own}")
        self._transcript = _Transcript(
            member.cluster_id,
            connector,
            member.broker,
            self._address,
            _hex_field(fields, "nonce"),
            self._nonce,
        )
        proof = self._transcript.proof(member.secret, _LISTENER)
        return _encode({"nonce": self._nonce.hex(), "proof": proof.hex()})

    def accept(self, proof: bytes | memoryview) -> BrokerId:
        """Check the connecting broker's proof and return its id. Raises HandshakeFailed."""
        transcript = self._transcript
        if transcript is None:
            raise HandshakeFailed("Proof before Hello")
        expected = transcript.proof(self._member.secret, _CONNECTOR)
        if not compare_digest(_hex_field(_decode(proof), "proof"), expected):
            raise HandshakeFailed("wrong proof: the peer does not know the cluster's secret")
        return transcript.connector


def hmac_sha256(key: bytes, message: bytes) -> bytes:
    """RFC 2104 with SHA-256."""
    if len(key) > _BLOCK_BYTES:
        key = sha256(key).digest()
    key = key.ljust(_BLOCK_BYTES, b"\0")
    inner = sha256(bytes(byte ^ 0x36 for byte in key) + message).digest()
    return bytes(sha256(bytes(byte ^ 0x5C for byte in key) + inner).digest())


def _encode(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode()


def _decode(document: bytes | memoryview) -> dict[str, Any]:
    if len(document) > MESSAGE_MAX:
        raise HandshakeFailed(
            f"handshake message of {len(document)} bytes exceeds the limit of {MESSAGE_MAX}"
        )
    try:
        fields = json.loads(bytes(document))
    except (ValueError, RecursionError):
        raise HandshakeFailed("handshake message is not JSON") from None
    if not isinstance(fields, dict):
        raise HandshakeFailed("handshake message is not a JSON object")
    return fields


def _hex_field(fields: dict[str, Any], name: str) -> bytes:
    """A nonce or a proof: both have 32 bytes."""
    text = fields.get(name)
    try:
        value = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        value = b""
    if len(value) != NONCE_BYTES:
        raise HandshakeFailed(f"handshake message without a valid {name}")
    return value
