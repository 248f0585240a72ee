"""The pattern by which ListTransactions selects transactional ids (KIP-1152).

Python's own `re` may need exponential time for a pattern, and one thread serves all clients. So
this module has the operators that all regular expressions share, and matches in time
proportional to the id, as RE2 in Kafka: it follows all ways through the pattern at once (Thompson's
construction) and remembers the sets of places that it has seen. The pattern may begin with the
flags `(?i)` and `(?s)`. Backreferences and lookarounds are refused.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

PATTERN_MAX = 1_000
PLACES_MAX = 2_000
"""Limits of a pattern, in characters and after repetitions are written out."""
SETS_MAX = 1_000
"""Remembered sets of places."""


class InvalidPattern(ValueError):
    """The pattern is not a supported regular expression."""


Accepts: TypeAlias = Callable[[str], bool]
"""Whether a place accepts a character."""


class _Piece(NamedTuple):
    """A part of the pattern: builds its places, which lead to `after`, and returns its first
    place."""

    build: "Callable[[_Places, int], int]"


class _Places:
    """The places of a pattern: each accepts a character, or leads to other places at once."""

    def __init__(self) -> None:
        self.accepts: list[Accepts | None] = []
        self.leads_to: list[list[int]] = []

        self._copies = 0

    def count_copy(self) -> None:
        """Count a copy of a repeated piece: even an empty one takes time."""
        self._copies += 1
        if self._copies > PLACES_MAX:
            raise InvalidPattern("the pattern repeats too much")

    def add(self, accepts: Accepts | None, *leads_to: int) -> int:
        if len(self.accepts) >= PLACES_MAX:
            raise InvalidPattern("the pattern repeats too much")
        self.accepts.append(accepts)
        self.leads_to.append(list(leads_to))
        return len(self.accepts) - 1


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that says whether a whole text matches the pattern."""
    if len(pattern) > PATTERN_MAX:
        raise InvalidPattern(f"the pattern has more than {PATTERN_MAX} characters")
    places = _Places()
    end = places.add(None)
    first = _Parser(pattern).whole().build(places, end)
    return _Matcher(places, first, end).matches


class _Matcher:
    """Follows all ways through the places of a pattern at once."""

    def __init__(self, places: _Places, first: int, end: int) -> None:
        self._places = places
        self._end = end
        self._start = self._closure([first])
        self._known: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, text: str) -> bool:
        current = self._start
        for character in text:
            key = (current, character)
            following = self._known.get(key)
            if following is None:
                following = self._step(current, character)
                if len(self._known) >= SETS_MAX:
                    self._known.clear()
                self._known[key] = following
            if not following:
                return False
            current = following
        return self._end in current

    def _step(self, current: frozenset[int], character: str) -> frozenset[int]:
        reached = []
        for place in current:
            accepts = self._places.accepts[place]
            if accepts is not None and accepts(character):
                reached += self._places.leads_to[place]
        return self._closure(reached)

    def _closure(self, reached: list[int]) -> frozenset[int]:
        """Return these places and all that they lead to without a character."""
        found = set(reached)
        left = list(found)
        while left:
            place = left.pop()
            if self._places.accepts[place] is None:
                for following in self._places.leads_to[place]:
                    if following not in found:
                        found.add(following)
                        left.append(following)
        return frozenset(found)


# -- pieces --------------------------------------------------------------------------------


def _one(accepts: Accepts) -> _Piece:
    return _Piece(lambda places, after: places.add(accepts, after))


def _sequence(pieces: list[_Piece]) -> _Piece:
    def build(places: _Places, after: int) -> int:
        for piece in reversed(pieces):
            after = piece.build(places, after)
        return after

    return _Piece(build)


def _either(pieces: list[_Piece]) -> _Piece:
    if len(pieces) == 1:
        return pieces[0]
    return _Piece(
        lambda places, after: places.add(None, *(piece.build(places, after) for piece in pieces))
    )


def _repeated(piece: _Piece, least: int, most: int | None) -> _Piece:
    def build(places: _Places, after: int) -> int:
        if most is None:
            loop = places.add(None, after)
            places.leads_to[loop].append(piece.build(places, loop))
            after = loop
        else:
            end = after
            for _ in range(most - least):
                places.count_copy()
                after = places.add(None, end, piece.build(places, after))
        for _ in range(least):
            places.count_copy()
            after = piece.build(places, after)
        return after

    return _Piece(build)


# -- the parser ----------------------------------------------------------------------------

_DEPTH_MAX = 50
_CLASSES: dict[str, Accepts] = {
    "d": lambda one: one in "0123456789",
    "w": lambda one: one.isascii() and (one.isalnum() or one == "_"),
    "s": lambda one: one in " \t\n\x0b\f\r",
}
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _opposite(accepts: Accepts) -> Accepts:
    return lambda one: not accepts(one)


def _in_any_case(accepts: Accepts) -> Accepts:
    return lambda one: accepts(one) or accepts(one.lower()) or accepts(one.upper())


