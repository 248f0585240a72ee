"""Make a story shorter without changing its outcome.

A literal translation holds every message and hides each metadata change from all brokers. Three
kinds of changes make it shorter:

- Do not hold a message that arrives before any other event, or that could be sent later.
- Do not hide a change from a broker that receives it at once.
- Leave out commands and options that have no effect on the outcome.

Each change is tried by playing the whole story. It is kept only if the outcome is the same:
replicas, controller, and promises to clients.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from tidelog.lab.retelling.draft import DraftStep, StoryDraft, replay, same_outcome

TRIES_MAX = 400


def simplify(draft: StoryDraft) -> StoryDraft:
    """Return a shorter story with the same outcome."""
    tries = 0
    found = True
    while found and tries < TRIES_MAX:
        found = False
        for shorter in _changes(draft.steps):
            tries += 1
            other = replay(shorter, draft.policy)
            if other is not None and same_outcome(draft.world, other.world):
                draft, found = other, True
                break
    return draft


def shorten(draft: StoryDraft, still: Callable[[StoryDraft], bool]) -> StoryDraft:
    """Leave out as many commands as possible while `still` is true at the end.

    Large pieces are tried first. The `cluster` command stays.
    """
    size = max(1, (len(draft.steps) - 1) // 2)
    tries = 0
    while tries < TRIES_MAX:
        found = False
        start = len(draft.steps) - size
        while start >= 1 and tries < TRIES_MAX:
            tries += 1
            rest = [*draft.steps[:start], *draft.steps[start + size :]]
            other = replay(rest, draft.policy)
            if other is not None and still(other):
                draft, found = other, True
            start -= size
        if size == 1 and not found:
            break
        size = size if found and size == 1 else max(1, size // 2)
    return draft


def _changes(steps: list[DraftStep]) -> Iterator[list[DraftStep]]:
    for index, each in enumerate(steps):
        name = each.named("as")
        if name is not None:
            yield from _without_holding(steps, index, name)
        if each.words[0] == "tell":
            yield from _without_tell(steps, index)
    for index in range(len(steps) - 1, 0, -1):
        if steps[index].words[0] not in ("produce", "unfence"):
            yield steps[:index] + steps[index + 1 :]
    for option in steps[0].words:
        if "=" in option:
            words = [word for word in steps[0].words if word != option]
            yield [replace(steps[0], command=" ".join(words)), *steps[1:]]


def _without_holding(steps: list[DraftStep], index: int, name: str) -> Iterator[list[DraftStep]]:
    """Yield stories that do not hold a message: sent later, delivered at once, or lost."""
    sent = steps[index]
    plain = " ".join(w for w in sent.words if not w.startswith(("hold=", "as=")))
    arrives = next((i for i, s in enumerate(steps) if s.words[:2] == ["deliver", name]), None)
    if arrives is None:
        lost = f"{plain} lose={sent.named('hold')}"
        yield [*steps[:index], replace(sent, command=lost), *steps[index + 1 :]]
        return
    fate = " ".join(steps[arrives].words[2:])
    both = DraftStep(f"{plain} {fate}".strip(), sent.stands_for + steps[arrives].stands_for)
    between, rest = steps[index + 1 : arrives], steps[arrives + 1 :]
    yield [*steps[:index], *between, both, *rest]
    yield [*steps[:index], both, *between, *rest]


def _without_tell(steps: list[DraftStep], index: int) -> Iterator[list[DraftStep]]:
    """Yield the story in which a broker receives the latest change at once, without `tell`."""
    tell = steps[index]
    for earlier in range(index - 1, -1, -1):
        unseen = (steps[earlier].named("unseen") or "").split(",")
        if tell.words[1] in unseen:
            shorter = _with_unseen(
                steps[earlier], [name for name in unseen if name != tell.words[1]]
            )
            shorter = replace(shorter, stands_for=shorter.stands_for + tell.stands_for)
            yield [*steps[:earlier], shorter, *steps[earlier + 1 : index], *steps[index + 1 :]]
            return


def _with_unseen(each: DraftStep, unseen: list[str]) -> DraftStep:
    words = [word for word in each.words if not word.startswith("unseen=")]
    if unseen:
        words.append("unseen=" + ",".join(unseen))
    return replace(each, command=" ".join(words))
