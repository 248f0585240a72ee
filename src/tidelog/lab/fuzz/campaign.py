"""Send millions of frames to a broker in memory, and check how it handles each of them.

Frames come from a pool of valid requests and of frames that were accepted before. Most frames are
damaged copies from the pool, and a few have thousands of entries. The broker is replaced after
FRAMES_PER_BROKER frames; before that, waiting requests get the time to finish, because a request
that is never answered is a bug too.

A frame is a finding if it raises an exception, halts the broker, takes too long, or gets a response
that cannot be decoded.
"""

import gc
import resource
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tidelog.core.api_table import (
    API_VERSIONS,
    APIS,
    CREATE_TOPICS,
    FETCH,
    JOIN_GROUP,
    OFFERED,
    PRODUCE,
)
from tidelog.core.wire.codec import decode_request, decode_response, encode_request
from tidelog.core.wire.fetch_request import decode_fetch
from tidelog.core.wire.frames import parse_request_header
from tidelog.core.wire.primitives import MalformedRequest
from tidelog.core.wire.produce import decode_produce
from tidelog.lab.fuzz.memory_broker import Line, MemoryBroker, WrongAnswer
from tidelog.lab.fuzz.mutators import mutate
from tidelog.lab.fuzz.requests import RequestMaker, World, any_large, spare_brokers

FRAMES_PER_BROKER = 20_000
LARGE_SHARE = 1 / 5000
POOL = 4000
SLOW_S = 1.0
"""A frame that takes more CPU time than this is a finding."""
PASS_EVERY = 32
PASS_MS = 100
"""The time that passes after every PASS_EVERY frames."""
PATIENCE_MS = 3_700_000
"""The time within which every waiting request must be answered."""
FRAME_BYTES_MAX = 4000
READ_ANSWERS = 8
"""One of this many responses is decoded."""
JOINS = JOIN_GROUP.to_bytes(2, "big")
"""The first bytes of a JoinGroup request."""
WATCH_EVERY = 256
TOPICS = ("orders", "compacted", "packed")


class Finding(NamedTuple):
    """A frame that revealed a bug, and the symptom."""

    frame: bytes
    what: str
    where: str
    """The traceback."""


class Tally(NamedTuple):
    """The results of a campaign."""

    frames: int
    answered: int
    refused: int
    slowest_s: float
    grown_kb: int
    """Growth of memory from the start of the second broker to that of the last."""
    findings: list[Finding]


def begin() -> tuple[MemoryBroker, World]:
    """Start a broker with three topics: plain, compacted, recompressed."""
    broker = MemoryBroker()
    configs: tuple[dict[str, str], ...] = (
        {},
        {"cleanup.policy": "compact"},
        {"compression.type": "zstd"},
    )
    topics = [
        {
            "name": name,
            "num_partitions": 2,
            "replication_factor": 1,
            "configs": [{"name": key, "value": value} for key, value in texts.items()],
        }
        for name, texts in zip(TOPICS, configs, strict=True)
    ]
    request = {"topics": topics, "timeout_ms": 10_000, "validate_only": False}
    line = Line()
    broker.take(line, encode_request(CREATE_TOPICS, 7, 1, "fuzz", request)[4:])
    broker.pass_time(1000)
    [answer] = line.answer
    assert isinstance(answer, bytes)
    made = decode_response(CREATE_TOPICS, 7, answer[4:])[1]["topics"]
    assert all(topic["error_code"] == 0 for topic in made), made
    return broker, World(TOPICS, tuple(topic["topic_id"] for topic in made))


def decode_alone(frame: bytes) -> None:
    """Decode a frame, also of APIs that brokers do not offer."""
    try:
        header = parse_request_header(frame)
        api = APIS.get(header.api_key)
        if api is None or header.api_version not in api.codec_versions:
            return
        decode_request(header.api_key, header.api_version, frame, header.position)
        if header.api_key == PRODUCE:
            decode_produce(header.api_version, frame, header.position, {})
        elif header.api_key == FETCH:
            decode_fetch(header.api_version, frame, header.position, {})
    except MalformedRequest:
        return


def read_answer(frame: bytes, line: Line) -> dict[str, Any] | None:
    """Decode the response and check its correlation id. None if it is not decoded here."""
    if not line.answer or not isinstance(line.answer[0], bytes):
        return None
    key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
    if key == FETCH:  # its records are in the log
        return None
    offered = OFFERED.get(key)
    if key == API_VERSIONS and offered is not None and not offered.serves(version):
        version = 0
    answer = b"".join(bytes(chunk) for chunk in line.answer)  # type: ignore[arg-type]
    number, response = decode_response(key, version, answer[4:])
    if number != int.from_bytes(frame[4:8], "big", signed=True):
        raise WrongAnswer(f"response with correlation id {number}")
    return response


