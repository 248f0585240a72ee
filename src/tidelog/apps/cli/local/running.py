"""`tidelog status` and `tidelog down`: show and stop a cluster of this machine."""

import os
from typing import TYPE_CHECKING

import click

from tidelog.apps.cli.usage import examples, format_option

if TYPE_CHECKING:
    from rich.console import Console

    from tidelog.shell.supervisor.cluster_control import BrokerState, Standing

DATA = "tidelog-data"

data_option = click.option(
    "--data", default=DATA, show_default=True, metavar="DIR", help="Data folder of the cluster."
)


@click.command(
    epilog=examples("tidelog status", "tidelog status --data my-data --format json"),
)
@data_option
@format_option()
def status(data: str, form: str) -> int:
    """Show the brokers of a cluster on this machine, and whether they respond.

    Includes brokers that `tidelog up` started, and brokers started by hand in the same folder.
    Exit code 0 means that all of them are up.
    """
    from tidelog.apps.cli import output
    from tidelog.shell.supervisor.cluster_control import look

    standing = look(os.path.abspath(data))
    return output.conclude(
        form, standing.all_up, standing.as_data(), lambda screen: _show(screen, standing)
    )


def _show(screen: "Console", standing: "Standing") -> None:
    from tidelog.apps.cli import output

    if standing.brokers:
        columns = ("broker", "pid", "address", "state", "metrics")
        table = output.table(columns, numbers=("pid",))
        for broker in standing.brokers:
            state = output.mark(broker.state == "up", "up", broker.state)
            name = f"{broker.id} (controller)" if broker.controller else str(broker.id)
            metrics = broker.metrics or "off"
            table.add_row(name, str(broker.pid), broker.address, state, metrics)
        output.show_table(screen, table)
        screen.print(f"logs: {', '.join(_logs(standing.brokers))}", soft_wrap=True)
    screen.print(output.verdict_line(standing.all_up, standing.summary), soft_wrap=True)


def _logs(brokers: "list[BrokerState]") -> list[str]:
    """Return the log files: the first with its folder, the others relative to it."""
    first, *more = dict.fromkeys(broker.log for broker in brokers)
    folder = os.path.dirname(first)
    return [first, *(os.path.relpath(log, folder) for log in more)]


@click.command(
    epilog=examples("tidelog down", "tidelog down --data my-data --wait 5"),
)
@data_option
@click.option(
    "--wait",
    type=click.FloatRange(0),
    default=40.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for a clean stop; after that, processes are killed.",
)
@format_option()
def down(data: str, wait: float, form: str) -> int:
    """Stop a cluster on this machine, including brokers that were started by hand.

    The data is kept, except that of `tidelog up --ephemeral`. Exit code 0 means that all brokers
    stopped cleanly.
    """
    from tidelog.apps.cli import output
    from tidelog.shell.supervisor.cluster_control import take_down

    folder = os.path.abspath(data)
    if not os.path.isdir(folder):
        raise click.UsageError(f"folder {data} does not exist", click.get_current_context())
    ending = take_down(folder, wait)
    return output.conclude(
        form,
        ending.clean,
        ending.as_data(),
        lambda screen: screen.print(
            output.verdict_line(ending.clean, ending.summary), soft_wrap=True
        ),
    )
