"""Send hostile frames to a listener with SASL, before and in the middle of a login.

Each connection logs in honestly up to one of the STAGES. Then it sends hostile frames: tokens with
a wrong password, damaged copies of messages of SASL, requests that need a login, tokens that are
long or hard to parse. A frame is a finding if it

- raises an exception, takes long, or gets a long response;
- reaches the dispatch before the login, and is not ApiVersions;
- leaves much data in the state of its connection;
- authenticates the connection, or makes it another principal;
- ends the login, and the connection is not closed.
"""

import time
import traceback
from collections.abc import Callable
from random import Random
from typing import Any

from tidelog.core.api.sasl_exchange import SaslExchange, State
from tidelog.core.api.sasl_gate import Frame, SaslGate
from tidelog.core.api.sasl_rules import CLUSTER_MECHANISM, sasl_rules
from tidelog.core.api_table import API_VERSIONS, APIS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.principal import ANONYMOUS
from tidelog.core.sasl.mechanism import PASSWORD_MECHANISMS, PLAIN, SCRAM_SHA_256, SaslClient
from tidelog.core.sasl.plain import PlainClient
from tidelog.core.sasl.scram import ITERATIONS_MIN, ScramClient, credential_of, salted_password
from tidelog.core.settings.broker_settings import settings_of
from tidelog.core.settings.jaas import PLAIN_MODULE
from tidelog.core.storage.disk import Region
from tidelog.core.wire.codec import decode_response, encode_request
from tidelog.lab.fuzz.campaign import Finding, Tally, begin
from tidelog.lab.fuzz.memory_broker import Line, MemoryBroker
from tidelog.lab.fuzz.mutators import mutate
from tidelog.lab.fuzz.requests import RequestMaker

STAGES = ("connected", "versions", "handshake", "challenge", "again", "challenged again")
"""Where hostile frames begin: before the login, in the middle of it, and in the middle of a second
login of an authenticated connection (KIP-368)."""
FRAME_MAX = 64 * 1024
"""The longest frame that a listener accepts from strangers."""
ANSWER_MAX = 16 * 1024
KEPT_MAX = 64 * 1024
"""Bytes of texts that the state of one login may hold."""
SLOW_S = 0.5
FRAMES_MAX = 8
"""Hostile frames of one connection."""
POOL = 400
ADDRESS, SECRET = "localhost:1", "known to brokers"
USER, PASSWORD, WRONG = "alice", "the password of alice", "the password of mallory"
LATER_MS = 2000
"""After this time a client may log in again."""


class SaslLine(Line):
    """A connection whose frames go to the gate at first."""

    def __init__(self, handle: Frame) -> None:
        super().__init__()
        self.handle = handle
        self.version = 1
        """The version of its SaslHandshake: after 0, tokens have no header."""

    def handle_by(self, handle: Frame) -> None:
        self.handle = handle

    def next_frame(self) -> None:
        """Forget the response to the previous frame."""
        self.reserved = self.filled = False
        self.answer = []


class SaslListener:
    """A gate with users, in front of a broker in memory."""

    def __init__(self, broker: MemoryBroker, random: Random) -> None:
        self.now_ms = 1000
        self.leaked: list[bytes] = []
        """Requests that passed the gate before the login, other than ApiVersions."""
        self._broker = broker
        self._later: list[Callable[[], None]] = []
        image = ClusterImage()
        for mechanism in PASSWORD_MECHANISMS:
            if mechanism != PLAIN:
                salted = salted_password(mechanism, PASSWORD, b"salt", ITERATIONS_MIN)
                credential = credential_of(mechanism, salted, b"salt", ITERATIONS_MIN)
                image.scram[mechanism, USER] = credential
        texts = {
            "node.id": "1",
            "listeners": f"SASL_PLAINTEXT://{ADDRESS}",
            "sasl.enabled.mechanisms": ",".join(PASSWORD_MECHANISMS),
            "sasl.jaas.config": f'{PLAIN_MODULE} required user_{USER}="{PASSWORD}";',
            "connections.max.reauth.ms": "3600000",
        }
        settings = settings_of(texts)
        sasl = settings.sasl(settings.listener)
        rules = sasl_rules(sasl, image, SECRET, random.randbytes, address=ADDRESS)
        self._gate = SaslGate(
            rules,
            self._serve,
            lambda _line: None,
            lambda _line, _reason: None,
            lambda: self.now_ms,
            lambda _ms, act: self._later.append(act),
        )

    def connect(self) -> SaslLine:
        return SaslLine(self._gate.frame)

    def pass_time(self) -> None:
        """Let a client log in again, and run what was delayed."""
        self.now_ms += LATER_MS
        due, self._later = self._later, []
        for act in due:
            act()

    def _serve(self, line: Line, frame: memoryview) -> None:
        if line.session.principal == ANONYMOUS:
            if int.from_bytes(frame[:2], "big") != API_VERSIONS:
                self.leaked.append(bytes(frame))
                return
            self._broker.take(line, bytes(frame))


