"""Commands that check something: `check` an invariant, `expect` a fact.

A bare `check` must hold; with expected output it may also show a violation. `expect` states
one fact, `expect not` its opposite. FACTS maps the name of a fact to its function.
"""

from collections.abc import Callable, Sequence

from tidelog.core.errors import ErrorCode
from tidelog.lab.spec.invariants import INVARIANTS
from tidelog.lab.spec.snapshot import LogEntry, ReplicaSnapshot
from tidelog.lab.story.commands.looking import format_epochs, role_of
from tidelog.lab.story.grammar import Step, StoryError, known_name
from tidelog.lab.story.play import Command, Play, arguments, number
from tidelog.lab.story.stage.records import format_log


def check(play: Play, step: Step) -> None:
    """Check an invariant: print `holds`, or `VIOLATED` and how."""
    (name,) = arguments(step, COMMANDS["check"].usage, 1, 1)
    broken = _violations(play, name)
    for text in broken:
        play.world.add_line(f"VIOLATED  {text}")
    if not broken:
        play.world.add_line("holds")
    elif step.expected is None:
        play.failures.append(f"{name} is violated: {'; '.join(broken)}")


def _violations(play: Play, name: str) -> list[str]:
    known_name("invariant", name, INVARIANTS)
    labels = play.world.labels
    return [
        " ".join([*(labels[broker] for broker in violation.brokers), violation.what])
        for violation in INVARIANTS[name](play.world.snapshot())
    ]


def expect(play: Play, step: Step) -> None:
    """Check a fact; the step fails if the fact is false."""
    words = step.arguments
    wanted = not (words and words[0] == "not")
    words = words if wanted else words[1:]
    if not words:
        raise StoryError("expect needs a fact; known: A KEY=…, " + ", ".join(FACTS))
    fact = FACTS.get(words[0])
    if fact is not None:
        found = fact(play, words[1:])
    elif words[0] in play.world.brokers:
        found = _replica_is(play, words)
    else:
        known_name("fact", words[0], {**FACTS, **play.world.brokers})
        return
    if wanted and found is not None:
        play.failures.append(found)
    if not wanted and found is None:
        play.failures.append(f"expected to be false, but it is true: {' '.join(words)}")


def _replica_is(play: Play, words: Sequence[str]) -> str | None:
    """Check a replica, such as `A LEO=2 HW=1 epoch=0 start=0 role=leader`."""
    broker = play.world.broker(words[0])
    snapshot = broker.snapshot(play.world.now_ms)
    found = {
        "LEO": str(snapshot.log_end_offset),
        "HW": str(snapshot.high_watermark),
        "epoch": str(snapshot.leader_epoch),
        "start": str(snapshot.log_start_offset),
        "role": role_of(broker),
    }
    if snapshot.last_stable_offset is not None:
        found["LSO"] = str(snapshot.last_stable_offset)
    if len(words) < 2:
        raise StoryError("expect needs a property of the broker, such as: expect A LEO=2 HW=1")
    for word in words[1:]:
        key, equals, value = word.partition("=")
        key = key.upper() if key.upper() in found else key
        known_name("property", key, found)
        if not equals:
            raise StoryError(f"{key} needs a value, such as: expect A {key}={found[key]}")
        if found[key] != value:
            return f"{words[0]} has {key}={found[key]}, not {value}"
    return None


def _log_is(play: Play, words: Sequence[str]) -> str | None:
    """Check a log, such as `log A m1@0 m2@0`; a record without `@` matches any epoch."""
    if not words:
        raise StoryError("expect log needs a broker, such as: expect log A m1@0 m2@0")
    entries = play.world.broker(words[0]).snapshot(play.world.now_ms).log
    wanted = _listed(words[1:])
    same = len(entries) == len(wanted) and all(
        _is_record(entry, word) for entry, word in zip(entries, wanted, strict=True)
    )
    return None if same else f"{words[0]} has log=[{format_log(entries)}]"


def _is_record(entry: LogEntry, word: str) -> bool:
    name, at, epoch = word.partition("@")
    return entry.id == name and (not at or epoch == str(entry.epoch))


def _listed(words: Sequence[str]) -> Sequence[str]:
    """Return the list; the single item `none` is an empty list."""
    return () if list(words) == ["none"] else words


def _same(found: Sequence[str], wanted: Sequence[str], what: str) -> str | None:
    return None if sorted(found) == sorted(wanted) else f"{what} {' '.join(found) or 'none'}"


def _isr_is(play: Play, words: Sequence[str]) -> str | None:
    words = _listed(words)
    for word in words:
        play.world.broker(word)
    found = [play.world.labels[broker] for broker in play.world.controller.partition.isr]
    return _same(found, words, "the ISR is")


def _leader_is(play: Play, words: Sequence[str]) -> str | None:
    leader = play.world.leader()
    name = leader.name if leader is not None else "none"
    if len(words) != 1 or (words[0] != "none" and words[0] not in play.world.brokers):
        raise StoryError(
            "expect leader needs one broker, such as: expect leader B, or: expect leader none"
        )
    return None if words[0] == name else f"the leader is {name}"


