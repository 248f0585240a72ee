"""Clients of a listener with SASL: what they may send before they are authenticated, and after."""

from base64 import b64encode
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from dispatch_cluster import Answer, Line

from tidelog.core.api.exchange import CloseCode
from tidelog.core.api.sasl_exchange import Login, SaslRules
from tidelog.core.api.sasl_gate import SaslGate
from tidelog.core.api.sasl_login import LoginRefused, SaslLogin, sasl_client
from tidelog.core.api.sasl_rules import (
    CLUSTER_MECHANISM,
    TokenCheck,
    cluster_login,
    sasl_rules,
    token_login,
)
from tidelog.core.api_table import API_VERSIONS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.errors import ErrorCode
from tidelog.core.principal import ANONYMOUS, BROKER, USER, Principal
from tidelog.core.sasl.access_token import AcceptedToken, refused
from tidelog.core.sasl.mechanism import (
    OAUTHBEARER,
    PASSWORD_MECHANISMS,
    PLAIN,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
)
from tidelog.core.sasl.plain import PlainServer, PlainUsers
from tidelog.core.sasl.scram import ITERATIONS_MIN, ScramClient, credential_of, salted_password
from tidelog.core.settings.broker_settings import BrokerLogin, settings_of
from tidelog.core.settings.jaas import PLAIN_MODULE
from tidelog.core.wire.codec import decode_response, encode_request

SECRET = "of the cluster"
ADDRESS = "[::1]:9092"
JAAS = f'{PLAIN_MODULE} required user_alice="wonderland" user_bob="builder";'
FRAME_MAX = 2048
ALICE = b"\0alice\0wonderland"
WRONG = b"\0alice\0wrong"
GENERIC = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism "
)


class NoResponse(Exception):
    """The response is delayed."""


class GatedLine(Line):
    """A connection whose frames go to the gate at first."""

    def __init__(self, handle: Callable[[Any, memoryview], None]) -> None:
        super().__init__()
        self.handle = handle

    def handle_by(self, handle: Callable[[Any, memoryview], None]) -> None:
        self.handle = handle


class Listener:
    """A gate, and what passed it."""

    def __init__(self, **texts: str) -> None:
        self.now_ms = 1000
        self.image = ClusterImage()
        for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512):
            salted = salted_password(mechanism, "wonderland", b"salt", ITERATIONS_MIN)
            credential = credential_of(mechanism, salted, b"salt", ITERATIONS_MIN)
            self.image.scram[mechanism, "alice"] = credential
        settings = settings_of(
            {
                "node.id": "1",
                "listeners": "SASL_PLAINTEXT://localhost:1",
                "sasl.enabled.mechanisms": ",".join(PASSWORD_MECHANISMS),
                "sasl.jaas.config": JAAS,
                **{name.replace("_", "."): text for name, text in texts.items()},
            }
        )
        self.sasl = settings.sasl(settings.listener)
        tokens = self.tokens()
        self.rules = rules = sasl_rules(
            self.sasl, self.image, SECRET, bytes, address=ADDRESS, tokens=tokens
        )
        self.served: list[bytes] = []
        self.authenticated: list[Line] = []
        self.failed: list[tuple[Line, str]] = []
        self.later: list[tuple[int, Callable[[], None]]] = []
        self.faults: list[Exception] = []
        self.gate = self.gate_of(rules)

    def tokens(self) -> TokenCheck | None:
        return None

    def gate_of(self, rules: SaslRules) -> SaslGate:
        return SaslGate(
            rules,
            lambda _line, frame: self.served.append(bytes(frame)),
            self.authenticated.append,
            lambda line, reason: self.failed.append((line, reason)),
            lambda: self.now_ms,
            lambda ms, act: self.later.append((ms, act)),
            self.faults.append,
        )

    def connect(self) -> GatedLine:
        return GatedLine(self.gate.frame)

    def run_later(self) -> None:
        for _, act in self.later:
            act()
        self.later.clear()


