"""Prometheus' text format, version 0.0.4.

A family is one metric with all its samples, which follow its help and type lines. The text is
generated in slices: between two slices a broker serves requests.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from tidelog.core.metrics.scrape import Scrape

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
GAUGE, COUNTER, SUMMARY, HISTOGRAM = "gauge", "counter", "summary", "histogram"
SLICE_LINES = 250
"""A few tenths of a millisecond of work."""

Sample: TypeAlias = tuple[str, str, float]
"""Suffix of the name, labels as text, and value."""


class Family(NamedTuple):
    """A metric: its name, type, labels and help text, and a function for its samples."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str
    samples: "Callable[[Scrape], Iterable[Sample]]"


def slices(families: Iterable[Family], scrape: "Scrape") -> Iterator[str]:
    """Yield the text of all families in slices; an empty slice is a pause."""
    for _ in scrape.prepare():
        yield ""
    lines: list[str] = []
    for family in families:
        name = family.name
        lines.append(f"# HELP {name} {_escaped_help(family.meaning)}\n")
        lines.append(f"# TYPE {name} {family.kind}\n")
        for suffix, labels, value in family.samples(scrape):
            lines.append(f"{name}{suffix}{labels} {number(value)}\n")
            if len(lines) >= SLICE_LINES:
                yield "".join(lines)
                lines.clear()
        if len(lines) >= SLICE_LINES // 2:
            yield "".join(lines)
            lines.clear()
    yield "".join(lines)


def number(value: float) -> str:
    """Format a value for Prometheus."""
    if isinstance(value, int):
        return str(int(value))  # a bool too
    return "NaN" if value != value else repr(value)


def labelled(**labels: object) -> str:
    """Format labels as `{name="value",…}`."""
    pairs = ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items())
    return "{" + pairs + "}" if pairs else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