def _epochs_are(play: Play, words: Sequence[str]) -> str | None:
    if not words:
        raise StoryError("expect epochs needs a broker, such as: expect epochs A 0:0 1:2")
    entries = play.world.broker(words[0]).snapshot(play.world.now_ms).epochs
    found = format_epochs(entries)
    return None if found == " ".join(_listed(words[1:])) else f"{words[0]} has epochs [{found}]"


def _acked(play: Play, words: Sequence[str]) -> str | None:
    _produced(play, words, "acked m1")
    missing = [word for word in words if word not in play.stage.clients.acked]
    return f"never acknowledged: {' '.join(missing)}" if missing else None


def _some(words: Sequence[str], such_as: str) -> None:
    """Require at least one name: without names both a fact and its opposite are true."""
    if not words:
        raise StoryError(f"a name is missing, such as: expect {such_as}")


def _produced(play: Play, words: Sequence[str], such_as: str) -> None:
    """Require names of produced records; any other name is probably a typing error."""
    _some(words, such_as)
    for word in words:
        if word not in play.stage.clients.produced:
            raise StoryError(f"record {word} was never produced")


def _error_is(play: Play, words: Sequence[str]) -> str | None:
    if len(words) != 1:
        raise StoryError(
            "expect error needs one error code, such as: expect error NOT_ENOUGH_REPLICAS"
        )
    wanted = words[0].upper()
    known_name("error", wanted, ErrorCode.__members__)
    found = play.world.last_error.name
    return None if found == wanted else f"the last response was {found}"


def _equal(play: Play, words: Sequence[str]) -> str | None:
    snapshots = [play.world.broker(word).snapshot(play.world.now_ms) for word in words]
    if len(snapshots) < 2:
        raise StoryError("expect equal needs two replicas or more, such as: expect equal A B")
    first = snapshots[0]
    for name, other in zip(words[1:], snapshots[1:], strict=True):
        if not _same_log(first, other):
            return f"{words[0]} has [{format_log(first.log)}], {name} has [{format_log(other.log)}]"
    return None


def _same_log(one: ReplicaSnapshot, other: ReplicaSnapshot) -> bool:
    start = max(one.log_start_offset, other.log_start_offset)
    ends = one.log_end_offset == other.log_end_offset
    tails = [[entry for entry in p.log if entry.offset >= start] for p in (one, other)]
    return ends and tails[0] == tails[1]


def _lost(play: Play, words: Sequence[str]) -> str | None:
    """Check that records are not in the leader's log, or without a leader in no live log."""
    _produced(play, words, "lost m1")
    snapshots = play.world.snapshot()
    leader = snapshots.leader
    logs = [leader] if leader else [r for r in snapshots.replicas.values() if r.alive]
    present = {entry.id for replica in logs for entry in replica.log}
    found = [word for word in words if word in present]
    return f"not lost: {' '.join(found)}" if found else None


def _consumed(play: Play, words: Sequence[str]) -> str | None:
    found = [str(entry.id) for entry in play.stage.clients.last_read]
    return None if found == list(_listed(words)) else f"read [{' '.join(found)}]"


def _offset_is(play: Play, words: Sequence[str]) -> str | None:
    if len(words) != 1:
        raise StoryError("expect offset needs one offset, such as: expect offset 2")
    found = play.stage.clients.listed
    if found is None:
        return "no request returned an offset; first run: list-offsets latest"
    return None if found == number(words[0], "offset") else f"the returned offset was {found}"


def _holds(play: Play, words: Sequence[str]) -> str | None:
    if len(words) != 1:
        raise StoryError("expect holds needs one invariant; known: " + ", ".join(INVARIANTS))
    broken = _violations(play, words[0])
    return f"{words[0]} is violated: {'; '.join(broken)}" if broken else None


def _violated(play: Play, words: Sequence[str]) -> str | None:
    return None if _holds(play, words) else f"{words[0]} holds"


def _up(play: Play, words: Sequence[str]) -> str | None:
    _some(words, "up A")
    down = [word for word in words if not play.world.broker(word).alive]
    return f"down: {' '.join(down)}" if down else None


FACTS: dict[str, Callable[[Play, Sequence[str]], str | None]] = {
    "log": _log_is,
    "isr": _isr_is,
    "leader": _leader_is,
    "epochs": _epochs_are,
    "acked": _acked,
    "error": _error_is,
    "equal": _equal,
    "lost": _lost,
    "consumed": _consumed,
    "offset": _offset_is,
    "holds": _holds,
    "violated": _violated,
    "up": _up,
}
"""Each function returns None if the fact is true, or else a description of the actual state."""

COMMANDS: dict[str, Command] = {
    "check": Command(check, "check INVARIANT"),
    "expect": Command(expect, "expect [not] FACT"),
}
"""The commands that check something."""