class SaslCampaign:
    """Sends and checks the frames of hostile connections."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        broker, world = begin()
        self._listener = SaslListener(broker, self._random)
        self._maker = RequestMaker(self._random, world)
        self._pool = [hostile_frame(self._random, self._maker) for _ in range(POOL)]
        self.frames = self.answered = self.refused = 0
        self.slowest_s = 0.0
        self.findings: list[Finding] = []
        self.stages = dict.fromkeys(STAGES, 0)
        """Hostile frames by the stage that they began in."""

    def run(self, frames: int, until_s: float, progress: Callable[[int], None]) -> Tally:
        """Run this many frames, or until this time of `time.monotonic`."""
        while self.frames < frames and time.monotonic() < until_s:
            for stage in STAGES:
                self._attack(stage)
            progress(self.frames)
        return Tally(self.frames, self.answered, self.refused, self.slowest_s, 0, self.findings)

    def _attack(self, stage: str) -> None:
        random, listener = self._random, self._listener
        mechanism = random.choice(PASSWORD_MECHANISMS)
        line = listener.connect()
        client = self._log_in(line, mechanism, stage)
        before, frame = line.session.principal, b""
        for number in range(random.randrange(1, FRAMES_MAX)):
            frame = self._next(line, client if number == 0 else None)
            self.stages[stage] += 1
            if not self._send(line, frame):
                return
            self._check(line, frame, before)
            if line.refused is not None or (self._failed(line) and random.random() < 0.9):
                break
        listener.pass_time()
        self._check(line, frame, before)
        self.refused += line.refused is not None
        if self._failed(line) and line.refused is None:
            self._find(frame, "a failed login, and the connection is not closed")

    def _failed(self, line: SaslLine) -> bool:
        exchange = line.session.sasl
        return exchange is not None and exchange.state is State.FAILED

    def _log_in(self, line: SaslLine, mechanism: str, stage: str) -> SaslClient | None:
        """Bring a connection to a stage; return the client of a login in progress."""
        if stage == "connected":
            return None
        self._honest(line, API_VERSIONS, 3, {"client_software_name": "f"})
        if stage == "versions":
            return None
        line.version = 1 if "again" in stage else self._random.choice((0, 1))
        if "again" in stage:
            client = self._client(mechanism, PASSWORD)
            self._shake_hands(line, mechanism)
            token: bytes | None = client.first()
            while token is not None:
                token = client.respond(self._token(line, token))
            assert line.session.principal != ANONYMOUS
            self._listener.pass_time()
        self._shake_hands(line, mechanism)
        client = self._client(mechanism, WRONG)
        if "challenge" in stage and isinstance(client, ScramClient):
            return _Prepared(client.respond(self._token(line, client.first())))
        return client

    def _client(self, mechanism: str, password: str) -> SaslClient:
        if mechanism == PLAIN:
            return PlainClient(USER, password)
        return ScramClient(mechanism, USER, password, self._random.randbytes)

    def _shake_hands(self, line: SaslLine, mechanism: str) -> None:
        self._honest(line, SASL_HANDSHAKE, line.version, {"mechanism": mechanism})

    def _token(self, line: SaslLine, token: bytes) -> bytes:
        if line.version == 0:
            return self._exchange(line, token)[4:]
        answer = self._honest(line, SASL_AUTHENTICATE, 2, {"auth_bytes": token})
        assert answer["error_code"] == 0, answer
        return bytes(answer["auth_bytes"])

    def _honest(self, line: SaslLine, key: int, version: int, body: dict[str, Any]) -> Any:
        request = {"client_software_version": "0"} if key == API_VERSIONS else {}
        frame = encode_request(key, version, 1, "fuzz", {**body, **request})[4:]
        return decode_response(key, version, self._exchange(line, frame)[4:])[1]

    def _exchange(self, line: SaslLine, frame: bytes) -> bytes:
        line.next_frame()
        line.handle(line, memoryview(bytearray(frame)))
        return b"".join(bytes(chunk) for chunk in line.answer if not isinstance(chunk, Region))

    # -- hostile frames --------------------------------------------------------------------

    def _next(self, line: SaslLine, client: SaslClient | None) -> bytes:
        random = self._random
        if client is not None and random.random() < 0.5:
            token = client.first()  # what a client with a wrong password would send
            frame = token if line.version == 0 else _authenticate(random, token)
        else:
            frame = random.choice(self._pool)
        if random.random() < 0.1:
            self._pool[int(random.random() * POOL)] = hostile_frame(random, self._maker)
        if random.random() < 0.7:
            frame = mutate(random, frame, self._pool)
        return frame[:FRAME_MAX]

    # -- checks ----------------------------------------------------------------------------

    def _send(self, line: SaslLine, frame: bytes) -> bool:
        self.frames += 1
        line.next_frame()
        began = time.process_time()
        try:
            line.handle(line, memoryview(bytearray(frame)))
        except Exception as error:  # noqa: BLE001 - any exception is a finding
            found = Finding(frame, f"{type(error).__name__}: {error}", traceback.format_exc())
            self.findings.append(found)
            return False
        took = time.process_time() - began
        self.slowest_s = max(self.slowest_s, took)
        if took > SLOW_S:
            self._find(frame, f"took {took:.1f} s")
        return True

    def _check(self, line: SaslLine, frame: bytes, before: object) -> None:
        size = sum(0 if isinstance(chunk, Region) else len(chunk) for chunk in line.answer)
        self.answered += bool(size)
        line.answer = []
        if size > ANSWER_MAX:
            self._find(frame, f"a response of {size} bytes")
        if line.session.principal != before:
            self._find(frame, f"became {line.session.principal} without a password")
        if self._listener.leaked:
            self._find(frame, "a request was served before the login")
            self._listener.leaked.clear()
        kept = kept_bytes(line.session.sasl)
        if kept > KEPT_MAX:
            self._find(frame, f"the state of the login has {kept} bytes")

    def _find(self, frame: bytes, what: str) -> None:
        self.findings.append(Finding(frame, what, ""))


class _Prepared:
    """The proof of a client with a wrong password, after the broker's challenge."""

    complete = False

    def __init__(self, token: bytes | None) -> None:
        assert token is not None
        self._proof = token

    def first(self) -> bytes:
        return self._proof

    def respond(self, _token: bytes) -> bytes | None:
        return None


