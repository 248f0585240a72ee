"""Which settings of a topic are refused.

Whatever gets into the store is read by every broker, at once and at each start, so a value
that a broker can't make sense of must never get there. Settings that no broker here heeds
are let through as they are.
"""

from tidelog.core.controller.metadata.cluster_image import (
    MIN_INSYNC_REPLICAS,
    UNCLEAN_LEADER_ELECTION,
)

_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1

_RANGES = {
    MIN_INSYNC_REPLICAS: (1, _INT_MAX),
    "segment.bytes": (1, _INT_MAX),
    "segment.ms": (1, _LONG_MAX),
    "segment.jitter.ms": (0, _LONG_MAX),
    "segment.index.bytes": (4, _INT_MAX),
    "index.interval.bytes": (0, _INT_MAX),
    "retention.ms": (-1, _LONG_MAX),
    "retention.bytes": (-1, _LONG_MAX),
    "file.delete.delay.ms": (0, _LONG_MAX),
    "flush.messages": (1, _LONG_MAX),
    "flush.ms": (0, _LONG_MAX),
    "max.message.bytes": (0, _INT_MAX),
    "message.timestamp.before.max.ms": (0, _LONG_MAX),
    "message.timestamp.after.max.ms": (0, _LONG_MAX),
}
"""Positions and sizes in a segment have 32 bits."""

_CHOICES = {
    UNCLEAN_LEADER_ELECTION: ("true", "false"),
    "preallocate": ("true", "false"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "cleanup.policy": ("delete", "compact", "compact,delete", "delete,compact"),
}


def config_problem(configs: dict[str, str]) -> str | None:
    """The first setting that no broker could heed, as it was given."""
    for name, value in configs.items():
        if name in _RANGES:
            least, most = _RANGES[name]
            number = _number(value)
            sound = number is not None and least <= number <= most
        else:
            sound = value in _CHOICES.get(name, (value,))
        if not sound:
            return f"{name}={value!r}"
    return None


def _number(text: str) -> int | None:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None
