"""The same dialogues about SASL with a broker of Tidelog and one of a real Apache Kafka."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

import pytest
from client_programs import java_tools
from issuer import AUDIENCE, ISSUER, jwks, key_of, public_jwk, token, unsecured
from real_cluster import eventually

from tidelog.core.api_table import (
    ALTER_USER_SCRAM_CREDENTIALS,
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from tidelog.core.sasl.mechanism import (
    MECHANISMS,
    OAUTHBEARER,
    PLAIN,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
)
from tidelog.core.sasl.scram import ScramClient
from tidelog.core.settings.jaas import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE
from tidelog.core.settings.oauth_keys import SIGNED_HANDLER, UNSECURED_HANDLER
from tidelog.core.wire.codec import decode_response, encode_request
from tidelog.shell.client.administration.users import describe_users, store_user
from tidelog.shell.client.client_errors import ClientError
from tidelog.shell.client.cluster import Cluster
from tidelog.shell.client.connection import KafkaConnection

pytestmark = pytest.mark.slow

HOST = "127.0.0.1"
PATIENCE_S = 120
STOP_S = 30
CLUSTER_ID = "dGlkZWxvZy1jb21wYXJlMQ"
PREFIX = "listener.name.sasl_plaintext"
NAMES = ("PLAINTEXT", "SASL_PLAINTEXT", "ANY_ISSUER", "UNSECURED")
SIGNED_BY = ("RS256", "ES256")
UNSECURED_OPTIONS = ' unsecuredLoginStringClaim_sub="kafka" unsecuredValidatorRequiredScope="read"'
SASL = {
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    f"{PREFIX}.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="secret";',
    f"{PREFIX}.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    f"{PREFIX}.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    "connection.failed.authentication.delay.ms": "50",
}
RIGHT, WRONG = b"\0alice\0secret", b"\0alice\0wrong"
CLOSED = "closed"


class Side(NamedTuple):
    """The ports of one broker: for administration, with SASL, with other rules for tokens, and with
    tokens without signature."""

    plain: int
    sasl: int
    any_issuer: int
    unsecured: int


def keys_url(folder: Path) -> str:
    """The address of the keys that check tokens, which are in a file."""
    return f"file://{folder}/keys.json"


def oauth(folder: Path) -> dict[str, str]:
    """The settings of OAUTHBEARER; Kafka needs all of them."""
    (folder / "keys.json").write_bytes(jwks(*(public_jwk(key_of(one), one) for one in SIGNED_BY)))
    handler, jaas = "sasl.server.callback.handler.class", "sasl.jaas.config"
    prefixes = {name: f"listener.name.{name.lower()}.oauthbearer" for name in NAMES}
    found = {
        "listener.security.protocol.map": ",".join(
            ["CONTROLLER:PLAINTEXT", "ANY_ISSUER:SASL_PLAINTEXT", "UNSECURED:SASL_PLAINTEXT"]
            + [f"{name}:{name}" for name in NAMES[:2]]
        ),
        "sasl.oauthbearer.jwks.endpoint.url": keys_url(folder),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "listener.name.any_issuer.sasl.enabled.mechanisms": OAUTHBEARER,
        "listener.name.any_issuer.sasl.oauthbearer.expected.audience": "",
        "listener.name.any_issuer.sasl.oauthbearer.expected.issuer": "",
        "listener.name.any_issuer.sasl.oauthbearer.sub.claim.name": "mail",
        "listener.name.any_issuer.sasl.oauthbearer.scope.claim.name": "rights",
        "listener.name.any_issuer.sasl.oauthbearer.clock.skew.seconds": "600",
        "listener.name.unsecured.sasl.enabled.mechanisms": OAUTHBEARER,
    }
    for name in NAMES[1:]:
        unsecured_one = name == "UNSECURED"
        found[f"{prefixes[name]}.{handler}"] = (
            UNSECURED_HANDLER if unsecured_one else SIGNED_HANDLER
        )
        options = UNSECURED_OPTIONS if unsecured_one else ""
        found[f"{prefixes[name]}.{jaas}"] = f"{OAUTH_MODULE} required{options};"
    return found


def write(path: Path, settings: dict[str, object]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))


def free_ports(count: int) -> list[int]:
    held = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in held]
    for one in held:
        one.close()
    return ports


@contextmanager
def running_kafka(folder: Path) -> Iterator[Side]:
    *java, class_path = java_tools()  # skips without Java
    *ports, controller = free_ports(len(NAMES) + 1)
    conf, log_path = folder / "server.properties", folder / "log"
    places = zip((*NAMES, "CONTROLLER"), (*ports, controller), strict=True)
    wanted = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in places),
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(folder / "data"),
        **SASL,
        **oauth(folder),
    }
    write(conf, {**wanted})
    with ExitStack() as stack:
        log = stack.enter_context(log_path.open("wb"))
        tool = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(conf)]
        subprocess.run([*java, class_path, *tool], stdout=log, stderr=log, check=True)
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys_url(folder)}"
        command = [java[0], allowed, *java[1:], class_path, "kafka.Kafka", str(conf)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        stack.callback(process.wait, STOP_S)
        stack.callback(process.kill)

        def is_ready() -> bool:
            assert process.poll() is None, log_path.read_text()[-2000:]
            try:
                with KafkaConnection(HOST, ports[0], timeout_s=5) as connection:
                    return bool(connection.call(DESCRIBE_CLUSTER, {})["brokers"])
            except ClientError:
                return False

        eventually(is_ready, "Kafka is ready", PATIENCE_S)
        yield Side(*ports)


@contextmanager
def running_tidelog(folder: Path) -> Iterator[Side]:
    wanted = {
        "node.id": "1",
        "listeners": ",".join(f"{name}://{HOST}:0" for name in NAMES),
        "tidelog.log.format": "json",
        **SASL,
        **oauth(folder),
    }
    write(folder / "server.properties", {**wanted})
    log_path = folder / "log.txt"
    command = [sys.executable, "-m", "tidelog", "broker", "--config", "server.properties"]
    with ExitStack() as stack:
        log = stack.enter_context(log_path.open("wb"))
        process = subprocess.Popen(command, cwd=folder, stderr=log, env=dict(os.environ))
        stack.callback(process.wait, STOP_S)
        stack.callback(process.terminate)

        def ports() -> Side | None:
            for line in log_path.read_text().splitlines():
                event = json.loads(line)
                if event.get("event") == "listening":
                    found = [int(one.rpartition(":")[2]) for one in event["listeners"]]
                    return Side(*found)
            return None

        yield eventually(ports, "it listens", PATIENCE_S)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    folder = Path(mkdtemp(prefix="kafka-sasl-"))
    try:
        with (
            running_kafka(folder) as kafka,
            running_tidelog(tmp_path_factory.mktemp("tidelog")) as ours,
        ):
            for side in (ours, kafka):
                with Cluster(f"{HOST}:{side.plain}", timeout_s=PATIENCE_S) as client:

                    def stored(client: Cluster = client) -> bool:
                        for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512):
                            store_user(client, "alice", mechanism, "secret", 4096)
                        return len(describe_users(client, ["alice"])[0].credentials) == 2

                    eventually(stored, "alice can log in", PATIENCE_S)
            yield ours, kafka
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Dialogue:
    """One connection, and what the broker answered on it."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), PATIENCE_S)
        self._file = self._socket.makefile("rb")
        self.answers: list[Any] = []

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def send(self, key: int, version: int, body: Any) -> Any:
        """Send a request; note and return its response, or that the connection was closed."""
        self._put(encode_request(key, version, 1, "test", body))
        frame = self._receive()
        if frame is None:
            self.answers.append(CLOSED)
            return CLOSED
        answer = decode_response(key, version, frame)[1]
        if key == API_VERSIONS:
            answer = {"error_code": answer["error_code"]}
        if key == SASL_HANDSHAKE:
            answer["mechanisms"] = sorted(answer["mechanisms"])
        self.answers.append(answer)
        return answer

    def send_token(self, token: bytes) -> None:
        """Send a token without header."""
        self._put(len(token).to_bytes(4, "big") + token)
        self.answers.append(self._receive())

    def handshake(self, mechanism: str, version: int = 1) -> Any:
        return self.send(SASL_HANDSHAKE, version, {"mechanism": mechanism})

    def authenticate(self, token: bytes, version: int = 2) -> Any:
        return self.send(SASL_AUTHENTICATE, version, {"auth_bytes": token})

    def end(self) -> None:
        """Note whether the broker closes the connection; it never sends anything more."""
        self.answers.append(self._receive())

    def _put(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except ConnectionError:
            self.answers.append(CLOSED)

    def _receive(self) -> bytes | None:
        try:
            head = self._file.read(4)
            return self._file.read(int.from_bytes(head, "big")) if len(head) == 4 else None
        except ConnectionError:
            return None


def api_versions(dialogue: Dialogue, version: int = 0) -> None:
    names = {"client_software_name": "test", "client_software_version": "1"}
    dialogue.send(API_VERSIONS, version, names)


def scram(dialogue: Dialogue, mechanism: str, user: str, password: str) -> None:
    """Authenticate, and note only the last response: Kafka refuses an unknown user earlier."""
    client = ScramClient(mechanism, user, password, os.urandom)
    dialogue.handshake(mechanism)
    token: bytes | None = client.first()
    answer: dict[str, Any] = {}
    while token is not None:
        answer = dialogue.authenticate(token)
        dialogue.answers.pop()
        failed = answer["error_code"] != 0
        token = None if failed else client.respond(bytes(answer["auth_bytes"]))
    dialogue.answers.append({**answer, "auth_bytes": b""})


def plain_right(dialogue: Dialogue, version: int) -> None:
    api_versions(dialogue, 3)
    dialogue.handshake(PLAIN)
    dialogue.authenticate(RIGHT, version)
    api_versions(dialogue)
    dialogue.authenticate(RIGHT, version)


def plain_refused(dialogue: Dialogue, token: bytes, version: int = 2) -> None:
    dialogue.handshake(PLAIN)
    dialogue.authenticate(token, version)
    dialogue.end()


def refused_handshake(dialogue: Dialogue, mechanism: str, version: int) -> None:
    dialogue.handshake(mechanism, version)
    dialogue.end()


def without_headers(dialogue: Dialogue, token: bytes) -> None:
    dialogue.handshake(PLAIN, 0)
    dialogue.send_token(token)
    if token == RIGHT:
        api_versions(dialogue)


def metadata_first(dialogue: Dialogue) -> None:
    dialogue.send(METADATA, 4, {"topics": [], "allow_auto_topic_creation": False})


def authenticate_first(dialogue: Dialogue) -> None:
    dialogue.authenticate(RIGHT)


def versions_twice(dialogue: Dialogue) -> None:
    api_versions(dialogue)
    api_versions(dialogue)


def broken_scram(dialogue: Dialogue, token: bytes) -> None:
    dialogue.handshake(SCRAM_SHA_512)
    dialogue.authenticate(token)
    dialogue.end()


DIALOGUES: dict[str, Callable[[Dialogue], None]] = {
    **{f"right password, version {v}": partial(plain_right, version=v) for v in (0, 1, 2)},
    **{
        f"wrong password, version {v}": partial(plain_refused, token=WRONG, version=v)
        for v in (0, 1, 2)
    },
    **{
        f"PLAIN token {token!r}": partial(plain_refused, token=token)
        for token in (
            b"",
            b"alice",
            b"\0alice\0",
            b"\0\0secret",
            b"\0alice\0sec\0ret",
            b"bob\0alice\0secret",
            b"alice\0alice\0secret\0",
            b"\0nobody\0secret",
        )
    },
    **{
        f"mechanism {name!r}, version {v}": partial(refused_handshake, mechanism=name, version=v)
        for name in ("GSSAPI", "plain", "")
        for v in (0, 1)
    },
    "right token without header": partial(without_headers, token=RIGHT),
    "wrong token without header": partial(without_headers, token=WRONG),
    "another request first": metadata_first,
    "SaslAuthenticate first": authenticate_first,
    "ApiVersions twice": versions_twice,
    **{
        f"{mechanism}: {user} {password}": partial(
            scram, mechanism=mechanism, user=user, password=password
        )
        for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512)
        for user, password in (("alice", "secret"), ("alice", "wrong"), ("nobody", "secret"))
    },
    **{
        f"SCRAM token {token!r}": partial(broken_scram, token=token)
        for token in (b"", b"nonsense", b"y,,n=alice,r=abc", b"n,a=bob,n=alice,r=abc")
    },
}


