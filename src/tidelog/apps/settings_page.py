"""The reference pages of settings, written from the tables in `core/settings/`.

`python -m tidelog.apps.settings_page docs/reference` writes them; a test fails when they are out of
date.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from tidelog.core.settings.broker_keys import SECTIONS
from tidelog.core.settings.ignored_keys import IGNORED
from tidelog.core.settings.setting import INT_MAX, LONG_MAX, READ_ONLY, Setting, Value, spell
from tidelog.core.settings.topic_keys import SYNONYMS, TOPIC

_TIMES = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))
_SIZES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))

_BROKER_INTRO = """# Broker settings

All settings of a broker, under Kafka's names. Defaults are those of Kafka 4 unless a row says
otherwise. Set them in a file, in the environment or on the command line: see
[Configure a broker](../how-to/configure-a-broker.md).

- "Read-only" settings need a restart.
- "Cluster-wide" settings can be changed at run time, for one broker or for all, with
  IncrementalAlterConfigs (`kafka-configs --alter --entity-type brokers`).

More pages: [defaults for topics](topic-defaults.md), [Tidelog's own settings](own-settings.md), and
[Kafka's settings without effect](ignored-settings.md). An unknown name, or one without effect,
causes a warning at startup; with `tidelog broker --strict` the broker does not start. With an
invalid value it does not start either, and prints the reason.

Settings that protect a Kafka broker and that Tidelog does not support (`principal.builder.class`,
`delegation.token.secret.key`, …) are refused at startup.

This page is written from the code: `python -m tidelog.apps.settings_page docs/reference`.
"""

_OWN_INTRO = """# Tidelog's own settings

Settings that Kafka does not have. They are set like [the others](broker-settings.md), and a change
needs a restart.

This page is written from the code: `python -m tidelog.apps.settings_page docs/reference`.

"""

_DEFAULTS_INTRO = """# A broker's defaults for topics

Values for topics that do not set [the topic setting](topic-settings.md) themselves. They are set
like [the broker's other settings](broker-settings.md); "cluster-wide" ones can be changed at run
time.

This page is written from the code: `python -m tidelog.apps.settings_page docs/reference`.

"""

_IGNORED_INTRO = """# Kafka's settings without effect

Broker settings of Kafka 4.3.1 that Tidelog does not need. They are parsed, stored and shown by
DescribeConfigs as in Kafka, and have no effect. Those in bold can be changed at run time. Those
that protect a broker are refused unless they are empty or at their default.

This page is written from the code: `python -m tidelog.apps.settings_page docs/reference`.

"""

_APART = {
    "Tidelog's own": ("own-settings.md", _OWN_INTRO),
    "Defaults for topics": ("topic-defaults.md", _DEFAULTS_INTRO),
}
"""Sections with a page of their own."""

_TOPIC_INTRO = """# Topic settings

All settings of a topic, under Kafka's names. All can be changed at any time. A topic that does not
set one uses the [broker's setting](broker-settings.md) in the last column; of several, the first
one that is set. An unknown name or an invalid value is refused with INVALID_CONFIG.

This page is written from the code: `python -m tidelog.apps.settings_page docs/reference`.
"""

_WITHOUT_EFFECT_INTRO = """
## Without effect

Kafka's tools set these. They are validated, stored and shown, and have no effect so far.
"""


def pages() -> dict[str, str]:
    """Return the text of each page, by file name."""
    return {
        "broker-settings.md": _broker_page(),
        "topic-settings.md": _topic_page(),
        "ignored-settings.md": _ignored_page(),
        **{page: text + _broker_table(SECTIONS[title]) for title, (page, text) in _APART.items()},
    }


def _broker_page() -> str:
    parts = [_BROKER_INTRO]
    for title, settings in SECTIONS.items():
        if title not in _APART:
            parts.append(f"\n## {title}\n\n{_broker_table(settings)}")
    return "".join(parts)


def _broker_table(settings: Iterable[Setting]) -> str:
    head = ("setting", "type", "default", "allowed", "change", "what it does")
    return _table(head, [(*_common(row), _change(row), _meaning(row)) for row in settings])


def _ignored_page() -> str:
    families: dict[str, list[str]] = {}
    for row in sorted(IGNORED.values()):
        shown = f"`{row.name}={spell(row.default) or ''}`"
        changed = shown if row.dynamic == READ_ONLY else f"**{shown}**"
        families.setdefault(row.name.partition(".")[0], []).append(changed)
    rows = [(family, ", ".join(shown)) for family, shown in families.items()]
    return _IGNORED_INTRO + _table(("family", "settings with their defaults"), rows)


def _topic_page() -> str:
    head = ("setting", "type", "default", "allowed", "what it does", "broker's setting")
    with_effect = [
        (
            *_common(row),
            _meaning(row),
            ", ".join(f"`{name}`" for name in SYNONYMS.get(row.name, ())),
        )
        for row in TOPIC.values()
        if row.has_effect
    ]
    without = [(*_common(row), _meaning(row)) for row in TOPIC.values() if not row.has_effect]
    tables = _table(head, with_effect), _table(head[:-1], without)
    return f"{_TOPIC_INTRO}\n{tables[0]}{_WITHOUT_EFFECT_INTRO}\n{tables[1]}"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n".replace("| --- ", "|---") for cells in lines)


def _common(row: Setting) -> tuple[str, str, str, str]:
    kind = f"{row.type}, {row.unit}" if row.unit else row.type
    return f"`{row.name}`", kind, _default(row), _allowed(row)


def _default(row: Setting) -> str:
    text = spell(row.default)
    if not text:
        return "none"
    return f"`{text}`{_readable(row.unit, row.default)}"


def _readable(unit: str, value: Value) -> str:
    """Return the same value in a larger unit, if it is a whole number there."""
    if value in (INT_MAX, LONG_MAX):
        return " (no limit)"
    scales = _TIMES if unit == "ms" else _SIZES if unit == "bytes" else ()
    for scale, name in scales:
        if isinstance(value, int) and value >= scale and value % scale == 0:
            return f" ({value // scale} {name})"
    return ""


def _allowed(row: Setting) -> str:
    if row.choices:
        return ", ".join(f"`{choice}`" for choice in row.choices)
    if row.least is not None and row.most is not None:
        return f"{row.least} to {row.most}"
    if row.least is not None:
        return f"from {row.least}"
    return "true, false" if row.type == "boolean" else ""


def _change(row: Setting) -> str:
    return row.dynamic if row.dynamic == READ_ONLY else f"**{row.dynamic}**"


def _meaning(row: Setting) -> str:
    return f"{row.doc} *{row.note}*" if row.note else row.doc


def write(folder: Path) -> None:
    """Write every page into the folder."""
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
