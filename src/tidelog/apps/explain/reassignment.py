"""What a reassignment adds and removes, and what it waits for.

The rule is the controller's (core/controller/election.py): it is complete when every added replica
is in the ISR, and the ISR without the removed replicas is large enough.
"""

from tidelog.apps.explain.situation import (
    INFO,
    WARN,
    Explanation,
    Situation,
    count,
    duration,
    named,
)
from tidelog.core.types import BrokerId

TOPIC = "reassignment"
STALLED_MS = 10_000
"""An added replica that did not fetch for this long holds up the reassignment."""


def explain_reassignment(now: Situation) -> list[Explanation]:
    """Say what a reassignment in progress does, and for which replicas it waits."""
    going = now.view.reassignment
    if going is None:
        return []
    parts = []
    if going["adding"]:
        parts.append(f"adds {named(going['adding'])}")
    if going["removing"]:
        parts.append(f"removes {named(going['removing'])}")
    text = f"A reassignment {' and '.join(parts)}."
    waiting = [each for each in going["adding"] if each not in now.view.isr]
    if not waiting:
        left = [each for each in now.view.isr if each not in going["removing"]]
        detail = f"It waits until more of the remaining replicas are in sync; now {named(left)}."
        return [Explanation(TOPIC, INFO, text, detail)]
    progress = [_progress(now, each) for each in waiting]
    stuck = any(late for _, late in progress)
    detail = " ".join(said for said, _ in progress)
    if going["removing"]:
        detail += " The old replicas are removed when all new ones are in the ISR."
    return [Explanation(TOPIC, WARN if stuck else INFO, text, detail)]


def _progress(now: Situation, broker: BrokerId) -> tuple[str, bool]:
    """Return how far an added replica is, and whether it is stuck."""
    row = now.replica(broker)
    who = f"Broker {broker} is not in the ISR yet"
    if row is not None and row.unreachable is not None:
        return f"{who}; it did not respond: {row.unreachable}.", True
    if row is None or row.log_end_offset is None:
        return f"{who}.", False
    seen = next((each for each in now.followers if each["broker"] == broker), {})
    idle = now.ms_ago(seen.get("last_fetch_ms"))
    late = idle is not None and idle > STALLED_MS
    behind = "" if row.lag is None else f", {count(row.lag, 'record')} behind"
    fetched = "" if idle is None else f"; its last fetch was {duration(idle)} ago"
    return f"{who}: its log ends at {row.log_end_offset}{behind}{fetched}.", late