@pytest.fixture
def listener() -> Listener:
    return Listener()


def send(line: GatedLine, key: int, version: int, body: Any) -> None:
    frame = encode_request(key, version, 5, "test", body)[4:]
    line.handle(line, memoryview(bytearray(frame)))


def last(line: Line, key: int, version: int) -> dict[str, Any]:
    answer: Answer = line.answers[-1]
    assert answer.frame is not None
    return decode_response(key, version, answer.frame[4:])[1]


def handshake(line: GatedLine, mechanism: str, version: int = 1) -> dict[str, Any]:
    send(line, SASL_HANDSHAKE, version, {"mechanism": mechanism})
    return last(line, SASL_HANDSHAKE, version)


def authenticate(line: GatedLine, token: bytes, version: int = 2) -> None:
    send(line, SASL_AUTHENTICATE, version, {"auth_bytes": token})


def log_in(line: GatedLine, user: str, password: str, mechanism: str) -> SaslLogin:
    """Authenticate as Tidelog's own clients do. Raises NoResponse."""
    return run(line, SaslLogin(mechanism, sasl_client(mechanism, user, password, bytes), "test"))


def run(line: GatedLine, login: SaslLogin) -> SaslLogin:
    frame: bytes | None = login.first()
    while frame is not None:
        line.handle(line, memoryview(bytearray(frame[4:])))
        answer = line.answers[-1].frame
        if answer is None:
            raise NoResponse
        frame = login.receive(memoryview(answer)[4:])
    return login


# -- who passes ----------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_a_user_with_the_right_password_passes(listener: Listener, mechanism: str) -> None:
    line = listener.connect()
    login = log_in(line, "alice", "wonderland", mechanism)
    assert login.lifetime_ms == 0
    assert line.session.principal == Principal(USER, "alice")
    assert listener.authenticated == [line]
    line.handle(line, memoryview(b"anything"))
    assert listener.served == [b"anything"]


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_a_wrong_password_fails_after_a_delay(
    listener: Listener, mechanism: str, user: str
) -> None:
    line = listener.connect()
    with pytest.raises(NoResponse):
        log_in(line, user, "wrong", mechanism)
    assert line.answers[-1].frame is None
    assert [ms for ms, _ in listener.later] == [100]
    [(failed, reason)] = listener.failed
    assert failed is line, "the failure is recorded before the delay, in which the client may leave"
    line.handle(line, memoryview(b"more"))
    assert not listener.served
    listener.run_later()
    response = last(line, SASL_AUTHENTICATE, 1)
    text = "Authentication failed: Invalid username or password"
    assert response["error_message"] == (text if mechanism == PLAIN else GENERIC + mechanism)
    assert response["error_code"] == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert line.close_code is CloseCode.NOT_COUNTED, "it is counted already"
    assert line.closed == reason
    assert len(listener.failed) == 1
    assert repr(user) in line.closed
    assert "wonderland" not in line.closed
    assert line.session.principal is ANONYMOUS
    assert not listener.authenticated


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_version_of_sasl_authenticate(listener: Listener, version: int) -> None:
    line = listener.connect()
    assert handshake(line, PLAIN) == {"error_code": 0, "mechanisms": list(PASSWORD_MECHANISMS)}
    authenticate(line, ALICE, version)
    response = last(line, SASL_AUTHENTICATE, version)
    assert response["error_code"] == ErrorCode.NONE
    assert response["auth_bytes"] == b""
    assert line.session.principal.name == "alice"


def test_tokens_without_headers_after_the_first_version_of_the_handshake(
    listener: Listener,
) -> None:
    line = listener.connect()
    handshake(line, PLAIN, 0)
    line.handle(line, memoryview(bytearray(ALICE)))
    assert line.answers[-1].frame == bytes(4), "an empty token with its length"
    assert line.session.principal.name == "alice"


