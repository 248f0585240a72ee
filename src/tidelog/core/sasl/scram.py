"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): a password is proved without being sent.

    client                                        broker
    n,,n=USER,r=NONCE                         ->
                                              <-  r=NONCES,s=SALT,i=ITERATIONS
    c=biws,r=NONCES,p=PROOF                   ->
                                              <-  v=SIGNATURE

A broker keeps two keys that are derived from the password: with them it checks the client's proof
and signs its own, but can't compute the password. Whoever reads them can guess passwords, and
impersonate the broker, so they are kept as secret as passwords.

Invariant: an unknown user gets the messages of a known one with a wrong password. Kafka refuses
an unknown user in its first response, so that anyone can find out which users exist.

Limit: if users have salts of different forms or different iterations, a challenge hints at whether
its user exists. Unknown users have each form about as often as users have it, within a factor of
two. Some of them get another form when the number of users with a form doubles or halves; the form
of a user changes with its password only.
"""

import re
from _operator import _compare_digest as compare_digest
from binascii import Error as NotBase64
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping
from math import log
from typing import NamedTuple

from tidelog.core.sasl.credential import ScramCredential
from tidelog.core.sasl.digests import SHA_256, SHA_512
from tidelog.core.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512, RandomBytes, SaslFailed

ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
"""Kafka's limits, for both mechanisms."""
SALT_LENGTH = 25
"""The length of the salts that Kafka's tools make, in letters and digits."""
NONCE_BYTES = 24
MESSAGE_MAX = 4096
"""The longest message: names, nonces and proofs are much shorter."""
SERVER_ITERATIONS_MAX = 1_000_000
"""A client computes no more, so that a false broker can't occupy it for hours. A broker that logs
in to another one computes at most ITERATIONS_MAX, because its loop waits for that."""
_HASHES = {SCRAM_SHA_256: SHA_256, SCRAM_SHA_512: SHA_512}
_LETTERS = b"0123456789abcdefghijklmnopqrstuvwxyz"