def hostile_frame(random: Random, maker: RequestMaker) -> bytes:
    """Return a request that needs a login, or a message of SASL with a wrong content."""
    kind = random.random()
    if kind < 0.2:
        return maker.any()
    if kind < 0.35:
        names = (*PASSWORD_MECHANISMS, CLUSTER_MECHANISM, "GSSAPI", "", "\0", "x" * 30_000, "ü\n")
        body = {"mechanism": random.choice(names)}
        return encode_request(SASL_HANDSHAKE, random.choice((0, 1)), 7, "fuzz", body)[4:]
    token = random.choice(_tokens(random))
    return token if random.random() < 0.3 else _authenticate(random, token)


def beginning(random: Random) -> list[bytes]:
    """Return the first frames of a login, up to a random one; a client with a wrong password would
    send them."""
    mechanism, version = random.choice(PASSWORD_MECHANISMS), random.choice((0, 1))
    body = {"mechanism": mechanism}
    shake = encode_request(SASL_HANDSHAKE, version, 7, "fuzz", body)[4:]
    client: SaslClient = PlainClient(USER, WRONG)
    if mechanism != PLAIN:
        client = ScramClient(mechanism, USER, WRONG, random.randbytes)
    token = client.first()
    frames = [shake, token if version == 0 else _authenticate(random, token)]
    return frames[: random.choice((0, 1, 1, 2) if mechanism != PLAIN else (0, 1))]


def _authenticate(random: Random, token: bytes) -> bytes:
    version = random.choice(tuple(APIS[SASL_AUTHENTICATE].codec_versions))
    return encode_request(SASL_AUTHENTICATE, version, 8, "fuzz", {"auth_bytes": token})[4:]


def _tokens(random: Random) -> list[bytes]:
    """Tokens of every mechanism: wrong, long, or hard to parse."""
    scram = ScramClient(SCRAM_SHA_256, USER, WRONG, random.randbytes).first()
    long = random.choice((100, 4000, 4097, 60_000))
    return [
        scram,
        scram.replace(b"n,,", b"n,a=mallory,"),
        b"n,,n=" + b"=2C" * (long // 3) + b",r=abc",
        b"n,,n=alice,r=" + b"r" * long,
        b"n,,n=alice,r=abc" + b",x=y" * (long // 4),
        b"n,,n=alice,r=abc" + b",x=y=" * (long // 5) + b"\0",
        b"c=biws,r=abc,p=" + b"A" * long,
        b"c=biws,r=abc" + b",x=y" * (long // 4) + b",p=",
        b"c=" + b"=" * long,
        PlainClient(USER, WRONG).first(),
        b"\0" * long,
        b"\0" + b"u" * long + b"\0" + b"p" * long,
        b"mallory\0alice\0guess",
        "\0ünknown\0ü".encode(),
        random.randbytes(long),
        b"",
    ]


def kept_bytes(exchange: SaslExchange | None) -> int:
    """Return the length of all texts that the state of a login holds."""
    found, seen, todo = 0, set(), [exchange]
    while todo:
        one: Any = todo.pop()
        if isinstance(one, str | bytes | bytearray | memoryview):
            found += len(one)
        elif isinstance(one, tuple):
            todo += one
        elif id(one) not in seen and type(one).__module__.startswith("tidelog.core"):
            seen.add(id(one))
            todo += [getattr(one, name, None) for name in getattr(one, "__slots__", ())]
    return found
