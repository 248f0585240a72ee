"""Why the high watermark (HW) and the last stable offset (LSO) do not move.

The reasons follow core/replication/high_watermark.py in its order: an ISR below
min.insync.replicas, a follower that has not fetched in this leader epoch, the shortest log of the
maximal ISR, a follower that is about to join.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from tidelog.apps.explain.situation import (
    BAD,
    INFO,
    OK,
    WARN,
    Explanation,
    Situation,
    count,
    duration,
    named,
)
from tidelog.apps.views.broker import State

TOPIC, LSO = "high-watermark", "lso"
STALLED_MS = 1_500
"""A follower fetches at least every 500 ms; after three times that, something holds it up."""


def explain_high_watermark(now: Situation) -> list[Explanation]:
    """Say whether every record is committed, and what the HW waits for if not."""
    view = now.view
    if view.leader is None:
        text = "The HW can't move: the partition has no leader."
        return [Explanation(TOPIC, BAD, text)]
    if now.kafka:
        return [_of_kafka(now)]
    if now.leader is None:
        return [_leader_silent(now)]
    watermark, end = now.leader["high_watermark"], now.leader["log_end_offset"]
    if watermark is None or end is None:
        text = "The HW is unknown: this history has no samples of log ends and high watermarks."
        return [Explanation(TOPIC, INFO, text)]
    if watermark >= end:
        text = f"Every record is committed: HW and the leader's log end offset are {end}."
        return [Explanation(TOPIC, OK, text)]
    open_records = f"{count(end - watermark, 'record')} above it: not committed, not readable."
    if now.under_min_isr:
        return [_under_min_isr(now, watermark, open_records)]
    waiting = [each for each in now.followers if each["broker"] in now.maximal_isr]
    silent = [each for each in waiting if each["log_end_offset"] is None]
    if silent:
        return [_first_fetches(now, silent, watermark, open_records)]
    behind = [each for each in waiting if each["log_end_offset"] < end]
    if behind:
        return [_slowest(now, behind, watermark, end, open_records)]
    return [_other(now, watermark, end, open_records)]


def _of_kafka(now: Situation) -> Explanation:
    leader = now.replica(now.view.leader)
    watermark = None if leader is None else leader.high_watermark
    text = "The HW is unknown." if watermark is None else f"The HW is {watermark}."
    return Explanation(
        TOPIC,
        INFO,
        f"{text} A Kafka broker reports no log end offsets, so it is unknown what the HW waits"
        " for.",
    )


def _leader_silent(now: Situation) -> Explanation:
    row = now.replica(now.view.leader)
    why = "" if row is None or row.unreachable is None else f" ({row.unreachable})"
    known = [r.high_watermark for r in now.view.replicas if r.high_watermark is not None]
    detail = f"The largest HW that a follower knows is {max(known)}." if known else ""
    if row is not None and row.unreachable is None and row.role != "unknown":
        return Explanation(
            TOPIC,
            INFO,
            f"The HW is unknown: broker {now.view.leader} leads since epoch"
            f" {now.view.leader_epoch}, and responded before it led.",
            detail,
        )
    return Explanation(
        TOPIC,
        WARN,
        f"The HW is unknown: broker {now.view.leader} leads and did not respond{why}.",
        detail,
    )


def _under_min_isr(now: Situation, watermark: int, open_records: str) -> Explanation:
    return Explanation(
        TOPIC,
        BAD,
        f"The HW stays at {watermark}: {len(now.view.isr)} of the {now.view.min_isr} replicas"
        " that min.insync.replicas requires are in sync.",
        f"{open_records} With fewer, one replica could commit records alone, and its crash would"
        " lose them.",
    )


def _first_fetches(
    now: Situation, silent: list[State], watermark: int, open_records: str
) -> Explanation:
    brokers = [each["broker"] for each in silent]
    return Explanation(
        TOPIC,
        WARN,
        f"The HW stays at {watermark}: broker {now.view.leader} leads in epoch"
        f" {now.view.leader_epoch} and waits for the first fetch of {named(brokers)} in it.",
        f"{open_records} A new leader forgets how far its followers' logs reach, because they may"
        f" have truncated them.{_unreachable(now, brokers)}",
    )


def _slowest(
    now: Situation, behind: list[State], watermark: int, end: int, open_records: str
) -> Explanation:
    lowest = min(each["log_end_offset"] for each in behind)
    slowest = [each for each in behind if each["log_end_offset"] == lowest]
    brokers = [each["broker"] for each in slowest]
    joining = set(brokers) - set(now.view.isr)
    ages = [now.ms_ago(each.get("last_fetch_ms")) for each in slowest]
    idle = max((age for age in ages if age is not None), default=None)
    stalled = idle is not None and idle > STALLED_MS
    where = "which is about to join the ISR" if joining else "in the ISR"
    text = (
        f"The HW is {watermark} because the log of {named(brokers)}, {where}, ends at {lowest} as"
        f" far as the leader knows; the leader's ends at {end}."
    )
    if idle is not None:
        text += f" Last fetch: {duration(idle)} ago."
    return Explanation(
        TOPIC,
        WARN if stalled else INFO,
        text,
        f"{open_records} {_ends(now)}.{_unreachable(now, brokers)}",
    )


def _other(now: Situation, watermark: int, end: int, open_records: str) -> Explanation:
    """Return the reason although every follower in the ISR has all records."""
    outside = [
        each["broker"]
        for each in now.followers
        if each["broker"] not in now.maximal_isr and each["log_end_offset"] == watermark
    ]
    leader = now.replica(now.view.leader)
    flushed = None if leader is None else leader.recovery_point
    if outside:
        text = (
            f"The HW is {watermark} although every replica in the ISR reached {end}: the HW also"
            f" waits for {named(outside)}, which has nearly caught up and may join the ISR."
        )
    elif flushed is not None and flushed <= watermark:
        text = (
            f"The HW is {watermark}; every follower in the ISR reached {end}, the leader's flushed"
            f" log ends at {flushed}. With flush.messages=1 the HW waits for the leader's flush."
        )
    else:
        text = f"The HW is {watermark}, and no replica holds it back: it was just advancing."
    return Explanation(TOPIC, INFO, text, f"{open_records} {_ends(now)}.")


def _ends(now: Situation) -> str:
    """Format each replica's log end offset as the leader knows it."""
    parts = [f"broker {now.view.leader} (leader) {(now.leader or {})['log_end_offset']}"]
    for each in now.followers:
        end = "unknown" if each["log_end_offset"] is None else each["log_end_offset"]
        out = "" if each["broker"] in now.maximal_isr else ", out of the ISR"
        parts.append(f"broker {each['broker']} {end}{out}")
    return f"Log end offsets: {'; '.join(parts)}"


