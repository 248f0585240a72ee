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

from tidelog.lab.retelling.telling import Said, Telling, play_again, same_outcome

TRIES_MAX = 400


def simplify(telling: Telling) -> Telling:
    """Return a shorter story with the same outcome."""
    tries = 0
    found = True
    while found and tries < TRIES_MAX:
        found = False
        for shorter in _changes(telling.said):
            tries += 1
            other = play_again(shorter, telling.policy)
            if other is not None and same_outcome(telling.world, other.world):
                telling, found = other, True
                break
    return telling


def shorten(telling: Telling, still: Callable[[Telling], bool]) -> Telling:
    """Leave out as many commands as possible while `still` is true at the end.

    Large pieces are tried first. The `cluster` command stays.
    """
    size = max(1, (len(telling.said) - 1) // 2)
    tries = 0
    while tries < TRIES_MAX:
        found = False
        start = len(telling.said) - size
        while start >= 1 and tries < TRIES_MAX:
            tries += 1
            rest = [*telling.said[:start], *telling.said[start + size :]]
            other = play_again(rest, telling.policy)
            if other is not None and still(other):
                telling, found = other, True
            start -= size
        if size == 1 and not found:
            break
        size = size if found and size == 1 else max(1, size // 2)
    return telling


def _changes(said: list[Said]) -> Iterator[list[Said]]:
    for index, each in enumerate(said):
        name = each.named("as")
        if name is not None:
            yield from _without_holding(said, index, name)
        if each.words[0] == "tell":
            yield from _without_telling(said, index)
    for index in range(len(said) - 1, 0, -1):
        if said[index].words[0] not in ("produce", "unfence"):
            yield said[:index] + said[index + 1 :]
    for option in said[0].words:
        if "=" in option:
            words = [word for word in said[0].words if word != option]
            yield [replace(said[0], command=" ".join(words)), *said[1:]]


def _without_holding(said: list[Said], index: int, name: str) -> Iterator[list[Said]]:
    """Yield stories that do not hold a message: sent later, delivered at once, or lost."""
    sent = said[index]
    plain = " ".join(w for w in sent.words if not w.startswith(("hold=", "as=")))
    arrives = next((i for i, s in enumerate(said) if s.words[:2] == ["deliver", name]), None)
    if arrives is None:
        lost = f"{plain} lose={sent.named('hold')}"
        yield [*said[:index], replace(sent, command=lost), *said[index + 1 :]]
        return
    fate = " ".join(said[arrives].words[2:])
    both = Said(f"{plain} {fate}".strip(), sent.stands_for + said[arrives].stands_for)
    between, rest = said[index + 1 : arrives], said[arrives + 1 :]
    yield [*said[:index], *between, both, *rest]
    yield [*said[:index], both, *between, *rest]


def _without_telling(said: list[Said], index: int) -> Iterator[list[Said]]:
    """Yield the story in which a broker receives the latest change at once, without `tell`."""
    told = said[index]
    for earlier in range(index - 1, -1, -1):
        deaf = (said[earlier].named("unseen") or "").split(",")
        if told.words[1] in deaf:
            heard = _with_unseen(said[earlier], [name for name in deaf if name != told.words[1]])
            heard = replace(heard, stands_for=heard.stands_for + told.stands_for)
            yield [*said[:earlier], heard, *said[earlier + 1 : index], *said[index + 1 :]]
            return


def _with_unseen(each: Said, deaf: list[str]) -> Said:
    words = [word for word in each.words if not word.startswith("unseen=")]
    if deaf:
        words.append("unseen=" + ",".join(deaf))
    return replace(each, command=" ".join(words))
