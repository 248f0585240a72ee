"""`tidelog model`: check every state of a small cluster."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from tidelog.apps.cli import output
from tidelog.apps.cli.usage import (
    F,
    Section,
    examples,
    format_option,
    history_option,
    policy_option,
    story_file_option,
    usage_error,
    workers_option,
    write_file,
    write_history,
)
from tidelog.apps.near_names import near

if TYPE_CHECKING:
    from tidelog.apps.cli.mutant_hunt import MutantCase
    from tidelog.lab.modelcheck.published.replication import Size

SIZE_PARTS = 4
SIZE_MAX = 9


@click.group(
    cls=Section,
    epilog=examples(
        "tidelog model table --size 3,2,2,2",
        "tidelog model check --policy high-watermark",
        "tidelog model mutants",
    ),
)
def model() -> None:
    """Check every state of a small cluster, and show the shortest counterexample."""


def _size(_ctx: click.Context, _param: click.Parameter, text: str) -> "Size":
    from tidelog.lab.modelcheck.published.replication import Size

    parts = text.split(",")
    if len(parts) != SIZE_PARTS or not all(
        part.isdecimal() and 1 <= int(part) <= SIZE_MAX for part in parts
    ):
        raise click.BadParameter(
            f"{text!r} must be four numbers from 1 to {SIZE_MAX}"
            " (replicas, log size, records, leader epochs), such as 3,2,2,2"
        )
    return Size(*map(int, parts))


@model.command(
    "table",
    epilog=examples(
        "tidelog model table",
        "tidelog model table --size 3,2,2,2",
        "tidelog model table --format json",
    ),
)
@click.option(
    "--size",
    callback=_size,
    default="2,2,2,2",
    show_default=True,
    metavar="R,L,M,E",
    help="Replicas, log size, records, largest leader epoch. Expected results are known for"
    " 2,2,2,2 and 3,2,2,2.",
)
@workers_option()
@format_option()
def table_command(size: "Size", workers: int | None, form: str) -> int:
    """Check the published truncation protocols, and compare with their known results.

    Checks five protocols, from truncation to the high watermark up to KIP-320, and the AsyncIsr
    model of KIP-497. Exit code 0 means that every verdict, the depth of every first violation and
    every state count are as expected.
    """
    from tidelog.apps.cli.rendering import model as rendering
    from tidelog.lab.modelcheck import verdicts

    cases = [*verdicts.table(size), verdicts.async_isr_cases()[0]]
    rows: list[verdicts.Row] = []
    for case in cases:
        known = case.expected.states if case.expected else None
        with output.progress(case.model, known) as show_progress:
            watch = rendering.watcher(show_progress)
            rows += verdicts.run([case], workers=workers, progress=watch)
    data = {"rows": [row.as_data() for row in rows]}
    holds = verdicts.exit_status(rows) == 0
    return output.conclude(form, holds, data, lambda screen: rendering.show_rows(screen, rows))


def _bound(flag: str, default: int, least: int, most: int, text: str) -> Callable[[F], F]:
    return click.option(
        flag, type=click.IntRange(least, most), default=default, show_default=True, help=text
    )


@model.command(
    "check",
    epilog=examples(
        "tidelog model check",
        "tidelog model check --policy high-watermark --story loss.txt",
        "tidelog model check --policy high-watermark --history loss.jsonl",
        "tidelog model check --replicas 3 --messages 0 --max-states 200000",
    ),
)
@policy_option("Truncation rule of the followers")
@_bound("--replicas", 2, 1, 4, "Replicas of the partition.")
@_bound("--records", 2, 0, 4, "Records that clients write.")
@_bound("--leader-epochs", 2, 0, 9, "Largest leader epoch.")
@_bound("--partition-epochs", 2, 0, 20, "Largest partition epoch.")
@_bound(
    "--messages", 1, 0, 4, "Messages in flight; with 0, a request and its response are one step."
)
@_bound("--restarts", 0, 0, 4, "Maximum number of broker restarts.")
@_bound("--min-isr", 1, 1, 4, "min.insync.replicas.")
@_bound(
    "--damages", 0, 0, 4, "How many times a log silently loses its end while its broker is down."
)
@click.option("--max-states", type=click.IntRange(min=1), help="Stop after N states.")
@workers_option()
@story_file_option("Write the shortest counterexample to FILE as a story.")
@history_option(
    "Write the shortest counterexample to FILE as history events, one second for each step."
)
@format_option()
def check_command(  # noqa: PLR0913 - one for each option
    policy: str,
    replicas: int,
    records: int,
    leader_epochs: int,
    partition_epochs: int,
    messages: int,
    restarts: int,
    min_isr: int,
    damages: int,
    max_states: int | None,
    workers: int | None,
    story_file: str | None,
    history_file: str | None,
    form: str,
) -> int:
    """Check the broker's own code: its partitions and the controller's decisions.

    Visits every state within the bounds; with the defaults that takes seconds. Exit code 0 means
    that all states were visited and every invariant holds in each.
    """
    from tidelog.apps.cli.rendering import model as rendering
    from tidelog.lab.historical_truncation import POLICIES
    from tidelog.lab.modelcheck.explorer import explore
    from tidelog.lab.modelcheck.shipped.cluster_model import Bounds, ClusterModel
    from tidelog.lab.retelling.checker_story import retell

    epochs = (leader_epochs, partition_epochs)
    bounds = Bounds(replicas, records, *epochs, messages, restarts, min_isr, damages)
    cluster = ClusterModel(bounds, POLICIES[policy])
    with output.progress("checking", max_states) as show_progress:
        found = explore(
            cluster,
            workers=workers,
            max_states=max_states,
            progress=rendering.watcher(show_progress),
        )
    shortest = rendering.shortest(found)
    report = rendering.Check(cluster, found, shortest)
    if history_file and shortest:
        from tidelog.lab.modelcheck.shipped.path_history import path_events

        write_history(history_file, path_events(cluster, shortest))
    if story_file and shortest:
        retold = retell(cluster, shortest, policy)
        write_file(story_file, retold.text)
        report = rendering.Check(cluster, found, shortest, story_file, retold)
    return output.conclude(form, report.holds, report.as_data(), report.show)


@model.command(
    "lease",
    epilog=examples(
        "tidelog model lease --replicas 2",
        "tidelog model lease --replicas 2 --messages 1 --renewals 1 --losses 1",
        "tidelog model lease --format json",
    ),
)
@_bound("--replicas", 3, 2, 3, "Replicas of the partition.")
@_bound("--records", 1, 0, 3, "Records that clients write.")
@_bound("--messages", 0, 0, 2, "Messages in flight; with 0, a fetch and its response are one step.")
@_bound("--partition-epochs", 3, 0, 9, "Largest partition epoch.")
@_bound("--renewals", 0, 0, 3, "How many times the leader renews its session.")
@_bound("--losses", 0, 0, 3, "How many fetches or responses are lost.")
@click.option("--max-states", type=click.IntRange(min=1), help="Stop after N states.")
@workers_option()
@format_option()
def lease_command(
    replicas: int,
    records: int,
    messages: int,
    partition_epochs: int,
    renewals: int,
    losses: int,
    max_states: int | None,
    workers: int | None,
    form: str,
) -> int:
    """Check the broker's own code while a leader can't reach the metadata store.

    Checks when the leader may serve by the fetches of its followers, and that nothing which it
    acknowledges is lost. Exit code 0 means that all states were visited and every invariant holds
    in each.
    """
    from tidelog.apps.cli.rendering import model as rendering
    from tidelog.lab.modelcheck.explorer import explore
    from tidelog.lab.modelcheck.shipped.lease_model import LeaseBounds, LeaseModel

    bounds = LeaseBounds(replicas, records, messages, partition_epochs, renewals, losses)
    lease = LeaseModel(bounds)
    with output.progress("checking", max_states) as show_progress:
        watch = rendering.watcher(show_progress)
        found = explore(lease, workers=workers, max_states=max_states, progress=watch)
    report = rendering.Check(lease, found, rendering.shortest(found))
    return output.conclude(form, report.holds, report.as_data(), report.show)


@model.command(
    "transactions",
    epilog=examples(
        "tidelog model transactions --failures 0",
        "tidelog model transactions --client-version 1 --no-verification",
        "tidelog model transactions --elections 1 --late-requests 0 --format json",
    ),
)
@_bound("--client-version", 2, 1, 2, "Transaction version of the producers.")
@_bound("--cluster-version", 2, 1, 2, "The cluster's level of transaction.version.")
@click.option(
    "--verification/--no-verification",
    default=True,
    show_default=True,
    help="transaction.partition.verification.enable.",
)
@_bound("--transactions", 1, 1, 3, "Transactions that the first producer begins.")
@_bound("--late-requests", 1, 0, 3, "Requests of producers that stay in the network.")
@_bound("--late-markers", 0, 0, 3, "Markers that are sent twice, once late.")
@_bound("--failures", 1, 0, 3, "How many times the coordinator fails.")
@_bound("--time-outs", 1, 0, 3, "How many transactions time out.")
@_bound(
    "--elections", 0, 0, 3, "Elections of partition leaders; with 0, records are committed at once."
)
@_bound("--epochs-left", 0, 0, 9, "Epochs that the producer id has left; 0: thousands.")
@click.option("--max-states", type=click.IntRange(min=1), help="Stop after N states.")
@workers_option()
@format_option()
def transactions_command(
    max_states: int | None, workers: int | None, form: str, **limits: int
) -> int:
    """Check the broker's own code for transactions: coordinator, markers and partition leaders.

    Two producers of one transactional id write to two partitions; the first one is a zombie once
    the second one starts. Exit code 0 means that all states were visited and every invariant holds
    in each.
    """
    from tidelog.apps.cli.rendering import model as rendering
    from tidelog.lab.modelcheck.explorer import explore
    from tidelog.lab.modelcheck.transactions.model import TransactionBounds, TransactionModel

    transactions = TransactionModel(TransactionBounds(**limits))
    with output.progress("checking", max_states) as show_progress:
        watch = rendering.watcher(show_progress)
        found = explore(transactions, workers=workers, max_states=max_states, progress=watch)
    report = rendering.Check(transactions, found, rendering.shortest(found))
    return output.conclude(form, report.holds, report.as_data(), report.show)


@model.command(
    "mutants",
    epilog=examples(
        "tidelog model mutants --list",
        "tidelog model mutants keep-what-followers-had",
        "tidelog model mutants --format json",
    ),
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--list", "list_only", is_flag=True, help="List the mutants, do not run them.")
@workers_option()
@format_option()
def mutants_command(names: tuple[str, ...], list_only: bool, workers: int | None, form: str) -> int:
    """Remove one rule of the code at a time, and check that the lab finds the bug.

    A mutant is the broker's code without one rule, known from a bug of Kafka or from a published
    model. The model checker or the simulator must find it. Exit code 0 means that all were found.
    """
    from tidelog.apps.cli import mutant_hunt

    chosen = _choose(names, mutant_hunt.all_cases())
    if list_only:
        data = {"mutants": [case.as_data() for case in chosen]}
        return output.conclude(form, True, data, lambda s: mutant_hunt.show_list(s, chosen))
    with output.progress("checking mutants", len(chosen)) as show_progress:
        results = mutant_hunt.check_all(chosen, workers, show_progress)
    data = {"mutants": [result.as_data() for result in results]}
    found = all(result.found for result in results)
    return output.conclude(form, found, data, lambda s: mutant_hunt.show_results(s, results))


def _choose(names: tuple[str, ...], known: "list[MutantCase]") -> "list[MutantCase]":
    by_name = {case.name: case for case in known}
    for name in names:
        if name not in by_name:
            raise usage_error(f"unknown mutant {name!r}; {near(name, by_name)}")
    return [by_name[name] for name in names] or known
