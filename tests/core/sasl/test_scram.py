"""SCRAM: the exchange of RFC 7677, wrong passwords, unknown users, and hostile messages."""

import hashlib
import hmac
from base64 import b64decode, b64encode

import pytest

from tidelog.core.sasl.credential import ScramCredential
from tidelog.core.sasl.digests import SHA_256, SHA_512, Hash
from tidelog.core.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512, SaslFailed
from tidelog.core.sasl.scram import (
    ITERATIONS_MIN,
    MESSAGE_MAX,
    SALT_LENGTH,
    ScramClient,
    ScramForm,
    ScramServer,
    ScramUsers,
    credential_of,
    form_of,
    is_scram,
    new_salt,
    salted_password,
)

BOTH = pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])


def zeros(count: int) -> bytes:
    return bytes(count)


def ones(count: int) -> bytes:
    return b"\1" * count


def users(mechanism: str, **passwords: str) -> ScramUsers:
    stored = {}
    for user, password in passwords.items():
        salted = salted_password(mechanism, password, b"salt", ITERATIONS_MIN)
        stored[user] = credential_of(mechanism, salted, b"salt", ITERATIONS_MIN)
    return ScramUsers(mechanism, stored.get, b"secret")


def run(mechanism: str, user: str, password: str, known: ScramUsers) -> ScramServer:
    server, client = ScramServer(known, ones), ScramClient(mechanism, user, password, zeros)
    final = client.respond(server.respond(client.first()))
    assert final is not None
    assert client.respond(server.respond(final)) is None
    assert client.complete
    return server


@pytest.mark.parametrize("hashed", [SHA_256, SHA_512], ids=lambda each: str(each.name))
@pytest.mark.parametrize("key", [b"", b"key", b"k" * 200])
def test_hmac_is_that_of_the_standard_library(hashed: Hash, key: bytes) -> None:
    assert hashed.hmac(key, b"message") == hmac.digest(key, b"message", hashed.name)
    assert hashed.digest(b"message") == hashlib.new(hashed.name, b"message").digest()


