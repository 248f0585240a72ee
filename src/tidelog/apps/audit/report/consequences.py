"""Drop findings that another finding of the same log explains."""

from collections.abc import Callable

from tidelog.apps.audit.report.findings import Finding
from tidelog.core.storage import layout

Explains = Callable[[Finding, Finding], bool]


def _touch(one: Finding, two: Finding) -> bool:
    return one.first_offset <= two.last_offset and two.first_offset <= one.last_offset


def _touch_or_follow(cause: Finding, each: Finding) -> bool:
    """Return whether the cause covers the finding's offsets or the offset before them.

    A sequence number looks wrong if its batch, or the batch before it, was replaced.
    """
    return _touch(cause, each._replace(first_offset=each.first_offset - 1))


def _same_segment(cause: Finding, each: Finding) -> bool:
    stem = each.file.removesuffix(layout.TIME_INDEX)
    return cause.position >= 0 and cause.file == stem + layout.LOG


_EXPLAINED: dict[str, tuple[str, Explains]] = {
    # Other replicas show that the epoch of a batch is wrong, so the checkpoint is right.
    "epoch-checkpoint": (
        "epoch-order",
        lambda cause, each: each.last_offset >= 0 and _touch(cause, each),
    ),
    # Replaced records have other timestamps and sequence numbers.
    "time-index": ("replica-divergence", _same_segment),
    "transaction-index": ("replica-divergence", _touch),
    "sequence-gap": ("replica-divergence", _touch_or_follow),
    "sequence-repeat": ("replica-divergence", _touch_or_follow),
}


def without_consequences(findings: list[Finding]) -> list[Finding]:
    """Return the findings that no other finding explains."""

    def explained(each: Finding) -> bool:
        if each.kind not in _EXPLAINED:
            return False
        kind, explains = _EXPLAINED[each.kind]
        return any(cause.kind == kind and explains(cause, each) for cause in findings)

    return [each for each in findings if not explained(each)]
