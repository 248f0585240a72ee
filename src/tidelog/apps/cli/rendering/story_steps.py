"""One step of a story as a screen: prose, messages, and each replica's log as boxes.

    ┌──────┬──────┐
    │ m1@0 │ m2@0 │      a record and its leader epoch; green is committed, yellow is not
    └──────┴──────┘
           ┃HW=1   ▏LEO=2

Several rules are side by side if the screen is wide enough.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidelog.apps.cli import output
from tidelog.lab.story.stage.controller import PARTITION

COLUMN_MIN = 46
"""Rules are side by side if each gets this width."""
MARGIN = 2
KEYS = "Enter: next  b: back  g: first  G: last  q: quit"
Data = Mapping[str, Any]


def step_screen(story: Data, at: int, screen: Console) -> list[Text]:
    """Return the lines of one step, at most as many as the screen has."""
    full = _lines(screen, _content(story, at, screen.width, prose=True))
    room = max(screen.height - 2, 4)
    if len(full) > room:
        full = _lines(screen, _content(story, at, screen.width, prose=False))
    if len(full) > room:
        note = output.faint(f"… {len(full) - room + 1} more lines; enlarge the terminal")
        full = [*full[: room - 1], note]
    return [*full, output.faint(KEYS)]


def _lines(screen: Console, content: RenderableType) -> list[Text]:
    """Return a renderable as lines of styled text."""
    found = []
    for segments in screen.render_lines(content, pad=False):
        line = Text()
        for segment in segments:
            line.append(segment.text, segment.style)
        line.rstrip()
        found.append(line)
    return found


def _content(story: Data, at: int, width: int, *, prose: bool) -> RenderableType:
    steps = story["steps"]
    step = steps[at]
    parts: list[RenderableType] = [
        output.heading(story["title"]).append(
            f"   step {at + 1} of {len(steps)}, line {step['line']}", output.FAINT
        ),
        Text(),
    ]
    if prose:
        lines = [*story["prose"], ""] if at in (0, first_step(story)) else []
        for paragraph in paragraphs([*lines, *step["prose"]]):
            parts += [Text(paragraph, "italic"), Text()]
    command = Text("› ").append(step["command"], f"bold {output.NAME}")
    if step["given"]:
        command.append("   (given)", output.FAINT)
    if at == story["parts_at"]:
        command.append("   ◆ the rules differ here", f"bold {output.WARN}")
    parts += [command, Text()]
    names = story["policies"]
    column = width // len(names)
    beside = len(names) > 1 and column >= COLUMN_MIN
    columns = [_rule_parts(story, at, name, column if beside else width) for name in names]
    if beside:
        grid = Table.grid(padding=(0, 1))
        for _ in names:
            grid.add_column(width=column - 1)
        for row in zip(*columns, strict=True):
            grid.add_row(*row)
        parts.append(grid)
    else:
        parts += [part for parts_of_rule in columns for part in parts_of_rule]
    if at == len(steps) - 1:
        parts += [Text(), *map(_verdict, story["verdicts"])]
    return Group(*parts)


def first_step(story: Data) -> int:
    """Return the first step that is not part of `given:`."""
    return next((at for at, step in enumerate(story["steps"]) if not step["given"]), 0)


def paragraphs(lines: Sequence[str]) -> list[str]:
    """Join the lines of each paragraph; the screen wraps them by its own width."""
    found = [""]
    for line in lines:
        if line.strip():
            found[-1] += (" " if found[-1] else "") + line.strip()
        elif found[-1]:
            found.append("")
    return [paragraph for paragraph in found if paragraph]


def _rule_parts(story: Data, at: int, rule: str, width: int) -> tuple[Group, Group]:
    """Return what the step printed under one rule, and the replicas after it."""
    frame = story["steps"][at]["frames"].get(rule)
    parts: list[RenderableType] = []
    if len(story["policies"]) > 1:
        parts.append(output.heading(f"under {rule}"))
    if frame is None:
        parts.append(output.faint("this step is not run under this rule"))
    else:
        parts += map(_event, frame["lines"])
        parts += [Text(problem, output.BAD) for problem in frame["problems"]]
    parts.append(Text())
    replicas: list[RenderableType] = []
    state = _last_state(story, at, rule)
    if state is not None:
        replicas.append(_registration(state["registration"]))
        for replica in state["replicas"]:
            replicas += replica_box(replica, width - MARGIN)
        if state["lost"]:
            names = " ".join(str(name) for _, _, name in state["lost"])
            replicas.append(Text(f"✗ acknowledged and lost: {names}", output.BAD))
    return Group(*parts), Group(*replicas, Text())


def _last_state(story: Data, at: int, rule: str) -> Data | None:
    """Return the newest frame of a rule that has replicas."""
    for step in reversed(story["steps"][: at + 1]):
        frame = step["frames"].get(rule)
        if frame is not None and frame["replicas"]:
            found: Data = frame
            return found
    return None


def _event(line: Data) -> Text:
    if not line["from"]:
        style = output.WARN if " truncates " in line["text"] else ""
        style = output.BAD if line["text"].startswith("VIOLATED") else style
        return Text(line["text"], style)
    arrow = "─✗ " if line["mark"] == "lost" else "─▶ "
    text = Text(f"{line['from']} ──{arrow}{line['to']}  {line['text']}")
    if line["mark"]:
        text.append(f"  ({line['mark']})")
        text.stylize(output.FAINT)
    return text


def _registration(known: Data | None) -> Text:
    if known is None:
        return Text()
    text = f"controller: leader {known['leader'] or 'none'}, epoch {known['leader_epoch']}"
    text += f", ISR {{{' '.join(known['isr'])}}}"
    if known["elr"]:
        text += f", ELR {{{' '.join(known['elr'])}}}"
    return output.faint(text)


def replica_box(replica: Data, width: int) -> list[Text]:
    """Return the lines of one replica: its state, its newest records that fit, HW and LEO. Of a
    coordinator only the order of its records matters: they are one line."""
    head = Text(f"{replica['name']} ", output.NAME if replica["alive"] else output.FAINT)
    head.append(replica["role"], "bold" if replica["role"] == "leader" else output.FAINT)
    if replica["leader_epoch"] is not None:
        head.append(f"  epoch {replica['leader_epoch']}", output.FAINT)
    if replica["assigned"]:
        head.append("  in sync" if replica["in_isr"] else "  not in sync", output.FAINT)
    if replica["topic"] != PARTITION.topic:
        head.append(f"  of {replica['topic']}", output.FAINT)
    if replica["last_stable_offset"] is not None:
        head.append(f"  LSO {replica['last_stable_offset']}", output.FAINT)
    if replica["internal"]:
        return [head, _written(replica, width)]
    if replica["epochs"]:
        pairs = " ".join(f"{epoch}:{start}" for epoch, start in replica["epochs"])
        head.append(f"  epochs [{pairs}]", output.FAINT)
    return [head, *_log_lines(replica, width)]


def _written(replica: Data, width: int) -> Text:
    """Return the newest records of a coordinator that fit into a line, but always the last one."""
    found = ""
    for _, _, name in reversed(replica["log"]):
        longer = f"{name} · {found}" if found else str(name)
        if found and len("… · ") + len(longer) > width:
            return Text(f"… · {found}")
        found = longer
    return Text(found)


def _log_lines(replica: Data, width: int) -> list[Text]:
    records, hidden = _fitting(replica["log"], width - len("… 999 more ┃HW=999 ▏LEO=999"))
    hidden += replica["omitted"]
    lead = f"… {hidden} more " if hidden else ""
    cells = [f" {name}@{epoch} " for _, epoch, name in records]
    high_watermark, end = replica["high_watermark"], replica["log_end_offset"]
    style = "" if replica["alive"] else f"{output.FAINT} "
    middle = Text(lead)
    for (offset, _, _), cell in zip(records, cells, strict=True):
        colour = output.GOOD if offset < high_watermark else output.WARN
        middle.append("│").append(cell, f"{style}{colour}")
    middle.append("│")
    widths = [len(cell) for cell in cells]
    pad = " " * len(lead)
    return [
        Text(pad + _border(widths, "┌┬┐")),
        middle,
        Text(pad + _border(widths, "└┴┘")),
        _marks(records, widths, len(lead), (high_watermark, end)),
    ]


def _fitting(log: Sequence[Sequence[Any]], width: int) -> tuple[Sequence[Sequence[Any]], int]:
    """Return the newest records that fit, and how many do not."""
    used = 1
    for count, (_, epoch, name) in enumerate(reversed(log)):
        used += len(f" {name}@{epoch} ") + 1
        if used > width:
            return log[len(log) - count :], len(log) - count
    return log, 0


def _border(widths: Sequence[int], corners: str) -> str:
    if not widths:
        return corners[0] + corners[-1]
    return corners[0] + corners[1].join("─" * width for width in widths) + corners[2]


def _marks(
    records: Sequence[Sequence[Any]], widths: Sequence[int], lead: int, offsets: tuple[int, int]
) -> Text:
    """Return the line with HW and LEO below the boundaries that they are at."""
    places = [lead, *(lead + used for used in accumulate(width + 1 for width in widths))]
    high_watermark, end = offsets
    at = places[sum(offset < high_watermark for offset, _, _ in records)]
    line = Text(" " * at).append(f"┃HW={high_watermark}", "bold")
    gap = max(places[-1] - len(line), 1)
    return line.append(" " * gap).append(f"▏LEO={end}")


def _verdict(verdict: Data) -> Text:
    rule = verdict["policy"]
    if not verdict["passed"]:
        return Text(f"✗ {rule}: not as the story expects", output.BAD)
    if verdict["broken"]:
        names = "; ".join(
            f"{each['invariant']}: {each['what']}" if each["what"] else each["invariant"]
            for each in verdict["broken"]
        )
        return Text(f"✗ {rule} breaks {names}", output.BAD)
    kept = ", ".join(verdict["kept"])
    return Text(f"✓ {rule} keeps {kept}" if kept else f"✓ {rule}: as expected", output.GOOD)