class _Parser:
    """Reads a pattern from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._depth = 0
        self._flags = self._leading_flags()
        self._start = self._at

    def _leading_flags(self) -> str:
        end = self._pattern.find(")")
        flags = self._pattern[2:end] if self._pattern.startswith("(?") and end > 2 else ""
        if not flags or flags.strip("is"):
            return ""
        self._at = end + 1
        return flags

    def _character(self, accepts: Accepts) -> Accepts:
        return _in_any_case(accepts) if "i" in self._flags else accepts

    def whole(self) -> _Piece:
        piece = self._alternatives()
        if self._at < len(self._pattern):
            raise InvalidPattern("unmatched )")
        return piece

    def _next(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _take(self) -> str:
        taken = self._next()
        if not taken:
            raise InvalidPattern("the pattern ends too early")
        self._at += 1
        return taken

    def _takes(self, text: str) -> bool:
        found = self._pattern.startswith(text, self._at)
        self._at += len(text) if found else 0
        return found

    def _alternatives(self) -> _Piece:
        pieces = [self._sequence()]
        while self._takes("|"):
            pieces.append(self._sequence())
        return _either(pieces)

    def _sequence(self) -> _Piece:
        pieces = []
        while self._next() not in ("", "|", ")"):
            pieces.append(self._quantified(self._atom()))
        return _sequence(pieces)

    def _quantified(self, piece: _Piece) -> _Piece:
        while True:
            if self._takes("*"):
                piece = _repeated(piece, 0, None)
            elif self._takes("+"):
                piece = _repeated(piece, 1, None)
            elif self._takes("?"):
                piece = _repeated(piece, 0, 1)
            elif self._takes("{"):
                piece = _repeated(piece, *self._bounds())
            else:
                return piece
            # What follows says which match is preferred: that makes no difference here.
            if not self._takes("?"):
                self._takes("+")

    def _bounds(self) -> tuple[int, int | None]:
        text = ""
        while (taken := self._take()) != "}":
            text += taken
        low, comma, high = text.partition(",")
        if not low.isdecimal() or not (high.isdecimal() or not high):
            raise InvalidPattern(f"invalid repetition {{{text}}}")
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if least > PLACES_MAX or (most is not None and not least <= most <= PLACES_MAX):
            raise InvalidPattern(f"invalid repetition {{{text}}}")
        return least, most

    def _atom(self) -> _Piece:
        taken = self._take()
        if taken == "(":
            return self._group()
        if taken == "[":
            return _one(self._class())
        if taken == ".":
            return _one(lambda one: "s" in self._flags or one != "\n")
        if taken == "\\":
            return self._escaped()
        if taken == "^" and self._at == self._start + 1:
            return _sequence([])
        if taken == "$" and self._at == len(self._pattern):
            return _sequence([])
        if taken in "*+?{^$":
            raise InvalidPattern(f"{taken} has no meaning at {self._at - 1}")
        return _one(self._character(taken.__eq__))

    def _group(self) -> _Piece:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise InvalidPattern("too many nested groups")
        if self._takes("?") and not self._takes(":"):
            raise InvalidPattern("only groups of the form (...) and (?:...) are supported")
        piece = self._alternatives()
        if not self._takes(")"):
            raise InvalidPattern("unmatched (")
        self._depth -= 1
        return piece

    def _escaped(self) -> _Piece:
        if self._takes("Q"):
            end = self._pattern.find("\\E", self._at)
            text = self._pattern[self._at :] if end < 0 else self._pattern[self._at : end]
            self._at = len(self._pattern) if end < 0 else end + 2
            return _sequence([_one(self._character(one.__eq__)) for one in text])
        return _one(self._escape())

    def _escape(self) -> Accepts:
        taken = self._take()
        if taken in _CLASSES:
            return _CLASSES[taken]
        if taken.lower() in _CLASSES:
            return _opposite(_CLASSES[taken.lower()])
        return self._character(self._literal(taken).__eq__)

    def _literal(self, taken: str) -> str:
        if taken in _ESCAPES:
            return _ESCAPES[taken]
        if taken.isascii() and taken.isalnum():
            raise InvalidPattern(f"\\{taken} is not supported")
        return taken

    def _class(self) -> Accepts:
        negated = self._takes("^")
        single: set[str] = set()
        ranges: list[tuple[str, str]] = []
        named: list[Accepts] = []
        first = True
        while first or self._next() != "]":
            first = False
            taken = self._take()
            if taken == "[" or self._pattern.startswith("&&", self._at - 1):
                raise InvalidPattern("classes inside of classes are not supported")
            if taken == "\\":
                if self._next().lower() in _CLASSES:
                    named.append(self._escape())
                    continue
                taken = self._literal(self._take())
            if self._next() == "-" and self._pattern[self._at + 1 : self._at + 2] not in ("", "]"):
                self._at += 1
                last = self._take()
                last = self._literal(self._take()) if last == "\\" else last
                if last < taken:
                    raise InvalidPattern(f"invalid range {taken}-{last}")
                ranges.append((taken, last))
            else:
                single.add(taken)
        self._at += 1

        def accepts(one: str) -> bool:
            return (
                one in single
                or any(low <= one <= high for low, high in ranges)
                or any(each(one) for each in named)
            )

        found = self._character(accepts)
        return _opposite(found) if negated else found