_NAME = "(?=[^,])[^\\x00=,]*(?:=(?:2C|3D)[^\\x00=,]*)*"
_CLIENT_FIRST = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<acts_as>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<user>{_NAME}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    r"(?P<extensions>(?:,[A-Za-z]+=[^\x00,]+)*))"
)
_BASE64 = r"[A-Za-z0-9/+]*={0,2}"
_SERVER_FIRST = re.compile(
    rf"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,10}})"
    r"(?:,[A-Za-z]+=[^\x00,]+)*"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<bare>c=(?P<channel>{_BASE64}),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    rf"(?:,[A-Za-z]+=[^\x00,]+)*?),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(rf"(?:e=(?P<error>[^\x00=,]+)|v=(?P<signature>{_BASE64}))(?:,.*)?")


def is_scram(mechanism: str) -> bool:
    """Return whether this is one of the SCRAM mechanisms."""
    return mechanism in _HASHES


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Derive the key that everything else is computed from. This takes milliseconds."""
    from hashlib import pbkdf2_hmac

    return pbkdf2_hmac(_HASHES[mechanism].name, password.encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Return what a broker stores for a salted password."""
    hashed = _HASHES[mechanism]
    stored = hashed.digest(hashed.hmac(salted, b"Client Key"))
    return ScramCredential(salt, stored, hashed.hmac(salted, b"Server Key"), iterations)


def new_salt(random_bytes: RandomBytes) -> bytes:
    """Return a salt of the form that Kafka's tools use."""
    return _as_letters(random_bytes(SALT_LENGTH))


class ScramForm(NamedTuple):
    """What a challenge shows of a credential."""

    iterations: int = ITERATIONS_MIN
    salt_length: int = SALT_LENGTH
    has_letters: bool = True
    """Whether the salt has the letters of Kafka's tools only; else it has any bytes."""


def form_of(credential: ScramCredential) -> ScramForm:
    """Return the form of a user's challenge."""
    salt = credential.salt
    return ScramForm(credential.iterations, len(salt), not salt.strip(_LETTERS))


USUAL_FORM = ScramForm()


class ScramUsers(NamedTuple):
    """The users of one SCRAM mechanism."""

    mechanism: str
    find: Callable[[str], ScramCredential | None]
    secret: bytes
    """Makes the salts of unknown users: the same for each attempt, and for each broker."""
    forms: Callable[[], Mapping[ScramForm, int]] = dict
    """The forms of all users, and how many users have each. Each unknown user gets one of them, a
    frequent one more probably."""

    def lookup(self, user: str) -> tuple[ScramCredential, bool]:
        """Return a user's credential, and whether it exists; else one that nothing matches."""
        # Made for each user, so that a known one takes as long.
        unmatched = self._unmatched(user)
        found = self.find(user)
        return (unmatched, False) if found is None else (found, True)

    def _unmatched(self, user: str) -> ScramCredential:
        made = self._hmac(f"{self.mechanism} {user}")
        forms = self.forms() or {USUAL_FORM: 1}

        def score(form: ScramForm) -> float:
            # Weighted rendezvous hashing: the highest score is that of a form with the probability
            # of its weight, and another weight changes the choice for few users. A weight is a
            # power of two, so that one more user seldom changes it.
            drawn = self._hmac(f"{self.mechanism} {user} {tuple(form)}")[:8]
            weight = 1 << (forms[form].bit_length() - 1)
            return log((int.from_bytes(drawn, "big") + 1) / (1 << 64)) / weight

        form = max(forms, key=score)
        salt = made
        while len(salt) < form.salt_length:
            salt += self._hmac(f"{self.mechanism} {user} {len(salt)}")
        salt = salt[: form.salt_length]
        if form.has_letters:
            salt = _as_letters(salt)
        return ScramCredential(salt, made, made, form.iterations)

    def _hmac(self, text: str) -> bytes:
        return _HASHES[self.mechanism].hmac(self.secret, text.encode())


class ScramServer:
    """The broker's side: two tokens, two responses."""

    __slots__ = (
        "_bare",
        "_credential",
        "_first",
        "_gs2",
        "_known",
        "_name",
        "_nonce",
        "_users",
        "user",
    )

    def __init__(self, users: ScramUsers, random_bytes: RandomBytes) -> None:
        self._users = users
        self._nonce = random_bytes(NONCE_BYTES).hex()
        self.user: str | None = None
        self._name = ""
        """The user that the client named; empty before its first token."""
        self._known = False
        self._credential: ScramCredential | None = None
        self._gs2 = self._bare = self._first = ""

    def respond(self, token: bytes) -> bytes:
        """Return the response to the client's first or final token. Raises SaslFailed."""
        if self._credential is None:
            return self._challenge(_text(token))
        return self._verify(_text(token), self._credential)

    def _challenge(self, message: str) -> bytes:
        match = _CLIENT_FIRST.fullmatch(message)
        if match is None:
            raise SaslFailed("invalid first SCRAM message")
        name = _unquoted(match["user"])
        if match["acts_as"] is not None and _unquoted(match["acts_as"]) != name:
            raise SaslFailed(
                f"user {name!r:.80} requested to act as another",
                "Authentication failed: Client requested an authorization id that is different"
                " from username",
            )
        if ",tokenauth=true" in match["extensions"]:
            raise SaslFailed("delegation tokens are not supported")
        self._name, self._gs2, self._bare = name, match["gs2"], match["bare"]
        self._credential, self._known = self._users.lookup(name)
        self._nonce = match["nonce"] + self._nonce
        salt, iterations = _base64(self._credential.salt), self._credential.iterations
        self._first = f"r={self._nonce},s={salt},i={iterations}"
        return self._first.encode()

    def _verify(self, message: str, credential: ScramCredential) -> bytes:
        match = _CLIENT_FINAL.fullmatch(message)
        if match is None or match["nonce"] != self._nonce:
            raise SaslFailed("invalid final SCRAM message")
        if _bytes(match["channel"]) != self._gs2.encode():
            raise SaslFailed("the final SCRAM message is for another channel")
        hashed = _HASHES[self._users.mechanism]
        signed = f"{self._bare},{self._first},{match['bare']}".encode()
        proof = _bytes(match["proof"])
        client_key = _xor(
            hashed.hmac(credential.stored_key, signed), proof.ljust(hashed.size, b"\0")
        )
        matches = compare_digest(hashed.digest(client_key), credential.stored_key)
        signature = hashed.hmac(credential.server_key, signed)
        if not (matches and self._known and len(proof) == hashed.size):
            raise SaslFailed(f"wrong password or unknown user {self._name!r:.80}")
        self.user = self._name
        return f"v={_base64(signature)}".encode()


class ScramClient:
    """The client's side, which also checks that the broker knows the password's keys."""

    __slots__ = (
        "_bare",
        "_iterations_max",
        "_mechanism",
        "_nonce",
        "_password",
        "_signature",
        "complete",
    )

    def __init__(
        self,
        mechanism: str,
        user: str,
        password: str,
        random_bytes: RandomBytes,
        iterations_max: int = SERVER_ITERATIONS_MAX,
    ) -> None:
        self._mechanism = mechanism
        self._iterations_max = iterations_max
        self._password = password
        self._nonce = random_bytes(NONCE_BYTES).hex()
        self._bare = f"n={_quoted(user)},r={self._nonce}"
        self._signature = b""
        """What the broker must sign with; empty before its challenge."""
        self.complete = False

    def first(self) -> bytes:
        """Return the first token."""
        return f"n,,{self._bare}".encode()

    def respond(self, token: bytes) -> bytes | None:
        """Return the final token, or None after the broker's signature. Raises SaslFailed."""
        if not self._signature:
            return self._prove(_text(token))
        match = _SERVER_FINAL.fullmatch(_text(token))
        if match is None or match["error"]:
            raise SaslFailed("the broker refused the proof" if match else "invalid SCRAM signature")
        if not compare_digest(_bytes(match["signature"]), self._signature):
            raise SaslFailed("the broker does not know the password of this user")
        self.complete = True
        return None

    def _prove(self, challenge: str) -> bytes:
        match = _SERVER_FIRST.fullmatch(challenge)
        if match is None or not match["nonce"].startswith(self._nonce):
            raise SaslFailed("invalid SCRAM challenge of the broker")
        iterations = int(match["iterations"])
        if not ITERATIONS_MIN <= iterations <= self._iterations_max:
            raise SaslFailed(f"the broker requests {iterations} iterations of SCRAM")
        hashed = _HASHES[self._mechanism]
        salt = _bytes(match["salt"])
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        client_key = hashed.hmac(salted, b"Client Key")
        bare = f"c=biws,r={match['nonce']}"
        signed = f"{self._bare},{challenge},{bare}".encode()
        proof = _xor(client_key, hashed.hmac(hashed.digest(client_key), signed))
        self._signature = hashed.hmac(hashed.hmac(salted, b"Server Key"), signed)
        return f"{bare},p={_base64(proof)}".encode()


def _text(token: bytes) -> str:
    if len(token) > MESSAGE_MAX:
        raise SaslFailed(f"SCRAM message of {len(token)} bytes exceeds the limit of {MESSAGE_MAX}")
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise SaslFailed("SCRAM message is not UTF-8") from None


def _quoted(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unquoted(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode()


def _bytes(text: str) -> bytes:
    try:
        return a2b_base64(text, strict_mode=bool(text))
    except NotBase64:
        raise SaslFailed("SCRAM message has invalid base64") from None


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=False))


def _as_letters(data: bytes) -> bytes:
    return bytes(_LETTERS[byte % len(_LETTERS)] for byte in data)
