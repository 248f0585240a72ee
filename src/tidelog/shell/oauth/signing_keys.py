"""The keys of an identity provider (JWKS, RFC 7517), and signatures of tokens, by PyJWT.

Invariant: the key decides which algorithms are allowed, not the token. Only public keys are used,
so a token that is signed by HMAC, or not at all, is never valid.
"""

from collections.abc import Mapping
from json import loads
from typing import Any, NamedTuple

from tidelog.core.sasl.access_token import refused
from tidelog.core.sasl.mechanism import SaslFailed
from tidelog.core.settings.setting import WrongValue

RSA_BITS_MIN = 2048
"""RFC 7518, section 3.3."""
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_OF_CURVE = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA"}
_PUBLIC = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
"""The fields of each type of key that are public: a private key is used as the public one."""


class UnknownKey(SaslFailed):
    """No key of the set has the id that the token names."""


class NoKeys(WrongValue):
    """The set is well-formed, and has no key that can check a signature."""


class SigningKey(NamedTuple):
    """One public key."""

    id: str | None
    algorithms: tuple[str, ...]
    key: Any


class SigningKeys:
    """A set of public keys."""

    def __init__(self, text: bytes) -> None:
        """Parse a JWKS. Raises WrongValue, NoKeys."""
        require_library()
        try:
            found = loads(text)
            documents = found["keys"]
            if not isinstance(documents, list):
                raise TypeError
        except (ValueError, KeyError, TypeError, RecursionError):
            raise WrongValue('it is not a JWKS, a JSON object with a list "keys"') from None
        keys = [_key(one) for one in documents if isinstance(one, dict)]
        self._keys = [key for key in keys if key is not None]
        if not self._keys:
            raise NoKeys("it has no public key that can check a signature")

    def __len__(self) -> int:
        return len(self._keys)

    def payload(self, token: str, header: Mapping[str, Any]) -> bytes:
        """Check the signature of a token, and return its payload. Raises SaslFailed, UnknownKey."""
        import jwt

        algorithm, key_id = header.get("alg"), header.get("kid")
        keys = [key for key in self._keys if key_id is None or key.id == key_id]
        if not keys:
            reason = refused("")
            text = f"the token is signed by an unknown key, {key_id!r:.80}"
            raise UnknownKey(text, reason.public, reason.challenge)
        allowed = [key for key in keys if algorithm in key.algorithms]
        if not allowed:
            raise refused(f"the token is signed by {algorithm!r:.20}, which its key does not allow")
        for key in allowed:
            try:
                decoded = jwt.PyJWS().decode_complete(token, key.key, [str(algorithm)])
            except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
                continue
            return bytes(decoded["payload"])
        raise refused("the token's signature is wrong")


def require_library() -> None:
    """Raise WrongValue if PyJWT or cryptography is missing."""
    try:
        import cryptography
        import jwt
    except ImportError:
        raise WrongValue(
            "OAUTHBEARER needs PyJWT and cryptography: in a clone of Tidelog, run"
            " pip install '.[oauth]'"
        ) from None
    del cryptography, jwt


def _key(document: Mapping[str, Any]) -> SigningKey | None:
    """Return a key of the set; None if it can't check signatures of tokens here."""
    import jwt

    kind = document.get("kty")
    if not isinstance(kind, str) or kind not in _PUBLIC:
        return None
    if document.get("use", "sig") != "sig" or "verify" not in document.get("key_ops", ["verify"]):
        return None
    curve = document.get("crv")
    algorithms = _RSA if kind == "RSA" else tuple(filter(None, [_OF_CURVE.get(str(curve))]))
    own = document.get("alg")
    if own is not None:
        algorithms = tuple(one for one in algorithms if one == own)
    if not algorithms:
        return None
    public = {"kty": kind, **{name: document.get(name) for name in _PUBLIC[kind]}}
    try:
        key = jwt.PyJWK(public, algorithms[0]).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError):
        return None
    if kind == "RSA" and key.key_size < RSA_BITS_MIN:
        return None
    key_id = document.get("kid")
    return SigningKey(key_id if isinstance(key_id, str) else None, algorithms, key)
