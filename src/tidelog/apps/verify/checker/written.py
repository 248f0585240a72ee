"""Check the outcomes of sends against the final log: lost, moved, duplicate, out of order.

A producer sends the records of a partition in the order of their sequence numbers, so these must
rise in the log. A sequence number that appeared before is a duplicate; a lower one that did not
is out of order. A record with an unknown outcome may be in the log, but only once and in order.
"""

from collections.abc import Iterable

from tidelog.apps.verify.checker.final_log import FinalLog
from tidelog.apps.verify.checker.findings import Findings
from tidelog.apps.verify.history.rows import Outcome
from tidelog.apps.verify.record_value import ABSENT, STRANGER, name, split_id, value_id


def check_acknowledged(log: FinalLog, producer: int, acks: Iterable[tuple[int, ...]]) -> Findings:
    """Check that acknowledged records are at their offsets, and refused ones not in the log.

    `acks` has rows of history.rows.Ack.
    """
    found = Findings()
    to_find: dict[int, int] = {}
    first = value_id(producer, 0)
    start, values, end = log.start, log.values, log.end
    for sequence, offset, _, _ in acks:
        if offset == Outcome.UNKNOWN:
            continue
        value = first + sequence
        if not start <= offset < end or values[offset - start] != value:
            to_find[value] = offset
    where = _places(log, to_find)
    for value, said in to_find.items():
        place = where.get(value)
        text = f"partition {log.partition}: {name(value)}"
        if said == Outcome.REFUSED:
            if place is not None:
                found.add("refused, yet written", f"{text} is at offset {place}")
        elif place is None:
            told = "without an offset" if said == Outcome.NO_OFFSET else f"at offset {said}"
            found.add("lost", f"{text}, acknowledged {told}; there: {name(log.value(said))}")
        elif said != Outcome.NO_OFFSET:
            found.add("wrong offset", f"{text}, acknowledged at offset {said}, is at {place}")
    return found


def _places(log: FinalLog, wanted: dict[int, int]) -> dict[int, int]:
    """Return the first offset of each wanted value in the log."""
    if not wanted:
        return {}
    places: dict[int, int] = {}
    for at, value in enumerate(log.values):
        if value in wanted:
            places.setdefault(value, log.start + at)
    return places


def check_order(log: FinalLog, sent: dict[int, int]) -> Findings:
    """Check that the log has each producer's records in the order sent, each at most once.

    `sent` has the number of records that each producer sent to this partition.
    """
    found = Findings()
    seen = {producer: bytearray(count) for producer, count in sent.items()}
    newest = dict.fromkeys(sent, -1)
    for at, value in enumerate(log.values):
        producer, sequence = split_id(value)
        if value in (ABSENT, STRANGER) or sequence >= sent.get(producer, 0):
            continue  # `check_strangers` reports phantoms
        if sequence > newest[producer]:
            newest[producer] = sequence
        elif seen[producer][sequence]:
            found.add("duplicated", _place(log, at, value))
        else:
            behind = f"{_place(log, at, value)}, behind record {newest[producer]}"
            found.add("reordered", behind)
        seen[producer][sequence] = 1
    return found


def _place(log: FinalLog, at: int, value: int) -> str:
    return f"partition {log.partition}, offset {log.start + at}: {name(value)}"