def test_a_wrong_token_without_header_has_no_response(listener: Listener) -> None:
    line = listener.connect()
    handshake(line, PLAIN, 0)
    answers = len(line.answers)
    line.handle(line, memoryview(bytearray(WRONG)))
    listener.run_later()
    assert len(line.answers) == answers
    assert [failed for failed, _ in listener.failed] == [line]


def test_a_broker_passes_by_the_secret_of_the_cluster(listener: Listener) -> None:
    line = listener.connect()
    run(line, cluster_login(SECRET, "test", ADDRESS, bytes))
    assert line.session.principal is BROKER
    other = listener.connect()
    with pytest.raises(NoResponse):
        run(other, cluster_login("of another cluster", "test", ADDRESS, bytes))
    assert other.session.principal is ANONYMOUS
    assert CLUSTER_MECHANISM not in handshake(listener.connect(), PLAIN)["mechanisms"]


def test_a_challenge_does_not_tell_an_unknown_user(listener: Listener) -> None:
    """Also if users have other iterations and salts than Tidelog and Kafka's tools make."""

    def challenge(user: str) -> tuple[int, str]:
        login = listener.rules.begin(SCRAM_SHA_256)
        assert login is not None
        answer = login.server.respond(ScramClient(SCRAM_SHA_256, user, "", bytes).first())
        _, salt, iterations = answer.decode().split(",")
        return len(salt), iterations

    credential = listener.image.scram.pop((SCRAM_SHA_256, "alice"))
    salt = bytes(range(64))
    listener.image.scram[SCRAM_SHA_256, "carol"] = credential._replace(iterations=9999, salt=salt)
    listener.image.scram_changes += 1
    assert challenge("carol") == challenge("nobody") == (len(b64encode(salt)) + 2, "i=9999")


@pytest.mark.parametrize("address", ["[::1]:9093", "localhost:9092", "broker"])
def test_a_login_by_the_secret_cant_be_passed_on_to_another_broker(
    listener: Listener, address: str
) -> None:
    """A false broker gets the login for its address. A relay can't change that: it is signed."""
    line = listener.connect()
    with pytest.raises(NoResponse):
        run(line, cluster_login(SECRET, "test", address, bytes))
    assert line.session.principal is ANONYMOUS

    class Relayed(ScramClient):
        def first(self) -> bytes:
            return super().first().replace(address.encode(), ADDRESS.encode())

    line = listener.connect()
    client = Relayed(SCRAM_SHA_256, address, SECRET, bytes)
    with pytest.raises(NoResponse):
        run(line, SaslLogin(SCRAM_SHA_256, client, "test", CLUSTER_MECHANISM))
    assert f"wrong password or unknown user {ADDRESS!r}" in listener.failed[-1][1]
    assert line.session.principal is ANONYMOUS


def test_the_listener_for_brokers_has_no_login_by_the_secret(listener: Listener) -> None:
    """There, the handshake proves the secret."""
    listener.gate = listener.gate_of(sasl_rules(listener.sasl, listener.image, SECRET, bytes))
    line = listener.connect()
    send(line, SASL_HANDSHAKE, 1, {"mechanism": CLUSTER_MECHANISM})
    assert listener.failed == [(line, "SASL mechanism 'TIDELOG-CLUSTER' is not enabled")]


def test_the_login_of_brokers_needs_no_user_in_the_store(listener: Listener) -> None:
    sasl = listener.sasl._replace(mechanisms=(SCRAM_SHA_256, SCRAM_SHA_512))
    own = BrokerLogin(SCRAM_SHA_512, "broker", "b-pass")
    listener.gate = listener.gate_of(sasl_rules(sasl, listener.image, SECRET, bytes, own))
    line = listener.connect()
    log_in(line, "broker", "b-pass", SCRAM_SHA_512)
    assert line.session.principal == Principal(USER, "broker")
    for user, password, mechanism in (
        ("broker", "wrong", SCRAM_SHA_512),
        ("broker", "b-pass", SCRAM_SHA_256),
        ("other", "b-pass", SCRAM_SHA_512),
    ):
        with pytest.raises(NoResponse):
            log_in(listener.connect(), user, password, mechanism)


