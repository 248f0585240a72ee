"""Parse times and durations: milliseconds, ISO 8601, or relative such as -15m.

Invariants: a time without a zone is UTC, as in Kafka's tools. A time before 1970 becomes 1970, the
first timestamp that a record can have.
"""

import re
from datetime import UTC, datetime, timedelta

TIME_MAX = 2**63 - 1
"""The largest timestamp of a record, in milliseconds."""
_AGO = re.compile(r"-(\d+)(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(
    r"(-?)P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)


def parse_time(text: str, now_ms: int) -> int:
    """Parse `1700000000000`, `2024-01-31`, `2024-01-31T10:00:00Z` or `-15m` to milliseconds since
    1970. Raises ValueError."""
    found_ms = _parse(text, now_ms)
    if found_ms > TIME_MAX:
        raise ValueError(f"{text!r} is too large; the maximum is {TIME_MAX} milliseconds")
    return max(found_ms, 0)


def _parse(text: str, now_ms: int) -> int:
    if text.isdecimal():
        return int(text)
    ago = _AGO.fullmatch(text)
    if ago:
        return now_ms - int(ago[1]) * _UNIT_MS[ago[2]]
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time; write milliseconds, 2024-01-31T10:00:00Z or -15m"
        ) from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return int(found.timestamp() * 1000)


def parse_duration_ms(text: str) -> int:
    """Parse `PT1H30M`, `P2D` (ISO 8601), or `90m`. Raises ValueError."""
    short = _AGO.fullmatch("-" + text)
    if short:
        return int(short[1]) * _UNIT_MS[short[2]]
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()[1:]):
        raise ValueError(f"{text!r} is not a duration; write PT1H30M, P2D or 90m")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups()[1:])
    try:
        length = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError:
        raise ValueError(f"{text!r} is too long; write PT1H30M, P2D or 90m") from None
    return int(length.total_seconds() * 1000) * (-1 if found[1] else 1)
