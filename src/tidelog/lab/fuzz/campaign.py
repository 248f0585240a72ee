"""Frames by the million into one broker in memory, each of them watched.

Half a stock of frames is drawn from the schemas, half is made of frames that were accepted;
most frames that go in are damaged ones of the stock, and a few have thousands of entries. The
broker begins anew after so many frames; before that all that waits is given the time to end,
for a request that is never answered is a fault too.

A frame is a finding if it raises, halts the broker, takes too long, or gets an answer that
can't be read.
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
from tidelog.lab.fuzz.large_requests import any_large
from tidelog.lab.fuzz.memory_broker import Line, MemoryBroker, WrongAnswer
from tidelog.lab.fuzz.mutators import mutate
from tidelog.lab.fuzz.requests import RequestMaker, World, spare_brokers

FRAMES_PER_BROKER = 20_000
LARGE_SHARE = 1 / 5000
STOCK = 4000
SLOW_S = 1.0
"""Of the processor's time: far more than any frame takes."""
PASS_EVERY = 32
PASS_MS = 100
"""How much time passes after so many frames."""
PATIENCE_MS = 3_700_000
"""After so long everything is answered."""
FRAME_BYTES_MAX = 4000
READ_ANSWERS = 8
"""Of so many answers one is read again."""
JOINS = JOIN_GROUP.to_bytes(2, "big")
"""How a JoinGroup begins."""
WATCH_EVERY = 256
TOPICS = ("orders", "compacted", "packed")


class Finding(NamedTuple):
    """What a frame did that it must not."""

    frame: bytes
    what: str
    where: str
    """The traceback."""


class Tally(NamedTuple):
    """What became of the frames."""

    frames: int
    answered: int
    refused: int
    slowest_s: float
    grown_kb: int
    """Memory when the last broker began, above that when the second did."""
    findings: list[Finding]


def begin() -> tuple[MemoryBroker, World]:
    """A broker with a few topics: plain, compacted, packed anew."""
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
    """What a broker's decoders make of a frame, also of APIs that it does not offer."""
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
    """An answer is one to this request, and can be read. None: that is not for us to say."""
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
        raise WrongAnswer(f"an answer to {number}")
    return response


class Campaign:
    """One process's share of the frames."""

    def __init__(
        self, seed: int, seeds: list[bytes], watch: Callable[[bytes], None], stock: int = STOCK
    ) -> None:
        self._random = Random(seed)
        self._seeds = seeds
        self._watch = watch
        """Told of each frame before it goes in: if the process dies, it was this one."""
        self._broker, world = begin()
        self._maker = RequestMaker(self._random, world)
        self._stock = [*seeds, *(self._maker.any() for _ in range(stock - len(seeds)))]
        self._waiting: list[tuple[bytes, Line]] = []
        self.frames = self.answered = self.refused = 0
        self.slowest_s = 0.0
        self.findings: list[Finding] = []
        self._first_kb = self._last_kb = 0

    def run(self, frames: int, until_s: float, progress: Callable[[int], None]) -> Tally:
        """So many frames, or until this time of `time.monotonic`."""
        while self.frames < frames and time.monotonic() < until_s:
            for _ in range(min(WATCH_EVERY, frames - self.frames)):
                self._one()
            progress(self.frames)
        self._end_broker()
        grown_kb = self._last_kb - self._first_kb
        return Tally(
            self.frames, self.answered, self.refused, self.slowest_s, grown_kb, self.findings
        )

    def _one(self) -> None:
        frame = self._next()
        self._watch(frame)
        self.frames += 1
        line = Line()
        began = time.process_time()
        sound = self._judge(frame, lambda: self._take(frame, line))
        took = time.process_time() - began
        self.slowest_s = max(self.slowest_s, took)
        if took > SLOW_S:
            self.findings.append(Finding(frame, f"took {took:.1f} s", ""))
        if sound:
            self._sort(frame, line)
        if self.frames % FRAMES_PER_BROKER == 0:
            self._end_broker()
            self._broker, _ = begin()
            gc.collect()
            self._last_kb = _resident_kb()
            self._first_kb = self._first_kb or self._last_kb

    def _take(self, frame: bytes, line: Line) -> None:
        broker = self._broker
        if self.frames & 3 == 0:
            decode_alone(frame)
            broker.take_internal(Line(), frame)
        broker.take(line, frame)
        if self.frames % PASS_EVERY == 0:
            broker.pass_time(PASS_MS)

    def _next(self) -> bytes:
        draw, stock = self._random.random, self._stock
        chance = draw()
        if chance < LARGE_SHARE:
            return any_large(self._maker, self._random)
        if chance < 0.1:
            stock[int(draw() * len(stock))] = frame = self._maker.any()
            return spare_brokers(frame)
        frame = stock[int(draw() * len(stock))]
        return spare_brokers(frame if draw() < 0.1 else mutate(self._random, frame, stock))

    def _sort(self, frame: bytes, line: Line) -> None:
        if line.refused is not None:
            self.refused += 1
            return
        if line.waits:
            self._waiting.append((frame, line))
            return
        self.answered += 1
        if frame.startswith(JOINS):
            self._judge(frame, lambda: self._learn(frame, line))
        draw = self._random.random
        if draw() < 1 / READ_ANSWERS:
            self._judge(frame, lambda: read_answer(frame, line))
        if draw() < 0.02 and len(frame) < FRAME_BYTES_MAX:
            self._stock[int(draw() * len(self._stock))] = frame

    def _learn(self, frame: bytes, line: Line) -> None:
        """Remember a member's id, so that other requests can name it."""
        response = read_answer(frame, line)
        if response is not None:
            self._maker.remember_member(response["member_id"])

    def _end_broker(self) -> None:
        """Whoever waits is answered some day."""
        end_ms = self._broker.now_ms + PATIENCE_MS
        while self._broker.now_ms < end_ms and any(line.waits for _, line in self._waiting):
            if not self._judge(b"", lambda: self._broker.pass_time(PATIENCE_MS // 60)):
                break
        for frame, line in self._waiting:
            if line.waits:
                self.findings.append(Finding(frame, "was never answered", ""))
        self._waiting.clear()

    def _judge(self, frame: bytes, act: Callable[[], object]) -> bool:
        """Whether it could be done. If not, that is a finding, and the broker begins anew."""
        try:
            act()
        except Exception as error:  # noqa: BLE001 - whatever it is
            where = traceback.format_exc()
            self.findings.append(Finding(frame, f"{type(error).__name__}: {error}", where))
            self._waiting.clear()
            self._broker, _ = begin()
            return False
        return True


def replay(frame: bytes, broker: MemoryBroker) -> Line:
    """One frame, into the decoders and a broker; raises what it raises."""
    line = Line()
    decode_alone(frame)
    broker.take_internal(Line(), frame)
    broker.take(line, frame)
    broker.pass_time(PASS_MS)
    if not line.waits and line.refused is None:
        read_answer(frame, line)
    return line


def reduce(finding: Finding, fails: Callable[[bytes], bool]) -> bytes:
    """A smaller frame that fails as well."""
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
    """What this process holds now; where the system does not tell, its peak."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize() // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def same_fault(finding: Finding) -> Callable[[bytes], bool]:
    """Whether a frame, into a broker of its own, raises the same."""
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
    """Findings with the same one have the same cause, most likely."""
    places = [line.strip() for line in finding.where.splitlines() if line.startswith("  File")]
    return finding.what.partition(":")[0], places[-1] if places else ""