def test_a_user_who_is_deleted_later_cant_authenticate_again(listener: Listener) -> None:
    log_in(listener.connect(), "alice", "wonderland", SCRAM_SHA_256)
    del listener.image.scram[SCRAM_SHA_256, "alice"]
    with pytest.raises(NoResponse):
        log_in(listener.connect(), "alice", "wonderland", SCRAM_SHA_256)


# -- what is refused -----------------------------------------------------------------------


def test_api_versions_is_answered_before_the_authentication_once(listener: Listener) -> None:
    line = listener.connect()
    versions = {"client_software_name": "test", "client_software_version": "1"}
    send(line, API_VERSIONS, 3, versions)
    assert len(listener.served) == 1
    handshake(line, PLAIN)
    authenticate(line, ALICE)
    assert line.session.principal.name == "alice"

    line = listener.connect()
    send(line, API_VERSIONS, 3, versions)
    send(line, API_VERSIONS, 3, versions)
    listener.run_later()
    assert len(listener.served) == 2
    assert line.closed is not None


def test_a_version_that_is_too_new_may_be_followed_by_an_older_one(listener: Listener) -> None:
    line = listener.connect()
    frame = bytes.fromhex("0012 0009 00000042 ffff 00 0102030405")
    line.handle(line, memoryview(bytearray(frame)))
    send(line, API_VERSIONS, 0, {})
    assert len(listener.served) == 2


METADATA_REQUEST = {
    "topics": None,
    "allow_auto_topic_creation": False,
    "include_topic_authorized_operations": False,
}


@pytest.mark.parametrize("after_handshake", [False, True])
def test_any_other_request_closes_the_connection(listener: Listener, after_handshake: bool) -> None:
    line = listener.connect()
    if after_handshake:
        handshake(line, PLAIN)
    send(line, METADATA, 12, METADATA_REQUEST)
    listener.run_later()
    assert line.closed is not None
    assert line.closed.startswith("Metadata version 12")
    assert listener.failed == [(line, line.closed)]
    assert not listener.served


def test_sasl_authenticate_needs_a_handshake(listener: Listener) -> None:
    line = listener.connect()
    authenticate(line, ALICE)
    listener.run_later()
    assert line.closed is not None
    assert not line.answers


@pytest.mark.parametrize("mechanism", ["GSSAPI", "OAUTHBEARER", "", "x" * 5000])
def test_a_mechanism_that_is_not_enabled_is_refused(listener: Listener, mechanism: str) -> None:
    line = listener.connect()
    send(line, SASL_HANDSHAKE, 1, {"mechanism": mechanism})
    listener.run_later()
    response = last(line, SASL_HANDSHAKE, 1)
    assert response["error_code"] == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert response["mechanisms"] == list(PASSWORD_MECHANISMS)
    assert line.closed is not None
    assert len(line.closed) < 200


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("seed", range(20))
def test_no_garbage_passes(listener: Listener, seed: int, version: int) -> None:
    """Random bytes, and valid frames and tokens with some bytes changed."""
    random = Random(seed)
    handshakes = [encode_request(SASL_HANDSHAKE, version, 1, "t", {"mechanism": SCRAM_SHA_256})]
    tokens = [WRONG, b"n,,n=alice,r=abc", b"c=biws,r=abc" + bytes(24).hex().encode() + b",p=AAAA"]
    tokens += [random.randbytes(random.randrange(100))]
    frames = [encode_request(SASL_AUTHENTICATE, 2, 2, "t", {"auth_bytes": t}) for t in tokens]
    frames += [encode_request(API_VERSIONS, 0, 3, "t", {})]
    for _ in range(100):
        line = listener.connect()
        for sent in random.choices([handshakes[0], *frames, *tokens], k=6):
            frame = bytearray(sent[4:] if sent not in tokens else sent)
            for _ in range(random.choice((0, 0, 1, 3))):
                if frame:
                    frame[random.randrange(len(frame))] = random.randrange(256)
            if line.closed is None:
                line.handle(line, memoryview(frame))
        assert line.session.principal is ANONYMOUS
    listener.run_later()
    assert not listener.authenticated
    assert not listener.faults
    assert all(frame[:2] == b"\0\x12" for frame in listener.served), "only ApiVersions"


