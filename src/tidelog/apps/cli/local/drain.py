"""`tidelog broker drain`: move all replicas off a broker, then unregister it."""

import sys
from typing import TYPE_CHECKING, TypeAlias

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.connection import (
    cluster_options,
    complete_broker,
    connected_cluster,
    moves_wait_option,
)
from tidelog.apps.cli.usage import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from tidelog.apps.changes.drain import Drain, DrainProgress, Moved, View
    from tidelog.apps.changes.reassignment_plan import Plan

Row: TypeAlias = tuple[str, list[int], list[int] | None, str]
"""Partition, replicas before and after, state."""
ROWS_MAX = 20
"""Partitions in a table; JSON lists all."""
PARTS = 100
"""Steps of the progress bar for each partition."""


@click.command(
    "drain",
    epilog=examples(
        "tidelog broker drain 4",
        "tidelog broker drain 4 --plan",
        "tidelog broker drain 4 --throttle 50000000",
        "tidelog broker drain 4 --unregister",
    ),
)
@click.argument("broker", metavar="ID", type=click.IntRange(0), shell_complete=complete_broker)
@click.option("--plan", "plan_only", is_flag=True, help="Show where replicas would go; move none.")
@click.option(
    "--throttle",
    type=click.IntRange(1),
    metavar="BYTES",
    help="Copy at most BYTES a second on each broker. The limit is removed at the end.",
)
@click.option(
    "--unregister",
    is_flag=True,
    help="At the end, unregister the broker even if it is running: it leaves the cluster until it"
    " is restarted. A broker that is down is always unregistered.",
)
@moves_wait_option()
@cluster_options()
def drain(
    broker: int,
    plan_only: bool,
    throttle: int | None,
    unregister: bool,
    wait_s: float,
    bootstrap: str | None,
    timeout_s: float,
    form: str,
) -> int:
    """Move all replicas off a broker, running or dead, then unregister it if it is down.

    Other racks are used first, and brokers with the fewest replicas. Internal topics move too. Run
    the same command again to continue after an interruption. Topics that are created meanwhile may
    get replicas on the broker; these move too. Exit code 0 means that no replica is left.
    """
    from tidelog.apps.changes.drain import Drain

    with connected_cluster(bootstrap, timeout_s) as cluster:
        work = Drain(cluster, broker, throttle)
        if plan_only:
            view = work.check()
            return _conclude_plan(form, broker, view, work.propose(view))
        results = _run(work, wait_s)
        state = work.unregister(running=unregister) if _empty(results) else None
        if state == "unregistered":
            results = _run(work, wait_s)
    return _conclude(form, broker, results, state)


def _run(work: "Drain", wait_s: float) -> "list[Moved]":
    """Move the replicas, with a progress bar if stderr is a terminal."""
    with output.progress("moving replicas", PARTS) as show_progress:

        def report(at: "DrainProgress") -> None:
            done = at.partitions - at.left + at.moving * at.copied / (at.total or 1)
            size = f"{output.size(at.copied)} of {output.size(at.total)}"
            note = f"{at.partitions - at.left} of {at.partitions} partitions, moving {size}"
            show_progress(PARTS * done / (at.partitions or 1), note)

        return work.run(wait_s, report if sys.stderr.isatty() else None)


def _empty(results: "Sequence[Moved]") -> bool:
    return all(each.state == "moved" for each in results)


# -- output ----------------------------------------------------------------------------------


def _conclude_plan(form: str, broker: int, view: "View", plan: "Plan") -> int:
    from tidelog.apps.changes.reassignment_plan import as_document

    rows: list[Row] = [
        (str(key), view.at_rest[key], after, "") for key, after in sorted(plan.items())
    ]
    rows += [
        (str(key), move.origin, move.target, "moving") for key, move in sorted(view.moving.items())
    ]
    rows += [(str(key), view.at_rest[key], None, "blocked") for key in sorted(view.blocked)]
    holds = not view.blocked
    data = {"broker": broker, **as_document(plan), "blocked": [str(key) for key in view.blocked]}

    def show(screen: "Console") -> None:
        _show_rows(screen, rows)
        text = f"broker {broker}: {len(rows)} partitions to move"
        if view.blocked:
            text += f"; {_why_blocked(broker, str(view.blocked[0]), len(view.blocked))}"
        screen.print(output.verdict_line(holds, text))

    return output.conclude(form, holds, data, show)


def _conclude(form: str, broker: int, results: "Sequence[Moved]", state: str | None) -> int:
    holds = _empty(results)
    data = {
        "broker": broker,
        "partitions": [each.as_data() for each in results],
        "unregistered": state == "unregistered",
    }

    def show(screen: "Console") -> None:
        _show_rows(screen, [(each.name, each.before, each.after, each.state) for each in results])
        screen.print(output.verdict_line(holds, _summary(broker, results, state)), soft_wrap=True)

    return output.conclude(form, holds, data, show)


def _summary(broker: int, results: "Sequence[Moved]", state: str | None) -> str:
    moved = sum(each.state == "moved" for each in results)
    if _empty(results):
        text = f"broker {broker} has no replicas left; partitions moved: {moved}; "
        if state == "running":
            return text + (
                "it is still running and registered, and new topics may use it: stop it, and run"
                " this command again to unregister it"
            )
        return text + "it is no longer registered"
    text = f"{moved} of {len(results)} partitions moved"
    blocked = [each.name for each in results if each.state == "blocked"]
    if len(results) - moved > len(blocked):
        text += "; the others are moving or waiting: run this command again to continue"
    if blocked:
        text += f"; {_why_blocked(broker, blocked[0], len(blocked))}"
    return text


def _why_blocked(broker: int, name: str, count: int) -> str:
    topic, _, number = name.rpartition("-")
    more = f" and {count - 1} more have" if count > 1 else " has"
    return (
        f"{name}{more} no leader to copy from: start broker {broker} or another replica's broker,"
        f" see `tidelog partition recover {topic}/{number} --plan`, or delete the topic"
    )


def _show_rows(screen: "Console", rows: "Sequence[Row]") -> None:
    """Print old and new replicas of each partition; those that need attention first."""
    order = ("blocked", "waiting", "moving", "moved", "")
    styles = {"blocked": output.BAD, "waiting": output.WARN, "moving": output.WARN}
    rows = sorted(rows, key=lambda row: order.index(row[3]))
    if not rows:
        return
    table = output.table(("PARTITION", "BEFORE", "AFTER", ""))
    for name, before, after, state in rows[:ROWS_MAX]:
        cell = output.styled(state, styles.get(state, output.GOOD))
        to = output.UNKNOWN if after is None else output.brokers(after)
        table.add_row(name, output.brokers(before), to, cell)
    output.show_table(screen, table)
    if len(rows) > ROWS_MAX:
        more = f"and {len(rows) - ROWS_MAX} more; --format json lists all"
        screen.print(output.indented(output.faint(more)))