def _unreachable(now: Situation, brokers: Iterable[int]) -> str:
    rows = [row for each in brokers if (row := now.replica(each)) and row.unreachable]
    return "".join(f" Broker {row.broker} did not respond: {row.unreachable}." for row in rows)


def explain_last_stable_offset(now: Situation) -> list[Explanation]:
    """Say where consumers with `isolation.level=read_committed` stop, if before the HW."""
    leader = now.replica(now.view.leader)
    if leader is None or leader.last_stable_offset is None or leader.high_watermark is None:
        return []
    behind = leader.high_watermark - leader.last_stable_offset
    if behind <= 0:
        return []
    what, who = "the first record of the oldest open transaction", ""
    unstable = now.view.unstable or {}
    if unstable.get("producer_id") is not None:
        what += f", of producer {unstable['producer_id']} (epoch {unstable['producer_epoch']})"
        who = _how_to_end(unstable)
    elif unstable:
        what = "the first record of a transaction whose marker is not committed yet"
    return [
        Explanation(
            LSO,
            WARN,
            f"Consumers with isolation.level=read_committed stop at offset"
            f" {leader.last_stable_offset}: {what}.",
            f"{count(behind, 'record')} below the HW ({leader.high_watermark}) wait until that"
            f" transaction is committed or aborted.{who}",
        )
    ]


def _how_to_end(unstable: Mapping[str, Any]) -> str:
    """Return when the producer wrote last, and how many transactions are open."""
    text = ""
    wrote_ms = unstable.get("last_write_ms")
    if wrote_ms is not None and wrote_ms >= 0:
        at = datetime.fromtimestamp(wrote_ms / 1000, UTC)
        text += f" Its newest record here is of {at:%Y-%m-%d %H:%M:%S} UTC."
    more = (unstable.get("open_transactions") or 1) - 1
    if more:
        text += f" {count(more, 'more transaction')} began after it."
    return (
        f"{text} If the producer is gone, its coordinator aborts the transaction after"
        " transaction.timeout.ms."
    )