@pytest.mark.parametrize("frame", [b"", b"\0", b"\0\x11\0\1", b"\0\x11\0\1\0\0\0\0\0\0\0\xff"])
def test_a_malformed_frame_closes_the_connection(listener: Listener, frame: bytes) -> None:
    line = listener.connect()
    line.handle(line, memoryview(bytearray(frame)))
    assert line.close_code is CloseCode.MALFORMED


def test_a_frame_behind_the_authentication_in_the_same_turn_is_served(
    listener: Listener,
) -> None:
    line = listener.connect()
    handshake(line, PLAIN)
    authenticate(line, ALICE)
    listener.gate.frame(line, memoryview(b"pipelined"))
    assert listener.served == [b"pipelined"]


def test_without_a_delay_a_failure_ends_the_connection_at_once() -> None:
    listener = Listener(connection_failed_authentication_delay_ms="0")
    line = listener.connect()
    handshake(line, PLAIN)
    authenticate(line, WRONG)
    assert last(line, SASL_AUTHENTICATE, 2)["error_code"] == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert line.closed is not None
    assert not listener.later


def test_a_bug_in_a_mechanism_costs_one_connection(listener: Listener) -> None:
    class Broken(PlainServer):
        def respond(self, token: bytes) -> bytes:
            raise RuntimeError(f"a bug with {len(token)} bytes")

    def begin(_mechanism: str) -> Login:
        return Login(Broken(PlainUsers({})), lambda name: Principal(USER, name))

    listener.gate = listener.gate_of(SaslRules((PLAIN,), begin, {}, listener.sasl.frame_max))
    line = listener.connect()
    handshake(line, PLAIN)
    authenticate(line, ALICE)
    assert [str(fault) for fault in listener.faults] == ["a bug with 17 bytes"]
    assert line.closed == "internal error; see the broker's log"


# -- authentication again (KIP-368) --------------------------------------------------------


@pytest.fixture
def limited() -> Listener:
    return Listener(connections_max_reauth_ms="10000")


def test_the_response_contains_how_long_the_authentication_is_valid(limited: Listener) -> None:
    line = limited.connect()
    assert log_in(line, "alice", "wonderland", PLAIN).lifetime_ms == 10_000
    line.handle(line, memoryview(b"\0\3 a request"))
    assert len(limited.served) == 1
    limited.now_ms += 9999
    line.handle(line, memoryview(b"\0\3 a request"))
    assert len(limited.served) == 2
    limited.now_ms += 1
    line.handle(line, memoryview(b"\0\3 a request"))
    assert len(limited.served) == 2
    assert line.closed == "User:alice did not authenticate again in time"
    assert limited.failed == [(line, line.closed)]


def test_authentication_again_extends_the_time(limited: Listener) -> None:
    line = limited.connect()
    log_in(line, "alice", "wonderland", SCRAM_SHA_256)
    for _ in range(3):
        limited.now_ms += 9000
        log_in(line, "alice", "wonderland", SCRAM_SHA_256)
        line.handle(line, memoryview(b"\0\3 a request"))
    assert len(limited.served) == 3
    assert limited.authenticated == [line], "counted once"


def test_an_expired_connection_may_still_authenticate_again(limited: Listener) -> None:
    line = limited.connect()
    log_in(line, "alice", "wonderland", PLAIN)
    limited.now_ms += 20_000
    log_in(line, "alice", "wonderland", PLAIN)
    line.handle(line, memoryview(b"\0\3 a request"))
    assert len(limited.served) == 1