class Campaign:
    """Sends and checks the frames of one process."""

    def __init__(
        self, seed: int, seeds: list[bytes], watch: Callable[[bytes], None], pool: int = POOL
    ) -> None:
        self._random = Random(seed)
        self._watch = watch
        """Called with each frame before it is passed in: if the process dies, this is the last."""
        self._broker, world = begin()
        self._maker = RequestMaker(self._random, world)
        self._pool = [*seeds, *(self._maker.any() for _ in range(pool - len(seeds)))]
        self._waiting: list[tuple[bytes, Line]] = []
        self.frames = self.answered = self.refused = 0
        self.slowest_s = 0.0
        self.findings: list[Finding] = []
        self._first_kb = self._last_kb = 0

    def run(self, frames: int, until_s: float, progress: Callable[[int], None]) -> Tally:
        """Run this many frames, or until this time of `time.monotonic`."""
        while self.frames < frames and time.monotonic() < until_s:
            for _ in range(min(WATCH_EVERY, frames - self.frames)):
                self._send_one()
            progress(self.frames)
        self._end_broker()
        grown_kb = self._last_kb - self._first_kb
        return Tally(
            self.frames, self.answered, self.refused, self.slowest_s, grown_kb, self.findings
        )

    def _send_one(self) -> None:
        frame = self._next_frame()
        self._watch(frame)
        self.frames += 1
        line = Line()
        began = time.process_time()
        sound = self._run_checked(frame, lambda: self._pass_to_broker(frame, line))
        took = time.process_time() - began
        self.slowest_s = max(self.slowest_s, took)
        if took > SLOW_S:
            self.findings.append(Finding(frame, f"took {took:.1f} s", ""))
        if sound:
            self._classify(frame, line)
        if self.frames % FRAMES_PER_BROKER == 0:
            self._end_broker()
            self._broker, _ = begin()
            gc.collect()
            self._last_kb = _resident_kb()
            self._first_kb = self._first_kb or self._last_kb

    def _pass_to_broker(self, frame: bytes, line: Line) -> None:
        broker = self._broker
        if self.frames & 3 == 0:
            decode_alone(frame)
            broker.take_internal(Line(), frame)
        broker.take(line, frame)
        if self.frames % PASS_EVERY == 0:
            broker.pass_time(PASS_MS)

    def _next_frame(self) -> bytes:
        draw, pool = self._random.random, self._pool
        chance = draw()
        if chance < LARGE_SHARE:
            return any_large(self._maker, self._random)
        if chance < 0.1:
            pool[int(draw() * len(pool))] = frame = self._maker.any()
            return spare_brokers(frame)
        frame = pool[int(draw() * len(pool))]
        return spare_brokers(frame if draw() < 0.1 else mutate(self._random, frame, pool))

    def _classify(self, frame: bytes, line: Line) -> None:
        if line.refused is not None:
            self.refused += 1
            return
        if line.waits:
            self._waiting.append((frame, line))
            return
        self.answered += 1
        if frame.startswith(JOINS):
            self._run_checked(frame, lambda: self._remember_member(frame, line))
        draw = self._random.random
        if draw() < 1 / READ_ANSWERS:
            self._run_checked(frame, lambda: read_answer(frame, line))
        if draw() < 0.02 and len(frame) < FRAME_BYTES_MAX:
            self._pool[int(draw() * len(self._pool))] = frame

    def _remember_member(self, frame: bytes, line: Line) -> None:
        """Use the id of a new member in later requests."""
        response = read_answer(frame, line)
        if response is not None:
            self._maker.remember_member(response["member_id"])

    def _end_broker(self) -> None:
        """Give waiting requests time to finish; those that do not are findings."""
        end_ms = self._broker.now_ms + PATIENCE_MS
        while self._broker.now_ms < end_ms and any(line.waits for _, line in self._waiting):
            if not self._run_checked(b"", lambda: self._broker.pass_time(PATIENCE_MS // 60)):
                break
        for frame, line in self._waiting:
            if line.waits:
                self.findings.append(Finding(frame, "was never answered", ""))
        self._waiting.clear()

    def _run_checked(self, frame: bytes, act: Callable[[], object]) -> bool:
        """Run `act`. An exception is a finding, and the broker is replaced; then return False."""
        try:
            act()
        except Exception as error:  # noqa: BLE001 - any exception is a finding
            where = traceback.format_exc()
            self.findings.append(Finding(frame, f"{type(error).__name__}: {error}", where))
            self._waiting.clear()
            self._broker, _ = begin()
            return False
        return True


def replay(frame: bytes, broker: MemoryBroker) -> Line:
    """Pass one frame to the decoders and a broker; exceptions are not caught."""
    line = Line()
    decode_alone(frame)
    broker.take_internal(Line(), frame)
    broker.take(line, frame)
    broker.pass_time(PASS_MS)
    if not line.waits and line.refused is None:
        read_answer(frame, line)
    return line


def reduce(finding: Finding, fails: Callable[[bytes], bool]) -> bytes:
    """Shorten a frame as long as it still fails."""
    frame = finding.frame
    size = len(frame) // 2
    while size:
        at = 0
        while at < len(frame):
            shorter = frame[:at] + frame[at + size :]
            if fails(shorter):
                frame = shorter
            else:
                at += size
        size //= 2
    return frame


def _resident_kb() -> int:
    """Resident memory of this process; where the system does not report it, its peak."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize() // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def same_fault(finding: Finding) -> Callable[[bytes], bool]:
    """Return a function: does a frame raise the same exception in a new broker?"""
    kind = finding.what.partition(":")[0]

    def fails(frame: bytes) -> bool:
        broker, _ = begin()
        try:
            replay(frame, broker)
        except Exception as error:  # noqa: BLE001 - compared by its name
            return type(error).__name__ == kind
        return False

    return fails


def signature(finding: Finding) -> Any:
    """Return a key for grouping: findings with equal keys probably have the same cause."""
    places = [line.strip() for line in finding.where.splitlines() if line.startswith("  File")]
    return finding.what.partition(":")[0], places[-1] if places else ""
