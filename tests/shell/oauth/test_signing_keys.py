"""Keys of an identity provider, and signatures: which tokens pass."""

import hmac
import json
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from issuer import claims, jwks, key_of, public_jwk, token, unsecured

from tidelog.core.sasl.access_token import claims_of, split_token
from tidelog.core.sasl.mechanism import SaslFailed
from tidelog.core.settings.setting import WrongValue
from tidelog.shell.oauth.signing_keys import SigningKeys, UnknownKey

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA")


def payload(keys: SigningKeys, text: str) -> bytes:
    return keys.payload(text, split_token(text).header)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_right_signature(algorithm: str) -> None:
    keys = SigningKeys(jwks(public_jwk(key_of(algorithm))))
    text = token(algorithm)
    assert claims_of(payload(keys, text))["sub"] == "alice"
    without_id = token(algorithm, header={})
    assert claims_of(payload(keys, without_id))["sub"] == "alice"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_wrong_signature(algorithm: str) -> None:
    keys = SigningKeys(jwks(public_jwk(key_of(algorithm))))
    head, body, signature = token(algorithm).split(".")
    _, other_body, _ = token(algorithm, sub="mallory").split(".")
    for text in (
        token(algorithm, key_of(algorithm, 1)),
        f"{head}.{other_body}.{signature}",
        f"{head}.{body}.",
        f"{head}.{body}.{signature[:-4]}",
        f"{head}.{body}.{signature[::-1]}",
    ):
        with pytest.raises(SaslFailed) as failed:
            payload(keys, text)
        assert failed.value.challenge == b'{"status":"invalid_token"}'


def test_a_token_without_signature_is_refused() -> None:
    keys = SigningKeys(jwks(public_jwk(key_of("RS256"))))
    for text in (
        unsecured(),
        jwt.encode(claims(), "", "none", headers={"kid": "first"}),
        unsecured().replace(".", ".", 1) + "c2ln",
    ):
        with pytest.raises(SaslFailed, match="which its key does not allow"):
            payload(keys, text)


@pytest.mark.parametrize("secret", ["pem", "modulus", "set"])
def test_a_token_that_is_signed_by_hmac_with_a_public_key_is_refused(secret: str) -> None:
    key = key_of("RS256")
    document = public_jwk(key)
    texts = {
        "pem": key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "modulus": document["n"].encode(),
        "set": jwks(document),
    }
    header = {"alg": "HS256", "kid": "first"}
    parts = [urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in (header, claims())]
    signed = b".".join(parts)
    signature = hmac.digest(texts[secret], signed, sha256)
    text = b".".join([signed, urlsafe_b64encode(signature).rstrip(b"=")]).decode()
    with pytest.raises(SaslFailed, match="'HS256', which its key does not allow"):
        payload(SigningKeys(jwks(document)), text)


def test_a_key_for_hmac_in_the_set_is_not_used() -> None:
    shared = {"kty": "oct", "kid": "shared", "k": urlsafe_b64encode(b"s" * 32).decode()}
    text = jwt.encode(claims(), b"s" * 32, "HS256", headers={"kid": "shared"})
    with pytest.raises(UnknownKey):
        payload(SigningKeys(jwks(shared, public_jwk(key_of("RS256")))), text)
    with pytest.raises(WrongValue, match="no public key"):
        SigningKeys(jwks(shared))


def test_a_key_with_an_algorithm_allows_no_other_one() -> None:
    keys = SigningKeys(jwks(public_jwk(key_of("RS256"), alg="RS512")))
    with pytest.raises(SaslFailed, match="does not allow"):
        payload(keys, token("RS256", key_of("RS256")))
    assert payload(keys, token("RS512", key_of("RS256")))


def test_the_key_that_the_token_names_is_used() -> None:
    first, second = key_of("RS256"), key_of("RS256", 1)
    keys = SigningKeys(jwks(public_jwk(first), public_jwk(second, "second")))
    assert len(keys) == 2
    assert payload(keys, token(key=second, header={"kid": "second"}))
    assert payload(keys, token(key=second, header={}))
    with pytest.raises(SaslFailed, match="signature is wrong"):
        payload(keys, token(key=second))
    for key_id in ("third", 5, ["first"]):
        header = urlsafe_b64encode(json.dumps({"alg": "RS256", "kid": key_id}).encode()).decode()
        with pytest.raises(UnknownKey) as failed:
            payload(keys, ".".join([header.rstrip("="), *token().split(".")[1:]]))
        assert failed.value.challenge


@pytest.mark.parametrize(
    "fields",
    [{"use": "enc"}, {"key_ops": ["encrypt"]}, {"alg": "RSA-OAEP"}, {"n": "AQAB"}, {"n": 5}],
)
def test_a_key_that_cant_check_signatures_is_left_out(fields: dict[str, Any]) -> None:
    document = public_jwk(key_of("RS256"), "other", **fields)
    assert len(SigningKeys(jwks(document, public_jwk(key_of("ES256"))))) == 1


def test_a_short_rsa_key_is_left_out() -> None:
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    with pytest.raises(WrongValue, match="no public key"):
        SigningKeys(jwks(public_jwk(short)))


def test_a_private_key_in_the_set_is_used_as_the_public_one() -> None:
    document = jwt.algorithms.ECAlgorithm.to_jwk(key_of("ES256"), as_dict=True)
    assert payload(SigningKeys(jwks({**document, "kid": "first"})), token("ES256"))


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"keys": {}}', b"[" * 100_000, b"\xff", b'{"keys": [5, []]}']
)
def test_texts_that_are_no_keys(text: bytes) -> None:
    with pytest.raises(WrongValue):
        SigningKeys(text)