@pytest.mark.parametrize("label", DIALOGUES)
def test_a_dialogue_is_that_of_kafka(sides: tuple[Side, Side], label: str) -> None:
    found = []
    for side in sides:
        dialogue = Dialogue(side.sasl)
        DIALOGUES[label](dialogue)
        dialogue.close()
        found.append(dialogue.answers)
    ours, kafkas = found
    assert ours == kafkas


# -- OAUTHBEARER ---------------------------------------------------------------------------


def first(text: str, before: str = "n,,", after: str = "") -> bytes:
    """The first message of a client with a token."""
    return f"{before}\1auth=Bearer {text}\1{after}\1".encode()


def rs256(key: str = "RS256", **changed: Any) -> bytes:
    return first(token(key, header={"kid": key}, **changed))


NOW_S = int(time.time())
TOKENS: dict[str, Callable[[], bytes]] = {
    "right": rs256,
    "right, by another algorithm": partial(rs256, "ES256"),
    "right, RS512 by the key for RS256": lambda: first(
        token("RS512", key_of("RS256"), {"kid": "RS256"})
    ),
    "without key id": lambda: first(token(header={})),
    "acts as itself": lambda: first(token(header={"kid": "RS256"}), "n,a=alice,"),
    "acts as another": lambda: first(token(header={"kid": "RS256"}), "n,a=bob,"),
    "with extensions": lambda: first(token(header={"kid": "RS256"}), "n,,", "traceId=7\1"),
    "expired": partial(rs256, exp=NOW_S - 3600, iat=NOW_S - 7200),
    "expired within the difference of clocks": partial(rs256, exp=NOW_S - 300, iat=NOW_S - 7200),
    "without end": partial(rs256, exp=None),
    "issued in the future": partial(rs256, iat=NOW_S + 3000),
    "issued after its end": partial(rs256, iat=NOW_S + 7200),
    "without time of issue": partial(rs256, iat=None),
    "not valid yet": partial(rs256, nbf=NOW_S + 1800),
    "not valid before its end": partial(rs256, nbf=NOW_S + 7200),
    "wrong audience": partial(rs256, aud="others"),
    "several audiences": partial(rs256, aud=["others", AUDIENCE]),
    "wrong audiences": partial(rs256, aud=["others", "nobody"]),
    "without audience": partial(rs256, aud=None),
    "wrong issuer": partial(rs256, iss=f"{ISSUER}/"),
    "without issuer": partial(rs256, iss=None),
    "without user": partial(rs256, sub=None),
    "empty user": partial(rs256, sub=""),
    "blank user": partial(rs256, sub="  "),
    "user with blanks": partial(rs256, sub=" alice "),
    "mail": partial(rs256, mail="a@b"),
    "mail without audience": partial(rs256, mail="a@b", aud=None, iss=None),
    "mail, expired within the difference": partial(
        rs256, mail="a@b", aud=None, exp=NOW_S - 300, iat=NOW_S - 7200
    ),
    "mail is a number": partial(rs256, mail=5, aud=None),
    "mail, other rights": partial(rs256, mail="a@b", aud=None, rights=["a", "a"]),
    "mail, user is empty": partial(rs256, mail="a@b", aud=None, sub=""),
    "scopes": partial(rs256, scope=["read", "write"]),
    "scope": partial(rs256, scope="read write"),
    "empty scope": partial(rs256, scope=""),
    "duplicate scope": partial(rs256, scope=["read", "read"]),
    "scope is a number": partial(rs256, scope=5),
    "wrong signature": lambda: first(token(key=key_of("RS256", 1), header={"kid": "RS256"})),
    "unknown key": lambda: first(token(key=key_of("RS256", 1), header={"kid": "other"})),
    "key of another algorithm": lambda: first(token(header={"kid": "ES256"})),
    "without signature": lambda: first(unsecured()),
    "without signature, scope": lambda: first(unsecured(scope="write read")),
    "without signature, scopes": lambda: first(unsecured(scope=["read"])),
    "without signature, no issue": lambda: first(unsecured(scope="read", iat=None)),
    "without signature, expired": lambda: first(unsecured(scope="read", exp=NOW_S - 5, iat=5)),
    "without signature, no end": lambda: first(unsecured(scope="read", exp=None)),
    "without signature, no user": lambda: first(unsecured(scope="read", sub=None)),
    "without signature, from the future": lambda: first(unsecured(scope="read", iat=NOW_S + 1800)),
    "not a token": lambda: first("nonsense"),
    "two parts": lambda: first("a.b"),
    "four parts": lambda: first("a.b.c.d"),
    "empty message": lambda: b"",
    "only the end": lambda: b"\1",
    "no scheme": lambda: b"n,,\1auth=a.b.c\1\1",
    "no authorization": lambda: b"n,,\1other=a.b.c\1\1",
    "no pairs": lambda: b"n,,\1\1",
    "another channel": lambda: b"y,,\1auth=Bearer a.b.c\1\1",
    "invalid token letters": lambda: b"n,,\1auth=Bearer a!b\1\1",
}


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("listener", ["sasl", "any_issuer", "unsecured"])
@pytest.mark.parametrize("label", TOKENS)
def test_a_token_is_answered_as_by_kafka(
    sides: tuple[Side, Side], label: str, listener: str, version: int
) -> None:
    message = TOKENS[label]()
    found, lifetimes = [], []
    for side in sides:
        dialogue = Dialogue(getattr(side, listener))
        api_versions(dialogue, 3)
        dialogue.send(SASL_HANDSHAKE, 1, {"mechanism": OAUTHBEARER})
        answer = dialogue.authenticate(message, version)
        lifetimes.append(0 if answer == CLOSED else answer.pop("session_lifetime_ms", 0))
        if answer != CLOSED and answer["auth_bytes"]:
            dialogue.authenticate(b"\1", version)
        if answer == CLOSED or answer["error_code"] or answer["auth_bytes"]:
            dialogue.end()
        else:
            api_versions(dialogue)
        dialogue.close()
        found.append(dialogue.answers)
    ours, kafkas = found
    assert ours == kafkas
    assert abs(lifetimes[0] - lifetimes[1]) < 60_000, "two dialogues can't be at the same time"


