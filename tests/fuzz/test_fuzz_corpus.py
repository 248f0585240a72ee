"""The stored frames, and a short part of `make fuzz`, which runs for minutes."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from tidelog.apps.fuzz import in_memory, over_sockets, run
from tidelog.apps.fuzz.in_memory import FrameFile, last_frame
from tidelog.core.api import handlers
from tidelog.core.api.handlers import handler_of
from tidelog.core.api_table import APIS, OFFERED
from tidelog.lab.fuzz import campaign, corpus
from tidelog.lab.fuzz.campaign import Campaign, Finding, begin, replay
from tidelog.lab.fuzz.memory_broker import Line, MemoryBroker, WrongAnswer
from tidelog.lab.fuzz.mutators import mutate
from tidelog.lab.fuzz.requests import RequestMaker

CORPUS = Path(__file__).parent / "corpus"
KEPT = [kept for path in sorted(CORPUS.glob("*.txt")) for kept in corpus.read(path)]
API_VERSIONS = 18
FOREVER_S = 1e12
REMEDY = "run make fuzz SEEDS=write"


@pytest.fixture(scope="module")
def broker() -> MemoryBroker:
    return begin()[0]


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept.name)
def test_kept_frames_are_answered_or_refused(broker: MemoryBroker, kept: corpus.Kept) -> None:
    replay(kept.frame, broker)


def test_every_request_is_among_the_seeds() -> None:
    wanted = {f"{api.name}-{version}" for api in APIS.values() for version in api.codec_versions}
    assert {kept.name for kept in corpus.read(CORPUS / run.SEEDS)} == wanted, (
        "make fuzz SEEDS=write"
    )
    assert sum(path.stat().st_size for path in CORPUS.iterdir()) < 300_000


def test_most_seeds_are_accepted() -> None:
    """Frames that are derived from rejected seeds would test little."""
    broker, _ = begin()
    served = [
        kept
        for kept in KEPT
        if (api := OFFERED.get(int.from_bytes(kept.frame[:2], "big"))) is not None
        and api.serves(int.from_bytes(kept.frame[2:4], "big"))
    ]
    refused = [kept.name for kept in served if replay(kept.frame, broker).refused is not None]
    assert len(refused) < len(served) / 5, refused


def slice_of(seed: int, frames: int) -> campaign.Tally:
    seeds = [kept.frame for kept in KEPT]
    return Campaign(seed, seeds, lambda _: None, 1000).run(frames, FOREVER_S, lambda _: None)


def test_short_fuzz_run_in_memory() -> None:
    tally = slice_of(1, 5000)
    assert tally.findings == []
    assert tally.frames == 5000
    assert tally.answered > 1000
    assert tally.refused > 1000


def test_the_same_seed_gives_the_same_frames() -> None:
    def frames(seed: int) -> list[bytes]:
        told: list[bytes] = []
        Campaign(seed, [], told.append, 50).run(300, FOREVER_S, lambda _: None)
        return told

    assert frames(4) == frames(4) != frames(5)


def test_frame_that_breaks_a_handler_is_found_and_reduced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sound = handler_of(API_VERSIONS)

    def broken(context: Any, request: Any) -> Any:
        if context.version >= 3 and "\0" in request["client_software_name"]:
            raise ZeroDivisionError("planted")
        return sound(context, request)

    monkeypatch.setitem(handlers._imported, API_VERSIONS, broken)
    maker = RequestMaker(Random(1), begin()[1])
    seeds = [maker.of(API_VERSIONS, 3) for _ in range(20)]
    tally = Campaign(1, seeds, lambda _: None, 20).run(3000, FOREVER_S, lambda _: None)
    assert tally.findings
    assert all("planted" in finding.what for finding in tally.findings)
    about, line, *where = run.describe(tally.findings)
    assert "ZeroDivisionError" in about
    assert "planted" in where[-1]
    reduced = bytes.fromhex(line.split()[1])
    assert len(reduced) <= 30
    with pytest.raises(ZeroDivisionError):
        replay(reduced, begin()[0])


def test_a_request_that_is_never_answered_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def take(self: MemoryBroker, line: Line, frame: bytes) -> None:
        line.reserve()

    one = Campaign(1, [], lambda _: None, 20)
    monkeypatch.setattr(MemoryBroker, "take", take)
    tally = one.run(5, FOREVER_S, lambda _: None)
    assert [finding.what for finding in tally.findings] == ["was never answered"] * 5


def test_invalid_responses_are_found() -> None:
    with pytest.raises(WrongAnswer, match="states a length"):
        Line().reserve().fill([b"\0\0\0\7abc"])
    line = Line()
    line.reserve().fill([b"\0\0\0\3abc"])
    with pytest.raises(WrongAnswer, match="second response"):
        line.reserve().fill([b"\0\0\0\3abc"])


def test_mutated_frames_keep_their_api_and_version() -> None:
    random = Random(3)
    frames = [bytes(range(40)), b"\0\1\0\2" + bytes(500)]
    kept = sum(mutate(random, frames[0], frames)[:4] == frames[0][:4] for _ in range(1000))
    assert 900 < kept < 1000


def test_workers_share_the_frames(tmp_path: Path) -> None:
    told: list[int] = []
    tally = in_memory.run(9, 600, FOREVER_S, 2, CORPUS, told.append)
    assert (tally.frames, tally.findings) == (600, [])
    assert told[-1] == 600


def test_a_worker_that_dies_leaves_its_frame(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    box = FrameFile(tmp_path / "box")
    box.put(b"the longer one")
    box.put(b"the last")
    assert last_frame(tmp_path / "box") == b"the last"
    monkeypatch.setattr(in_memory, "WORKER", "tidelog.no_such_module")
    monkeypatch.setattr(in_memory, "last_frame", lambda _: b"the last")
    tally = in_memory.run(9, 600, FOREVER_S, 1, CORPUS, lambda _: None)
    assert tally.findings == [Finding(b"the last", "a worker exited with code 1", "")]


def test_short_fuzz_run_through_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    # A broker that gets no CPU for some seconds has no fault.
    limits = {"QUIET_S": 0.3, "ANSWER_S": 10.0, "CHECK_S": 120.0, "SETTLE_S": 120.0}
    for name, limit in limits.items():
        monkeypatch.setattr(over_sockets, name, limit)
    seeds = [kept.frame for kept in KEPT]
    report = over_sockets.run(3, 1000, FOREVER_S, seeds, lambda _: None)
    assert report.faults == []
    assert report.frames >= 1000
    assert report.answered > 50