def test_another_user_cant_take_over_the_connection(limited: Listener) -> None:
    line = limited.connect()
    log_in(line, "alice", "wonderland", PLAIN)
    limited.now_ms += 5000
    handshake(line, PLAIN)
    authenticate(line, b"\0bob\0builder")
    limited.run_later()
    assert last(line, SASL_AUTHENTICATE, 2)["error_message"] == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )
    assert line.closed is not None
    assert line.session.principal.name == "alice"


def test_a_wrong_password_the_second_time(limited: Listener) -> None:
    line = limited.connect()
    log_in(line, "alice", "wonderland", PLAIN)
    handshake(line, PLAIN)
    authenticate(line, WRONG)
    line.handle(line, memoryview(b"\0\3 a request"))
    limited.run_later()
    assert line.closed is not None
    assert "failed re-authentication by PLAIN" in line.closed
    assert not limited.served


def test_the_mechanism_cant_change(limited: Listener) -> None:
    line = limited.connect()
    log_in(line, "alice", "wonderland", PLAIN)
    assert handshake(line, SCRAM_SHA_256)["error_code"] == ErrorCode.NONE, "as in Kafka"
    authenticate(line, b"n,,n=alice,r=abc")
    limited.run_later()
    assert line.closed == "the client authenticated again by another mechanism"


def test_a_second_authentication_within_a_second_is_served_as_a_request(
    limited: Listener,
) -> None:
    """The handler refuses it with ILLEGAL_SASL_STATE, as Kafka does."""
    line = limited.connect()
    log_in(line, "alice", "wonderland", PLAIN)
    log_in(line, "alice", "wonderland", PLAIN)
    send(line, SASL_HANDSHAKE, 1, {"mechanism": PLAIN})
    assert len(limited.served) == 1
    limited.now_ms += 1000
    log_in(line, "alice", "wonderland", PLAIN)


def test_other_requests_wait_until_the_second_authentication_is_complete(
    limited: Listener,
) -> None:
    line = limited.connect()
    log_in(line, "alice", "wonderland", PLAIN)
    handshake(line, PLAIN)
    send(line, METADATA, 12, METADATA_REQUEST)
    limited.run_later()
    assert line.closed == "Metadata version 12 during authentication"


@pytest.mark.parametrize("after_handshake", [False, True])
def test_a_frame_of_a_second_authentication_that_is_too_long_closes_the_connection(
    after_handshake: bool,
) -> None:
    """The limit on a connection's frames is that of requests by then, 100 MiB."""
    limited = Listener(
        connections_max_reauth_ms="10000", sasl_server_max_receive_size=str(FRAME_MAX)
    )
    line = limited.connect()
    log_in(line, "alice", "wonderland", PLAIN)
    limited.now_ms += 5000
    if after_handshake:
        handshake(line, PLAIN)
        authenticate(line, bytes(FRAME_MAX))
    else:
        send(line, SASL_HANDSHAKE, 1, {"mechanism": "x" * FRAME_MAX})
    limited.run_later()
    assert line.closed is not None
    assert f"exceeds the limit of {FRAME_MAX}" in line.closed
    assert limited.failed == [(line, line.closed)]


# -- access tokens -------------------------------------------------------------------------

INVALID = '{"status":"invalid_token"}'


class TokenListener(Listener):
    """A listener with OAUTHBEARER; its tokens are the names of users."""

    def __init__(self, *, between_brokers: bool = False, **texts: str) -> None:
        self.wall_ms = 70_000
        super().__init__(
            sasl_enabled_mechanisms=OAUTHBEARER,
            sasl_oauthbearer_jwks_endpoint_url="file:///keys.json",
            **texts,
        )
        if between_brokers:
            own = BrokerLogin(OAUTHBEARER, "", "")
            rules = sasl_rules(self.sasl, self.image, SECRET, bytes, own, tokens=self.tokens())
            self.gate = self.gate_of(rules)

    def tokens(self) -> TokenCheck:
        return TokenCheck(self.check, lambda: self.wall_ms)

    def check(self, token: str) -> AcceptedToken:
        if token == "wrong":
            raise refused("the token is wrong")
        return AcceptedToken(token, 80_000)