def test_users_are_stored_and_described_as_by_kafka(sides: tuple[Side, Side]) -> None:
    def upsertion(name: str, **fields: Any) -> dict[str, Any]:
        return {
            "name": name,
            "mechanism": 1,
            "iterations": 4096,
            "salt": b"salt",
            "salted_password": b"password",
            **fields,
        }

    alterations = {
        "deletions": [
            {"name": "missing", "mechanism": 1},
            {"name": "twice", "mechanism": 1},
            {"name": "twice", "mechanism": 2},
            {"name": "both", "mechanism": 1},
            {"name": "alice", "mechanism": 7},
            {"name": "", "mechanism": 1},
        ],
        "upsertions": [
            upsertion("bob"),
            upsertion("carol", mechanism=2, iterations=16384),
            upsertion("few", iterations=4095),
            upsertion("many", iterations=16385),
            upsertion("unknown", mechanism=0),
            upsertion("both"),
            upsertion("mechanisms"),
            upsertion("mechanisms", mechanism=2),
        ],
    }
    asked = {"users": [{"name": name} for name in ("bob", "carol", "missing", "few", "bob")]}

    def answers(side: Side) -> dict[tuple[str, str], Any]:
        with KafkaConnection(HOST, side.plain, timeout_s=PATIENCE_S) as connection:
            altered = connection.call(ALTER_USER_SCRAM_CREDENTIALS, alterations)

            def described() -> Any:
                found = connection.call(DESCRIBE_USER_SCRAM_CREDENTIALS, asked)
                return found if found["results"][1]["error_code"] != 91 else None

            found = eventually(described, "the users are stored", PATIENCE_S)
        return {
            (kind, each["user"]): each
            for kind, response in (("altered", altered), ("described", found))
            for each in response["results"]
        }

    ours, kafkas = map(answers, sides)
    assert ours.keys() == kafkas.keys()
    for key, answer in ours.items():
        assert (key, answer) == (key, kafkas[key])
