"""A Mermaid diagram of a story under several policies, with `alt` blocks where they differ."""

from collections.abc import Iterator, Sequence

from tidelog.lab.story.render import INDENT, as_mermaid
from tidelog.lab.story.runner import Frame, Performance


def merged(performances: Sequence[Performance]) -> Iterator[str]:
    """Yield the lines: common steps, and `alt` blocks for steps that differ."""
    first = performances[0]
    opening = Performance(first.story, first.policy, first.frames[:1])
    yield from list(as_mermaid(opening))[: 1 + len(first.frames[0].replicas)]
    steps: dict[int, dict[str, list[str]]] = {}
    for performance in performances:
        for frame in performance.frames:
            steps.setdefault(frame.step.line, {})[performance.policy] = _lines(performance, frame)
    for line in sorted(steps):
        yield from _step(steps[line], len(performances))


def _lines(performance: Performance, frame: Frame) -> list[str]:
    """Return the lines of one step; a step that failed has no replicas and no lines."""
    if not frame.replicas:
        return []
    alone = Performance(performance.story, performance.policy, [frame])
    return list(as_mermaid(alone))[1 + len(frame.replicas) :]


def _step(by_policy: dict[str, list[str]], policies: int) -> Iterator[str]:
    different: dict[tuple[str, ...], list[str]] = {}
    for policy, lines in by_policy.items():
        different.setdefault(tuple(lines), []).append(policy)
    if len(different) == 1 and len(by_policy) == policies:
        yield from next(iter(different))
        return
    word = "alt"
    for own, names in different.items():
        if own:
            yield f"{INDENT}{word} {', '.join(names)}"
            yield from (INDENT + line for line in own)
            word = "else"
    if word == "else":
        yield f"{INDENT}end"