def test_the_example_of_rfc_7677() -> None:
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = salted_password(SCRAM_SHA_256, "pencil", salt, 4096)
    known = {"user": credential_of(SCRAM_SHA_256, salted, salt, 4096)}
    server = ScramServer(ScramUsers(SCRAM_SHA_256, known.get, b""), zeros)
    server._nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    challenge = server.respond(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert challenge == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = server.respond(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert final == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.user == "user"


@BOTH
def test_a_password_is_accepted(mechanism: str) -> None:
    assert is_scram(mechanism)
    assert run(mechanism, "alice", "wonder,land=", users(mechanism, alice="wonder,land=")).user


@BOTH
@pytest.mark.parametrize("user", ["a,b=c", "=2C", "名前", "with blank"])
def test_a_user_name_may_have_any_letters(mechanism: str, user: str) -> None:
    assert run(mechanism, user, "secret", users(mechanism, **{user: "secret"})).user == user


@BOTH
def test_unknown_user_gets_the_messages_of_a_wrong_password(mechanism: str) -> None:
    known = users(mechanism, alice="right")
    texts = []
    for user in ("alice", "nobody"):
        server, client = ScramServer(known, ones), ScramClient(mechanism, user, "wrong", zeros)
        challenge = server.respond(client.first())
        final = client.respond(challenge)
        assert final is not None
        with pytest.raises(SaslFailed) as failed:
            server.respond(final)
        assert server.user is None
        texts.append((failed.value.public, str(failed.value).replace(user, "USER")))
        assert challenge.endswith(b",i=4096")
    assert texts[0] == texts[1] == ("", "wrong password or unknown user 'USER'")


def test_the_salt_of_an_unknown_user_is_always_the_same_and_looks_like_others() -> None:
    known = users(SCRAM_SHA_256)
    (first, exists), (again, _) = known.lookup("nobody"), known.lookup("nobody")
    assert not exists
    assert first == again
    assert first.salt != known.lookup("other")[0].salt
    assert len(first.salt) == len(new_salt(ones)) == SALT_LENGTH
    assert first.salt.isalnum()


def stored(iterations: int, salt: bytes) -> ScramCredential:
    return ScramCredential(salt, b"stored", b"server", iterations)


@BOTH
@pytest.mark.parametrize(
    "credential",
    [
        stored(8192, b"0123456789abcdefghijklmnop"),
        stored(16384, bytes(range(90))),
        stored(4096, b""),
    ],
    ids=["letters", "long", "empty"],
)
def test_an_unknown_user_gets_a_challenge_of_the_usual_form(
    mechanism: str, credential: ScramCredential
) -> None:
    forms = {form_of(credential): 1}
    known = ScramUsers(mechanism, {"alice": credential}.get, b"secret", lambda: forms)
    unknown, exists = known.lookup("nobody")
    assert not exists
    assert form_of(unknown) == form_of(credential)
    assert unknown.salt != credential.salt or not credential.salt
    assert known.lookup("nobody")[0] == unknown
    assert known.lookup("alice") == (credential, True)


def forms_of(forms: dict[ScramForm, int], names: list[str]) -> list[ScramForm]:
    """Return the forms of challenges to unknown users."""
    known = ScramUsers(SCRAM_SHA_256, lambda _user: None, b"secret", lambda: forms)
    return [form_of(known.lookup(name)[0]) for name in names]


def test_no_form_of_a_challenge_tells_which_users_exist() -> None:
    """Each form of a user is also that of unknown ones; a new form changes it for some only."""
    many = tuple(ScramForm(count, 25) for count in (4096, 8192, 10000, 16384))
    names = [f"user{number}" for number in range(200)]
    before = forms_of(dict.fromkeys(many[:3], 1), names)
    after = forms_of(dict.fromkeys(many, 1), names)
    assert set(before) == set(many[:3])
    assert set(after) == set(many)
    assert all(old == new or new == many[3] for old, new in zip(before, after, strict=True))


def test_unknown_users_have_a_form_about_as_often_as_users_have_it() -> None:
    usual, rare = ScramForm(), ScramForm(iterations=8192)
    names = [f"user{number}" for number in range(2000)]
    found = forms_of({usual: 96, rare: 4}, names)
    assert 40 < found.count(rare) < 160, "4% of the users have it: 80 of 2000"


def test_one_more_user_does_not_change_challenges_to_unknown_users() -> None:
    """A name whose challenge changes is not that of a user."""
    usual, rare = ScramForm(), ScramForm(iterations=8192)
    names = [f"user{number}" for number in range(2000)]
    assert forms_of({usual: 96, rare: 4}, names) == forms_of({usual: 97, rare: 5}, names)


@BOTH
def test_a_broker_without_the_key_is_not_trusted(mechanism: str) -> None:
    salted = salted_password(mechanism, "right", b"salt", ITERATIONS_MIN)
    true = credential_of(mechanism, salted, b"salt", ITERATIONS_MIN)
    false = true._replace(server_key=b"guessed")
    server = ScramServer(ScramUsers(mechanism, {"alice": false}.get, b""), ones)
    client = ScramClient(mechanism, "alice", "right", zeros)
    final = client.respond(server.respond(client.first()))
    assert final is not None
    with pytest.raises(SaslFailed, match="does not know the password"):
        client.respond(server.respond(final))
    assert not client.complete


@pytest.mark.parametrize(
    "challenge",
    [
        b"r=other,s=AAAA,i=4096",
        b"r=NONCE1,s=AAAA,i=100",
        b"r=NONCE1,s=AAAA,i=2000000000",
        b"r=NONCE1,s=A,i=4096",
        b"nonsense",
        b"\xff",
    ],
)
def test_a_client_rejects_a_broken_challenge(challenge: bytes) -> None:
    client = ScramClient(SCRAM_SHA_256, "alice", "secret", zeros)
    with pytest.raises(SaslFailed):
        client.respond(challenge.replace(b"NONCE", bytes(24).hex().encode()))


@pytest.mark.parametrize("final", [b"e=invalid-proof", b"v=AAAA", b"nonsense"])
def test_a_client_rejects_a_broken_signature(final: bytes) -> None:
    client = ScramClient(SCRAM_SHA_256, "alice", "secret", zeros)
    server = ScramServer(users(SCRAM_SHA_256, alice="secret"), ones)
    client.respond(server.respond(client.first()))
    with pytest.raises(SaslFailed):
        client.respond(final)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\xff\xfe",
        b"n=alice,r=abc",
        b"y,,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=alice,r=",
        b"n,,m=ext,n=alice,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,n=alice,r=abc,tokenauth=true",
        b"n,,n=alice,r=a\x7fc",
        b"n,,n=" + b"a" * MESSAGE_MAX + b",r=abc",
        b"n,,n==2,r=abc",
        b"n,a=,n=alice,r=abc",
    ],
)
def test_a_broken_first_message_fails(first: bytes) -> None:
    with pytest.raises(SaslFailed) as failed:
        ScramServer(users(SCRAM_SHA_256, alice="secret"), ones).respond(first)
    assert failed.value.public == ""


def test_acting_as_another_user_is_refused() -> None:
    known = users(SCRAM_SHA_256, alice="secret")
    assert ScramServer(known, ones).respond(b"n,a=alice,n=alice,r=abc").startswith(b"r=abc")
    with pytest.raises(SaslFailed) as failed:
        ScramServer(known, ones).respond(b"n,a=admin,n=alice,r=abc")
    assert "authorization id" in failed.value.public


@pytest.mark.parametrize(
    "change",
    [
        (b"c=biws", b"c=eSws"),
        (b"r=000", b"r=010"),
        (b",p=", b",p=A==="),
        (b",p=", b",p=AAAA"),
        (b"c=", b"x="),
        (b"c=biws", b"c=biw"),
    ],
)
def test_a_changed_final_message_fails(change: tuple[bytes, bytes]) -> None:
    server = ScramServer(users(SCRAM_SHA_256, alice="secret"), ones)
    client = ScramClient(SCRAM_SHA_256, "alice", "secret", zeros)
    final = client.respond(server.respond(client.first()))
    assert final is not None
    assert change[0] in final
    with pytest.raises(SaslFailed):
        server.respond(final.replace(*change, 1))
    assert server.user is None


def test_a_short_proof_never_matches() -> None:
    server = ScramServer(users(SCRAM_SHA_256), ones)
    client = ScramClient(SCRAM_SHA_256, "alice", "secret", zeros)
    final = client.respond(server.respond(client.first()))
    assert final is not None
    head = final.partition(b",p=")[0]
    for proof in (b"", b64encode(b"short")):
        with pytest.raises(SaslFailed):
            server.respond(head + b",p=" + proof)


def test_a_credential_does_not_show_its_keys() -> None:
    credential = ScramCredential(b"salt", b"stored", b"server", 4096)
    assert repr(credential) == str(credential) == "ScramCredential(iterations=4096)"
