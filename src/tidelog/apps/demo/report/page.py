"""The report page: verdict, figures, picture and tables in one self-contained HTML file.

Invariant: the page loads no other file, and all text from outside is escaped. Its only script draws
the replicas (lanes.py).
"""

import platform
from datetime import UTC, datetime
from html import escape
from importlib.metadata import PackageNotFoundError, version

from tidelog.apps.demo.orders import PARTITION, TOPIC
from tidelog.apps.demo.outcome import Outcome
from tidelog.apps.demo.report import lanes, picture, style, tables
from tidelog.apps.demo.report.picture import Shape, Window
from tidelog.apps.demo.timeline import Timeline

SIZES = {"wide": (1120, 300), "middle": (620, 260), "narrow": (350, 230)}
"""The window width selects one of these sizes (style.py), so letters keep their size."""
ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Cpath d='M1 12L6 7l3 2 6-6' stroke='%230b6fb8' stroke-width='2.5' fill='none'/%3E%3C/svg%3E"
)
"""Part of the page, so that a browser does not request an icon."""
CAPTION = (
    "Each replica's log end has a line of its own width, so overlapping lines are all visible. The"
    " dotted line is the leader's high watermark: every in-sync replica has the records below it."
    " The needles show how many records a replica has above the high watermark that it knows. The"
    " strips show which broker was in sync, which was down, and which led."
)


def page(outcome: Outcome, timeline: Timeline, command: str) -> str:
    """Return the whole HTML file."""
    title = f"Tidelog demo: {verdict(outcome)}"
    parts = [
        _head(outcome),
        _figures(outcome),
        _pictures(timeline),
        lanes.section(timeline),
        "<h2>Checks</h2>",
        tables.checks(outcome),
        "<h2>Leader epochs</h2>",
        tables.epochs(timeline),
    ]
    if outcome.spark is not None:
        parts += [
            "<h2>Audit of all replicas</h2>",
            tables.audit(outcome.spark.audit),
            "<h2>The Spark job</h2>",
            tables.batches(outcome.spark),
        ]
    parts += ["<h2>Step by step</h2>", _steps(outcome), _foot(outcome, command)]
    css = lanes.style() + style.COLOURS + style.PICTURE + style.PAGE
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(title)}</title>\n<link rel="icon" href="{ICON}">\n'
        f"<style>{css}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


def verdict(outcome: Outcome) -> str:
    """Return the result of the demo in one line."""
    log = outcome.log
    text = (
        f"{log.acknowledged:,} acknowledged: {len(log.lost)} lost, {log.repeated} duplicated,"
        f" {log.out_of_order} out of order"
    )
    if outcome.spark is None:
        return text
    spark = outcome.spark
    parts = [
        "lake equal" if spark.lake.holds else "lake differs",
        "sums equal" if spark.table.holds and spark.topic.holds else "sums differ",
        f"audit {'passes' if spark.audit.holds else 'FAILS'}",
    ]
    return f"{text}; {', '.join(parts)}"


def _head(outcome: Outcome) -> str:
    css, sign = ("good", "✓") if outcome.holds else ("bad", "✗")
    failover = outcome.failover
    spark = "" if outcome.spark is None else ", and a Spark job stored and added them up"
    story = (
        f"Three brokers kept <code>{TOPIC}/{PARTITION}</code>. A librdkafka producer with acks=all"
        f" wrote orders during the whole run{spark}. Broker {failover.killed}, the leader, was"
        f" killed with kill -9, and broker {failover.successor} became leader under epoch"
        f" {failover.epoch}. The killed broker was restarted and caught up. Then the demo looked up"
        " every acknowledged order."
    )
    result = f"{sign} {verdict(outcome)}"
    return (
        "<h1>Records lost after the kill of a leader</h1>\n"
        f'<p class="verdict {css}" id="verdict">{escape(result)}</p>\n<p>{story}</p>'
    )


def _figures(outcome: Outcome) -> str:
    failover = outcome.failover
    figures = [
        (f"{outcome.log.acknowledged:,}", "orders acknowledged"),
        (f"{len(outcome.log.lost):,}", "of them lost"),
        (f"{failover.failover_s * 1000:.0f} ms", "from the kill to the next acknowledgement"),
        (f"{failover.rejoin_s:.1f} s", "from the restart until all replicas were in sync"),
    ]
    if outcome.spark is not None:
        figures += [
            (f"{outcome.spark.lake.found:,}", "rows in the lake"),
            (f"{outcome.spark.first_batch_s:.0f} s", "until Spark's first micro-batch"),
        ]
    items = "".join(f"<li><b>{escape(n)}</b><span>{escape(t)}</span></li>" for n, t in figures)
    return f'<ul class="figures" id="figures">{items}</ul>'


def _pictures(timeline: Timeline) -> str:
    parts = []
    for number, (title, window) in enumerate(picture.around_the_kill(timeline)):
        caption = CAPTION if number == 0 else ""
        parts.append(_figure(timeline, window, f"near{number}", title, caption))
    title = f"The whole run: {timeline.seconds:.0f} seconds"
    parts.append(_figure(timeline, picture.whole(timeline), "whole", title, ""))
    return "\n".join(parts)


def _figure(timeline: Timeline, window: Window, name: str, title: str, caption: str) -> str:
    drawn = "".join(
        f'<div class="{css}">'
        + picture.draw(timeline, window, Shape(*size, f"{name}-{css}"), title)
        + "</div>"
        for css, size in SIZES.items()
    )
    under = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<h2>{escape(title)}</h2>\n<figure id="{name}">{drawn}{under}</figure>'


def _steps(outcome: Outcome) -> str:
    items = "".join(
        f"<li><time>{step.at_s:.1f} s</time><span>{escape(step.text)}</span></li>"
        for step in outcome.steps
    )
    return f'<ol class="steps">{items}</ol>'


def _foot(outcome: Outcome, command: str) -> str:
    try:
        ours = version("tidelog")
    except PackageNotFoundError:
        ours = "from source"
    facts = [
        f"Tidelog {ours}",
        f"Python {platform.python_version()}",
        platform.system(),
        f"{outcome.seconds:.0f} s in all",
        datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    ]
    if outcome.spark is not None:
        facts[1:1] = [f"Spark {outcome.spark.version}", f"Java {outcome.spark.java}"]
    return (
        f"<footer><p>{escape(' · '.join(facts))}</p>"
        f"<p>To repeat: <code>{escape(command)}</code></p></footer>"
    )