def is_closed(line: Line) -> bool:
    return bool(line.closed)


def by_token(line: GatedLine, token: str) -> SaslLogin:
    return run(line, token_login(token, {}, "test"))


def test_a_token_is_an_authentication_until_it_expires() -> None:
    listener = TokenListener()
    line = listener.connect()
    assert by_token(line, "alice").lifetime_ms == 10_000
    assert line.session.principal == Principal(USER, "alice")
    listener.now_ms += 9999
    send(line, METADATA, 12, METADATA_REQUEST)
    assert len(listener.served) == 1
    listener.now_ms += 1
    send(line, METADATA, 12, METADATA_REQUEST)
    assert line.closed == "User:alice did not authenticate again in time"
    assert len(listener.served) == 1


def test_a_new_token_of_the_same_user_prolongs_the_authentication() -> None:
    listener = TokenListener()
    line = listener.connect()
    by_token(line, "alice")
    listener.now_ms += 5000
    listener.wall_ms += 5000
    assert by_token(line, "alice").lifetime_ms == 5000
    listener.now_ms += 2000
    with pytest.raises(NoResponse):
        by_token(line, "bob")
    listener.run_later()
    assert "Cannot change principals" in last(line, SASL_AUTHENTICATE, 1)["error_message"]
    assert line.closed


def test_the_shorter_one_of_two_limits_holds() -> None:
    for limit_ms, lifetime_ms in ((4000, 4000), (60_000, 10_000)):
        listener = TokenListener(connections_max_reauth_ms=str(limit_ms))
        assert by_token(listener.connect(), "alice").lifetime_ms == lifetime_ms


def test_between_brokers_the_end_of_a_token_does_not_end_a_link() -> None:
    listener = TokenListener(between_brokers=True)
    line = listener.connect()
    assert by_token(line, "alice").lifetime_ms == 0
    listener.now_ms += 1_000_000
    send(line, METADATA, 12, METADATA_REQUEST)
    assert len(listener.served) == 1


@pytest.mark.parametrize("second", [b"\1", b"n,,\1auth=Bearer alice\1\1"])
def test_a_refused_token_is_recorded_before_the_client_acknowledges_it(second: bytes) -> None:
    listener = TokenListener()
    line = listener.connect()
    handshake(line, OAUTHBEARER)
    authenticate(line, b"n,,\1auth=Bearer wrong\1\1")
    response = last(line, SASL_AUTHENTICATE, 2)
    assert response["error_code"] == ErrorCode.NONE
    assert response["auth_bytes"] == INVALID.encode()
    recorded = [(line, "failed authentication by OAUTHBEARER: the token is wrong")]
    assert listener.failed == recorded
    assert not is_closed(line)
    authenticate(line, second)
    listener.run_later()
    response = last(line, SASL_AUTHENTICATE, 2)
    assert response["error_code"] == ErrorCode.SASL_AUTHENTICATION_FAILED
    generic = GENERIC + OAUTHBEARER
    assert response["error_message"] == (INVALID if second == b"\1" else generic)
    assert line.closed
    assert listener.failed == recorded, "one failure"
    assert not listener.authenticated


def test_a_refused_token_without_headers() -> None:
    listener = TokenListener()
    line = listener.connect()
    handshake(line, OAUTHBEARER, 0)
    line.handle(line, memoryview(bytearray(b"n,,\1auth=Bearer wrong\1\1")))
    frame = line.answers[-1].frame
    assert frame is not None
    assert bytes(frame)[4:] == INVALID.encode()
    answers = len(line.answers)
    line.handle(line, memoryview(bytearray(b"\1")))
    listener.run_later()
    assert len(line.answers) == answers
    assert line.closed
    assert len(listener.failed) == 1


def test_a_client_learns_that_its_token_is_refused() -> None:
    listener = TokenListener(connection_failed_authentication_delay_ms="0")
    with pytest.raises(LoginRefused, match="invalid_token"):
        by_token(listener.connect(), "wrong")
