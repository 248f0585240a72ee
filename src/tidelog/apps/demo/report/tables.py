"""The report's tables of results, with escaped text.

Invariant: every figure in a table is a compared figure. The tables state only what the outcome
contains.
"""

from collections.abc import Iterable, Sequence
from html import escape

from tidelog.apps.demo.outcome import Audited, Outcome, Records, SparkPart, Sums
from tidelog.apps.demo.timeline import Timeline

SHORT_CHARS = 18
"""A cell with up to this many characters does not wrap."""
LAST_ORDER = "The last order, a minute ahead, closes these windows and is not in any of them"
"""Explains why the sums have one order less than the log and the lake."""

Cell = str | int | float | bool


def table(
    caption: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]], name: str = ""
) -> str:
    """Return an HTML table. Numbers are right-aligned; a bool becomes a tick or a cross."""
    body = list(rows)
    numeric = [
        bool(body) and all(_is_number(row[place]) for row in body) for place in range(len(columns))
    ]
    heads = "".join(
        f'<th scope="col"{" class=n" if right else ""}>{escape(column)}</th>'
        for column, right in zip(columns, numeric, strict=True)
    )
    lines = "".join(
        "<tr>"
        + "".join(_cell(cell, right) for cell, right in zip(row, numeric, strict=True))
        + "</tr>"
        for row in body
    )
    ident = f' id="{escape(name)}"' if name else ""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}">'
        f"<table{ident}><caption>{escape(caption)}</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _is_number(cell: Cell) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _cell(cell: Cell, right: bool) -> str:
    if isinstance(cell, bool):
        css, text = ("good", "✓ holds") if cell else ("bad", "✗ does not hold")
        return f'<td class="ok {css}">{text}</td>'
    text = f"{cell:,}" if isinstance(cell, int) else str(cell)
    css = "n" if right else "s" if len(text) <= SHORT_CHARS else "t"
    return f'<td class="{css}">{escape(text)}</td>'


# -- the tables -----------------------------------------------------------------------


def checks(outcome: Outcome) -> str:
    """Return the table of checks, with their figures and results."""
    rows: list[tuple[Cell, ...]] = [
        (
            "Every order that was sent is acknowledged",
            f"{outcome.log.acknowledged:,} of {outcome.sent:,}, {outcome.failed} failed",
            outcome.sent == outcome.log.acknowledged and not outcome.failed,
        ),
        ("Log: each acknowledged order once, at its offset, in order", *_records(outcome.log)),
        (
            "All replicas are in sync again",
            "brokers " + ", ".join(str(b) for b in outcome.failover.in_sync),
            outcome.all_in_sync,
        ),
    ]
    if outcome.spark is not None:
        rows += _spark_checks(outcome.spark)
    return table("Checks and their results", ["check", "found", "result"], rows, "checks")


def _records(records: Records) -> tuple[str, bool]:
    text = (
        f"{records.found:,} found: {len(records.lost)} lost, {records.repeated} duplicated,"
        f" {records.unexpected} never acknowledged"
    )
    return text, records.holds


def _sums(sums: Sums) -> tuple[str, bool]:
    text = (
        f"{sums.orders:,} orders, {sums.cents / 100:,.2f} in {sums.windows} windows:"
        f" {len(sums.missing)} missing, {len(sums.wrong)} wrong. {LAST_ORDER}"
    )
    return text, sums.holds


def _spark_checks(spark: SparkPart) -> list[tuple[Cell, ...]]:
    audit = spark.audit
    return [
        ("Lake: the same orders in Parquet, each once", *_records(spark.lake)),
        ("Table: the sums of each window and shop are right", *_sums(spark.table)),
        ("Topic: the same sums in the topic that Spark writes", *_sums(spark.topic)),
        (
            "Audit: all replicas' files agree",
            f"{len(audit.replicas)} logs with records, {len(audit.findings)} findings,"
            f" {audit.damage} of them damage",
            audit.holds,
        ),
    ]


def epochs(timeline: Timeline) -> str:
    """Return the table of leader epochs, with start offsets from each replica's epoch cache."""
    starts: dict[int, dict[int, int]] = {}
    for broker, entries in timeline.epochs.items():
        for epoch, start in entries:
            starts.setdefault(epoch, {})[broker] = start
    leader_periods = {period.epoch: period for period in reversed(timeline.leader_periods)}
    rows: list[list[Cell]] = []
    for epoch, by_broker in sorted(starts.items()):
        period = leader_periods.get(epoch)
        row: list[Cell] = [
            f"epoch {epoch}",
            f"broker {period.leader}" if period else "not seen",
            f"{period.from_s:.2f} s" if period else "",
            f"{period.to_s:.2f} s" if period else "",
        ]
        row += [by_broker.get(broker, "none") for broker in timeline.brokers]
        rows.append(row)
    columns = ["epoch", "leader", "seen from", "seen until"]
    columns += [f"start, broker {broker}" for broker in timeline.brokers]
    caption = "Leader epochs, with the start offset in each replica's epoch cache at the end"
    return table(caption, columns, rows, "epochs")


def batches(spark: SparkPart) -> str:
    """Return the table of the Spark job's micro-batches."""
    rows = [
        (
            batch.query,
            batch.number,
            f"{batch.at_s:.1f} s",
            batch.rows,
            f"{batch.from_offset:,} – {batch.to_offset:,}",
            batch.took_ms,
            batch.behind,
            batch.phase,
        )
        for batch in spark.batches
    ]
    columns = [
        "query",
        "batch",
        "done at",
        "rows",
        "offsets",
        "took ms",
        "behind",
        "state of the cluster",
    ]
    return table("Micro-batches with rows, from Spark's progress reports", columns, rows, "batches")


def audit(audited: Audited) -> str:
    """Return the table of audited replicas, and the audit's findings."""
    columns = list(audited.replicas[0]) if audited.replicas else ["replica"]
    rows = [[replica[column] for column in columns] for replica in audited.replicas]
    caption = f"Read from the brokers' folders after they stopped, in {audited.took_s:.1f} s"
    parts = [table(caption, columns, rows, "audit")]
    if audited.findings:
        names = list(audited.findings[0])
        found = [[str(finding[name]) for name in names] for finding in audited.findings]
        parts.append(table("Findings", names, found, "findings"))
    else:
        parts.append("<p>No findings.</p>")
    return "".join(parts)
